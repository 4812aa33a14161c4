//! The folder over time: what changed, and the last good state of what is bad.
//!
//! It reads files; when to look is the caller's matter.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::mem;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::load::{self, Content};
use super::{Finding, Load, ObjectId, Place, Severity};
use crate::api::Object;

/// One object of Kubernetes is at most 1.5 MiB; a file of objects need not be many times that.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// All files together; bounds the memory that a folder can take, with `MAX_FILES` the time to look through it.
const MAX_FOLDER_BYTES: u64 = 64 << 20;
const MAX_FILES: usize = 1024;
/// How long a file must stay as it is before the loss of an object or a fault in it is believed: it may be half
/// written, or between its removal and its return. Tools that replace files take milliseconds.
const SETTLE: Duration = Duration::from_millis(300);
/// When a file that never rests is believed all the same.
const PATIENCE: Duration = Duration::from_secs(3);
/// Two writes closer than the granularity of the file system's clock can leave the same time behind.
const CLOCK_GRANULARITY: Duration = Duration::from_millis(20);

/// A folder of manifests and what was good in it.
#[derive(Debug)]
pub struct Folder {
    dir: PathBuf,
    label: Arc<str>,
    files: BTreeMap<OsString, File>,
    /// Which file each object in use comes from.
    owners: HashMap<ObjectId, OsString>,
    is_fresh: bool,
    load: Arc<Load>,
}

/// What one look at the folder found.
#[derive(Debug, Default)]
pub struct Reload {
    /// Absent when nothing changed.
    pub load: Option<Arc<Load>>,
    /// When to look again at the latest, because something may be half done.
    pub retry_after: Option<Duration>,
}

#[derive(Debug)]
struct File {
    label: Arc<str>,
    stamp: Option<Stamp>,
    held: Vec<Held>,
    findings: Vec<Finding>,
    is_unreadable: bool,
    pending: Option<Pending>,
}

/// An object in use.
#[derive(Clone, Debug)]
struct Held {
    id: ObjectId,
    place: Place,
    object: Object,
    created: Option<Time>,
}

/// A version of a file that is not believed yet; without a stamp: its absence.
#[derive(Debug)]
struct Pending {
    stamp: Option<Stamp>,
    first: Instant,
    since: Instant,
}

/// Differs when the file is another, or has another content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified_ns: (i64, i64),
    changed_ns: (i64, i64),
    /// Read so soon after the change that a further one may not show.
    is_racy: bool,
}

/// A version of a file, as read.
struct Version {
    stamp: Option<Stamp>,
    content: Result<Content, Finding>,
    is_unreadable: bool,
}

// === impl Folder ===

