//! The guest's whole file system: an uncompressed `newc` archive, written here so that no archiver is needed.
//!
//! Symbolic links, owners and times are left out: a guest needs files and folders only.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command::output;

const DIRECTORY: u32 = 0o040_755;

const EXECUTABLE: u32 = 0o100_755;

#[derive(Default)]
pub(crate) struct Initramfs {
    bytes: Vec<u8>,
    folders: BTreeSet<PathBuf>,
    files: BTreeSet<PathBuf>,
    inode: u32,
}

impl Initramfs {
    /// Adds a file at an absolute path, with the folders above it. A second one at the same path is left out.
    pub(crate) fn file(&mut self, path: &str, content: &[u8]) {
        let path = Path::new(path.trim_start_matches('/'));
        if !self.files.insert(path.to_owned()) {
            return;
        }
        if let Some(parent) = path.parent() {
            self.folder(parent);
        }
        self.entry(path, EXECUTABLE, content);
    }

    pub(crate) fn folder(&mut self, path: &Path) {
        if path.as_os_str().is_empty() || !self.folders.insert(path.to_owned()) {
            return;
        }
        if let Some(parent) = path.parent() {
            self.folder(parent);
        }
        self.entry(path, DIRECTORY, &[]);
    }

    /// Adds a program of this machine at `path`, with the libraries it is linked to.
    pub(crate) fn program(&mut self, path: &str, source: &Path) -> Result<()> {
        let content = fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
        self.file(path, &content);
        for library in libraries(source)? {
            let content = fs::read(&library).with_context(|| format!("cannot read {library}"))?;
            self.file(&library, &content);
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry(Path::new("TRAILER!!!"), 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) {
        self.inode += 1;
        let name = path.as_os_str().as_encoded_bytes();
        let fields = [self.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            write!(self.bytes, "{field:08x}").expect("a vector takes all that is written");
        }
        self.bytes.extend_from_slice(name);
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The format has 32 bits for a length; a test binary of 4 GiB would not fit into the guest either.
fn len(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("files of an initramfs are below 4 GiB")
}

/// The absolute paths that the dynamic loader resolves for `program`, the loader included.
fn libraries(program: &Path) -> Result<Vec<String>> {
    // It fails for a static program, which needs none.
    let listed = output(Command::new("ldd").arg(program)).unwrap_or_default();
    Ok(listed.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_one_that_busybox_reads() {
        let mut initramfs = Initramfs::default();
        initramfs.file("/a/b/file", b"content of five words here");
        initramfs.file("/a/b/file", b"a second one is left out");
        initramfs.folder(Path::new("proc"));
        let dir = tempfile::tempdir().unwrap();
        let archive = dir.path().join("initrd");
        fs::write(&archive, initramfs.finish()).unwrap();
        let script = format!("cd {} && busybox cpio -i < initrd 2>&1", dir.path().display());
        output(Command::new("sh").args(["-c", &script])).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("a/b/file")).unwrap(), "content of five words here");
        assert!(dir.path().join("proc").is_dir());
    }
}
