//! Certificates for TLS backends, made by `openssl`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// A self-signed certificate and its key.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Makes `NAME.crt` and `NAME.key` in `folder`, valid for `hostnames`, which clients trust as their own CA.
pub fn self_signed(folder: &Path, name: &str, hostnames: &[&str]) -> Result<Certificate> {
    make(folder, name, hostnames, &[])
}

/// The same, signed by `ca`; signs no others.
pub fn signed(folder: &Path, name: &str, hostnames: &[&str], ca: &Certificate) -> Result<Certificate> {
    let (certificate, key) = (ca.certificate.to_string_lossy(), ca.key.to_string_lossy());
    let leaf = ["-addext", "basicConstraints=critical,CA:FALSE", "-CA", &certificate, "-CAkey", &key];
    make(folder, name, hostnames, &leaf)
}

fn make(folder: &Path, name: &str, hostnames: &[&str], more: &[&str]) -> Result<Certificate> {
    crate::require_program("openssl", "openssl")?;
    let certificate = folder.join(format!("{name}.crt"));
    let key = folder.join(format!("{name}.key"));
    let names: Vec<String> = hostnames.iter().map(|hostname| format!("DNS:{hostname}")).collect();
    let output = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "2", "-subj", &format!("/CN={name}")])
        .args(["-addext", &format!("subjectAltName={}", names.join(","))])
        .args(more)
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .context("run openssl req")?;
    if !output.status.success() {
        bail!("openssl req: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(Certificate { certificate, key })
}
