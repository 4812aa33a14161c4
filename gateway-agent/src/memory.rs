//! Memory that is not needed goes back to the kernel: what the allocator keeps for later, and pages of the program.
//!
//! Reading thousands of objects takes many times the memory that they are kept in, in pieces between what stays. glibc gives
//! back what lies at the end of a heap by itself, and never what lies within.
//!
//! The kernel maps 64 KiB of a program around whatever is touched. After the start two thirds of the program are mapped,
//! most of it for what is done once (arguments, credentials, schemas, the first of everything).

use std::ffi::{c_int, c_void};
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

/// Gives back what is free, and the pages of the program: those in use are mapped again from the page cache, which costs
/// a fault of about a microsecond for each 64 KiB. Holds each heap's lock for about a millisecond per 10 MB, so not for a
/// worker's thread.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called by any thread at any time; it touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
    for pages in program() {
        // SAFETY: these are whole pages of the program's file, which is never unloaded, and relocations are elsewhere, in
        // segments that are writable: MADV_DONTNEED (madvise(2)) takes them out of the page table, and the next access, from
        // whatever thread, finds the same bytes. (A debugger's breakpoint is lost.)
        unsafe {
            libc::madvise(pages.start as *mut c_void, pages.len(), libc::MADV_DONTNEED);
        }
    }
}

/// Where the program's segments are that are not writable, in whole pages. Not those of libraries: they come and go, and
/// it is not known what was done to them.
fn program() -> Vec<Range<usize>> {
    let mut segments: Vec<Range<usize>> = Vec::new();
    // SAFETY: `add_segments` is called for loaded objects while `segments` is borrowed by nothing else.
    unsafe {
        libc::dl_iterate_phdr(Some(add_segments), (&raw mut segments).cast());
    }
    segments
}

/// Adds those of the first object only, which is the program (dl_iterate_phdr(3)).
extern "C" fn add_segments(object: *mut libc::dl_phdr_info, _size: usize, segments: *mut c_void) -> c_int {
    const STOP: c_int = 1;
    // SAFETY: `program` passes its vector, and the C library a valid description, whose headers stay mapped.
    let (segments, base, headers) = unsafe {
        let object = &*object;
        let headers = std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
        (&mut *segments.cast::<Vec<Range<usize>>>(), object.dlpi_addr, headers)
    };
    // SAFETY: sysconf(3) has no requirements.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned();
    for header in headers {
        if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0 {
            let start = base + header.p_vaddr;
            let end = (start + header.p_memsz).next_multiple_of(page);
            segments.push((start / page * page) as usize..end as usize);
        }
    }
    STOP
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, timeout};

    use super::{LONGEST, OBJECTS, PATIENCE, Passage, give_back, program};

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
        for address in program().into_iter().flat_map(|pages| pages.step_by(4096)) {
            // SAFETY: a byte of a segment that is mapped readable.
            unsafe { (address as *const u8).read_volatile() };
        }
        let before = resident("RssFile");
        give_back();
        let after = resident("RssFile");
        // Half of it: this test runs on, and others with it.
        assert!(after < before / 2, "{before} bytes before, {after} after");
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
