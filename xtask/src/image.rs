//! `image`: the agent's container image, without a container engine: an OCI archive that containerd, Podman and skopeo
//! read. One layer: the agent, the libraries that it is linked to, names for its user, and /tmp.
//!
//! It pushes nothing. The libraries are this machine's: build on the release that the image is to stand for.

mod oci;
mod tar;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use self::oci::Image;
use self::tar::Archive;
use crate::command::{cargo, output, run as run_command, target_dir};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The image's name with its tag
    #[arg(long, default_value = concat!("docker.io/local/gateway-agent:", env!("CARGO_PKG_VERSION")))]
    name: String,
    /// Where the archive goes; without it: target/image/gateway-agent.tar
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// An agent that is already built; without it: the release build
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

/// The user of images that need none in particular, by the convention of "distroless" images.
const USER: u32 = 65532;

/// CAP_NET_ADMIN, CAP_PERFMON and CAP_BPF: what the kernel path needs, and the most that the agent ever has.
const CAPABILITIES: u64 = 1 << 12 | 1 << 38 | 1 << 39;

const AGENT: &str = "gateway-agent";

pub(crate) fn run(args: &Args) -> Result<()> {
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => {
            run_command(&mut cargo(["build", "--release", "--locked", "--package", AGENT]))?;
            target_dir().join("release").join(AGENT)
        }
    };
    let path = args.output.clone().unwrap_or_else(|| target_dir().join("image/gateway-agent.tar"));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let bytes = agent(&args.name, &binary)?;
    fs::write(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
    println!("image: {} in {} ({} MB)", args.name, path.display(), bytes.len() / 1_000_000);
    Ok(())
}

fn agent(name: &str, binary: &Path) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let stripped = folder.path().join(AGENT);
    output(Command::new("strip").arg("--strip-debug").arg("-o").arg(&stripped).arg(binary))?;
    let mut layer = base();
    add_libraries(&mut layer, &libraries(binary)?)?;
    // Permitted only, and raised by the agent: a program with them in its effective set cannot be started in a pod that
    // has not been given them, and the same image is to run there.
    layer.program_with_capabilities(AGENT, &fs::read(&stripped)?, CAPABILITIES);
    let user = format!("{USER}:{USER}");
    Ok(Image { name, entrypoint: &format!("/{AGENT}"), user: Some(&user), layer }.archive())
}

/// What every image has: names of its users, and a folder for temporary files.
fn base() -> Archive {
    let mut layer = Archive::default();
    layer.folder("tmp/", 0o1777);
    let users = format!("root:x:0:0:root:/:/\nnonroot:x:{USER}:{USER}:nonroot:/:/\n");
    layer.file("etc/passwd", 0o644, users.as_bytes());
    layer
}

/// An image of one static program of this machine.
pub(crate) fn of_static_program(name: &str, program: &Path) -> Result<Vec<u8>> {
    of_programs(name, program, &[])
}

/// An image that starts a static program of this machine, and has others beside it that are linked dynamically.
pub(crate) fn of_programs(name: &str, program: &Path, others: &[&Path]) -> Result<Vec<u8>> {
    let mut layer = base();
    let file = add_program(&mut layer, program)?;
    let mut files = BTreeSet::new();
    for other in others {
        add_program(&mut layer, other)?;
        files.extend(libraries(other)?);
    }
    add_libraries(&mut layer, &files)?;
    Ok(Image { name, entrypoint: &format!("/{file}"), user: None, layer }.archive())
}

/// Puts a program of this machine into the root and gives its name.
fn add_program<'a>(layer: &mut Archive, program: &'a Path) -> Result<&'a str> {
    let file = program.file_name().and_then(|name| name.to_str()).context("a program has a name")?;
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    layer.file(file, 0o755, &bytes);
    Ok(file)
}

fn add_libraries(layer: &mut Archive, files: &BTreeSet<String>) -> Result<()> {
    for library in files {
        let content = fs::read(library).with_context(|| format!("cannot read {library}"))?;
        layer.file(library.trim_start_matches('/'), 0o755, &content);
    }
    Ok(())
}

/// The absolute paths that the dynamic loader resolves for `program`, the loader included.
fn libraries(program: &Path) -> Result<BTreeSet<String>> {
    let listed = output(Command::new("ldd").arg(program))
        .with_context(|| format!("{} is to be linked dynamically", program.display()))?;
    Ok(listed.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_the_same_bytes_each_time_and_names_itself() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, "static").unwrap();
        let image = of_static_program("docker.io/local/program:1", &program).unwrap();
        assert_eq!(image, of_static_program("docker.io/local/program:1", &program).unwrap());
        let text = String::from_utf8_lossy(&image);
        assert!(text.contains(r#""io.containerd.image.name":"docker.io/local/program:1""#));
        assert!(text.contains(r#""Entrypoint":["/program"]"#));
    }

    #[test]
    fn a_program_comes_with_its_loader() {
        let libraries = libraries(&std::env::current_exe().unwrap()).unwrap();
        assert!(libraries.iter().any(|path| path.contains("/ld-linux")), "{libraries:?}");
    }
}
