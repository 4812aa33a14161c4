//! Memory that is not needed goes back to the kernel: what the allocator keeps for later, and pages of the program.
//!
//! Reading thousands of objects takes many times the memory that they are kept in, in pieces between what stays. glibc gives
//! back what lies at the end of a heap by itself, and never what lies within.
//!
//! The kernel maps 64 KiB of a program around whatever is touched. After the start two thirds of the program are mapped,
//! most of it for what is done once (arguments, credentials, schemas, the first of everything).

use std::ffi::c_void;
use std::fs;
use std::future::pending;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Objects after which it is worth while: they have passed through some megabytes.
const OBJECTS: usize = 1000;

/// As long as lists of thousands take to come in and be answered: what is free is left to that.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where objects never stop coming.
const LONGEST: Duration = Duration::from_secs(60);

/// What has passed through memory since the last time that it was given back.
#[derive(Debug, Default)]
pub struct Passage {
    n_objects: usize,
    since: Option<Instant>,
    calm: Option<Pin<Box<Sleep>>>,
}

impl Passage {
    /// The process has been set up just now.
    pub fn started() -> Self {
        let mut passage = Self::default();
        passage.passed(OBJECTS);
        passage
    }

    pub fn passed(&mut self, n_objects: usize) {
        self.n_objects += n_objects;
        if self.n_objects < OBJECTS {
            return;
        }
        let now = Instant::now();
        let longest = *self.since.get_or_insert(now) + LONGEST;
        self.calm = Some(Box::pin(sleep_until(longest.min(now + PATIENCE))));
    }

    /// Resolves when it is time to [`give_back`], once for what has passed until then. Cancellation-safe.
    pub async fn calm(&mut self) {
        match &mut self.calm {
            Some(sleep) => sleep.as_mut().await,
            None => pending().await,
        }
        *self = Self::default();
    }
}

/// Gives back what is free, and pages of the program and its libraries: those in use are mapped again from the page cache,
/// which costs a fault of about a microsecond for each 64 KiB. Takes some milliseconds and each heap's lock, so not for a
/// worker's thread.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called by any thread at any time; it touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
    match fs::read_to_string("/proc/self/smaps") {
        Ok(smaps) => unchanged_files(&smaps).for_each(unmap),
        Err(error) => tracing::debug!(%error, "cannot read which pages are the program's"),
    }
}

/// Mappings of files that cannot be written to and whose pages are all as in the file (proc_pid_smaps(5)): neither relocated,
/// nor patched by a debugger or a library that was loaded before.
fn unchanged_files(smaps: &str) -> impl Iterator<Item = Range<usize>> {
    let mut mapping = None;
    smaps.lines().filter_map(move |line| {
        if let Some(size) = line.strip_prefix("Anonymous:") {
            return mapping.take().filter(|_| size.trim() == "0 kB");
        }
        if let Some(started) = header(line) {
            mapping = started;
        }
        None
    })
}

/// Of a line `START-END PERMISSIONS OFFSET DEVICE INODE [PATH]`; `Some(None)`: of another mapping than is wanted.
fn header(line: &str) -> Option<Option<Range<usize>>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let range = address(start)?..address(end)?;
    let permissions = words.next()?;
    let inode = words.nth(2)?;
    Some((!permissions.contains('w') && inode != "0").then_some(range))
}

fn unmap(pages: Range<usize>) {
    // SAFETY: these are whole pages of a file, as they are in it: MADV_DONTNEED (madvise(2)) takes them out of the page table,
    // and the next access, from whatever thread, finds the same bytes.
    unsafe {
        libc::madvise(pages.start as *mut c_void, pages.len(), libc::MADV_DONTNEED);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, timeout};

    use super::{LONGEST, OBJECTS, PATIENCE, Passage, give_back, unchanged_files};

    #[tokio::test(start_paused = true)]
    async fn it_is_time_once_for_each_thousand_objects() {
        let mut passage = Passage::default();
        let soon = PATIENCE + Duration::from_secs(1);
        passage.passed(OBJECTS - 1);
        assert!(timeout(soon, passage.calm()).await.is_err());
        passage.passed(1);
        // What is given up by others in between is waited for still.
        assert!(timeout(PATIENCE / 2, passage.calm()).await.is_err());
        assert!(timeout(soon, passage.calm()).await.is_ok());
        assert!(timeout(soon, passage.calm()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_time_when_no_more_objects_come_or_after_a_minute() {
        let mut passage = Passage::started();
        for _ in 0..10 {
            assert!(timeout(PATIENCE / 2, passage.calm()).await.is_err());
            passage.passed(1);
        }
        assert!(timeout(PATIENCE - Duration::from_millis(1), passage.calm()).await.is_err());
        assert!(timeout(Duration::from_millis(2), passage.calm()).await.is_ok());

        let started = Instant::now();
        passage.passed(OBJECTS);
        while timeout(PATIENCE / 2, passage.calm()).await.is_err() {
            passage.passed(1);
        }
        assert!(started.elapsed() >= LONGEST && started.elapsed() < LONGEST + PATIENCE);
    }

    /// A field of /proc/self/status, in bytes.
    fn resident(field: &str) -> usize {
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
        value.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
    }

    #[test]
    fn the_program_is_unmapped_and_goes_on() {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        for address in unchanged_files(&smaps).flat_map(|pages| pages.step_by(4096)) {
            // SAFETY: a byte of a file that is mapped readable, within its size, for the loader maps no more.
            unsafe { (address as *const u8).read_volatile() };
        }
        let before = resident("RssFile");
        give_back();
        let after = resident("RssFile");
        // Half of it: this test runs on, and others with it.
        assert!(after < before / 2, "{before} bytes before, {after} after");
    }

    #[test]
    fn only_what_is_as_in_its_file_is_unmapped() {
        let smaps = "\
55d000000000-55d000004000 r--p 00000000 fe:00 11 /usr/bin/agent
Rss:                  16 kB
Anonymous:             0 kB
55d000004000-55d000008000 r-xp 00004000 fe:00 11 /usr/bin/agent with spaces
Anonymous:             0 kB
55d000008000-55d00000c000 r--p 00008000 fe:00 11 /usr/bin/agent
Anonymous:             4 kB
55d00000c000-55d000010000 rw-p 0000c000 fe:00 11 /usr/bin/agent
Anonymous:             0 kB
7f0000000000-7f0000004000 r--p 00000000 00:00 0
Anonymous:             0 kB
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
";
        let expected = [0x55d0_0000_0000..0x55d0_0000_4000, 0x55d0_0000_4000..0x55d0_0000_8000_usize];
        assert_eq!(unchanged_files(smaps).collect::<Vec<_>>(), expected);
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn free_memory_between_what_stays_is_given_back() {
        const N: usize = 64 * 1024;
        const BYTES: usize = 1024;
        let mut pieces: Vec<Option<Box<[u8]>>> = (0..N).map(|_| Some(vec![1; BYTES].into())).collect();
        // One of 64 stays, so that next to nothing is free at the end.
        for (index, piece) in pieces.iter_mut().enumerate() {
            if index % 64 != 63 {
                *piece = None;
            }
        }
        let before = resident("RssAnon");
        give_back();
        let given = before.saturating_sub(resident("RssAnon"));
        // Half of it: other tests take memory meanwhile.
        assert!(given > N * BYTES / 2, "{given} bytes");
        assert_eq!(pieces.iter().flatten().count(), N / 64);
    }
}
