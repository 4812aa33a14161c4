//! Properties: what translation must not depend on.

use proptest::prelude::*;
use serde_json::json;

use super::scenario::run;
use crate::api::Object;
use crate::store::testing::{aged, backend};

/// Gateways and routes that compete for the same ports and hostnames, some of the same age.
fn competitors() -> Vec<Object> {
    let mut objects = Vec::new();
    for (index, name) in ["x", "y", "z"].into_iter().enumerate() {
        let second = [5, 5, 3][index];
        let listeners = json!([
            {"name": "a", "protocol": "HTTP", "port": 80, "hostname": (["", "*.example", ""][index])},
            {"name": "b", "protocol": (["TCP", "HTTP", "UDP"][index]), "port": 81},
        ]);
        let spec = json!({"gatewayClassName": "gateway-agent", "listeners": listeners});
        objects.push(aged("Gateway", name, second, spec));
        objects.extend(backend(&format!("svc-{name}"), &[&format!("10.0.0.{}", index + 1)]));
    }
    for index in 0..6_usize {
        let hostnames =
            [json!([]), json!(["a.example"]), json!(["*.example", "b.example"])][index % 3].clone();
        let parents = json!([{"name": "x"}, {"name": "y"}, {"name": "z"}]);
        let backends = json!([{"name": format!("svc-{}", ["x", "y", "z"][index % 3]), "port": 80}]);
        let rules = json!([{"backendRefs": backends}]);
        let second = [7, 7, 1][index % 3];
        let http = json!({"parentRefs": parents, "hostnames": hostnames, "rules": rules});
        objects.push(aged("HTTPRoute", &format!("h{index}"), second, http));
        let tcp = json!({"parentRefs": parents, "rules": rules});
        objects.push(aged("TCPRoute", &format!("t{index}"), second, tcp));
    }
    objects
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn translation_does_not_depend_on_the_order_of_objects_with_an_age(
        shuffled in Just(competitors()).prop_shuffle()
    ) {
        prop_assert_eq!(run(&shuffled), run(&competitors()));
    }

    #[test]
    fn history_of_the_store_leaves_no_trace(shuffled in Just(competitors()).prop_shuffle(), split in 0..20_usize) {
        let mut store = crate::store::Store::default();
        store.replace_all(&shuffled[..split]);
        for object in &shuffled {
            store.apply(object);
        }
        prop_assert_eq!(crate::translate::translate(&store, &super::scenario::config()), run(&competitors()));
    }
}

// Nothing may be quadratic in the number of routes or hostnames.
#[test]
fn five_thousand_routes_translate_well_within_a_bound() {
    let listeners = json!([{"name": "http", "protocol": "HTTP", "port": 80}]);
    let mut objects = vec![crate::store::testing::gateway("gw", listeners)];
    objects.push(super::scenario::http_route("any", &[], &["svc-0"]));
    for index in 0..5_000_usize {
        let hostname = format!("h{index}.example.com");
        let service = format!("svc-{}", index % 100);
        objects.push(super::scenario::http_route(&format!("r{index}"), &[&hostname], &[&service]));
    }
    for index in 0..100_usize {
        objects.extend(backend(&format!("svc-{index}"), &[&format!("10.0.0.{index}")]));
    }
    let mut store = crate::store::Store::default();
    store.replace_all(&objects);
    let begin = std::time::Instant::now();
    let done = crate::translate::translate(&store, &super::scenario::config());
    let took = begin.elapsed();
    assert_eq!(done.get("h4999.example.com", "/"), "10.0.0.99:8080 x1");
    assert_eq!(done.get("other.example.com", "/"), "10.0.0.0:8080 x1");
    assert!(took < std::time::Duration::from_secs(10), "took {took:?}");
    println!("took {took:?}");
}
