//! One request of which everything is checked, by curl, and one TLS handshake, by openssl.
//!
//! **Invariant:** no I/O: arguments, and what their output says.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::scenario::{Scenario, Traffic};
use super::{CIPHER, CURVE};

pub(super) struct Files<'a> {
    /// The body of a gRPC call.
    pub(super) call: &'a Path,
    /// Where head and body of the answer go to.
    pub(super) head: &'a Path,
    pub(super) body: &'a Path,
}

/// For curl. `authority` is the certificate that is trusted.
pub(super) fn request(
    scenario: &Scenario,
    host: &str,
    to: SocketAddr,
    authority: Option<&Path>,
    files: &Files<'_>,
) -> Vec<String> {
    let mut args: Vec<String> = ["--silent", "--show-error", "--max-time", "20"].map(Into::into).into();
    args.extend(["--connect-to".into(), format!("::{to}")]);
    if let Some(authority) = authority {
        args.extend(["--cacert".into(), authority.display().to_string()]);
    }
    let version = match (scenario.is_http_2(), scenario.is_tls) {
        (false, _) => "--http1.1",
        (true, false) => "--http2-prior-knowledge",
        (true, true) => "--http2",
    };
    args.push(version.into());
    let path = |path: &Path| path.display().to_string();
    args.extend(["--output".into(), path(files.body), "--dump-header".into(), path(files.head)]);
    args.extend(["--write-out".into(), "%{http_code} %{http_version}".into()]);
    if scenario.traffic == Traffic::Calls {
        args.extend(["--data-binary".into(), format!("@{}", files.call.display())]);
        args.extend(["-H", "content-type: application/grpc", "-H", "te: trailers"].map(Into::into));
    }
    args.push(scenario.url(host));
    args
}

/// Whether status, version, body and trailers are the backend's.
pub(super) fn check(scenario: &Scenario, written: &str, head: &str, body: &[u8]) -> Result<()> {
    let version = if scenario.is_http_2() { "2" } else { "1.1" };
    let (status, spoken) = written.split_once(' ').context("curl wrote nothing")?;
    ensure!(status == "200", "status {status}");
    ensure!(spoken == version, "HTTP/{spoken} was spoken instead of HTTP/{version}");
    ensure!(body == scenario.body(), "a body of {} bytes that is not the backend's", body.len());
    if scenario.traffic == Traffic::Calls {
        let has_status = head.lines().any(|line| line.trim_end() == "grpc-status: 0");
        ensure!(has_status, "no grpc-status: 0 in\n{head}");
    }
    Ok(())
}

/// For openssl, which offers what the load generators do, and more after it.
pub(super) fn handshake(host: &str, to: SocketAddr, authority: &Path) -> Vec<String> {
    let suites = format!("{CIPHER}:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
    let mut args: Vec<String> =
        ["s_client", "-tls1_3", "-verify_return_error", "-groups"].map(Into::into).into();
    args.extend([format!("{CURVE}:P-256:P-384"), "-ciphersuites".into(), suites]);
    args.extend(["-connect".into(), to.to_string(), "-servername".into(), host.to_owned()]);
    args.extend(["-CAfile".into(), authority.display().to_string()]);
    args
}

/// Whether the server chose what all of them are to choose.
pub(super) fn check_handshake(text: &str) -> Result<()> {
    let is_said = |wanted: &str| text.lines().any(|line| line.trim().starts_with(wanted));
    ensure!(is_said(&format!("New, TLSv1.3, Cipher is {CIPHER}")), "another cipher than {CIPHER}:\n{text}");
    ensure!(is_said(&format!("Server Temp Key: {CURVE}")), "another curve than {CURVE}:\n{text}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::scenario::Site;
    use super::*;

    #[test]
    fn an_answer_of_the_backend_is_told_from_all_others() {
        let web = Site::example("h1").scenario;
        assert!(check(&web, "200 1.1", "", &web.body()).is_ok());
        assert!(check(&web, "404 1.1", "", &web.body()).is_err());
        assert!(check(&web, "200 2", "", &web.body()).is_err());
        assert!(check(&web, "200 1.1", "", b"welcome").is_err());
        let calls = Site::example("grpc").scenario;
        let head = "HTTP/2 200 \r\ncontent-type: application/grpc\r\n\r\ngrpc-status: 0\r\n\r\n";
        assert!(check(&calls, "200 2", head, &calls.body()).is_ok());
        assert!(check(&calls, "200 2", &head.replace(": 0", ": 14"), &calls.body()).is_err());
    }

    #[test]
    fn a_server_that_chooses_by_itself_is_found_out() {
        let said = "Server Temp Key: X25519, 253 bits\n---\nNew, TLSv1.3, Cipher is TLS_AES_128_GCM_SHA256\n";
        assert!(check_handshake(said).is_ok());
        assert!(check_handshake(&said.replace("128", "256")).is_err());
        assert!(check_handshake(&said.replace("X25519", "ECDH, prime256v1")).is_err());
    }
}
