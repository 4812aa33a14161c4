//! The suite's binary and the images that it and the agent need. Go and cargo decide what must be built again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::folder;
use crate::command::{cargo, output, program, root, run, target_dir};
use crate::image;

/// The release of Go that the suite's module asks for; the go command gets it by itself.
const GO_TOOLCHAIN: &str = "go1.27.3";

/// The program behind the suite's images of this name.
const ECHO: &str = "sigs.k8s.io/gateway-api/conformance/echo-basic";

pub(super) struct Suite {
    pub(super) binary: PathBuf,
    /// The suite's source, as the module cache has it.
    source: PathBuf,
}

/// The suite as one binary, with its manifests inside.
pub(super) fn suite() -> Result<Suite> {
    let start = Instant::now();
    fs::create_dir_all(folder())?;
    let binary = folder().join("conformance.test");
    println!("conformance: building the suite (the first time some 3 minutes of CPU) ...");
    run(go("conformance").args(["test", "-c", "-trimpath", "-ldflags", "-s -w", "-o"]).arg(&binary).arg("."))?;
    let source = output(go("conformance").args([
        "list",
        "-m",
        "-f",
        "{{.Dir}}",
        "sigs.k8s.io/gateway-api/conformance",
    ]))?;
    println!("conformance: suite built in {:.1} s", start.elapsed().as_secs_f64());
    Ok(Suite { binary, source: PathBuf::from(source.trim()) })
}

/// The images that the suite's manifests name, made from the suite's own program. One program serves all tags.
pub(super) fn backends(suite: &Suite) -> Result<Vec<PathBuf>> {
    let echo = folder().join("echo-basic");
    run(go("cluster/echo").args(["build", "-trimpath", "-ldflags", "-s -w", "-o"]).arg(&echo).arg(ECHO))?;
    let names = echo_images(&suite.source)?;
    ensure!(!names.is_empty(), "the suite's manifests name no image echo-basic");
    let mut archives = Vec::new();
    for name in names {
        let tag = name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        let path = folder().join(format!("echo-basic-{tag}.tar"));
        fs::write(&path, image::of_static_program(&name, &echo)?)?;
        archives.push(path);
    }
    Ok(archives)
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

fn go(module: &str) -> Command {
    let mut command = program("go");
    command
        .current_dir(root().join("tests").join(module))
        .env("GOTOOLCHAIN", GO_TOOLCHAIN)
        // Without cgo: static programs and no C compiler.
        .env("CGO_ENABLED", "0");
    command
}

/// Every image of the program in the manifests for gateways.
fn echo_images(source: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for part in ["base", "tests"] {
        let folder = source.join(part);
        for entry in fs::read_dir(&folder).with_context(|| format!("no {}", folder.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                names.extend(images(&fs::read_to_string(&path)?).map(str::to_owned));
            }
        }
    }
    Ok(names)
}

fn images(manifest: &str) -> impl Iterator<Item = &str> {
    let names = manifest.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("image: "));
    names.map(|name| name.trim_matches('"')).filter(|name| name.contains("/echo-basic:"))
}

#[cfg(test)]
mod tests {
    use super::images;

    #[test]
    fn images_are_those_of_the_echo_program() {
        let manifest = "    - image: example.org/a/echo-basic:v1\n      image: \"example.org/a/echo-basic:v2\"\n      image: other:1\n";
        assert_eq!(
            images(manifest).collect::<Vec<_>>(),
            ["example.org/a/echo-basic:v1", "example.org/a/echo-basic:v2"]
        );
    }
}
