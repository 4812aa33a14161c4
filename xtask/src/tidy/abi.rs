//! The ABI between the agent and its kernel programs changes only together with its version: pinned maps of another
//! version are refused, and that is all that protects a new agent from an old program's maps.
//!
//! What counts is the code, not its comments and not its tests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::Finding;
use super::source::product_code;

const LOCK: &str = "gateway-ebpf/common/abi.lock";

/// Keys, values and events; and the maps' names, types and sizes, which a successor adopts.
const SOURCES: &[&str] = &[
    "gateway-ebpf/common/src/abi.rs",
    "gateway-ebpf/common/src/address.rs",
    "gateway-ebpf/common/src/maps.rs",
];

/// Where the version is.
const VERSION: &str = "gateway-ebpf/common/src/lib.rs";

/// The folder of the first of the sources, when it has grown one.
const FOLDER: &str = "gateway-ebpf/common/src/abi";

#[derive(Debug, PartialEq, Eq)]
struct Abi {
    version: u32,
    hash: u64,
}

pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let now = read_sources(root)?;
    let recorded = read_lock(root)?;
    Ok(compare(&now, recorded.as_ref()).map(|text| Finding::new(Path::new(LOCK), text)).into_iter().collect())
}

fn compare(now: &Abi, recorded: Option<&Abi>) -> Option<String> {
    match recorded {
        None => Some("is missing: `cargo xtask tidy --bless-abi` records the ABI".to_owned()),
        Some(recorded) if recorded == now => None,
        Some(recorded) if recorded.version == now.version => Some(format!(
            "the ABI has changed and is still version {}: raise ABI_VERSION, then `cargo xtask tidy --bless-abi`",
            now.version
        )),
        Some(_) => {
            Some("records an older ABI_VERSION: `cargo xtask tidy --bless-abi` records the new".to_owned())
        }
    }
}

pub(super) fn bless(root: &Path) -> Result<()> {
    let now = read_sources(root)?;
    if let Some(recorded) = read_lock(root)?
        && recorded != now
        && recorded.version >= now.version
    {
        bail!("ABI_VERSION is {} and {} was recorded: raise it first", now.version, recorded.version);
    }
    let text = format!("version {}\nhash {:016x}\n", now.version, now.hash);
    fs::write(root.join(LOCK), text).with_context(|| format!("cannot write {LOCK}"))?;
    println!("tidy: {LOCK} records ABI version {}", now.version);
    Ok(())
}

fn read_lock(root: &Path) -> Result<Option<Abi>> {
    let Ok(text) = fs::read_to_string(root.join(LOCK)) else { return Ok(None) };
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let version = value("version ").and_then(|value| value.parse().ok());
    let hash = value("hash ").and_then(|value| u64::from_str_radix(value, 16).ok());
    match (version, hash) {
        (Some(version), Some(hash)) => Ok(Some(Abi { version, hash })),
        _ => bail!("{LOCK} is not of the form that `cargo xtask tidy --bless-abi` writes"),
    }
}

fn read_sources(root: &Path) -> Result<Abi> {
    let mut paths: Vec<PathBuf> = SOURCES.iter().map(|path| root.join(path)).collect();
    if let Ok(entries) = fs::read_dir(root.join(FOLDER)) {
        let mut inner: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        inner.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
        inner.sort();
        paths.extend(inner);
    }
    let mut code = String::new();
    for path in paths {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        code.push_str(&product_code(&text));
    }
    let text = fs::read_to_string(root.join(VERSION)).with_context(|| format!("cannot read {VERSION}"))?;
    let version = version(&text).with_context(|| VERSION.to_owned())?;
    Ok(Abi { version, hash: hash(&code) })
}

fn version(code: &str) -> Result<u32> {
    let (_, behind) = code.split_once("const ABI_VERSION: u32 =").context("no ABI_VERSION: u32")?;
    let (value, _) = behind.split_once(';').context("ABI_VERSION has no end")?;
    value.trim().parse().context("ABI_VERSION is no plain number")
}

/// FNV-1a over everything but white space: it tells a change, it protects from nobody.
fn hash(code: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let visible = code.bytes().filter(|byte| !byte.is_ascii_whitespace());
    visible.fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_without_a_new_version_is_a_finding() {
        let old = Abi { version: 3, hash: 1 };
        assert_eq!(compare(&old, Some(&old)), None);
        assert!(compare(&Abi { version: 3, hash: 2 }, Some(&old)).unwrap().contains("raise ABI_VERSION"));
        assert!(compare(&Abi { version: 4, hash: 2 }, Some(&old)).unwrap().contains("older"));
        assert!(compare(&old, None).unwrap().contains("missing"));
    }

    #[test]
    fn layout_and_comments_are_no_change() {
        let one = product_code("/// A key.\nstruct Key { port_be: u16 }\n");
        let other =
            product_code("/// Another comment.\nstruct Key {\n    port_be: u16 // network order\n}\n");
        assert_eq!(hash(&one), hash(&other));
        assert_ne!(hash(&one), hash(&product_code("struct Key { port_be: u32 }\n")));
    }
}
