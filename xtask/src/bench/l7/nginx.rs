//! The site in nginx's words. The main context is [`super::super::candidates::nginx`]'s.
//!
//! **Invariant:** no I/O.

use super::scenario::{POOL, Site};
use super::{CIPHER, CURVE};

/// More requests on a connection than any run makes: the default ends connections after a thousand.
const ENDLESS: &str = "keepalive_requests 1000000000;";

pub(super) fn configuration(site: &Site) -> String {
    let (port, backend) = (site.port(), site.backend);
    let mut listen = port.to_string();
    let mut tls = String::new();
    if let Some(files) = &site.tls {
        listen += " ssl";
        tls = format!(
            "  ssl_protocols TLSv1.3;\n  ssl_conf_command Ciphersuites {CIPHER};\n  ssl_ecdh_curve {CURVE};\n  \
             ssl_certificate {};\n  ssl_certificate_key {};\n",
            files.certificate.display(),
            files.key.display()
        );
    }
    if site.scenario.is_http_2() {
        listen += " http2";
    }
    let (module, pass) = if site.is_backend_http_2() {
        ("grpc", "grpc_pass grpc://web;")
    } else {
        ("proxy", "proxy_pass http://web;")
    };
    // The answer of 64 KiB fits into memory, and a file is never the alternative.
    let version = if site.is_backend_http_2() {
        ""
    } else {
        "  proxy_http_version 1.1;\n  proxy_set_header Connection \"\";\n  proxy_buffers 8 16k;\n  \
         proxy_max_temp_file_size 0;\n"
    };
    let servers: String = site
        .hosts()
        .map(|host| format!("  server {{ listen {listen}; server_name {host}; location / {{ {pass} }} }}\n"))
        .collect();
    format!(
        "http {{\n  access_log off;\n  {ENDLESS}\n  server_names_hash_max_size 65536;\n  \
         server_names_hash_bucket_size 128;\n{tls}{version}  {module}_set_header Host $http_host;\n  \
         {module}_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n  \
         {module}_set_header X-Forwarded-Proto $scheme;\n  \
         upstream web {{ server {backend}; keepalive {POOL}; {ENDLESS} }}\n  \
         server {{ listen {listen} default_server; return 404; }}\n{servers}}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_is_a_server_and_other_hosts_get_404() {
        let text = configuration(&Site::example("h1-10k"));
        assert_eq!(text.matches("server_name h").count(), 10_000);
        assert!(text.contains("server { listen 80 default_server; return 404; }"), "{}", &text[..900]);
        assert!(text.contains("server_name h9999.example.com;"));
    }

    #[test]
    fn a_listener_speaks_what_the_scenario_wants() {
        let of = |name: &str| configuration(&Site::example(name));
        assert!(of("tls-h2").contains("listen 443 ssl http2;") && of("tls-h2").contains("TLSv1.3;"));
        assert!(of("h2c").contains("listen 80 http2;") && of("h2c").contains("proxy_pass http://web;"));
        assert!(of("grpc").contains("grpc_pass grpc://web;") && !of("grpc").contains("proxy_pass"));
    }
}
