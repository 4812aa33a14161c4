//! The site in HAProxy's words: hosts by a map. The global section is [`super::super::candidates::haproxy`]'s.
//!
//! **Invariant:** no I/O.

use std::path::Path;

use super::scenario::Site;
use super::{CIPHER, CURVE};

/// A line for each host.
pub(super) fn map(site: &Site) -> String {
    site.hosts().map(|host| format!("{host} web\n")).collect()
}

/// `map` is the file of [`map`]; `bundle`, where TLS ends, one with certificate and key.
pub(super) fn configuration(site: &Site, map: &Path, bundle: Option<&Path>) -> String {
    let mut bind = format!("bind :{}", site.port());
    if let Some(bundle) = bundle {
        let alpn = if site.scenario.is_http_2() { "h2" } else { "http/1.1" };
        bind += &format!(
            " ssl crt {} alpn {alpn} ssl-min-ver TLSv1.3 ciphersuites {CIPHER} curves {CURVE}",
            bundle.display()
        );
    } else if site.scenario.is_http_2() {
        bind += " proto h2";
    }
    let scheme = if bundle.is_some() { "https" } else { "http" };
    let server = if site.is_backend_http_2() { " proto h2" } else { "" };
    format!(
        "  mode http\n  option forwardfor\n  http-reuse always\nfrontend web_in\n  {bind}\n  \
         http-request set-header X-Forwarded-Proto {scheme}\n  \
         use_backend %[req.hdr(host),lower,map({},none)]\nbackend web\n  server s1 {}{server}\nbackend none\n  \
         http-request deny deny_status 404\n",
        map.display(),
        site.backend
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_is_a_line_of_the_map() {
        let text = map(&Site::example("h1-64k-10k"));
        assert_eq!(text.lines().count(), 10_000);
        assert!(text.starts_with("h0.example.com web\nh1.example.com web\n"));
    }

    #[test]
    fn a_listener_speaks_what_the_scenario_wants() {
        let of = |name: &str, bundle| configuration(&Site::example(name), Path::new("/m"), bundle);
        let bundle = Some(Path::new("/x/b.pem"));
        assert!(
            of("tls-h1", bundle).contains("bind :443 ssl crt /x/b.pem alpn http/1.1 ssl-min-ver TLSv1.3 ")
        );
        assert!(of("tls-h2", bundle).contains("alpn h2 ") && of("tls-h2", bundle).contains("Proto https\n"));
        assert!(of("h2c", None).contains("bind :80 proto h2\n"));
        assert!(of("grpc", None).contains("server s1 10.0.2.2:8080 proto h2\n"));
        assert!(of("h1", None).contains("bind :80\n") && of("h1", None).contains("map(/m,none)"));
    }
}
