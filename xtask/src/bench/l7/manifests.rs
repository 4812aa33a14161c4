//! The site in the agent's words: Gateway API objects.
//!
//! **Invariant:** no I/O.

use lab::manifests;

use super::scenario::Site;

/// Files of a size that an editor opens.
const PER_FILE: usize = 500;

const SERVICE: &str = "web";

/// Names and texts of files; `pem` is certificate and key, where TLS ends at the gateway.
pub(super) fn files(site: &Site, pem: Option<(&str, &str)>) -> Vec<(String, String)> {
    let gateway = match pem {
        None => manifests::gateway("gw", &[("web", "HTTP", site.port())]),
        Some((certificate, key)) => {
            let tls = "      tls: {certificateRefs: [{name: site}]}\n";
            manifests::gateway("gw", &[("web", "HTTPS", site.port())]) + tls + &secret(certificate, key)
        }
    };
    let backend = site.backend;
    let service = manifests::service(SERVICE, "TCP", 80, backend.port(), &[backend.ip()]);
    let mut files = vec![("gateway.yaml".to_owned(), gateway + &service)];
    let hosts: Vec<String> = site.hosts().collect();
    for (number, hosts) in hosts.chunks(PER_FILE).enumerate() {
        let first = number * PER_FILE;
        let routes = hosts.iter().enumerate().map(|(offset, host)| route(site, first + offset, host));
        files.push((format!("routes-{first:05}.yaml"), routes.collect()));
    }
    files
}

fn route(site: &Site, number: usize, host: &str) -> String {
    let rules: &[manifests::HttpRule<'_>] = &[("", &[(SERVICE, 80, 1)])];
    let text = manifests::http_route(&format!("r{number}"), "gw", "web", &[host], rules);
    // They differ in their kind alone. Backends of GRPCRoutes speak HTTP/2 without being told to.
    if site.is_backend_http_2() { text.replacen("kind: HTTPRoute", "kind: GRPCRoute", 1) } else { text }
}

fn secret(certificate: &str, key: &str) -> String {
    let indented = |text: &str| text.lines().map(|line| format!("    {line}\n")).collect::<String>();
    format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: site}}\ntype: kubernetes.io/tls\nstringData:\n  \
         tls.crt: |\n{}  tls.key: |\n{}",
        indented(certificate),
        indented(key)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_is_an_object() {
        let files = files(&Site::example("h1-10k"), None);
        assert_eq!(files.len(), 21);
        let routes: usize = files.iter().map(|(_, text)| text.matches("kind: HTTPRoute").count()).sum();
        assert_eq!(routes, 10_000);
        let (name, last) = &files[20];
        assert_eq!(name, "routes-09500.yaml");
        assert!(last.contains("hostnames: [\"h9999.example.com\"]"), "{last}");
    }

    #[test]
    fn tls_ends_at_the_listener_with_the_secret() {
        let files = files(&Site::example("tls-h2"), Some(("CERT\n", "KEY\n")));
        let text = &files[0].1;
        assert!(text.contains(
            "protocol: HTTPS\n      port: 443\n      tls: {certificateRefs: [{name: site}]}\n---\n"
        ));
        assert!(text.contains("  tls.crt: |\n    CERT\n  tls.key: |\n    KEY\n"), "{text}");
    }

    #[test]
    fn calls_go_by_a_route_of_their_own_kind() {
        let files = files(&Site::example("grpc"), None);
        assert!(files[1].1.contains("kind: GRPCRoute") && !files[1].1.contains("kind: HTTPRoute"));
    }
}
