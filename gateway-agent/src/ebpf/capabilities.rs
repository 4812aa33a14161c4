//! The three capabilities of the kernel path, raised by the agent itself.
//!
//! The image's binary has them in its file capabilities as *permitted only*, so that a pod without them can start it
//! too. **Invariant:** only ever raises what is permitted already; drops nothing.

use std::io;

/// `_LINUX_CAPABILITY_VERSION_3`: 64 capabilities in two words.
const VERSION: u32 = 0x2008_0522;
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// Capabilities 0 to 31, then 32 to 63.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Word {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

#[derive(Clone, Copy, Default)]
struct Sets([Word; 2]);

impl Sets {
    fn permitted(&self) -> u64 {
        u64::from(self.0[1].permitted) << 32 | u64::from(self.0[0].permitted)
    }
}

/// What the kernel path needs and the process may not have: names for a message, empty if all is there.
pub(super) fn missing() -> Result<Vec<&'static str>, io::Error> {
    Ok(missing_of(read()?.permitted()))
}

fn missing_of(permitted: u64) -> Vec<&'static str> {
    let has = |capability: u32| permitted & 1 << capability != 0;
    // Before 5.8 there was CAP_SYS_ADMIN only, and it still stands for both.
    let needed = [
        ("CAP_BPF", has(CAP_BPF) || has(CAP_SYS_ADMIN)),
        ("CAP_NET_ADMIN", has(CAP_NET_ADMIN)),
        ("CAP_PERFMON", has(CAP_PERFMON) || has(CAP_SYS_ADMIN)),
    ];
    needed.into_iter().filter(|(_, there)| !there).map(|(name, _)| name).collect()
}

/// Makes the permitted ones effective, for this thread and those that it starts.
pub(super) fn raise() -> io::Result<()> {
    let mut sets = read()?;
    for capability in [CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN] {
        let word = &mut sets.0[(capability / 32) as usize];
        word.effective |= word.permitted & 1 << (capability % 32);
    }
    let mut header = Header { version: VERSION, pid: 0 };
    // SAFETY: header and data are of the layout and number that this version asks for.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.0.as_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn read() -> io::Result<Sets> {
    let mut header = Header { version: VERSION, pid: 0 };
    let mut sets = Sets::default();
    // SAFETY: header and data are of the layout and number that this version asks for.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.0.as_mut_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(sets) }
}

#[cfg(test)]
mod tests {
    use super::{CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN, missing, missing_of, raise};

    #[test]
    fn each_missing_capability_is_named() {
        assert_eq!(missing_of(0), ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"]);
        assert_eq!(missing_of(1 << CAP_BPF | 1 << CAP_NET_ADMIN), ["CAP_PERFMON"]);
        assert_eq!(missing_of(1 << CAP_SYS_ADMIN), ["CAP_NET_ADMIN"]);
        assert_eq!(missing_of(1 << CAP_BPF | 1 << CAP_NET_ADMIN | 1 << CAP_PERFMON), Vec::<&str>::new());
    }

    #[test]
    fn raising_needs_no_privilege() {
        raise().unwrap();
        missing().unwrap();
    }
}
