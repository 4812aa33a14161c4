//! The PROXY protocol with HAProxy before and behind the agent, nginx behind it, and curl.

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use lab::client::{connect, get};
use lab::manifests::write;
use lab::pki::self_signed;
use lab::servers::{HttpServer, ok};
use lab::{Agent, AgentOptions, Command, Datapath, Family, Lab, Process, eventually};

use crate::bed::{both, on_each_datapath, proxied, routed};

const NAME: &str = "tls.example.com";
/// What backends listen on: an HTTP server that wants no header; HAProxy, in clear and by TLS, and nginx, which want one.
const WEB: u16 = 8080;
const HAPROXY: u16 = 7000;
const HAPROXY_TLS: u16 = 7443;
const NGINX: u16 = 7080;
/// Ports of the Gateway.
const HTTP: u16 = 80;
const TLS: u16 = 443;
const TO_HAPROXY: u16 = 5000;
const TO_NGINX: u16 = 5001;
const OPEN: u16 = 5002;

const MANIFESTS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: p}
data:
  proxyProtocolPorts: 80, 443, 5000, 5001
  proxyProtocolSources: SOURCES
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: gateway-agent
  infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: p}}
  listeners:
    - {name: http, protocol: HTTP, port: 80}
    - {name: tls, protocol: TLS, port: 443, tls: {mode: Passthrough}}
    - {name: haproxy, protocol: TCP, port: 5000}
    - {name: nginx, protocol: TCP, port: 5001}
    - {name: open, protocol: TCP, port: 5002}
"#;

fn route(kind: &str, listener: &str, service: &str) -> String {
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {listener}}}\nspec:\n  \
         parentRefs: [{{name: gw, sectionName: {listener}}}]\n  rules: [{{backendRefs: [{{name: {service}, port: 80}}]}}]\n"
    )
}

/// A Service of backend 1, whose endpoints want headers of this version.
fn service(lab: &Lab, name: &str, target: u16, version: Option<&str>) -> String {
    let text = lab::manifests::service(name, "TCP", 80, target, &both(lab, 1));
    let Some(version) = version else { return text };
    let annotated =
        format!("  name: {name}\n  annotations: {{gateway-agent.dev/proxy-protocol: {version}}}\n");
    text.replacen(&format!("  name: {name}\n"), &annotated, 1)
}

/// `sources`: who is believed.
fn serve(lab: &Lab, sources: &str) -> Result<()> {
    let text = MANIFESTS.replace("SOURCES", sources)
        + &route("HTTPRoute", "http", "web")
        + &route("TLSRoute", "tls", "haproxy-tls")
            .replace("  rules:", &format!("  hostnames: [{NAME}]\n  rules:"))
        + &route("TCPRoute", "haproxy", "haproxy")
        + &route("TCPRoute", "nginx", "nginx")
        + &route("TCPRoute", "open", "haproxy")
        + &service(lab, "web", WEB, None)
        + &service(lab, "haproxy-tls", HAPROXY_TLS, Some("main=v2"))
        + &service(lab, "haproxy", HAPROXY, Some("v1"))
        + &service(lab, "nginx", NGINX, Some("v2"));
    write(&lab.manifests(), "all.yaml", &text)
}

/// Both addresses of the client, which the load balancer has too.
fn of_client(lab: &Lab) -> String {
    let one = |family| match lab.client_address(family) {
        IpAddr::V4(v4) => format!("{v4}/32"),
        IpAddr::V6(v6) => format!("{v6}/128"),
    };
    format!("{}, {}", one(Family::V4), one(Family::V6))
}

/// Port of the load balancer that leads to `port` of the Gateway.
fn port_of(family: Family, version: &str, port: u16) -> u16 {
    // Below the ports that the kernel gives to clients.
    8_000 + 12_000 * u16::from(family == Family::V6) + 6_000 * u16::from(version == "v2") + port
}

const DEFAULTS: &str = "defaults\n  timeout connect 30s\n  timeout client 60s\n  timeout server 60s\n  timeout http-request 60s\n";

fn haproxy(lab: &Lab, name: &str, netns: &lab::Netns, text: &str) -> Result<Process> {
    let program = lab::require_program("haproxy", "haproxy")?;
    let path = lab.folder().join(format!("{name}.cfg"));
    std::fs::write(&path, text)?;
    Command::new(name, program)
        .args(["-db".as_ref(), "-f".as_ref(), path.as_os_str()])
        .netns(netns)
        .start(lab)
}

