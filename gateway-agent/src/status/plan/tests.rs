use std::collections::BTreeMap;

use serde_json::json;

use super::{acknowledged, join};
use crate::snapshot::{ListenerKey, Revision, Transport};
use crate::status::{Applied, Scope, Served, StatusList};
use crate::store::Store;
use crate::store::testing::{gateway, with_spec};
use crate::translate::{Config, translate};

const REVISION: Revision = Revision(7);

fn config() -> Config {
    Config { local_addresses: vec!["192.0.2.1".parse().unwrap()], ..Config::default() }
}

/// A Gateway with listeners `http` on 80 and `tcp` on 90.
fn statuses() -> StatusList {
    let listeners = json!([
        {"name": "http", "protocol": "HTTP", "port": 80}, {"name": "tcp", "protocol": "TCP", "port": 90},
    ]);
    translated(&[gateway("gw", listeners)])
}

fn translated(objects: &[crate::api::Object]) -> StatusList {
    let mut store = Store::default();
    store.replace_all(objects);
    translate(&store, &config()).statuses
}

fn applied(revision: u64, listeners: &[(u16, Served)]) -> Applied {
    let key =
        |port: u16| ListenerKey { transport: Transport::Tcp, address: None, port: port.try_into().unwrap() };
    let listeners: BTreeMap<_, _> =
        listeners.iter().map(|(port, served)| (key(*port), served.clone())).collect();
    Applied { revision: Revision(revision), listeners }
}

fn both_by(mechanism: &'static str) -> Applied {
    applied(7, &[(80, Served::By(mechanism)), (90, Served::By(mechanism))])
}

fn failed(reason: &'static str) -> Served {
    Served::Failed { reason, message: "port 80 is taken".into() }
}

/// `STATUS/REASON: message` of a condition of the Gateway (section "") or of one of its listeners.
fn condition(statuses: &StatusList, section: &str, kind: &str) -> (String, String) {
    let scope = if section.is_empty() { Scope::Object } else { Scope::Listener(section.into()) };
    let found = statuses.iter().next().unwrap().scope(&scope).unwrap().condition(kind).unwrap();
    (format!("{:?}/{}", found.status, found.reason), found.message.clone())
}

fn verdict(statuses: &StatusList, section: &str, kind: &str) -> String {
    condition(statuses, section, kind).0
}

#[test]
fn programmed_takes_the_word_of_the_proxy() {
    let joined = join(&statuses(), REVISION, &both_by("bind"), None);
    for section in ["", "http", "tcp"] {
        assert_eq!(verdict(&joined, section, "Programmed"), "True/Programmed", "{section}");
    }
    assert_eq!(condition(&joined, "tcp", "Programmed").1, "tcp/*:90 by bind");
}

#[test]
fn programmed_names_both_data_paths() {
    let kernel = applied(7, &[(90, Served::By("tcx"))]);
    let joined = join(&statuses(), REVISION, &both_by("sk_lookup"), Some(&kernel));
    assert_eq!(condition(&joined, "tcp", "Programmed").1, "tcp/*:90 by tcx, relay by sk_lookup");
    assert_eq!(condition(&joined, "http", "Programmed").1, "tcp/*:80 by sk_lookup");
    let kernel = applied(7, &[(90, Served::Left("endpoint on loopback".into()))]);
    let joined = join(&statuses(), REVISION, &both_by("bind"), Some(&kernel));
    assert_eq!(condition(&joined, "tcp", "Programmed").1, "tcp/*:90 by bind (endpoint on loopback)");
}

// The client is told by the kernel: there is nothing to wait for.
#[test]
fn port_that_is_closed_for_want_of_endpoints_is_programmed() {
    let joined = join(&statuses(), REVISION, &both_by("closed"), Some(&applied(7, &[])));
    let expected = ("True/Programmed".into(), "tcp/*:90 is closed: no endpoint is usable".into());
    assert_eq!(condition(&joined, "tcp", "Programmed"), expected);
}

#[test]
fn nothing_is_programmed_before_both_spoke_of_the_revision() {
    let stale_proxy = applied(6, &[(80, Served::By("bind")), (90, Served::By("bind"))]);
    let stale_kernel = applied(6, &[]);
    let proxy = both_by("bind");
    for (proxy, kernel) in [
        (&stale_proxy, None),
        (&proxy, Some(&stale_kernel)),
        (&applied(7, &[]), None),
        (&Applied::default(), None),
    ] {
        let joined = join(&statuses(), REVISION, proxy, kernel);
        for section in ["", "http", "tcp"] {
            assert_eq!(verdict(&joined, section, "Programmed"), "False/Pending", "{section}");
        }
        assert_eq!(verdict(&joined, "", "Accepted"), "True/Accepted");
    }
    assert!(acknowledged(REVISION, &proxy, None) && !acknowledged(REVISION, &proxy, Some(&stale_kernel)));
    assert!(!acknowledged(REVISION, &stale_proxy, None));
}

