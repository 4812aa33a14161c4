//! The suite's binary, and the agent's image. Go and cargo decide what must be built again. The images that the suite's
//! manifests name come with the cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::folder;
use crate::command::{cargo, program, root, run, target_dir};

/// The release of Go that the suite's module asks for; the go command gets it by itself.
const GO_TOOLCHAIN: &str = "go1.27.3";

/// The suite as one binary, with its manifests inside.
pub(super) fn suite() -> Result<PathBuf> {
    let start = Instant::now();
    fs::create_dir_all(folder())?;
    let binary = folder().join("conformance.test");
    println!("conformance: building the suite (the first time some 3 minutes of CPU) ...");
    run(program("go")
        .current_dir(root().join("tests/conformance"))
        .env("GOTOOLCHAIN", GO_TOOLCHAIN)
        // Without cgo: a static program and no C compiler.
        .env("CGO_ENABLED", "0")
        .args(["test", "-c", "-trimpath", "-ldflags", "-s -w", "-o"])
        .arg(&binary)
        .arg("."))?;
    println!("conformance: suite built in {:.1} s", start.elapsed().as_secs_f64());
    Ok(binary)
}

/// The agent, and the archive of its image.
pub(super) fn agent(built: Option<&Path>) -> Result<(PathBuf, PathBuf)> {
    let archive = folder().join("gateway-agent.tar");
    let agent = match built {
        Some(path) => fs::canonicalize(path).with_context(|| format!("no {}", path.display()))?,
        None => {
            run(&mut cargo(["build", "--release", "--locked", "--package", "gateway-agent"]))?;
            target_dir().join("release/gateway-agent")
        }
    };
    // This very program: another build may have put another in its place.
    run(program("/proc/self/exe").args(["image", "--binary"]).arg(&agent).arg("--output").arg(&archive))?;
    Ok((agent, archive))
}