/// On loopback addresses of the client, so that clients of it are others than the load balancer itself.
fn load_balancer(lab: &Lab) -> Result<Process> {
    let mut text = format!("{DEFAULTS}  mode tcp\n");
    for family in Family::BOTH {
        for (version, option) in [("v1", "send-proxy"), ("v2", "send-proxy-v2")] {
            for port in [HTTP, TLS, TO_HAPROXY, TO_NGINX] {
                let own = port_of(family, version, port);
                let (loopback, gateway) =
                    (bracketed(family.loopback()), bracketed(lab.gateway_address(family)));
                text += &format!(
                    "listen to-{own}\n  bind {loopback}:{own}\n  server gw {gateway}:{port} {option}\n"
                );
            }
        }
    }
    let process = haproxy(lab, "load-balancer", lab.client(), &text)?;
    eventually("the load balancer listens", || {
        process.check_running()?;
        let last = port_of(Family::V6, "v2", TO_NGINX);
        connect(lab.client(), (Family::V6.loopback(), last).into()).map(drop)
    })?;
    Ok(process)
}

/// Servers that say whom they serve, by the header that they want.
fn told_servers(lab: &Lab) -> Result<[Process; 2]> {
    let certificate = self_signed(lab.folder(), "told", &[NAME])?;
    let pem = lab.folder().join("told.pem");
    let [chain, key] = [&certificate.certificate, &certificate.key].map(std::fs::read_to_string);
    std::fs::write(&pem, chain? + &key?)?;
    let answer = "http-request return status 200 content-type text/plain lf-string";
    let told = "\"%ci to %[dst]:%[dst_port] for [%[fc_pp_authority]]\\n\"";
    let text = format!(
        "{DEFAULTS}  mode http\nfrontend clear\n  bind :::{HAPROXY} v4v6 accept-proxy\n  {answer} {told}\n\
         frontend tls\n  bind :::{HAPROXY_TLS} v4v6 ssl crt {} accept-proxy\n  {answer} {told}\n",
        pem.display()
    );
    let haproxy = haproxy(lab, "haproxy", lab.backend(1), &text)?;
    let nginx = nginx(lab)?;
    eventually("the servers listen", || {
        for port in [HAPROXY, HAPROXY_TLS, NGINX] {
            connect(lab.gateway(), (lab.backend_address(1, Family::V6), port).into())?;
        }
        haproxy.check_running()?;
        nginx.check_running()
    })?;
    Ok([haproxy, nginx])
}

fn nginx(lab: &Lab) -> Result<Process> {
    let program = lab::require_program("nginx", "nginx-light")?;
    let folder = lab.folder().join("nginx");
    std::fs::create_dir(&folder)?;
    let path = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {path}/{kind};\n"))
        .concat();
    let text = format!(
        "daemon off;\npid {path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n  access_log off;\n{temporary}  server {{\n    \
         listen {NGINX} proxy_protocol;\n    listen [::]:{NGINX} proxy_protocol;\n    location / {{\n      \
         return 200 \"$proxy_protocol_addr to $proxy_protocol_server_addr:$proxy_protocol_server_port\\n\";\n    }}\n  \
         }}\n}}\n"
    );
    let config = folder.join("nginx.conf");
    std::fs::write(&config, text)?;
    Command::new("nginx", program)
        .args(["-p".as_ref(), folder.as_os_str(), "-c".as_ref(), config.as_os_str()])
        .netns(lab.backend(1))
        .start(lab)
}

fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

fn curl(lab: &Lab, args: &[&str]) -> Result<String> {
    lab::require_program("curl", "curl")?;
    let words = [&["--silent", "--show-error", "--fail", "--max-time", "60"], args].concat();
    lab.client().output("curl", &words)
}

/// A backend that answers with what it was told of the client.
fn web(lab: &Lab) -> Result<HttpServer> {
    HttpServer::start(lab.backend(1), WEB, |request| {
        ok(&format!("{}\n", request.header("x-forwarded-for").unwrap_or("nobody")))
    })
}

on_each_datapath!(
    client_of_a_load_balancer_is_known_everywhere,
    curl_says_for_whom_it_speaks,
    who_is_not_believed_is_refused,
);