impl Folder {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        let label = dir.display().to_string().into();
        Self {
            dir,
            label,
            files: BTreeMap::new(),
            owners: HashMap::new(),
            is_fresh: true,
            load: Arc::default(),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What is in force.
    pub const fn load(&self) -> &Arc<Load> {
        &self.load
    }

    /// Looks at the folder. The first look believes all it sees.
    pub fn reload(&mut self, now: Instant) -> Reload {
        let is_first = mem::replace(&mut self.is_fresh, false);
        let mut retry_after = None;
        let mut findings = Vec::new();
        let mut is_unreadable = false;
        match list(&self.dir) {
            Ok(names) => {
                if names.len() > MAX_FILES {
                    let message =
                        format!("more than {MAX_FILES} manifests; those after them in order are not read");
                    findings.push(Finding::of_file(&self.label, message));
                }
                let names = names.into_iter().take(MAX_FILES).collect();
                retry_after = self.update(names, is_first, now);
            }
            Err(error) => {
                is_unreadable = true;
                let kept = if is_first { "" } else { "; what it held stays in force" };
                findings
                    .push(Finding::of_file(&self.label, format!("the folder cannot be read: {error}{kept}")));
            }
        }
        let load = self.join(findings, is_unreadable);
        if !is_first && *self.load == load {
            return Reload { load: None, retry_after };
        }
        self.load = Arc::new(load);
        Reload { load: Some(Arc::clone(&self.load)), retry_after }
    }

    fn update(&mut self, names: Vec<OsString>, is_first: bool, now: Instant) -> Option<Duration> {
        let mut total = 0;
        let mut waits = Vec::new();
        let listed: HashSet<&OsStr> = names.iter().map(OsString::as_os_str).collect();
        self.files.retain(|name, file| {
            // One that exists and is not listed is beyond what is read; what was good in it stays.
            let is_there =
                listed.contains(name.as_os_str()) || self.dir.join(name).symlink_metadata().is_ok();
            if !is_there && file.settled(None, now) {
                return false;
            }
            if !is_there {
                waits.push(SETTLE);
            }
            true
        });
        for name in names {
            let path = self.dir.join(&name);
            let file = self.files.entry(name).or_insert_with(|| File::new(&path));
            let status = fs::metadata(&path);
            let stamp = status.as_ref().ok().map(Stamp::new);
            total += stamp.map_or(0, |stamp| stamp.size);
            if file.is_current(stamp) {
                file.pending = None;
                continue;
            }
            let version = Version::read(&path, &file.label, status, total);
            if is_first || !file.loses_by(&version) || file.settled(version.stamp, now) {
                file.accept(version);
            } else {
                waits.push(SETTLE);
            }
        }
        waits.into_iter().min()
    }

    /// All files as one, each object once.
    fn join(&mut self, mut findings: Vec<Finding>, mut unreadable: bool) -> Load {
        let mut chosen: BTreeMap<&ObjectId, (&OsString, &Held)> = BTreeMap::new();
        for (name, file) in &self.files {
            findings.extend(file.findings.iter().cloned());
            unreadable |= file.is_unreadable;
            for held in &file.held {
                match chosen.get(&held.id) {
                    // An object in use gives way to no other.
                    Some((first, _)) if self.owners.get(&held.id) != Some(name) || *first == name => {}
                    _ => {
                        chosen.insert(&held.id, (name, held));
                    }
                }
            }
        }
        for file in self.files.values() {
            for held in &file.held {
                if let Some((_, other)) = chosen.get(&held.id)
                    && !std::ptr::eq(*other, held)
                {
                    findings.push(duplicate(held, other));
                }
            }
        }
        findings.sort();
        findings.dedup();
        let owners = chosen.iter().map(|(id, (name, _))| ((*id).clone(), (*name).clone())).collect();
        let mut objects: Vec<&Held> = self
            .files
            .values()
            .flat_map(|file| &file.held)
            .filter(|held| chosen.get(&held.id).is_some_and(|(_, other)| std::ptr::eq(*other, *held)))
            .collect();
        // Stable: those without a time stay in the order of files and documents, after those with one.
        objects.sort_by(|a, b| (a.created.is_none(), &a.created).cmp(&(b.created.is_none(), &b.created)));
        let load = Load {
            places: objects.iter().map(|held| (held.id.clone(), held.place.clone())).collect(),
            objects: objects.into_iter().map(|held| held.object.clone()).collect(),
            findings,
            unreadable,
        };
        self.owners = owners;
        load
    }
}

fn duplicate(held: &Held, other: &Held) -> Finding {
    let Place { file, line, document, prefix } = &held.place;
    let dot = if prefix.is_empty() { "" } else { "." };
    Finding {
        file: Arc::clone(file),
        line: *line,
        document: *document,
        field: format!("{prefix}{dot}metadata.name"),
        severity: Severity::Error,
        message: format!(
            "{} {} is there already, at {}:{}: document {}; that one is used",
            held.id.kind, held.id.name, other.place.file, other.place.line, other.place.document
        ),
    }
}

/// Names of the manifests, in order, one more than are read at most.
fn list(dir: &Path) -> io::Result<Vec<OsString>> {
    let mut names = std::collections::BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if is_manifest(&name) {
            names.insert(name);
            if names.len() > MAX_FILES + 1 {
                names.pop_last();
            }
        }
    }
    Ok(names.into_iter().collect())
}

fn is_manifest(name: &OsStr) -> bool {
    let is_hidden = name.as_encoded_bytes().starts_with(b".");
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    !is_hidden && matches!(extension, Some("json" | "yaml" | "yml"))
}

// === impl File ===

impl File {
    fn new(path: &Path) -> Self {
        Self {
            label: path.display().to_string().into(),
            stamp: None,
            held: Vec::new(),
            findings: Vec::new(),
            is_unreadable: false,
            pending: None,
        }
    }

    /// Whether the version in force is the one on disk.
    fn is_current(&self, stamp: Option<Stamp>) -> bool {
        self.stamp.is_some_and(|own| !own.is_racy && stamp.is_some_and(|stamp| stamp.is_same(&own)))
    }

