//! Shared by the tests: objects in, what a client or a user would see out.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use crate::api::Object;
use crate::certificate::Authorities;
use crate::snapshot::{
    Backend, BackendSecurity, HttpAction, HttpTable, L4Service, ListenerKey, Protocol, RequestView, Split,
    TlsTable, Transport,
};
use crate::status::names::kind;
use crate::status::{ConditionStatus, ListenerFacts, ObjectStatus, Scope};
use crate::store::Store;
use crate::store::testing::object;
use crate::translate::{Config, Translation, translate};

pub(super) fn config() -> Config {
    Config {
        local_addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        system_authorities: Some(system_authorities()),
        ..Config::default()
    }
}

/// The same for all: configurations are compared.
pub(super) fn system_authorities() -> Arc<Authorities> {
    static SYSTEM: OnceLock<Arc<Authorities>> = OnceLock::new();
    let make = || Arc::new(Authorities::parse(authority_pem().as_bytes()).unwrap());
    SYSTEM.get_or_init(make).clone()
}

pub(super) fn run(objects: &[Object]) -> Translation {
    run_with(objects, &config())
}

pub(super) fn run_with(objects: &[Object], config: &Config) -> Translation {
    let mut store = Store::default();
    store.replace_all(objects);
    translate(&store, config)
}

/// A route of `kind` with one parentRef to the Gateway `gw` of its namespace.
pub(super) fn route(kind: &str, name: &str, spec: Value) -> Object {
    let mut spec = spec;
    if spec.get("parentRefs").is_none() {
        spec["parentRefs"] = json!([{"name": "gw"}]);
    }
    crate::store::testing::with_spec(kind, name, spec)
}

/// An HTTPRoute with one rule: every path to the Services.
pub(super) fn http_route(name: &str, hostnames: &[&str], services: &[&str]) -> Object {
    let backends: Vec<Value> = services.iter().map(|service| json!({"name": service, "port": 80})).collect();
    route("HTTPRoute", name, json!({"hostnames": hostnames, "rules": [{"backendRefs": backends}]}))
}

/// A Secret with these texts as chain and key.
pub(super) fn secret(name: &str, chain: &str, key: &str) -> Object {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    object(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": {"tls.crt": chain, "tls.key": key},
    }))
}

/// A Secret with a new certificate for a DNS name.
pub(super) fn certificate(name: &str, dns_name: &str) -> Object {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new([dns_name.to_owned()]).unwrap().self_signed(&key).unwrap();
    secret(name, &certificate.pem(), &key.serialize_pem())
}

/// A ConfigMap with the certificate of an authority, or with none that can be read.
pub(super) fn authority(name: &str, is_good: bool) -> Object {
    let text = if is_good { authority_pem() } else { "garbage".to_owned() };
    object(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
        "data": {"ca.crt": text},
    }))
}

fn authority_pem() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem()
}

pub(super) struct Request<'a> {
    pub(super) path: &'a str,
    pub(super) method: &'a str,
    pub(super) headers: &'a [(&'a str, &'a str)],
}

impl RequestView for Request<'_> {
    fn path(&self) -> &str {
        self.path
    }

    fn method(&self) -> &str {
        self.method
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(candidate, _)| *candidate == name).map(|(_, value)| value.as_bytes())
    }

    fn query(&self) -> Option<&str> {
        None
    }
}

pub(super) fn key(text: &str) -> ListenerKey {
    let (transport, rest) = text.split_once('/').unwrap();
    let (address, port) = rest.rsplit_once(':').unwrap();
    ListenerKey {
        transport: if transport == "udp" { Transport::Udp } else { Transport::Tcp },
        address: (address != "*").then(|| address.trim_matches(['[', ']']).parse::<IpAddr>().unwrap()),
        port: port.parse().unwrap(),
    }
}

impl Translation {
    pub(super) fn keys(&self) -> Vec<String> {
        self.listeners.iter().map(|listener| listener.key.to_string()).collect()
    }

    pub(super) fn protocol(&self, entry: &str) -> &Protocol {
        let found = self.listeners.iter().find(|listener| listener.key == key(entry));
        &found.unwrap_or_else(|| panic!("no entry {entry} among {:?}", self.keys())).protocol
    }

    pub(super) fn http(&self, entry: &str) -> &HttpTable {
        match self.protocol(entry) {
            Protocol::Http(table) => table,
            // Those that terminate TLS on a port share theirs.
            Protocol::Tls(table) => table.http_tables().next().expect("a listener that terminates TLS"),
            other => panic!("{entry} is {}", other.as_str()),
        }
    }

    pub(super) fn tls(&self, entry: &str) -> &TlsTable {
        match self.protocol(entry) {
            Protocol::Tls(table) => table,
            other => panic!("{entry} is {}", other.as_str()),
        }
    }

    pub(super) fn l4(&self, entry: &str) -> &L4Service {
        match self.protocol(entry) {
            Protocol::Tcp(service) | Protocol::Udp(service) => service,
            other => panic!("{entry} is {}", other.as_str()),
        }
    }

    /// What a GET on port 80 comes to: see [`Self::request`].
    pub(super) fn get(&self, host: &str, path: &str) -> String {
        self.request("tcp/*:80", "GET", host, path, &[])
    }

