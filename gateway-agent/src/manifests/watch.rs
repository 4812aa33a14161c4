//! When to look at the folder: at once when the kernel says that something changed, else every few seconds.
//!
//! The slow look also finds what inotify cannot tell: a folder that vanished or came back, or a symbolic link to it
//! that now leads elsewhere. It decides nothing about what it finds: see `folder`.

use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch::Sender;
use tokio::{select, task, time};

use super::{Folder, Load};

/// How long a change that inotify cannot tell may stay unseen.
const SLOW_LOOK: Duration = Duration::from_secs(2);
/// The same without inotify, or without a folder: nothing else would see it.
const QUICK_LOOK: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
#[error("reading the manifests was interrupted")]
pub struct WatchError(#[source] task::JoinError);

/// Reads `dir` for as long as someone receives, and sends what it holds whenever that changed. The first load is always
/// sent. Cancellation-safe: nothing is kept but what it holds itself.
pub async fn watch(dir: PathBuf, loads: Sender<Arc<Load>>) -> Result<(), WatchError> {
    let mut notifier = Notifier::new()
        .inspect_err(|error| tracing::warn!(%error, "no inotify; the manifests are looked at twice a second"))
        .ok();
    let mut folder = Folder::new(dir);
    loop {
        // Before the look: what changes after it must wake us.
        let is_armed = notifier.as_mut().is_some_and(|notifier| notifier.arm(folder.dir()));
        let look = move || {
            let reload = folder.reload(Instant::now());
            (folder, reload)
        };
        // Reading and checking thousands of objects takes long enough to keep others on this runtime waiting.
        let (back, reload) = task::spawn_blocking(look).await.map_err(WatchError)?;
        folder = back;
        if let Some(load) = reload.load
            && loads.send(load).is_err()
        {
            return Ok(());
        }
        let pause = if is_armed { SLOW_LOOK } else { QUICK_LOOK };
        let pause = time::sleep(reload.retry_after.map_or(pause, |retry| retry.min(pause)));
        match &notifier {
            Some(notifier) => select! {
                () = loads.closed() => return Ok(()),
                () = notifier.changed() => {}
                () = pause => {}
            },
            None => select! {
                () = loads.closed() => return Ok(()),
                () = pause => {}
            },
        }
    }
}

struct Notifier {
    inotify: AsyncFd<Handle>,
    watched: Option<Watched>,
}

struct Watched {
    descriptor: WatchDescriptor,
    device: u64,
    inode: u64,
}

struct Handle(Inotify);

impl AsRawFd for Handle {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

// === impl Notifier ===

impl Notifier {
    fn new() -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        // SAFETY: `Handle` owns its one descriptor, which is open until it is dropped, and always returns that one.
        let inotify = unsafe { AsyncFd::register_with_interest(Handle(inotify), Interest::READABLE) }?;
        Ok(Self { inotify, watched: None })
    }

    /// Watches the folder that `dir` leads to now; false when there is none.
    fn arm(&mut self, dir: &Path) -> bool {
        let Ok(status) = fs::metadata(dir) else {
            self.disarm();
            return false;
        };
        let (device, inode) = (status.dev(), status.ino());
        if self.watched.as_ref().is_some_and(|watched| (watched.device, watched.inode) == (device, inode)) {
            return true;
        }
        self.disarm();
        // Not IN_MODIFY: a file is read when its writer is done with it.
        let flags = AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        match self.inotify.get_ref().0.add_watch(dir, flags) {
            Ok(descriptor) => self.watched = Some(Watched { descriptor, device, inode }),
            Err(error) => {
                tracing::debug!(%error, "cannot watch the manifests");
            }
        }
        self.watched.is_some()
    }

    fn disarm(&mut self) {
        if let Some(watched) = self.watched.take()
            // The kernel drops a watch by itself when its folder is deleted.
            && let Err(error) = self.inotify.get_ref().0.rm_watch(watched.descriptor)
        {
            tracing::debug!(%error, "the watch of the manifests was gone");
        }
    }

    /// Returns when something changed, with all that changed by then taken in. What it was does not matter.
    async fn changed(&self) {
        loop {
            // An error here means that the runtime is shutting down; the caller is about to be dropped.
            let Ok(mut guard) = self.inotify.readable().await else { return std::future::pending().await };
            let mut any = false;
            loop {
                match self.inotify.get_ref().0.read_events() {
                    Ok(events) if !events.is_empty() => any = true,
                    Err(Errno::EINTR) => {}
                    Ok(_) | Err(_) => break,
                }
            }
            guard.clear_ready();
            if any {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::sync::watch::{Receiver, channel};
    use tokio::time::timeout;

    use super::super::Load;
    use super::watch;

    /// Longer than any machine needs.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn write(dir: &Path, file: &str, name: &str) {
        let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
        fs::write(dir.join(file), text).expect("a file");
    }

    async fn names(loads: &mut Receiver<Arc<Load>>, expected: &[&str]) {
        let is_there = |load: &Arc<Load>| {
            let names: Vec<_> = load.places.iter().map(|(id, _)| &*id.name.name).collect();
            names == expected
        };
        let result = timeout(PATIENCE, loads.wait_for(is_there)).await;
        result.expect("it is seen in time").expect("the watch goes on");
    }

    async fn check<F: Future<Output = ()>>(test: impl FnOnce(tempfile::TempDir, Receiver<Arc<Load>>) -> F) {
        let temp = tempfile::tempdir().expect("a folder");
        fs::create_dir(temp.path().join("m")).expect("a folder");
        let (sender, receiver) = channel(Arc::default());
        let watching = tokio::spawn(watch(temp.path().join("m"), sender));
        // The receiver is dropped at the end of the test, which ends the watch.
        test(temp, receiver).await;
        timeout(PATIENCE, watching).await.expect("it ends in time").expect("no panic").expect("no error");
    }

    #[tokio::test]
    async fn changes_are_sent_and_the_watch_ends_with_its_receiver() {
        check(|temp, mut loads| async move {
            let dir = temp.path().join("m");
            timeout(PATIENCE, loads.changed()).await.expect("in time").expect("the first load is sent");
            write(&dir, "a.yaml", "a");
            names(&mut loads, &["a"]).await;
            write(&dir, "b.yaml", "b");
            names(&mut loads, &["a", "b"]).await;
            fs::rename(dir.join("b.yaml"), dir.join("c.txt")).expect("it moves");
            names(&mut loads, &["a"]).await;
            fs::rename(dir.join("c.txt"), dir.join("c.yaml")).expect("it moves");
            names(&mut loads, &["a", "b"]).await;
        })
        .await;
    }

    #[tokio::test]
    async fn a_folder_that_vanishes_and_returns_is_followed() {
        check(|temp, mut loads| async move {
            let dir = temp.path().join("m");
            write(&dir, "a.yaml", "a");
            names(&mut loads, &["a"]).await;
            fs::rename(&dir, temp.path().join("away")).expect("it moves");
            timeout(PATIENCE, loads.wait_for(|load| load.unreadable))
                .await
                .expect("in time")
                .expect("it goes on");
            names(&mut loads, &["a"]).await;
            fs::create_dir(&dir).expect("a folder");
            write(&dir, "b.yaml", "b");
            names(&mut loads, &["b"]).await;
            // The new folder is watched as the old one was.
            write(&dir, "c.yaml", "c");
            names(&mut loads, &["b", "c"]).await;
        })
        .await;
    }
}
