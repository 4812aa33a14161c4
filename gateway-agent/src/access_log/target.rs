//! Where the access log goes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Stdout,
    /// Appended to. Opened anew where it was moved away, so that it can be rotated.
    File(PathBuf),
}

/// How long a file that was moved away may still be written to.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Output {
    file: File,
    /// Absent: never opened anew.
    path: Option<PathBuf>,
    checked: Instant,
}

impl Output {
    pub(super) fn open(target: Target) -> io::Result<Self> {
        let (file, path) = match target {
            // A descriptor of its own: without the buffer that standard output has in this process.
            Target::Stdout => (File::from(io::stdout().as_fd().try_clone_to_owned()?), None),
            Target::File(path) => (open(&path)?, Some(path)),
        };
        Ok(Self { file, path, checked: Instant::now() })
    }

    /// The file that the path names now.
    pub(super) fn file(&mut self) -> io::Result<&File> {
        if let Some(path) = &self.path
            && self.checked.elapsed() >= CHECK_INTERVAL
        {
            self.checked = Instant::now();
            if !is_at(&self.file, path) {
                self.file = open(path)?;
            }
        }
        Ok(&self.file)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), path.metadata()) {
        (Ok(file), Ok(named)) => identity(file) == identity(named),
        _ => false,
    }
}
