//! HTTPS: TLS ended by the agent, with curl and openssl as clients. And what filters do with requests.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use lab::manifests::{service, write};
use lab::pki::{Certificate, self_signed};
use lab::servers::HttpServer;
use lab::{Agent, AgentOptions, Datapath, Family, Lab, eventually};

use crate::bed::{both, on_each_datapath, routed};
use crate::http::identities;

const WEB: u16 = 8080;

/// HTTP on 80, HTTPS on 443 for `one.example.com` and `*.two.example.com`, the latter with two certificates.
const GATEWAY: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: gateway-agent
  listeners:
    - {name: http, protocol: HTTP, port: 80}
    - name: one
      protocol: HTTPS
      port: 443
      hostname: one.example.com
      tls: {certificateRefs: [{name: one}]}
    - name: two
      protocol: HTTPS
      port: 443
      hostname: "*.two.example.com"
      tls: {certificateRefs: [{name: two}, {name: more}]}
"#;

/// Everything that comes by TLS is served; what comes without is sent there.
const ROUTES: &str = r#"
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: gw, sectionName: one}, {name: gw, sectionName: two}]
  rules:
    - matches: [{path: {value: /modified}}]
      filters:
        - type: RequestHeaderModifier
          requestHeaderModifier:
            set: [{name: X-Set, value: by-rule}]
            add: [{name: X-Add, value: by-rule}]
            remove: [X-Gone]
        - type: ResponseHeaderModifier
          responseHeaderModifier:
            set: [{name: Content-Type, value: text/x-changed}]
            add: [{name: X-Answer, value: by-rule}]
      backendRefs:
        - name: web-1
          port: 80
          filters:
            - type: RequestHeaderModifier
              requestHeaderModifier:
                add: [{name: X-Add, value: by-backend}]
    - backendRefs: [{name: web-1, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: to-https}
spec:
  parentRefs: [{name: gw, sectionName: http}]
  rules:
    - matches: [{path: {value: /moved/}}]
      filters:
        - type: RequestRedirect
          requestRedirect:
            scheme: https
            statusCode: 308
            path: {type: ReplacePrefixMatch, replacePrefixMatch: /now/here}
    - filters:
        - type: RequestRedirect
          requestRedirect: {scheme: https, statusCode: 301}
"#;

/// A Secret of this certificate.
pub(crate) fn secret(name: &str, certificate: &Certificate) -> Result<String> {
    let indented = |path: &Path| -> Result<String> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Ok(text.lines().map(|line| format!("    {line}\n")).collect())
    };
    Ok(format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\ntype: kubernetes.io/tls\nstringData:\n  \
         tls.crt: |\n{}  tls.key: |\n{}",
        indented(&certificate.certificate)?,
        indented(&certificate.key)?
    ))
}

/// One Gateway of every host.
const IN_CLEAR_AND_BY_TLS: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: gateway-agent
  listeners:
    - {name: http, protocol: HTTP, port: 80}
    - name: https
      protocol: HTTPS
      port: 443
      tls: {certificateRefs: [{name: one}]}
"#;

/// A Gateway `gw` in clear on 80 and by TLS on 443, with a certificate for `one.example.com`; and `rest`.
pub(crate) fn serve_in_clear_and_by_tls(lab: &Lab, rest: &str) -> Result<Certificate> {
    let certificate = self_signed(lab.folder(), "one", &["one.example.com"])?;
    write(&lab.manifests(), "all.yaml", &(IN_CLEAR_AND_BY_TLS.to_owned() + rest))?;
    write(&lab.manifests(), "one.yaml", &secret("one", &certificate)?)?;
    Ok(certificate)
}

/// The manifests, and the certificates `one`, `two` and `more`.
fn serve_https(lab: &Lab) -> Result<[Certificate; 3]> {
    let of = |name: &str, hostname: &str| self_signed(lab.folder(), name, &[hostname]);
    let certificates =
        [of("one", "one.example.com")?, of("two", "*.two.example.com")?, of("more", "more.two.example.com")?];
    let text = GATEWAY.to_owned() + ROUTES + &service("web-1", "TCP", 80, WEB, &both(lab, 1));
    write(&lab.manifests(), "all.yaml", &text)?;
    for (name, certificate) in ["one", "two", "more"].into_iter().zip(&certificates) {
        write(&lab.manifests(), &format!("{name}.yaml"), &secret(name, certificate)?)?;
    }
    Ok(certificates)
}

