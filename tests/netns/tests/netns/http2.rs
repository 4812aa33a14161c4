//! HTTP/2 with curl and the tools of nghttp2 as clients and servers.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use lab::manifests::service;
use lab::pki::Certificate;
use lab::servers::{HttpServer, ok};
use lab::{Agent, AgentOptions, Datapath, Family, Lab, Process, eventually};

use crate::bed::{both, on_each_datapath, routed};
use crate::http::identities;
use crate::https::serve_in_clear_and_by_tls;

const WEB: u16 = 8080;
const H2C: u16 = 8081;

/// `one.example.com` in clear and by TLS, to a server of HTTP/1; below `/h2c` to one of HTTP/2.
const ROUTES: &str = r#"
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: gw}]
  rules:
    - backendRefs: [{name: web-1, port: 80}]
    - matches: [{path: {value: /h2c}}]
      backendRefs: [{name: h2c, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: calls}
spec:
  parentRefs: [{name: gw}]
  rules:
    - matches: [{method: {service: files.Files}}]
      backendRefs: [{name: h2c, port: 80}]
"#;

pub(crate) fn serve(lab: &Lab) -> Result<Certificate> {
    let spoken = service_that_speaks("kubernetes.io/h2c", &service("h2c", "TCP", 80, H2C, &both(lab, 1)))?;
    let text = ROUTES.to_owned() + &service("web-1", "TCP", 80, WEB, &both(lab, 1)) + &spoken;
    serve_in_clear_and_by_tls(lab, &text)
}

/// The Service with an `appProtocol`.
pub(crate) fn service_that_speaks(protocol: &str, service: &str) -> Result<String> {
    let spoken =
        service.replacen("      port: 80\n", &format!("      appProtocol: {protocol}\n      port: 80\n"), 1);
    ensure!(spoken != service, "the Service is written in another way: {service}");
    Ok(spoken)
}

/// A server of HTTP/2 in clear that serves a folder.
pub(crate) fn nghttpd(lab: &Lab, folder: &Path) -> Result<Process> {
    lab::require_program("nghttpd", "nghttp2-server")?;
    let folder = format!("--htdocs={}", folder.display());
    let args = ["--no-tls", "--trailer=x-end: 1", &folder, &H2C.to_string()];
    lab::Command::new("nghttpd", "nghttpd").args(args).netns(lab.backend(1)).start(lab)
}

pub(crate) fn curl(lab: &Lab, family: Family, args: &[&str]) -> Result<String> {
    lab::require_program("curl", "curl")?;
    let address = bracketed(lab, family);
    let mut words = vec!["--silent".to_owned(), "--show-error".into(), "--max-time".into(), "60".into()];
    for port in [80, 443] {
        words.extend(["--resolve".into(), format!("one.example.com:{port}:{address}")]);
    }
    words.extend(args.iter().map(|arg| (*arg).to_owned()));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    lab.client().output("curl", &words)
}

fn bracketed(lab: &Lab, family: Family) -> String {
    match lab.gateway_address(family) {
        std::net::IpAddr::V4(v4) => v4.to_string(),
        std::net::IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

on_each_datapath!(
    curl_speaks_http_2_in_clear_and_by_tls,
    load_of_many_streams_is_served_without_a_failure,
    large_uploads_of_many_streams_arrive_whole,
    nghttp_gets_and_sends_trailers_and_priorities_are_borne,
    servers_of_http_2_serve_clients_of_either_version,
);

// O31
fn curl_speaks_http_2_in_clear_and_by_tls(datapath: Datapath) {
    routed(1, |lab| {
        let certificate = serve(lab)?;
        let _servers = identities(lab, 1)?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        let trusted = certificate.certificate.display().to_string();
        for family in Family::BOTH {
            for (version, args) in [
                ("2", &["--http2-prior-knowledge", "http://one.example.com/a/../x?y=1"][..]),
                ("2", &["--http2", "--cacert", &trusted, "https://one.example.com/x?y=1"]),
                ("1.1", &["--http1.1", "--cacert", &trusted, "https://one.example.com/x?y=1"]),
                // An offer to upgrade is not taken up, and the request is served.
                ("1.1", &["--http2", "http://one.example.com/x?y=1"]),
            ] {
                let mut words = vec!["--write-out", "%{http_version} %{http_code}"];
                words.extend(args);
                let answer = curl(lab, family, &words)?;
                ensure!(
                    answer == format!("web-1 GET /x?y=1\n{version} 200"),
                    "{family} {args:?}: {answer:?}"
                );
            }
            let missing = ["--http2-prior-knowledge", "-w", "%{http_code}", "-o", "/dev/null"];
            let status = curl(lab, family, &[&missing[..], &["http://one.example.com/h2c"]].concat())?;
            ensure!(status == "502", "no server of HTTP/2: {status}");
        }
        Ok(())
    });
}

fn load_of_many_streams_is_served_without_a_failure(datapath: Datapath) {
    routed(1, |lab| {
        serve(lab)?;
        let _servers = identities(lab, 1)?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        lab::require_program("h2load", "nghttp2-client")?;
        for (scheme, port, family) in [("http", 80, Family::V4), ("https", 443, Family::V6)] {
            let to = format!("--connect-to={}:{port}", bracketed(lab, family));
            let url = format!("{scheme}://one.example.com/");
            let args = ["-n", "2000", "-c", "4", "-m", "50", &to, &url];
            h2load(lab, 2000, &args)?;
            let args = ["--h1", "-n", "2000", "-c", "8", &to, &url];
            h2load(lab, 2000, &args)?;
        }
        Ok(())
    });
}

/// Fails unless all of `n` requests are answered by 200.
fn h2load(lab: &Lab, n: u32, args: &[&str]) -> Result<()> {
    let said = lab.client().output("h2load", args)?;
    ensure!(said.contains(&format!("{n} succeeded, 0 failed, 0 errored, 0 timeout")), "{args:?}: {said}");
    ensure!(said.contains(&format!("status codes: {n} 2xx")), "{args:?}: {said}");
    Ok(())
}

/// More at a time than the windows of a connection hold, so that each waits for the others.
fn large_uploads_of_many_streams_arrive_whole(datapath: Datapath) {
    routed(1, |lab| {
        serve(lab)?;
        let server = HttpServer::start(lab.backend(1), WEB, |request| {
            ok(&format!("{} {}\n", request.body.len(), request.body.iter().all(|byte| *byte == b'u')))
        })?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        lab::require_program("h2load", "nghttp2-client")?;
        let upload = lab.folder().join("upload");
        let size = 2_000_000;
        std::fs::write(&upload, "u".repeat(size)).context("write")?;
        let data = format!("--data={}", upload.display());
        for (scheme, port, family) in [("http", 80, Family::V6), ("https", 443, Family::V4)] {
            let to = format!("--connect-to={}:{port}", bracketed(lab, family));
            let url = format!("{scheme}://one.example.com/");
            h2load(lab, 40, &["-n", "40", "-c", "2", "-m", "20", &data, &to, &url])?;
        }
        let requests = server.requests();
        ensure!(requests.len() == 80, "{} requests arrived", requests.len());
        ensure!(requests.iter().all(|request| request.body == "u".repeat(size).as_bytes()), "other bytes");
        Ok(())
    });
}

// O29, O31
fn nghttp_gets_and_sends_trailers_and_priorities_are_borne(datapath: Datapath) {
    routed(1, |lab| {
        serve(lab)?;
        lab::require_program("nghttp", "nghttp2-client")?;
        let folder = lab.folder().join("htdocs");
        std::fs::create_dir_all(&folder).context("make a folder")?;
        std::fs::write(folder.join("h2c"), "x".repeat(200_000)).context("write")?;
        let _server = nghttpd(lab, &folder)?;
        let server = HttpServer::identity(lab.backend(1), WEB, "web-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        let upload = lab.folder().join("upload");
        std::fs::write(&upload, "u".repeat(100_000)).context("write")?;
        let data = format!("--data={}", upload.display());
        for family in Family::BOTH {
            let base = format!("http://{}", bracketed(lab, family));
            // The tool opens a tree of idle streams and hangs its request into it.
            let weighted = ["--verbose", "--null-out", "--weight=7", "--multiply=5", &format!("{base}/h2c")];
            let said = eventually("an answer", || {
                served(lab.client().output("nghttp", &weighted)?, ":status: 200", 5)
            })?;
            ensure!(said.contains("send PRIORITY frame"), "no priorities: {said}");
            served(said, "x-end: 1", 5)?;
            let before = server.requests().len();
            let upload = ["--verbose", "--no-dep", "--trailer=x-up: 1", &data, &format!("{base}/up")];
            served(lab.client().output("nghttp", &upload)?, ":status: 200", 1)?;
            let requests = server.requests();
            let [request] = &requests[before..] else { bail!("{} requests", requests.len() - before) };
            ensure!(request.body.len() == 100_000, "{} bytes of {}", request.body.len(), request.raw_head);
        }
        Ok(())
    });
}

/// `said`, if it holds so many lines with `part` that nghttp has received.
fn served(said: String, part: &str, n: usize) -> Result<String> {
    let lines = said.lines().filter(|line| line.contains("recv (stream_id=") && line.contains(part));
    let found = lines.count();
    ensure!(found == n, "{found} of {n} lines with {part:?} in {said}");
    Ok(said)
}

fn servers_of_http_2_serve_clients_of_either_version(datapath: Datapath) {
    routed(1, |lab| {
        let certificate = serve(lab)?;
        let folder = lab.folder().join("htdocs");
        std::fs::create_dir_all(folder.join("files.Files")).context("make folders")?;
        std::fs::write(folder.join("h2c"), "x".repeat(200_000)).context("write")?;
        std::fs::write(folder.join("files.Files/Get"), "a call").context("write")?;
        let _server = nghttpd(lab, &folder)?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        let trusted = certificate.certificate.display().to_string();
        let grpc = "content-type: application/grpc";
        for family in Family::BOTH {
            for args in [
                &["--http2-prior-knowledge", "http://one.example.com/h2c"][..],
                &["--http2", "--cacert", &trusted, "https://one.example.com/h2c"],
                &["--http1.1", "http://one.example.com/h2c"],
            ] {
                let answer = eventually("an answer", || curl(lab, family, &[&["--fail"], args].concat()))?;
                ensure!(answer == "x".repeat(200_000), "{family} {args:?}: {} bytes", answer.len());
            }
            let call = ["--http2-prior-knowledge", "-H", grpc];
            let answer =
                curl(lab, family, &[&call[..], &["http://one.example.com/files.Files/Get"]].concat())?;
            ensure!(answer == "a call", "{family}: {answer:?}");
        }
        Ok(())
    });
}
