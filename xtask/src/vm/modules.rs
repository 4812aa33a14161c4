//! The kernel modules that the guests' tests need, in load order.
//!
//! There is no `modules.dep` in a package (it is made at installation), so each module's own `depends=` is followed.
//! What has no file is taken to be built in, since not every release lists that; if it is not, the tests fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use object::{Object as _, ObjectSection as _};

/// What the tests use that some of Debian's cloud kernels have as modules: network devices for the namespaces, and
/// the classifier with its queueing discipline.
const WANTED: &[&str] = &["veth", "dummy", "tun", "sch_ingress", "cls_bpf"];

/// A module's file name in load order, and its bytes, decompressed.
pub(crate) type Module = (String, Vec<u8>);

pub(crate) fn collect(tree: &Path) -> Result<Vec<Module>> {
    let files = files(tree)?;
    let mut loader = Loader { files: &files, seen: BTreeSet::new(), ordered: Vec::new() };
    for name in WANTED {
        loader.add(name)?;
    }
    Ok(loader.ordered)
}

struct Loader<'a> {
    files: &'a BTreeMap<String, PathBuf>,
    seen: BTreeSet<String>,
    ordered: Vec<Module>,
}

impl Loader<'_> {
    fn add(&mut self, name: &str) -> Result<()> {
        let Some(path) = self.files.get(name) else { return Ok(()) };
        if !self.seen.insert(name.to_owned()) {
            return Ok(());
        }
        let bytes = decompressed(path)?;
        for dependency in dependencies(&bytes).with_context(|| format!("module {name}"))? {
            self.add(&dependency)?;
        }
        self.ordered.push((format!("{:02}-{name}.ko", self.ordered.len()), bytes));
        Ok(())
    }
}

fn files(tree: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![tree.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if let Some(name) = module_name(&path) {
                found.insert(name, path);
            }
        }
    }
    Ok(found)
}

/// The kernel treats `-` and `_` in names alike; `depends=` has the latter.
fn module_name(path: &Path) -> Option<String> {
    let (name, _) = path.file_name()?.to_str()?.split_once(".ko")?;
    Some(name.replace('-', "_"))
}

fn decompressed(path: &Path) -> Result<Vec<u8>> {
    let tool = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("ko") => return fs::read(path).with_context(|| format!("cannot read {}", path.display())),
        _ => bail!("{} is compressed in a way not known here", path.display()),
    };
    let output = Command::new(tool)
        .args(["--decompress", "--stdout"])
        .arg(path)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {tool}: run `cargo xtask setup`"))?;
    if !output.status.success() {
        bail!("{tool} cannot decompress {}", path.display());
    }
    Ok(output.stdout)
}

fn dependencies(module: &[u8]) -> Result<Vec<String>> {
    let file = object::File::parse(module)?;
    let info = file.section_by_name(".modinfo").context("no .modinfo")?.data()?;
    let fields = info.split(|&byte| byte == 0).filter_map(|field| std::str::from_utf8(field).ok());
    let depends = fields.filter_map(|field| field.strip_prefix("depends=")).next().unwrap_or_default();
    Ok(depends.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modules_name_is_free_of_its_compression_and_its_dashes() {
        assert_eq!(module_name(Path::new("kernel/net/sched/sch_ingress.ko.xz")).unwrap(), "sch_ingress");
        assert_eq!(module_name(Path::new("kernel/lib/crc-ccitt.ko")).unwrap(), "crc_ccitt");
        assert_eq!(module_name(Path::new("modules.order")), None);
    }
}
