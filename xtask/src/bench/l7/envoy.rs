//! The site in Envoy's words: a static configuration with one virtual host for each route.
//!
//! **Invariant:** no I/O.

use serde_json::{Value, json};

use super::CURVE;
use super::scenario::Site;

/// Under which type Envoy knows an extension.
fn kind(name: &str) -> String {
    format!("type.googleapis.com/envoy.extensions.{name}")
}

pub(super) fn configuration(site: &Site) -> Value {
    json!({ "static_resources": { "listeners": [listener(site)], "clusters": [cluster(site)] } })
}

fn listener(site: &Site) -> Value {
    let hosts: Vec<Value> = site
        .hosts()
        .map(|host| {
            json!({
                "name": host, "domains": [host],
                "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": "web" } }],
            })
        })
        .collect();
    let mut chain = json!({ "filters": [{
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": kind("filters.network.http_connection_manager.v3.HttpConnectionManager"),
            "stat_prefix": "web",
            "codec_type": "AUTO",
            // The client's address and scheme are told to the backend; an identity for each request is not made.
            "use_remote_address": true,
            "generate_request_id": false,
            "route_config": { "name": "web", "virtual_hosts": hosts },
            "http_filters": [{
                "name": "envoy.filters.http.router",
                "typed_config": { "@type": kind("filters.http.router.v3.Router"), "suppress_envoy_headers": true },
            }],
        },
    }]});
    if let Some(files) = &site.tls {
        let protocol = if site.scenario.is_http_2() { "h2" } else { "http/1.1" };
        chain["transport_socket"] = json!({
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": kind("transport_sockets.tls.v3.DownstreamTlsContext"),
                "common_tls_context": {
                    "tls_params": {
                        "tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3",
                        "ecdh_curves": [CURVE],
                    },
                    "alpn_protocols": [protocol],
                    "tls_certificates": [{
                        "certificate_chain": { "filename": files.certificate },
                        "private_key": { "filename": files.key },
                    }],
                },
            },
        });
    }
    json!({ "name": "web", "address": socket("0.0.0.0", site.port()), "filter_chains": [chain] })
}

fn socket(address: &str, port: u16) -> Value {
    json!({ "socket_address": { "address": address, "port_value": port } })
}

fn cluster(site: &Site) -> Value {
    // The default bounds, 1024 of each, are no part of the comparison.
    const BOUND: u32 = 65_536;
    let protocol = if site.is_backend_http_2() { "http2_protocol_options" } else { "http_protocol_options" };
    let address = socket(&site.backend.ip().to_string(), site.backend.port());
    json!({
        "name": "web", "type": "STATIC", "connect_timeout": "5s",
        "circuit_breakers": {
            "thresholds": [{ "max_connections": BOUND, "max_pending_requests": BOUND, "max_requests": BOUND }],
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": kind("upstreams.http.v3.HttpProtocolOptions"),
                "explicit_http_config": { protocol: {} },
            },
        },
        "load_assignment": {
            "cluster_name": "web",
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address } }] }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_is_a_virtual_host() {
        let value = configuration(&Site::example("h1-10k"));
        let manager =
            &value["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"];
        let hosts = manager["route_config"]["virtual_hosts"].as_array().expect("a list");
        assert_eq!((hosts.len(), &hosts[9999]["domains"]), (10_000, &json!(["h9999.example.com"])));
    }

    #[test]
    fn tls_ends_at_the_listener_and_the_backend_of_calls_speaks_http_2() {
        let chain = |name: &str| {
            configuration(&Site::example(name))["static_resources"]["listeners"][0]["filter_chains"][0]
                .clone()
        };
        let tls = &chain("tls-h2")["transport_socket"]["typed_config"]["common_tls_context"];
        assert_eq!(tls["alpn_protocols"], json!(["h2"]));
        assert_eq!(tls["tls_certificates"][0]["private_key"]["filename"], "/x/site.key");
        assert!(chain("h2c").get("transport_socket").is_none());
        let protocol = |name: &str| {
            let options = cluster(&Site::example(name))["typed_extension_protocol_options"].to_string();
            options.contains("http2_protocol_options")
        };
        assert!(protocol("grpc") && !protocol("h2c"));
    }
}