/// curl, for which the names of the certificates lead to the gateway; trusts `trusted` alone.
pub(crate) fn curl(lab: &Lab, family: Family, trusted: &Path, args: &[&str]) -> Result<String> {
    lab::require_program("curl", "curl")?;
    let address = match lab.gateway_address(family) {
        std::net::IpAddr::V4(v4) => v4.to_string(),
        std::net::IpAddr::V6(v6) => format!("[{v6}]"),
    };
    let mut words = vec!["--silent".to_owned(), "--show-error".into(), "--max-time".into(), "60".into()];
    for host in ["one.example.com", "a.two.example.com", "more.two.example.com"] {
        for port in [80, 443] {
            words.extend(["--resolve".into(), format!("{host}:{port}:{address}")]);
        }
    }
    words.extend(["--cacert".into(), trusted.display().to_string()]);
    words.extend(args.iter().map(|arg| (*arg).to_owned()));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    lab.client().output("curl", &words)
}

fn s_client(lab: &Lab, family: Family, trusted: &Path, name: &str, more: &[&str]) -> Result<String> {
    let address = SocketAddr::new(lab.gateway_address(family), 443).to_string();
    let trusted = trusted.display().to_string();
    let mut words = vec!["s_client", "-connect", &address, "-servername", name, "-CAfile", &trusted];
    words.extend(["-verify_return_error", "-verify_hostname", name, "-brief"]);
    words.extend(more);
    // What it says of the connection goes to the error output.
    let mut script = vec!["-c", r#"exec openssl "$@" 2>&1"#, "openssl"];
    script.extend(words);
    lab.client().output("sh", &script)
}

on_each_datapath!(
    names_choose_listener_certificate_and_backend,
    certificates_rotate_under_load_without_a_dropped_connection,
    plain_requests_are_redirected,
    headers_are_modified_on_both_ways,
);

fn names_choose_listener_certificate_and_backend(datapath: Datapath) {
    routed(1, |lab| {
        let [one, two, more] = serve_https(lab)?;
        let _servers = identities(lab, 1)?;
        let agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            for (host, certificate) in
                [("one.example.com", &one), ("a.two.example.com", &two), ("more.two.example.com", &more)]
            {
                let url = format!("https://{host}/x?y=1");
                let answer = curl(lab, family, &certificate.certificate, &["--fail", &url])?;
                ensure!(answer == "web-1 GET /x?y=1\n", "{family} {host}: {answer:?}");
                for version in ["-tls1_2", "-tls1_3"] {
                    let said = s_client(lab, family, &certificate.certificate, host, &[version])?;
                    ensure!(said.contains("Verification: OK"), "{family} {host} {version}: {said}");
                }
            }
            ensure!(
                curl(lab, family, &two.certificate, &["https://one.example.com/"]).is_err(),
                "{family}: any certificate is accepted"
            );
            // A name that no listener has: told so, for none of them passes TLS through.
            let refused = s_client(lab, family, &one.certificate, "other.org", &[]);
            let text = format!("{:#}", refused.err().context("a stranger's name is served")?);
            ensure!(text.contains("unrecognized name"), "{family}: {text}");
            // The host of one listener by a connection to another.
            let status = ["--output", "/dev/null", "--write-out", "%{http_code}"];
            for (host, expected) in [("a.two.example.com", "421"), ("elsewhere.org", "404")] {
                let host = format!("Host: {host}");
                let args = [status.as_slice(), &["--header", &host, "https://one.example.com/"]].concat();
                let got = curl(lab, family, &one.certificate, &args)?;
                ensure!(got == expected, "{family} {host}: {got}, expected {expected}");
            }
        }
        let metrics = agent.metrics()?;
        let handshakes = metrics.sum("gateway_agent_listener_tls_handshakes_total", &[("listener", "one")]);
        ensure!(handshakes >= 10.0, "{handshakes} handshakes");
        let failures = metrics.sum(
            "gateway_agent_listener_tls_handshake_failures_total",
            &[("listener", "one"), ("reason", "alert")],
        );
        ensure!(failures >= 2.0, "{failures} failed handshakes");
        Ok(())
    });
}

