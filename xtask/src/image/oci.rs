//! An image as the OCI's image layout in a tar file: blobs by their hashes, and an index that names the image.
//!
//! The same layer gives the same bytes: no time is in it. Nothing is compressed.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::tar::Archive;

pub(crate) struct Image<'a> {
    /// With registry and tag: containerd looks for `docker.io/` where a pod names no registry.
    pub(crate) name: &'a str,
    pub(crate) entrypoint: &'a str,
    /// `UID:GID` in digits, which `runAsNonRoot` can judge; root without it.
    pub(crate) user: Option<&'a str>,
    pub(crate) layer: Archive,
}

impl Image<'_> {
    pub(crate) fn archive(self) -> Vec<u8> {
        let layer = self.layer.finish();
        let diff = format!("sha256:{}", hash(&layer));
        let mut archive = Archive::default();
        let layer = add(&mut archive, "application/vnd.oci.image.layer.v1.tar", &layer);
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": { "Entrypoint": [self.entrypoint], "Env": ["PATH=/"], "User": self.user.unwrap_or_default() },
            "rootfs": { "type": "layers", "diff_ids": [diff] },
        });
        let config =
            add(&mut archive, "application/vnd.oci.image.config.v1+json", config.to_string().as_bytes());
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({ "schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer] });
        let mut manifest = add(&mut archive, kind, manifest.to_string().as_bytes());
        let tag = self.name.rsplit_once(':').map_or(self.name, |(_, tag)| tag);
        manifest["annotations"] =
            json!({ "io.containerd.image.name": self.name, "org.opencontainers.image.ref.name": tag });
        let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
        archive.file("index.json", 0o644, index.to_string().as_bytes());
        archive.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#);
        archive.finish()
    }
}

/// Adds content by its hash, and gives its descriptor.
fn add(archive: &mut Archive, media_type: &str, bytes: &[u8]) -> Value {
    let digest = hash(bytes);
    archive.file(&format!("blobs/sha256/{digest}"), 0o644, bytes);
    json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len() })
}

/// The name that images use for this machine's architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
