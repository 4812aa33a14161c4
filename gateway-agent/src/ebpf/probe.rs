//! Which paths this kernel and these rights allow, each with a reason that a user can act on.

use std::fmt;
use std::io;

use super::capabilities;

/// One path of the kernel's and how it is had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// `tcx`, `clsact` or `sk_lookup`; absent: the proxy does without.
    pub mechanism: Option<&'static str>,
    /// Why it is absent, or not the best there could be; else empty.
    pub reason: String,
}

/// What the agent uses of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// TCP and UDP listeners.
    pub l4: Path,
    /// How connections reach the proxy's sockets.
    pub steering: Path,
}

impl Path {
    pub(super) fn by(mechanism: &'static str) -> Self {
        Self { mechanism: Some(mechanism), reason: String::new() }
    }

    pub(super) fn none(reason: impl Into<String>) -> Self {
        Self { mechanism: None, reason: reason.into() }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.mechanism, self.reason.as_str()) {
            (Some(mechanism), "") => f.write_str(mechanism),
            (Some(mechanism), reason) => write!(f, "{mechanism} ({reason})"),
            (None, reason) => write!(f, "userspace ({reason})"),
        }
    }
}

impl Paths {
    pub(super) fn userspace(reason: &str) -> Self {
        Self { l4: Path::none(reason), steering: Path::none(reason) }
    }

    /// Whether everything is in the kernel that can be.
    pub fn is_complete(&self) -> bool {
        self.l4.mechanism.is_some() && self.steering.mechanism.is_some()
    }
}

impl fmt::Display for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.l4.mechanism.is_none() && self.l4 == self.steering {
            return write!(f, "{}", self.l4);
        }
        write!(f, "L4: {}; steering: {}", self.l4, self.steering)
    }
}

/// The object that `build.rs` has built; empty where it could not.
pub(super) static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("GATEWAY_EBPF_OBJECT"));

/// What is in the way before anything is tried; `None`: worth trying.
pub(super) fn obstacle() -> Option<String> {
    if OBJECT.is_empty() {
        return Some(format!("this agent has no kernel programs: {}", env!("GATEWAY_EBPF_ABSENT")));
    }
    match capabilities::missing() {
        Ok(missing) if missing.is_empty() => None,
        Ok(missing) => Some(format!("the process lacks {}", missing.join(", "))),
        Err(error) => Some(format!("the process's capabilities cannot be read: {error}")),
    }
}

/// What a refused system call means.
pub(super) fn explain(what: &str, error: &io::Error) -> String {
    match error.raw_os_error() {
        // All capabilities are there, see `obstacle`.
        Some(libc::EPERM) => format!(
            "{what} is not permitted although the capabilities are there: a seccomp profile, a user namespace or \
             kernel lockdown forbids bpf(2)"
        ),
        Some(libc::EINVAL) => format!("{what} is not known to this kernel ({})", kernel_release()),
        _ => format!("{what} failed: {error}"),
    }
}

fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "?".into(), |text| text.trim().into())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{Path, Paths, explain};

    #[test]
    fn paths_name_the_mechanism_or_the_reason() {
        let paths = Paths { l4: Path::by("tcx"), steering: Path::none("no kernel programs") };
        assert_eq!(paths.to_string(), "L4: tcx; steering: userspace (no kernel programs)");
        assert!(!paths.is_complete());
        assert_eq!(Paths::userspace("asked for").to_string(), "userspace (asked for)");
    }

    #[test]
    fn refusal_names_what_to_look_at() {
        let message = explain("loading a program", &io::Error::from_raw_os_error(libc::EPERM));
        assert!(message.contains("seccomp"), "{message}");
        let message = explain("TCX", &io::Error::from_raw_os_error(libc::EINVAL));
        assert!(message.contains("not known to this kernel ("), "{message}");
    }
}
