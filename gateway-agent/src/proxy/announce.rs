//! Tells a backend on whose behalf a connection to it is made.
//!
//! Does not connect, and does not choose who is told.

use std::io::{self, IoSlice};

use tokio::net::TcpStream;

use super::proxy_protocol::{Ends, encode};
use crate::snapshot::ProxyVersion;

/// On whose behalf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Principal<'a> {
    pub(super) ends: Ends,
    /// That the client asked for; empty where it named none.
    pub(super) server_name: &'a str,
}

/// Sends the header, where there is to be one, in one segment with as much of `first` as goes with it. `upstream` has just
/// been connected, so there is room for a header at least. Returns how many bytes of `first` went.
pub(super) fn announce(
    upstream: &TcpStream,
    version: Option<ProxyVersion>,
    principal: Principal<'_>,
    first: &[u8],
) -> io::Result<usize> {
    let Some(version) = version else { return Ok(0) };
    let header = encode(version, principal.ends, principal.server_name);
    let n = upstream.try_write_vectored(&[IoSlice::new(&header), IoSlice::new(first)])?;
    // Half a header must not be followed by anything.
    n.checked_sub(header.len()).ok_or_else(|| io::ErrorKind::WriteZero.into())
}