fn client_of_a_load_balancer_is_known_everywhere(datapath: Datapath) {
    routed(1, |lab| {
        serve(lab, &of_client(lab))?;
        let (_web, _told) = (web(lab)?, told_servers(lab)?);
        let agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        let _load_balancer = load_balancer(lab)?;
        let told_certificate = lab.folder().join("told.crt").display().to_string();
        for family in Family::BOTH {
            for version in ["v1", "v2"] {
                let at = |port| port_of(family, version, port);
                let url = |port| format!("http://{}:{}/", bracketed(family.loopback()), at(port));
                let client = family.loopback();
                let said = curl(lab, &[&url(HTTP)])?;
                ensure!(said == format!("{client}\n"), "{family} {version}: HTTP says {said:?}");
                // The load balancer's own address is the one that its client connected to.
                let to = |port| format!("{client} to {client}:{}", at(port));
                let said = curl(lab, &[&url(TO_NGINX)])?;
                ensure!(said == to(TO_NGINX) + "\n", "{family} {version}: nginx says {said:?}");
                let said = curl(lab, &[&url(TO_HAPROXY)])?;
                ensure!(said == to(TO_HAPROXY) + " for []\n", "{family} {version}: HAProxy says {said:?}");
                let resolve = format!("{NAME}:{}:{}", at(TLS), bracketed(client));
                let url = format!("https://{NAME}:{}/", at(TLS));
                let said = curl(lab, &["--cacert", &told_certificate, "--resolve", &resolve, &url])?;
                let expected = format!("{} for [{NAME}]\n", to(TLS));
                ensure!(said == expected, "{family} {version}: HAProxy by TLS says {said:?}");
            }
        }
        check_left(&agent, datapath)
    });
}

/// Neither a listener that wants headers nor one whose backends do is the kernel's.
fn check_left(agent: &Agent, datapath: Datapath) -> Result<()> {
    ensure!(proxied(agent, "haproxy")? == 4.0, "the proxy counts {}", proxied(agent, "haproxy")?);
    if datapath != Datapath::Ebpf {
        return Ok(());
    }
    let snapshot = agent.snapshot()?;
    let said = |port: u16| {
        let entry = format!("tcp/*:{port}");
        let entries = snapshot["snapshot"]["listeners"].as_array();
        let found = entries.into_iter().flatten().find(|candidate| candidate["entry"] == entry.as_str());
        found.map(|found| found["kernel"].to_string()).with_context(|| format!("no {entry} in {snapshot}"))
    };
    for (port, why) in [
        (TO_HAPROXY, "clients are told by the PROXY protocol"),
        (OPEN, "endpoints are told of clients by the PROXY protocol"),
    ] {
        ensure!(said(port)?.contains(&format!("left: {why}")), "port {port}: {}", said(port)?);
    }
    Ok(())
}

fn curl_says_for_whom_it_speaks(datapath: Datapath) {
    routed(1, |lab| {
        serve(lab, &of_client(lab))?;
        let (_web, _told) = (web(lab)?, told_servers(lab)?);
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            let (gateway, client) = (lab.gateway_address(family), lab.client_address(family));
            let url = |port: u16| format!("http://{}:{port}/", bracketed(gateway));
            let said = curl(lab, &["--haproxy-protocol", &url(HTTP)])?;
            ensure!(said == format!("{client}\n"), "{family}: HTTP says {said:?}");
            let said = curl(lab, &["--haproxy-protocol", &url(TO_NGINX)])?;
            ensure!(said == format!("{client} to {gateway}:{TO_NGINX}\n"), "{family}: nginx says {said:?}");
            // Nothing is expected of clients here, and the backend is told all the same.
            let said = curl(lab, &[&url(OPEN)])?;
            ensure!(
                said == format!("{client} to {gateway}:{OPEN} for []\n"),
                "{family}: HAProxy says {said:?}"
            );
        }
        Ok(())
    });
}

fn who_is_not_believed_is_refused(datapath: Datapath) {
    routed(1, |lab| {
        serve(lab, "203.0.113.0/24, 2001:db8:ffff::/48")?;
        let (web, _told) = (web(lab)?, told_servers(lab)?);
        let agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            for port in [HTTP, TLS, TO_NGINX] {
                let url = format!("http://{}:{port}/", bracketed(lab.gateway_address(family)));
                let said = curl(lab, &["--haproxy-protocol", &url]);
                ensure!(said.is_err(), "{family} {port}: {said:?}");
            }
            let plain = get(lab.client(), lab.at_gateway(family, HTTP), "any", "/");
            ensure!(plain.is_err(), "{family}: {plain:?}");
        }
        ensure!(web.requests().is_empty(), "the backend was reached");
        let refused = agent.metrics()?.sum(
            "gateway_agent_listener_proxy_header_failures_total",
            &[("listener", "http"), ("reason", "untrusted")],
        );
        ensure!(refused == 4.0, "{refused} refused connections are counted");
        Ok(())
    });
}
