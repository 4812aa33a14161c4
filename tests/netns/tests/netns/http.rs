//! HTTPRoute through the proxy.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, ensure};
use lab::client::{connect, get, get_with};
use lab::http::{exchange, read_response};
use lab::manifests::{HttpRule, gateway, http_route, service, write};
use lab::servers::{HttpServer, ok};
use lab::{Agent, AgentOptions, Datapath, Family, Lab, eventually};

use crate::bed::{all, both, on_each_datapath, routed};

const WEB: u16 = 8080;

/// A Gateway with an HTTP listener on port 80, one HTTPRoute per item, and Services `web-1`, `web-2`... of one backend each.
pub(crate) fn serve_http(lab: &Lab, backends: u8, routes: &[(&str, &[&str], &[HttpRule<'_>])]) -> Result<()> {
    let mut text = gateway("gw", &[("http", "HTTP", 80)]);
    for (name, hostnames, rules) in routes {
        text += &http_route(name, "gw", "http", hostnames, rules);
    }
    for index in 1..=backends {
        text += &service(&format!("web-{index}"), "TCP", 80, WEB, &both(lab, index));
    }
    write(&lab.manifests(), "all.yaml", &text)
}

pub(crate) fn identities(lab: &Lab, backends: u8) -> Result<Vec<HttpServer>> {
    (1..=backends)
        .map(|index| HttpServer::identity(lab.backend(index), WEB, &format!("web-{index}")))
        .collect()
}

on_each_datapath!(
    routes_by_hostname_path_and_header,
    invalid_backend_is_500_and_no_endpoint_is_503,
    connections_are_kept_on_both_sides,
    bodies_of_every_framing_pass_unchanged,
    loopback_clients_are_served,
    families_of_client_and_backend_may_differ,
);

fn routes_by_hostname_path_and_header(datapath: Datapath) {
    routed(3, |lab| {
        let exact: &[HttpRule<'_>] = &[
            ("[{path: {type: Exact, value: /exact}}]", &[("web-1", 80, 1)]),
            ("[{path: {type: PathPrefix, value: /pre}}]", &[("web-2", 80, 1)]),
            ("[{headers: [{name: x-to, value: three}]}]", &[("web-3", 80, 1)]),
        ];
        let wild: &[HttpRule<'_>] = &[("", &[("web-3", 80, 1)])];
        serve_http(
            lab,
            3,
            &[("exact", &["a.example.com", "a.example.org"], exact), ("wild", &["*.example.com"], wild)],
        )?;
        let _servers = identities(lab, 3)?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        // (Host, path, x-to, status, who answers)
        let cases = [
            ("a.example.com", "/exact", "", 200, "web-1"),
            ("a.example.com", "/exact?q=1", "", 200, "web-1"),
            // What no rule of the exact hostname takes, the wildcard's rules may.
            ("a.example.com", "/exact/", "", 200, "web-3"),
            ("a.example.org", "/exact/", "", 404, ""),
            ("a.example.com", "/pre", "", 200, "web-2"),
            ("a.example.com", "/pre/x", "", 200, "web-2"),
            // A prefix is of whole path elements.
            ("a.example.org", "/prefix", "", 404, ""),
            ("a.example.com", "/other", "three", 200, "web-3"),
            ("a.example.org", "/other", "three", 200, "web-3"),
            ("a.example.org", "/other", "four", 404, ""),
            // O23: port and case do not matter, nor does a trailing dot.
            ("A.Example.COM:8082", "/exact", "", 200, "web-1"),
            ("a.example.com.", "/exact", "", 200, "web-1"),
            ("b.example.com", "/", "", 200, "web-3"),
            ("c.b.example.com", "/", "", 200, "web-3"),
            ("example.com", "/", "", 404, ""),
            ("elsewhere.org", "/", "", 404, ""),
        ];
        for family in Family::BOTH {
            for (host, path, to, status, who) in cases {
                let headers: &[(&str, &str)] = if to.is_empty() { &[] } else { &[("X-To", to)] };
                let response = get_with(lab.client(), lab.at_gateway(family, 80), host, path, headers)?;
                ensure!(
                    response.status == status && response.text().starts_with(who),
                    "{family} {host}{path} x-to {to:?}: {} {:?}, expected {status} {who:?}",
                    response.status,
                    response.text()
                );
            }
        }
        Ok(())
    });
}

fn invalid_backend_is_500_and_no_endpoint_is_503(datapath: Datapath) {
    routed(1, |lab| {
        let rules: &[HttpRule<'_>] = &[
            ("[{path: {value: /missing}}]", &[("no-such-service", 80, 1)]),
            ("[{path: {value: /empty}}]", &[("empty", 80, 1)]),
            ("[{path: {value: /zero}}]", &[("web-1", 80, 0)]),
            ("", &[("web-1", 80, 1)]),
        ];
        serve_http(lab, 1, &[("route", &[], rules)])?;
        write(&lab.manifests(), "empty.yaml", &service("empty", "TCP", 80, WEB, &[]))?;
        let _servers = identities(lab, 1)?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for (path, status) in [("/missing", 500), ("/empty", 503), ("/zero", 500), ("/", 200)] {
            let response = get(lab.client(), lab.at_gateway(Family::V4, 80), "any", path)?;
            ensure!(response.status == status, "{path}: {}, expected {status}", response.status);
        }
        Ok(())
    });
}

fn connections_are_kept_on_both_sides(datapath: Datapath) {
    routed(1, |lab| {
        serve_http(lab, 1, &[("route", &[], &[("", &[("web-1", 80, 1)])])])?;
        let server = HttpServer::identity(lab.backend(1), WEB, "web-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            let before = server.connections();
            let mut stream = connect(lab.client(), lab.at_gateway(family, 80))?;
            for number in 0..100 {
                let request = format!("GET /{number} HTTP/1.1\r\nHost: any\r\n\r\n");
                let response = exchange(&mut stream, request.as_bytes())?;
                ensure!(response.text() == format!("web-1 GET /{number}\n"), "{:?}", response.text());
            }
            let opened = server.connections() - before;
            // One to each of the backend's two addresses.
            ensure!(opened <= 2, "100 requests of one client took {opened} new connections to the backend");
        }
        Ok(())
    });
}

fn bodies_of_every_framing_pass_unchanged(datapath: Datapath) {
    routed(1, |lab| {
        serve_http(lab, 1, &[("route", &[], &[("", &[("web-1", 80, 1)])])])?;
        let server = HttpServer::start(lab.backend(1), WEB, |request| match request.target.as_str() {
            "/chunked" => {
                let mut reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
                for part in request.body.chunks(10_000) {
                    reply.extend(format!("{:x}\r\n", part.len()).into_bytes());
                    reply.extend(part);
                    reply.extend(b"\r\n");
                }
                reply.extend(b"0\r\n\r\n");
                reply
            }
            "/none" => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
            _ => {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len());
                [head.as_bytes(), &request.body].concat()
            }
        })?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            for size in [0, 1, 1000, 70_000, 3_000_000] {
                let body: Vec<u8> =
                    (0u32..size).flat_map(|n| [n.to_le_bytes()[0] ^ n.to_le_bytes()[1]]).collect();
                let sized = format!("Content-Length: {}\r\n\r\n", body.len());
                let sized = [sized.as_bytes(), &body].concat();
                let mut chunked = b"Transfer-Encoding: chunked\r\n\r\n".to_vec();
                for part in body.chunks(30_000) {
                    chunked.extend(format!("{:x}\r\n", part.len()).into_bytes());
                    chunked.extend(part);
                    chunked.extend(b"\r\n");
                }
                chunked.extend(b"0\r\n\r\n");
                for (path, rest) in [("/sized", &sized), ("/sized", &chunked), ("/chunked", &sized)] {
                    let mut stream = connect(lab.client(), lab.at_gateway(family, 80))?;
                    let head = format!("POST {path} HTTP/1.1\r\nHost: any\r\n").into_bytes();
                    let request = [head, rest.clone()].concat();
                    let mut writer = stream.try_clone()?;
                    let response = std::thread::scope(|scope| {
                        let sender = scope.spawn(move || writer.write_all(&request));
                        let response = read_response(&mut stream, &mut Vec::new());
                        sender.join().expect("the sender does not panic").and(Ok(response))
                    })??;
                    ensure!(
                        response.status == 200 && response.body == body,
                        "{family} {path} {size}: other bytes"
                    );
                }
            }
            // O20: a 204 has no body and the connection goes on.
            let mut stream = connect(lab.client(), lab.at_gateway(family, 80))?;
            for path in ["/none", "/sized"] {
                let request = format!("GET {path} HTTP/1.1\r\nHost: any\r\n\r\n");
                let response = exchange(&mut stream, request.as_bytes())?;
                ensure!(
                    response.status == if path == "/none" { 204 } else { 200 },
                    "{path}: {}",
                    response.status
                );
            }
        }
        ensure!(
            server.requests().iter().all(|request| request.header("host") == Some("any")),
            "Host was changed"
        );
        Ok(())
    });
}

fn loopback_clients_are_served(datapath: Datapath) {
    routed(1, |lab| {
        serve_http(lab, 1, &[("route", &[], &[("", &[("web-1", 80, 1)])])])?;
        let _servers = identities(lab, 1)?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            let response = get(lab.gateway(), SocketAddr::new(family.loopback(), 80), "any", "/")?;
            ensure!(response.text() == "web-1 GET /\n", "{family}: {:?}", response.text());
        }
        Ok(())
    });
}

fn families_of_client_and_backend_may_differ(datapath: Datapath) {
    routed(1, |lab| {
        let server = HttpServer::start(lab.backend(1), WEB, |_| ok("web\n"))?;
        for backend in Family::BOTH {
            let endpoints: [IpAddr; 1] = [lab.backend_address(1, backend)];
            let text = gateway("gw", &[("http", "HTTP", 80)])
                + &http_route("route", "gw", "http", &[], &[("", &[("web", 80, 1)])])
                + &service("web", "TCP", 80, WEB, &endpoints);
            write(&lab.manifests(), "all.yaml", &text)?;
            let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
            for client in Family::BOTH {
                let response = get(lab.client(), lab.at_gateway(client, 80), "any", "/")?;
                ensure!(response.status == 200, "{client} to {backend}: {}", response.status);
            }
        }
        ensure!(server.requests().len() == 4, "{} requests arrived", server.requests().len());
        Ok(())
    });
}

#[test]
fn weights_split_requests() {
    routed(2, |lab| {
        serve_http(lab, 2, &[("route", &[], &[("", &[("web-1", 80, 9), ("web-2", 80, 1)])])])?;
        let _servers = identities(lab, 2)?;
        let _agent = Agent::start(lab, &AgentOptions::new(Datapath::Userspace))?;
        let mut first = 0;
        for _ in 0..400 {
            let response = get(lab.client(), lab.at_gateway(Family::V4, 80), "any", "/")?;
            first += u32::from(response.text().starts_with("web-1"));
        }
        // 360 expected, standard deviation 6: this fails by chance once in a billion.
        ensure!((320..=395).contains(&first), "{first} of 400 went to the backend of weight 9");
        Ok(())
    });
}

/// A change must be seen at once and must break nothing in between.
#[test]
fn route_changes_apply_under_load_without_an_error() {
    routed(2, |lab| {
        let _servers = identities(lab, 2)?;
        let serve = |to: &str| serve_http(lab, 2, &[("route", &[], &[("", &[(to, 80, 1)])])]);
        serve("web-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(Datapath::Userspace))?;
        let mut stream = connect(lab.client(), lab.at_gateway(Family::V4, 80))?;
        for round in 0..20 {
            let to = if round % 2 == 0 { "web-2" } else { "web-1" };
            serve(to)?;
            eventually("the change is in force", || {
                let response = exchange(&mut stream, b"GET / HTTP/1.1\r\nHost: any\r\n\r\n")?;
                // Wrong answers are failures at once, old answers are waited out.
                assert_eq!(response.status, 200, "during a change");
                ensure!(response.text().starts_with(to), "still {:?}", response.text());
                Ok(())
            })?;
        }
        Ok(())
    });
}

#[test]
fn endpoints_of_a_service_share_its_requests() {
    routed(2, |lab| {
        let _servers = identities(lab, 2)?;
        let text = gateway("gw", &[("http", "HTTP", 80)])
            + &http_route("route", "gw", "http", &[], &[("", &[("web", 80, 1)])])
            + &service("web", "TCP", 80, WEB, &all(lab, &[1, 2]));
        write(&lab.manifests(), "all.yaml", &text)?;
        let _agent = Agent::start(lab, &AgentOptions::new(Datapath::Userspace))?;
        let mut first = 0;
        for _ in 0..200 {
            let response = get(lab.client(), lab.at_gateway(Family::V6, 80), "any", "/")?;
            ensure!(response.status == 200, "status {}", response.status);
            first += u32::from(response.text().starts_with("web-1"));
        }
        ensure!((50..=150).contains(&first), "{first} of 200 went to one of two endpoints");
        Ok(())
    });
}