#[test]
fn taken_port_takes_accepted_back() {
    let proxy = applied(7, &[(80, failed("PortUnavailable")), (90, Served::By("bind"))]);
    let joined = join(&statuses(), REVISION, &proxy, None);
    assert_eq!(
        condition(&joined, "http", "Accepted"),
        ("False/PortUnavailable".into(), "port 80 is taken".into())
    );
    assert_eq!(verdict(&joined, "http", "Programmed"), "False/Invalid");
    assert_eq!(verdict(&joined, "", "Accepted"), "True/ListenersNotValid");
    assert_eq!(verdict(&joined, "", "Programmed"), "True/Programmed");
    assert_eq!(condition(&joined, "", "Programmed").1, "served, except: http");

    let proxy = applied(7, &[(80, failed("PortUnavailable")), (90, failed("PortUnavailable"))]);
    let joined = join(&statuses(), REVISION, &proxy, None);
    assert_eq!(verdict(&joined, "", "Accepted"), "False/ListenersNotValid");
    assert_eq!(verdict(&joined, "", "Programmed"), "False/Invalid");
}

#[test]
fn other_failures_leave_accepted_alone() {
    let proxy = applied(7, &[(80, failed("Invalid")), (90, Served::By("bind"))]);
    let joined = join(&statuses(), REVISION, &proxy, None);
    assert_eq!(verdict(&joined, "http", "Accepted"), "True/Accepted");
    assert_eq!(verdict(&joined, "http", "Programmed"), "False/Invalid");
    let kernel = applied(7, &[(90, failed("Invalid"))]);
    let joined = join(&statuses(), REVISION, &both_by("bind"), Some(&kernel));
    assert_eq!(verdict(&joined, "tcp", "Programmed"), "False/Invalid");
}

#[test]
fn listener_that_is_not_accepted_is_not_programmed() {
    let listeners = json!([
        {"name": "http", "protocol": "HTTP", "port": 80}, {"name": "odd", "protocol": "INVALID", "port": 90},
    ]);
    let joined = join(&translated(&[gateway("gw", listeners)]), REVISION, &both_by("bind"), None);
    assert_eq!(verdict(&joined, "odd", "Programmed"), "False/Invalid");
    assert_eq!(verdict(&joined, "", "Accepted"), "True/ListenersNotValid");
    assert_eq!(verdict(&joined, "", "Programmed"), "True/Programmed");
}

