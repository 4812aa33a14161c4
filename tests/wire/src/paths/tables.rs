//! Tables of many routes, and looks into them.

use std::hint::black_box;
use std::sync::Arc;

use super::Work;
use crate::snapshot::{
    HostTable, HttpAction, HttpMatch, HttpRouteMatch, HttpRule, HttpTable, HttpVirtualListener, ListenerName,
    ObjectName, PathMatch, RequestView, RouteKind, RouteName, Scheme, VirtualHost,
};

/// Looks that take turns, so that what the last one left in the caches is of little use to the next.
const LOOKS: usize = 4096;

struct Asked {
    host: String,
    path: String,
}

impl RequestView for Asked {
    fn path(&self) -> &str {
        &self.path
    }

    fn method(&self) -> &str {
        "GET"
    }

    fn header(&self, _: &str) -> Option<&[u8]> {
        None
    }

    fn query(&self) -> Option<&str> {
        None
    }
}

/// Each host with this many paths. Every route is an object of its own, as in a cluster.
pub(super) fn table(n_hosts: usize, n_paths: usize) -> HttpTable {
    let gateway = ObjectName::new("default", "gateway");
    let mut hosts = HostTable::default();
    for host in 0..n_hosts {
        let matches = (0..n_paths).map(|path| prefix(host, path)).collect();
        hosts.insert(Some(&host_name(host)), Arc::new(VirtualHost::new(matches)));
    }
    let listener = HttpVirtualListener {
        name: ListenerName::of_gateway(&gateway, &"http".into()),
        port: 80,
        scheme: Scheme::Http,
        client_certificate: None,
        provenance: Arc::default(),
        hosts,
        grpc: HostTable::default(),
    };
    let mut listeners = HostTable::default();
    listeners.insert(None, Arc::new(listener));
    HttpTable { listeners }
}

fn host_name(host: usize) -> String {
    format!("host-{host}.example.com")
}

fn prefix(host: usize, path: usize) -> HttpMatch {
    let object = ObjectName::new("default", format!("route-{host}-{path}"));
    let route = RouteName { kind: RouteKind::Http, object };
    let path = PathMatch::Prefix(format!("/service-{path}").into());
    HttpMatch {
        conditions: Arc::new(HttpRouteMatch::by_path(path)),
        rule: Arc::new(HttpRule::new(route, 0, HttpAction::Respond(200))),
    }
}

/// Finds the route of a request.
pub(super) fn lookup(n_hosts: usize, n_paths: usize) -> Work {
    let table = table(n_hosts, n_paths);
    // The step is odd and no multiple of five: every host, or path, gets its turn.
    let nth = |n: usize, of: usize| (n * 7919) % of;
    let asked = |n: usize| Asked {
        host: host_name(nth(n, n_hosts)),
        path: format!("/service-{}/items/42", nth(n, n_paths)),
    };
    let asked: Vec<Asked> = (0..LOOKS).map(asked).collect();
    Box::new(move |n| {
        let asked = &asked[n % LOOKS];
        let listener = table.listeners.lookup(black_box(&asked.host)).expect("a listener");
        black_box(listener.find(&asked.host, asked).expect("a route"));
    })
}
