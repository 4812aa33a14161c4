//! Certificates on all sides: of clients towards the Gateway, of the Gateway towards backends. With curl as the client and
//! openssl as the backend.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use lab::client::connect;
use lab::manifests::{service, write};
use lab::pki::{Certificate, self_signed, signed};
use lab::{Agent, AgentOptions, Command, Datapath, Family, Lab, Process, eventually};

use crate::bed::{both, on_each_datapath, routed};
use crate::https::{curl, secret};

const TARGET: u16 = 8443;

const MANIFEST: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: gateway-agent
  tls:
    frontend:
      default: {validation: {caCertificateRefs: [{group: "", kind: ConfigMap, name: clients}]}}
    backend: {clientCertificateRef: {name: own}}
  listeners:
    - {name: https, protocol: HTTPS, port: 443, tls: {certificateRefs: [{name: one}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: gw}]
  rules: [{backendRefs: [{name: web, port: 443}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: web}
spec:
  targetRefs: [{group: "", kind: Service, name: web}]
  validation:
    hostname: backend.example.com
    caCertificateRefs: [{group: "", kind: ConfigMap, name: backends}]
"#;

/// A ConfigMap of this authority.
fn authority(name: &str, ca: &Certificate) -> Result<String> {
    let text = fs::read_to_string(&ca.certificate).context("read the authority")?;
    let text: String = text.lines().map(|line| format!("    {line}\n")).collect();
    let head = format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
    Ok(head + "data:\n  ca.crt: |\n" + &text)
}

/// Tells of each connection; takes none without a certificate of `clients`.
fn backend(lab: &Lab, own: &Certificate, clients: &Certificate) -> Result<Process> {
    let server = Command::new("s_server", lab::require_program("openssl", "openssl")?)
        .args(["s_server", "-quiet", "-www", "-accept", &TARGET.to_string()])
        .args(["-Verify", "1", "-verify_return_error", "-CAfile"])
        .args([
            clients.certificate.as_os_str(),
            "-cert".as_ref(),
            own.certificate.as_os_str(),
            "-key".as_ref(),
            own.key.as_os_str(),
        ])
        .netns(lab.backend(1))
        .start(lab)?;
    eventually("openssl s_server listens", || {
        server.check_running()?;
        let address = std::net::SocketAddr::new(lab.backend_address(1, Family::V4), TARGET);
        connect(lab.gateway(), address).map(drop)
    })?;
    Ok(server)
}

on_each_datapath!(everyone_shows_a_certificate_and_authorities_change_live,);

fn everyone_shows_a_certificate_and_authorities_change_live(datapath: Datapath) {
    routed(1, |lab| {
        let folder = lab.folder();
        let one = self_signed(folder, "one", &["one.example.com"])?;
        let ca = |name: &str| self_signed(folder, name, &["ca"]);
        let (clients, later, backends, gateways) = (ca("clients")?, ca("later")?, ca("backends")?, ca("gw")?);
        let own = signed(folder, "own", &["gateway"], &gateways)?;
        let behind = signed(folder, "behind", &["backend.example.com"], &backends)?;
        let _backend = backend(lab, &behind, &gateways)?;
        let text = MANIFEST.to_owned() + &service("web", "TCP", 443, TARGET, &both(lab, 1));
        write(&lab.manifests(), "all.yaml", &text)?;
        write(&lab.manifests(), "secrets.yaml", &(secret("one", &one)? + &secret("own", &own)?))?;
        write(&lab.manifests(), "backends.yaml", &authority("backends", &backends)?)?;
        write(&lab.manifests(), "clients.yaml", &authority("clients", &clients)?)?;
        let _agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        let client = signed(folder, "client", &["client"], &clients)?;
        let next = signed(folder, "next", &["client"], &later)?;
        let ask = |family: Family, shown: Option<&Certificate>| {
            let mut args = vec!["--fail".to_owned(), "https://one.example.com/".to_owned()];
            if let Some(shown) = shown {
                let (certificate, key) = (shown.certificate.display(), shown.key.display());
                args.extend(["--cert".into(), certificate.to_string(), "--key".into(), key.to_string()]);
            }
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            curl(lab, family, &one.certificate, &args)
        };
        // The endpoint of the other family answers on both.
        for family in Family::BOTH {
            let page = ask(family, Some(&client))?;
            let is_known = page.contains("Verify return code: 0") && page.contains("Subject: CN=own");
            ensure!(is_known, "{family}: {page}");
            ensure!(ask(family, None).is_err(), "{family}: a client without a certificate comes in");
            ensure!(ask(family, Some(&next)).is_err(), "{family}: any certificate is accepted");
        }
        write(&lab.manifests(), "clients.yaml", &authority("clients", &later)?)?;
        eventually("the next authority is in force", || ask(Family::V4, Some(&next)).map(drop))?;
        ensure!(ask(Family::V4, Some(&client)).is_err(), "the authority before is still in force");
        // Nothing is sent to a backend that another authority speaks for.
        write(&lab.manifests(), "backends.yaml", &authority("backends", &later)?)?;
        eventually("the backend is not trusted any more", || {
            ensure!(ask(Family::V4, Some(&next)).is_err(), "it still is");
            Ok(())
        })
    });
}