    /// Whether believing `version` would take away something, or report a fault.
    fn loses_by(&self, version: &Version) -> bool {
        let Ok(content) = &version.content else { return true };
        let is_missing =
            |held: &Held| !content.entries.iter().any(|entry| entry.id.as_ref() == Some(&held.id));
        content.findings.iter().any(|finding| finding.severity == Severity::Error)
            || self.held.iter().any(is_missing)
    }

    /// Whether the file has been in this state long enough to believe it. Absence is the state without a stamp.
    fn settled(&mut self, stamp: Option<Stamp>, now: Instant) -> bool {
        let is_same = |pending: &Pending| match (pending.stamp, stamp) {
            (Some(old), Some(new)) => old.is_same(&new),
            (None, None) => true,
            _ => false,
        };
        let is_settled = match &mut self.pending {
            Some(pending) if is_same(pending) => now.duration_since(pending.since) >= SETTLE,
            Some(pending) => {
                (pending.stamp, pending.since) = (stamp, now);
                now.duration_since(pending.first) >= PATIENCE
            }
            None => {
                self.pending = Some(Pending { stamp, first: now, since: now });
                false
            }
        };
        if is_settled {
            self.pending = None;
        }
        is_settled
    }

    fn accept(&mut self, version: Version) {
        let Version { stamp, content, is_unreadable } = version;
        (self.stamp, self.is_unreadable, self.pending) = (stamp, is_unreadable, None);
        let Content { entries, findings } = match content {
            Ok(content) => content,
            Err(finding) => {
                self.findings = vec![finding];
                return;
            }
        };
        self.findings = findings;
        let before = mem::take(&mut self.held);
        let last_good = |id: &ObjectId| before.iter().find(|held| held.id == *id).cloned();
        let good: HashSet<_> = entries
            .iter()
            .filter(|entry| entry.object.is_some())
            .filter_map(|entry| entry.id.clone())
            .collect();
        let named: HashSet<_> = entries.iter().filter_map(|entry| entry.id.clone()).collect();
        let is_clear = entries.iter().all(|entry| entry.id.is_some());
        for entry in entries {
            let Some(id) = entry.id else { continue };
            match entry.object {
                Some(object) => {
                    self.held.push(Held { id, place: entry.place, object, created: entry.created });
                }
                None if good.contains(&id) => {}
                None => self.held.extend(last_good(&id)),
            }
        }
        if !is_clear {
            // Any of these may be what the unclear one was meant to be.
            self.held.extend(before.into_iter().filter(|held| !named.contains(&held.id)));
        }
    }
}

// === impl Version ===

impl Version {
    /// `total` is the size of this file and all before it in order.
    fn read(path: &Path, label: &Arc<str>, status: io::Result<Metadata>, total: u64) -> Self {
        let stamp = status.as_ref().ok().map(Stamp::new);
        let fault = |message: String| Err(Finding::of_file(label, message));
        let cannot = |error: io::Error| Self {
            stamp: None,
            content: fault(format!("cannot be read: {error}")),
            is_unreadable: true,
        };
        let status = match status {
            Ok(status) => status,
            Err(error) => return cannot(error),
        };
        let message = if !status.is_file() {
            Some("not a file".into())
        } else if status.len() > MAX_FILE_BYTES {
            Some(format!("{} bytes, at most {MAX_FILE_BYTES} are read", status.len()))
        } else if total > MAX_FOLDER_BYTES {
            Some(format!(
                "not read: the files before it fill the {MAX_FOLDER_BYTES} bytes that a folder may have"
            ))
        } else {
            None
        };
        if let Some(message) = message {
            return Self { stamp, content: fault(message), is_unreadable: false };
        }
        match read_bounded(path) {
            Ok(bytes) => Self { stamp, content: load::parse(label, &bytes), is_unreadable: false },
            Err(error) => cannot(error),
        }
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Should the path have become a FIFO, opening it must not wait for a writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    // One that grew since it was looked at is read again, as its stamp differs.
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

// === impl Stamp ===

impl Stamp {
    fn new(status: &Metadata) -> Self {
        let age = status.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        Self {
            device: status.dev(),
            inode: status.ino(),
            size: status.len(),
            modified_ns: (status.mtime(), status.mtime_nsec()),
            changed_ns: (status.ctime(), status.ctime_nsec()),
            is_racy: age.is_none_or(|age| age < CLOCK_GRANULARITY),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        Self { is_racy: false, ..*self } == Self { is_racy: false, ..*other }
    }
}

#[cfg(test)]
mod tests;
