//! Clients and servers that Debian does not have: built or fetched, at the versions that `tests/clients` pins, by
//! `cargo xtask test --step clients`. Does not build them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Where they are: `GATEWAY_TEST_CLIENTS`, else below the folder that cargo builds in.
pub fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("GATEWAY_TEST_CLIENTS") {
        return folder.into();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root.join(target).join("clients")
}

/// The path of a program, or of the folder `python` with packages.
pub fn find(name: &str) -> Result<String> {
    let path = folder().join(name);
    let path = path.canonicalize().with_context(|| {
        format!("no {}: run `cargo xtask test --step clients` (needs Go and pip)", path.display())
    })?;
    path.into_os_string().into_string().ok().context("the path is not UTF-8")
}

/// The script that serves and speaks WebSocket.
pub fn websocket() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/websocket.py")
}