fn certificates_rotate_under_load_without_a_dropped_connection(datapath: Datapath) {
    routed(1, |lab| {
        const ROTATIONS: usize = 3;
        let [one, ..] = serve_https(lab)?;
        let _servers = identities(lab, 1)?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        let mut certificates = vec![one];
        for n in 0..ROTATIONS {
            certificates.push(self_signed(lab.folder(), &format!("next-{n}"), &["one.example.com"])?);
        }
        let bundle = bundle(lab.folder(), &certificates)?;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // One connection, asked all along.
            let kept = scope.spawn(|| {
                let written = "%{num_connects} %{http_code}\\n";
                let args = ["--rate", "50/s", "--output", "/dev/null", "--write-out", written];
                curl(lab, Family::V4, &bundle, &[&args[..], &["https://one.example.com/[1-400]"]].concat())
            });
            // A connection for each request.
            let fresh = scope.spawn(|| {
                let mut n_asked = 0;
                while !is_over.load(Ordering::SeqCst) {
                    curl(lab, Family::V6, &bundle, &["--fail", "https://one.example.com/"])?;
                    n_asked += 1;
                }
                anyhow::Ok(n_asked)
            });
            let rotated = certificates.iter().skip(1).try_for_each(|next| {
                write(&lab.manifests(), "one.yaml", &secret("one", next)?)?;
                eventually("the next certificate is served", || {
                    curl(lab, Family::V4, &next.certificate, &["--fail", "https://one.example.com/"])
                        .map(drop)
                })
            });
            is_over.store(true, Ordering::SeqCst);
            let kept = kept.join().expect("curl's thread does not panic");
            let fresh = fresh.join().expect("curl's thread does not panic");
            rotated?;
            ensure!(fresh? > 0, "no request was made meanwhile");
            let kept = kept?;
            let connects = kept.lines().filter(|line| line.starts_with("1 ")).count();
            let answered = kept.lines().filter(|line| line.ends_with(" 200")).count();
            ensure!((connects, answered) == (1, 400), "{connects} connections, {answered} answers");
            Ok(())
        })
    });
}

/// One file that trusts all of them.
fn bundle(folder: &Path, certificates: &[Certificate]) -> Result<PathBuf> {
    let texts = certificates.iter().map(|one| fs::read_to_string(&one.certificate));
    let path = folder.join("bundle.crt");
    fs::write(&path, texts.collect::<std::io::Result<String>>()?)?;
    Ok(path)
}

fn plain_requests_are_redirected(datapath: Datapath) {
    routed(1, |lab| {
        let [one, ..] = serve_https(lab)?;
        let _servers = identities(lab, 1)?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            for (path, status, location) in [
                ("/a/b?c=d", "301", "https://one.example.com/a/b?c=d"),
                ("/moved/x?y", "308", "https://one.example.com/now/here/x?y"),
                ("/moved", "308", "https://one.example.com/now/here"),
            ] {
                let url = format!("http://one.example.com{path}");
                let written = "%{http_code} %{redirect_url}";
                let args = ["--output", "/dev/null", "--write-out", written, &url];
                let got = curl(lab, family, &one.certificate, &args)?;
                ensure!(got == format!("{status} {location}"), "{family} {path}: {got}");
                let answer = curl(lab, family, &one.certificate, &["--fail", "--location", &url])?;
                let target = location.trim_start_matches("https://one.example.com");
                ensure!(answer == format!("web-1 GET {target}\n"), "{family} {path}: {answer}");
            }
        }
        Ok(())
    });
}

fn headers_are_modified_on_both_ways(datapath: Datapath) {
    routed(1, |lab| {
        let [one, ..] = serve_https(lab)?;
        let server = HttpServer::identity(lab.backend(1), WEB, "web-1")?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        let sent = ["X-Set: by-client", "X-Add: by-client", "X-Gone: by-client", "X-Kept: by-client"];
        let mut args = vec!["--fail", "--dump-header", "-", "https://one.example.com/modified"];
        args.extend(sent.iter().flat_map(|header| ["--header", *header]));
        let answer = curl(lab, Family::V4, &one.certificate, &args)?.to_ascii_lowercase();
        for line in ["content-type: text/x-changed\r\n", "x-answer: by-rule\r\n"] {
            ensure!(answer.contains(line), "{answer}");
        }
        ensure!(answer.matches("content-type").count() == 1, "{answer}");
        let request = server.requests().pop().context("a request")?;
        for (name, value) in [
            ("x-set", Some("by-rule")),
            ("x-add", Some("by-client,by-rule,by-backend")),
            ("x-gone", None),
            ("x-kept", Some("by-client")),
            ("x-forwarded-proto", Some("https")),
            ("host", Some("one.example.com")),
        ] {
            ensure!(
                request.header(name) == value,
                "{name}: {:?}\n{}",
                request.header(name),
                request.raw_head
            );
        }
        Ok(())
    });
}
