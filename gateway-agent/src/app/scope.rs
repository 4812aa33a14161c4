//! What the scope ConfigMap tells of this agent.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::report::AdminSource;
use crate::args::ServeArgs;
use crate::cluster::{self, ReplicaReport, ScopeFacts};
use crate::features;

/// Data paths are behind for milliseconds with every change; that long is worth telling.
const LAG_S: u64 = 5;

/// What all replicas have in common.
pub(super) fn facts(args: &ServeArgs, scope: &cluster::Scope) -> ScopeFacts {
    ScopeFacts {
        version: env!("CARGO_PKG_VERSION").into(),
        controller_name: args.controller_name.clone(),
        namespaces: match scope {
            cluster::Scope::All => None,
            cluster::Scope::Namespaces(names) => Some(names.iter().map(ToString::to_string).collect()),
        },
        gateway: args.cluster.gateway.as_ref().map(ToString::to_string),
        features: features::SUPPORTED.iter().map(ToString::to_string).collect(),
    }
}

/// How this replica does, whenever it is asked.
pub(super) fn report(source: Rc<AdminSource>, node: Option<String>) -> Rc<dyn Fn() -> ReplicaReport> {
    let behind_since = Cell::new(None);
    Rc::new(move || {
        let control = source.control.borrow();
        let (proxy, kernel) = (source.proxy.borrow().clone(), source.kernel.borrow().clone());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let is_behind = control.revision().0 > 0 && !control.is_acknowledged(&proxy, &kernel);
        let since = is_behind.then(|| behind_since.get().unwrap_or(now));
        behind_since.set(since);
        let paths = source.monitor.paths();
        let unwatched = source.cluster.as_ref().map(super::cluster::ClusterView::unwatched);
        ReplicaReport {
            version: env!("CARGO_PKG_VERSION").into(),
            node: node.clone(),
            revision: control.revision().0,
            lagging_since: since.filter(|since| now.saturating_sub(*since) >= LAG_S),
            is_synced: control.is_synced(),
            datapaths: BTreeMap::from([
                ("l4".to_owned(), paths.l4.mechanism.unwrap_or("userspace").to_owned()),
                ("steering".to_owned(), paths.steering.mechanism.unwrap_or("bind").to_owned()),
            ]),
            unwatched: unwatched.unwrap_or_default(),
        }
    })
}
