//! The site in Traefik's words: arguments for what is fixed, and the file of its file provider.
//!
//! **Invariant:** no I/O.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::CURVE;
use super::scenario::{POOL, Site};

/// `file` holds [`configuration`].
pub(super) fn arguments(site: &Site, file: &Path) -> Vec<String> {
    vec![
        format!("--entrypoints.web.address=:{}", site.port()),
        format!("--providers.file.filename={}", file.display()),
        "--providers.file.watch=false".into(),
        "--log.level=ERROR".into(),
        "--global.checknewversion=false".into(),
        "--global.sendanonymoususage=false".into(),
    ]
}

/// To be written as YAML, which JSON is.
pub(super) fn configuration(site: &Site) -> Value {
    let mut routers = Map::new();
    for (number, host) in site.hosts().enumerate() {
        let mut router =
            json!({ "rule": format!("Host(`{host}`)"), "service": "web", "entryPoints": ["web"] });
        if site.tls.is_some() {
            router["tls"] = json!({});
        }
        routers.insert(format!("r{number}"), router);
    }
    let scheme = if site.is_backend_http_2() { "h2c" } else { "http" };
    let mut value = json!({ "http": {
        "routers": routers,
        "services": { "web": { "loadBalancer": {
            "servers": [{ "url": format!("{scheme}://{}", site.backend) }],
            "serversTransport": "pool",
        }}},
        "serversTransports": { "pool": { "maxIdleConnsPerHost": POOL } },
    }});
    if let Some(files) = &site.tls {
        value["tls"] = json!({
            "certificates": [{ "certFile": files.certificate, "keyFile": files.key }],
            "options": { "default": { "minVersion": "VersionTLS13", "curvePreferences": [CURVE] } },
        });
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_is_a_router() {
        let value = configuration(&Site::example("h1-10k"));
        let routers = value["http"]["routers"].as_object().expect("a map");
        assert_eq!((routers.len(), &routers["r9999"]["rule"]), (10_000, &json!("Host(`h9999.example.com`)")));
        assert!(value.get("tls").is_none() && routers["r0"].get("tls").is_none());
    }

    #[test]
    fn tls_ends_at_the_router_and_the_backend_of_calls_speaks_http_2() {
        let value = configuration(&Site::example("tls-h1"));
        assert_eq!(value["http"]["routers"]["r0"]["tls"], json!({}));
        assert_eq!(value["tls"]["certificates"][0]["certFile"], "/x/site.crt");
        let grpc = configuration(&Site::example("grpc"));
        let server = &grpc["http"]["services"]["web"]["loadBalancer"]["servers"][0];
        assert_eq!(server["url"], "h2c://10.0.2.2:8080");
    }
}
