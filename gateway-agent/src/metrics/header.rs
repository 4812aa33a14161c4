//! Why a connection that was to begin with a header of the PROXY protocol was refused.

use super::Cell;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFailure {
    /// The sender ended the connection within it.
    Closed,
    /// What came is no header.
    Invalid,
    Timeout,
    /// The sender is none of those who are believed.
    Untrusted,
}

impl HeaderFailure {
    /// In the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Closed, Self::Invalid, Self::Timeout, Self::Untrusted];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Invalid => "invalid",
            Self::Timeout => "timeout",
            Self::Untrusted => "untrusted",
        }
    }
}

/// One number for each.
pub(super) type HeaderFailures = [Cell; HeaderFailure::ALL.len()];