#[test]
fn gateway_that_is_not_accepted_or_has_no_address_is_not_programmed() {
    let spec = |address: serde_json::Value| {
        json!({"gatewayClassName": "gateway-agent", "addresses": [address],
            "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]})
    };
    for (address, accepted, programmed) in [
        (json!({"type": "Hostname", "value": "x"}), "False/UnsupportedAddress", "False/Invalid"),
        (json!({"value": "198.51.100.7"}), "True/Accepted", "False/AddressNotUsable"),
    ] {
        let objects = [with_spec("Gateway", "gw", spec(address))];
        let joined = join(&translated(&objects), REVISION, &both_by("bind"), None);
        assert_eq!(verdict(&joined, "", "Accepted"), accepted);
        assert_eq!(verdict(&joined, "", "Programmed"), programmed);
        assert_eq!(verdict(&joined, "http", "Programmed"), "False/Invalid");
    }
}

#[test]
fn note_of_the_gateway_survives() {
    let spec = json!({"gatewayClassName": "gateway-agent", "infrastructure": {"labels": {"a": "b"}},
        "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]});
    let statuses = translated(&[with_spec("Gateway", "gw", spec)]);
    let joined = join(&statuses, REVISION, &both_by("bind"), None);
    assert!(condition(&joined, "", "Accepted").1.contains("spec.infrastructure.labels"));
    let proxy = applied(7, &[(80, failed("PortUnavailable"))]);
    let joined = join(&statuses, REVISION, &proxy, None);
    let (accepted, message) = condition(&joined, "", "Accepted");
    assert_eq!(accepted, "False/ListenersNotValid");
    assert!(message.contains("spec.infrastructure.labels"), "{message}");
}

#[test]
fn conditions_come_in_one_order() {
    let joined = join(&statuses(), REVISION, &both_by("bind"), None);
    let kinds = |scope: usize| -> Vec<&str> {
        joined.iter().next().unwrap().scopes[scope]
            .conditions
            .iter()
            .map(|condition| condition.kind)
            .collect()
    };
    assert_eq!(kinds(0), ["Accepted", "Programmed"]);
    assert_eq!(kinds(1), ["Accepted", "Programmed", "ResolvedRefs", "Conflicted"]);
}

#[test]
fn joining_again_changes_nothing() {
    let joined = join(&statuses(), REVISION, &both_by("bind"), None);
    assert_eq!(joined, join(&statuses(), REVISION, &both_by("bind"), None));
}

/// Conditions of the ListenerSet `set`, whose entries are `one` on 81 and `two` on 82, beside the Gateway of
/// [`statuses`].
fn of_set(statuses: &StatusList, section: &str, kind: &str) -> String {
    let scope = if section.is_empty() { Scope::Object } else { Scope::Listener(section.into()) };
    let set = statuses.iter().find(|status| status.kind == "ListenerSet").unwrap();
    let found = set.scope(&scope).unwrap().condition(kind).unwrap();
    format!("{:?}/{}", found.status, found.reason)
}

fn with_set(allowed: &str, second: serde_json::Value) -> StatusList {
    let spec = json!({"gatewayClassName": "gateway-agent", "allowedListeners": {"namespaces": {"from": allowed}},
        "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}, {"name": "tcp", "protocol": "TCP", "port": 90}]});
    let set = json!({"parentRef": {"name": "gw"},
        "listeners": [{"name": "one", "protocol": "HTTP", "port": 81}, second]});
    translated(&[with_spec("Gateway", "gw", spec), with_spec("ListenerSet", "set", set)])
}

#[test]
fn listener_set_is_programmed_when_one_of_its_entries_is() {
    let two = json!({"name": "two", "protocol": "HTTP", "port": 82});
    let by_bind = || Served::By("bind");
    let of_gateway = [(80, by_bind()), (90, by_bind())];
    for (entries, one, two_is, set) in [
        (vec![(81, by_bind()), (82, by_bind())], "True/Programmed", "True/Programmed", "True/Programmed"),
        (
            vec![(81, by_bind()), (82, failed("Invalid"))],
            "True/Programmed",
            "False/Invalid",
            "True/Programmed",
        ),
        (vec![(81, by_bind())], "True/Programmed", "False/Pending", "False/Pending"),
        (
            vec![(81, failed("PortUnavailable")), (82, failed("PortUnavailable"))],
            "False/PortUnavailable",
            "False/PortUnavailable",
            "False/ListenersNotValid",
        ),
    ] {
        let served: Vec<_> = of_gateway.iter().cloned().chain(entries).collect();
        let joined = join(&with_set("All", two.clone()), REVISION, &applied(7, &served), None);
        assert_eq!(of_set(&joined, "one", "Programmed"), one);
        assert_eq!(of_set(&joined, "two", "Programmed"), two_is);
        assert_eq!(of_set(&joined, "", "Programmed"), set);
    }
}

#[test]
fn conflicting_entry_of_a_listener_set_has_one_reason_everywhere() {
    let two = json!({"name": "two", "protocol": "HTTP", "port": 80});
    let served = applied(7, &[(80, Served::By("bind")), (81, Served::By("bind")), (90, Served::By("bind"))]);
    let joined = join(&with_set("All", two), REVISION, &served, None);
    for kind in ["Accepted", "Programmed"] {
        assert_eq!(of_set(&joined, "two", kind), "False/HostnameConflict");
    }
    assert_eq!(of_set(&joined, "", "Accepted"), "True/ListenersNotValid");
    assert_eq!(of_set(&joined, "", "Programmed"), "True/Programmed");
}

#[test]
fn listener_set_that_is_not_allowed_stays_so() {
    let two = json!({"name": "two", "protocol": "HTTP", "port": 82});
    let joined = join(&with_set("None", two), REVISION, &both_by("bind"), None);
    for kind in ["Accepted", "Programmed"] {
        assert_eq!(of_set(&joined, "", kind), "False/NotAllowed");
    }
}

// Translation's own word on Programmed stands: no certificate, no service.
#[test]
fn listener_without_a_certificate_is_not_programmed_whatever_the_data_path_says() {
    let listeners = json!([
        {"name": "http", "protocol": "HTTP", "port": 80},
        {"name": "web", "protocol": "HTTPS", "port": 443, "tls": {"certificateRefs": [{"name": "absent"}]}},
    ]);
    let served = applied(7, &[(80, Served::By("bind")), (443, Served::By("bind"))]);
    let joined = join(&translated(&[gateway("gw", listeners)]), REVISION, &served, None);
    assert_eq!(verdict(&joined, "web", "Accepted"), "True/Accepted");
    assert_eq!(verdict(&joined, "web", "Programmed"), "False/Invalid");
    assert_eq!(verdict(&joined, "", "Programmed"), "True/Programmed");
}
