//! Who keeps maps, programs and links alive when this process ends: nobody, the holder process, or pins in a bpffs.
//!
//! Names are those of the holder: `map/NAME`, `program/NAME`, `link/tcx/INTERFACE`, `link/sk_lookup`. As pins they are
//! files, with `/` written as `-`. **Invariant:** knows nothing of what the objects are.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::sys;
use crate::holder::{Client, HolderError};

/// `BPF_FS_MAGIC`.
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;

#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    #[error("--instance {0} cannot be the name of a folder of pins: letters, digits, `-` and `_` only")]
    Instance(String),
    #[error(
        "{} is not a bpffs; mount one (mount -t bpf bpf {}), or leave --bpffs out", .0.display(), .0.display()
    )]
    NotBpffs(PathBuf),
    #[error("{}: another agent uses these pins; give each its own --instance", .0.display())]
    InUse(PathBuf),
    #[error("{}: cannot {what}", path.display())]
    Pin {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Holder(#[from] HolderError),
}

impl KeeperError {
    /// Whether the kernel path can do without this keeper: what is wrong is the place for pins, not who uses it.
    pub(super) const fn is_dispensable(&self) -> bool {
        matches!(self, Self::NotBpffs(_) | Self::Pin { .. })
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) enum Keeper {
    Process,
    Holder(Arc<Client>),
    Pins(Arc<Pins>),
}

/// A folder of pins, which one agent uses at a time.
#[derive(Debug)]
pub(super) struct Pins {
    dir: PathBuf,
    /// Locked for as long as this process lives.
    _lock: File,
}

impl Keeper {
    /// What is kept already, by name.
    pub(super) fn kept(&self) -> Result<Vec<(String, OwnedFd)>, KeeperError> {
        match self {
            Self::Process => Ok(Vec::new()),
            Self::Holder(client) => Ok(client.take_all()?),
            Self::Pins(pins) => pins.kept(),
        }
    }

    /// Keeps the object under this name, in place of any other.
    pub(super) fn keep(&self, name: &str, object: BorrowedFd<'_>) -> Result<(), KeeperError> {
        match self {
            Self::Process => Ok(()),
            Self::Holder(client) => Ok(client.put(name, object)?),
            Self::Pins(pins) => pins.keep(name, object),
        }
    }

    /// Lets it go; unknown names are ignored.
    pub(super) fn forget(&self, name: &str) -> Result<(), KeeperError> {
        match self {
            Self::Process => Ok(()),
            Self::Holder(client) => Ok(client.remove(name)?),
            Self::Pins(pins) => pins.forget(name),
        }
    }

    /// Whether the objects outlive the agent as a whole, not only a crash of it.
    pub(super) const fn outlives_the_agent(&self) -> bool {
        matches!(self, Self::Pins(_))
    }

    /// Where the object of this name is, or would be, pinned.
    pub(super) fn pin_path(&self, name: &str) -> Option<PathBuf> {
        match self {
            Self::Process | Self::Holder(_) => None,
            Self::Pins(pins) => Some(pins.path(name)),
        }
    }

    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::Process => "this process",
            Self::Holder(_) => "the holder process",
            Self::Pins(_) => "pins",
        }
    }
}

impl Pins {
    /// Opens `bpffs`/`instance`, made where it is absent.
    pub(super) fn open(bpffs: &Path, instance: &str) -> Result<Self, KeeperError> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        // A bpffs refuses dots itself, and a slash would leave the folder.
        if instance.is_empty() || instance.len() > 128 || !instance.bytes().all(is_name) {
            return Err(KeeperError::Instance(instance.into()));
        }
        let kind = nix::sys::statfs::statfs(bpffs).map_err(|error| KeeperError::Pin {
            what: "look at the file system",
            path: bpffs.into(),
            source: error.into(),
        })?;
        if kind.filesystem_type() != nix::sys::statfs::FsType(BPF_FS_MAGIC) {
            return Err(KeeperError::NotBpffs(bpffs.into()));
        }
        let dir = bpffs.join(instance);
        let pin = |what, source| KeeperError::Pin { what, path: dir.clone(), source };
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(pin("make the folder", error));
            }
            _ => {}
        }
        let lock = File::open(&dir).map_err(|error| pin("open the folder", error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { dir, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(KeeperError::InUse(dir)),
            Err(TryLockError::Error(error)) => Err(pin("lock the folder", error)),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name.replace('/', "-"))
    }

    fn kept(&self) -> Result<Vec<(String, OwnedFd)>, KeeperError> {
        let error = |what: &'static str, path: &Path| {
            let path = path.to_path_buf();
            move |source| KeeperError::Pin { what, path, source }
        };
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(error("read", &self.dir))? {
            let path = entry.map_err(error("read", &self.dir))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            // What is in the folder beside our pins is not ours to open.
            let Some(name) = object_name(name) else { continue };
            kept.push((name, sys::open_pin(&path).map_err(error("open the pin", &path))?));
        }
        kept.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(kept)
    }

    fn keep(&self, name: &str, object: BorrowedFd<'_>) -> Result<(), KeeperError> {
        self.forget(name)?;
        let path = self.path(name);
        sys::pin(object, &path).map_err(|source| KeeperError::Pin { what: "pin", path, source })
    }

    fn forget(&self, name: &str) -> Result<(), KeeperError> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(KeeperError::Pin { what: "remove the pin", path, source })
            }
            _ => Ok(()),
        }
    }
}

/// The reverse of [`Pins::path`].
fn object_name(file: &str) -> Option<String> {
    ["map-", "program-", "link-tcx-", "link-"].iter().find_map(|prefix| {
        let rest = file.strip_prefix(prefix)?;
        Some(format!("{}{rest}", prefix.replace('-', "/")))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{KeeperError, Pins, object_name};

    #[test]
    fn pin_names_come_back_as_they_were() {
        for name in ["map/HALF_OPEN", "program/l4_ingress", "link/tcx/12", "link/sk_lookup"] {
            assert_eq!(object_name(&name.replace('/', "-")).as_deref(), Some(name));
        }
        assert_eq!(object_name("something"), None);
    }

    #[test]
    fn instance_that_could_leave_the_folder_is_refused() {
        for instance in ["", "..", "a/b", "a.b", "ä"] {
            let opened = Pins::open(Path::new("/"), instance);
            assert!(matches!(opened, Err(KeeperError::Instance(_))), "{instance}");
        }
    }

    #[test]
    fn folder_that_is_no_bpffs_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Pins::open(dir.path(), "test"), Err(KeeperError::NotBpffs(_))));
        let absent = dir.path().join("absent");
        assert!(matches!(Pins::open(&absent, "test"), Err(KeeperError::Pin { .. })));
    }
}
