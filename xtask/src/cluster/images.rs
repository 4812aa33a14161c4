//! Images that the cluster and its tests need.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{Folder, build};
use crate::image::{of_programs, of_static_program};

pub(super) const PAUSE: &str = "docker.io/local/pause:1";
pub(super) const COREDNS: &str = "docker.io/local/coredns:1";
/// For tests: busybox with its shell, HTTP server and more, and curl, since Debian's static busybox has no resolver.
pub(super) const TOOLS: &str = "docker.io/local/tools:1";

/// The names by which the conformance suite's manifests ask for one program. The second differs from the first in what
/// no test of a Gateway uses.
const ECHO: [&str; 2] = [
    "registry.k8s.io/gateway-api/conformance/echo-basic:v0.1.0",
    "registry.k8s.io/gateway-api/conformance/echo-basic:v0.2.0",
];

/// What every node has from its start.
pub(super) fn infrastructure(folder: &Folder, binaries: &Path) -> Result<Vec<PathBuf>> {
    let tools = of_programs(TOOLS, Path::new("/bin/busybox"), &[Path::new("/usr/bin/curl")])?;
    Ok(vec![
        write(folder, PAUSE, &of_static_program(PAUSE, &binaries.join("pause"))?)?,
        write(folder, COREDNS, &of_static_program(COREDNS, &binaries.join("coredns"))?)?,
        write(folder, TOOLS, &tools)?,
    ])
}

/// Builds the conformance suite's own backends.
pub(super) fn conformance(folder: &Folder) -> Result<Vec<PathBuf>> {
    let program = build::echo()?;
    ECHO.iter().map(|image| write(folder, image, &of_static_program(image, &program)?)).collect()
}

fn write(folder: &Folder, image: &str, bytes: &[u8]) -> Result<PathBuf> {
    let path = folder.path("images").join(image.replace(['/', ':'], "-")).with_added_extension("tar");
    fs::create_dir_all(folder.path("images"))?;
    fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
