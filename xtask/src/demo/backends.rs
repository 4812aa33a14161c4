//! The servers behind the gateway: nginx for HTTP and TLS, sockets of this process for TCP and UDP.

use std::fs;

use anyhow::{Context as _, Result};
use lab::pki::{Certificate, self_signed};
use lab::servers::{TcpServer, UdpServer, tcp_echo, udp_echo};
use lab::{Command, Lab, Process, client, eventually};

use super::N_BACKENDS;

/// All of them; they end when this is dropped.
pub(super) struct Backends {
    pub(super) certificate: Certificate,
    _processes: Vec<Process>,
    _tcp: Vec<TcpServer>,
    _udp: Vec<UdpServer>,
}

impl Backends {
    pub(super) fn start(lab: &Lab) -> Result<Self> {
        let nginx = lab::require_program("nginx", "nginx-light")?;
        let certificate = self_signed(lab.folder(), "demo", &["secure.example.com", "*.secure.example.com"])?;
        let (mut processes, mut tcp, mut udp) = (Vec::new(), Vec::new(), Vec::new());
        for index in 1..=N_BACKENDS {
            let folder = lab.folder().join(format!("nginx-{index}"));
            fs::create_dir_all(&folder)?;
            let configuration = folder.join("nginx.conf");
            fs::write(&configuration, nginx_configuration(index, &certificate))?;
            let process = Command::new(&format!("nginx-{index}"), &nginx)
                .args(["-p".as_ref(), folder.as_os_str(), "-e".as_ref(), "stderr".as_ref()])
                .args(["-c".as_ref(), configuration.as_os_str()])
                .netns(lab.backend(index))
                .start(lab)?;
            eventually("nginx answers", || {
                process.check_running()?;
                let to = (lab.backend_address(index, lab::Family::V4), 8080).into();
                client::get(lab.gateway(), to, "any", "/").map(drop)
            })
            .context("a backend does not start")?;
            processes.push(process);
            tcp.push(tcp_echo(lab.backend(index), 5432, &format!("backend-{index}"))?);
            udp.push(udp_echo(lab.backend(index), 5353, &format!("backend-{index}"))?);
        }
        Ok(Self { certificate, _processes: processes, _tcp: tcp, _udp: udp })
    }
}

fn nginx_configuration(index: u8, certificate: &Certificate) -> String {
    let name = if index == 3 { "web-next" } else { "web" };
    let (pem, key) = (certificate.certificate.display(), certificate.key.display());
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("  {kind}_temp_path {kind}_temp;\n"))
        .collect();
    format!(
        "daemon off;\nmaster_process off;\npid nginx.pid;\nevents {{ }}\nhttp {{\n  access_log off;\n{temporary}  \
           default_type text/plain;\n  server {{\n    listen 8080;\n    listen [::]:8080;\n    \
           return 200 \"{name} on backend-{index}\\n\";\n  }}\n  server {{\n    listen 8443 ssl;\n    \
           listen [::]:8443 ssl;\n    ssl_certificate {pem};\n    ssl_certificate_key {key};\n    \
           return 200 \"secure on backend-{index}\\n\";\n  }}\n}}\n"
    )
}