    /// `404`, a status that the proxy answers with, or the backends with their weights: `10.0.0.1:8080+10.0.0.2:8080 x1`.
    pub(super) fn request(
        &self,
        entry: &str,
        method: &str,
        host: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> String {
        let request = Request { path, method, headers };
        let listener = self.http(entry).listeners.lookup(host);
        match listener.and_then(|listener| listener.find(host, &request)) {
            None => "404".into(),
            Some(rule) => match &rule.action {
                HttpAction::Redirect(redirect) => redirect.status.to_string(),
                HttpAction::Respond(status) => status.to_string(),
                HttpAction::Forward(split) => split_text(split),
            },
        }
    }

    /// The backends for a server name: `closed`, or as in [`Self::request`].
    pub(super) fn server_name(&self, entry: &str, name: &str) -> String {
        let listener = self.tls(entry).listeners.lookup(name);
        let rule = listener.and_then(|listener| listener.mode.hosts()?.lookup(name));
        rule.map_or_else(|| "closed".into(), |rule| split_text(&rule.split))
    }

    pub(super) fn status(&self, kind: &str, name: &str) -> &ObjectStatus {
        let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
        let is_it = |status: &&Arc<ObjectStatus>| {
            status.kind == kind && &*status.name.namespace == namespace && &*status.name.name == name
        };
        self.statuses.iter().find(is_it).unwrap_or_else(|| panic!("no status of {kind} {namespace}/{name}"))
    }

    /// A Gateway's own condition: `True/Accepted`.
    pub(super) fn gateway(&self, name: &str, condition: &str) -> String {
        self.condition("Gateway", name, |scope| *scope == Scope::Object, condition)
    }

    pub(super) fn listener(&self, gateway: &str, section: &str, condition: &str) -> String {
        let wanted = Scope::Listener(section.into());
        self.condition("Gateway", gateway, |scope| *scope == wanted, condition)
    }

    /// A ListenerSet's own condition, or that of one of its listeners.
    pub(super) fn set(&self, name: &str, section: &str, condition: &str) -> String {
        let wanted = if section.is_empty() { Scope::Object } else { Scope::Listener(section.into()) };
        self.condition("ListenerSet", name, |scope| *scope == wanted, condition)
    }

    /// A policy's condition at the Gateway `gw`.
    pub(super) fn ancestor(&self, policy: &str, condition: &str) -> String {
        let is_it = |scope: &Scope| matches!(scope, Scope::Ancestor { gateway } if &*gateway.name == "gw");
        self.condition("BackendTLSPolicy", policy, is_it, condition)
    }

    pub(super) fn attached(&self, gateway: &str, section: &str) -> usize {
        self.listener_facts(gateway, section).attached_routes
    }

    pub(super) fn kinds(&self, gateway: &str, section: &str) -> Vec<&'static str> {
        self.listener_facts(gateway, section).supported_kinds.clone()
    }

    fn listener_facts(&self, gateway: &str, section: &str) -> &ListenerFacts {
        let scope = self.status("Gateway", gateway).scope(&Scope::Listener(section.into()));
        scope.and_then(|scope| scope.listener()).expect("a listener")
    }

    /// A route's condition at its parentRef at this position.
    pub(super) fn parent(&self, kind: &str, name: &str, position: usize, condition: &str) -> String {
        let is_it = |scope: &Scope| matches!(scope, Scope::Parent { index, .. } if *index == position);
        self.condition(kind, name, is_it, condition)
    }

    fn condition(&self, kind: &str, name: &str, scope: impl Fn(&Scope) -> bool, condition: &str) -> String {
        let status = self.status(kind, name);
        let found = status.scopes.iter().find(|candidate| scope(&candidate.scope));
        let found = found.unwrap_or_else(|| panic!("no such scope in {status:#?}"));
        match found.condition(condition) {
            None => "absent".into(),
            Some(found) => format!("{:?}/{}", found.status, found.reason),
        }
    }

    /// The message of the condition that is not as it should be.
    pub(super) fn complaint(&self, kind: &str, name: &str) -> String {
        let conditions = self.status(kind, name).scopes.iter().flat_map(|scope| &scope.conditions);
        let is_bad = |condition: &&crate::status::Condition| {
            let good = !kind::is_negative(condition.kind);
            (condition.status == ConditionStatus::True) != good
        };
        conditions.into_iter().find(is_bad).map(|condition| condition.message.clone()).unwrap_or_default()
    }
}

fn split_text(split: &Split) -> String {
    let backends = split.backends.iter().map(|backend| {
        let target = match &backend.backend {
            Backend::Invalid => "invalid".into(),
            Backend::Endpoints(set) if set.addresses.is_empty() => "empty".into(),
            Backend::Endpoints(set) => {
                let addresses: Vec<String> = set.addresses.iter().map(ToString::to_string).collect();
                match &set.security {
                    BackendSecurity::Cleartext => addresses.join("+"),
                    BackendSecurity::Refused => "refused".into(),
                    BackendSecurity::Tls(tls) => format!("tls {} {}", tls.server_name, addresses.join("+")),
                }
            }
        };
        format!("{target} x{}", backend.weight)
    });
    backends.collect::<Vec<_>>().join(", ")
}
