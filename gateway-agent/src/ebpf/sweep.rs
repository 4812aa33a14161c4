//! Removes flows that have ended, a few thousand entries at a time.
//!
//! The programs never delete on their own what only time can tell: idle and closed flows go here, and so do datagram
//! flows to an endpoint that is not of the service any more (O15). A full pass also tells which backend and service
//! numbers flows still hold. **Invariant:** what is to go is decided by pure functions, to which time is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use aya::maps::{HashMap, MapData, MapError};
use gateway_common::abi::{FlowKey, FlowValue, UDP};
use gateway_common::flow::{self, Flags};
use gateway_common::maps;

use super::load::{LoadError, Objects};
use super::sys::{self, Read};

/// Entries read by one system call: 100 kB, and some 0.2 ms in which the thread does nothing else.
const BATCH: usize = 1024;
/// A bucket of the hash table with more entries than this is not to be: then something feeds it collisions.
const BATCH_MAX: usize = 65_536;

/// The backends that each service's new flows may get.
pub(super) type Members = BTreeMap<u32, BTreeSet<u32>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    Goes,
    /// It depends on the entry of the other direction.
    AskOther,
}

/// What a full pass has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Established flows that stay.
    pub(super) flows: u64,
    /// Such of TCP, but for those that are closing.
    pub(super) connections: u64,
    pub(super) held_backends: BTreeSet<u32>,
    pub(super) held_services: BTreeSet<u32>,
}

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Removed {
    pub(super) expired: u64,
    /// Datagram flows whose endpoint has left the service.
    pub(super) endpoint_gone: u64,
}

#[derive(Debug)]
struct Table {
    map: HashMap<MapData, FlowKey, FlowValue>,
    /// The same map, for batches.
    descriptor: OwnedFd,
    is_half_open: bool,
}

/// A walk over both flow tables.
#[derive(Debug)]
pub(super) struct Sweep {
    tables: [Table; 2],
    table: usize,
    position: Option<u32>,
    keys: Vec<FlowKey>,
    values: Vec<FlowValue>,
    findings: Findings,
    removed: Removed,
}

impl Sweep {
    pub(super) fn open(objects: &Objects) -> Result<Self, LoadError> {
        let table = |name, is_half_open| {
            Ok::<_, LoadError>(Table {
                map: objects.typed(name)?,
                descriptor: objects.map(name)?,
                is_half_open,
            })
        };
        Ok(Self {
            tables: [table(maps::HALF_OPEN, true)?, table(maps::FLOWS, false)?],
            table: 0,
            position: None,
            keys: vec![FlowKey::default(); BATCH],
            values: vec![FlowValue::default(); BATCH],
            findings: Findings::default(),
            removed: Removed::default(),
        })
    }

    pub(super) const fn removed(&self) -> Removed {
        self.removed
    }

    /// Begins anew, whatever the walk has come to.
    pub(super) fn restart(&mut self) {
        self.table = 0;
        self.position = None;
        self.findings = Findings::default();
    }

    /// One batch; the findings when it ended a pass. `members` must be the same for all of a pass.
    pub(super) fn step(&mut self, members: &Members, now_s: u32) -> io::Result<Option<Findings>> {
        let Some(table) = self.tables.get(self.table) else {
            self.table = 0;
            return Ok(Some(std::mem::take(&mut self.findings)));
        };
        let is_half_open = table.is_half_open;
        let map = table.descriptor.as_fd();
        let (count, position) = match sys::lookup_batch(map, self.position, &mut self.keys, &mut self.values)?
        {
            Read::Some(count, position) => (count, Some(position)),
            Read::Last(count) => (count, None),
            Read::TooSmall if self.keys.len() < BATCH_MAX => {
                self.keys.resize(self.keys.len() * 2, FlowKey::default());
                self.values.resize(self.values.len() * 2, FlowValue::default());
                return Ok(None);
            }
            Read::TooSmall => return Err(io::Error::other("a bucket of the flow table is too large")),
        };
        self.position = position;
        if position.is_none() {
            self.table += 1;
        }
        for index in 0..count {
            if let (Some(key), Some(value)) = (self.keys.get(index).copied(), self.values.get(index).copied())
            {
                self.judge(&key, &value, is_half_open, members, now_s)?;
            }
        }
        if self.table < self.tables.len() {
            return Ok(None);
        }
        self.table = 0;
        Ok(Some(std::mem::take(&mut self.findings)))
    }

    fn judge(
        &mut self,
        key: &FlowKey,
        value: &FlowValue,
        is_half_open: bool,
        members: &Members,
        now_s: u32,
    ) -> io::Result<()> {
        if is_stranded(key, value, members) {
            self.removed.endpoint_gone += u64::from(value.flags & Flags::REVERSE == 0);
            return self.remove(key, value, is_half_open);
        }
        let fate = if is_half_open { half_open_fate(value, now_s) } else { fate(key, value, now_s) };
        let goes = match fate {
            Fate::Stays => false,
            Fate::Goes => true,
            Fate::AskOther => {
                let other = self.other(key, value, is_half_open)?;
                flow::has_expired(key, value, other.as_ref(), now_s)
            }
        };
        if goes {
            self.removed.expired += u64::from(value.flags & Flags::REVERSE == 0);
            return self.remove(key, value, is_half_open);
        }
        self.findings.held_backends.insert(value.backend);
        self.findings.held_services.insert(value.service);
        if !is_half_open && value.flags & Flags::REVERSE == 0 {
            self.findings.flows += 1;
            self.findings.connections +=
                u64::from(key.proto != UDP && value.flags & (Flags::FIN | Flags::RESET) == 0);
        }
        Ok(())
    }

    fn map(&mut self, is_half_open: bool) -> Option<&mut HashMap<MapData, FlowKey, FlowValue>> {
        self.tables.iter_mut().find(|table| table.is_half_open == is_half_open).map(|table| &mut table.map)
    }

    fn other(
        &mut self,
        key: &FlowKey,
        value: &FlowValue,
        is_half_open: bool,
    ) -> io::Result<Option<FlowValue>> {
        let Some(map) = self.map(is_half_open) else { return Ok(None) };
        match map.get(&flow::mirror_key(key, value), 0) {
            Ok(other) => Ok(Some(other)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Both entries: one alone would be made whole again by the next packet.
    fn remove(&mut self, key: &FlowKey, value: &FlowValue, is_half_open: bool) -> io::Result<()> {
        let Some(map) = self.map(is_half_open) else { return Ok(()) };
        for key in [*key, flow::mirror_key(key, value)] {
            match map.remove(&key) {
                Ok(()) | Err(MapError::KeyNotFound) => {}
                // The program has removed or moved it meanwhile.
                Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::ENOENT) => {
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(())
    }
}

/// A datagram flow to an endpoint that new flows of its service do not get.
fn is_stranded(key: &FlowKey, value: &FlowValue, members: &Members) -> bool {
    key.proto == UDP && !members.get(&value.service).is_some_and(|backends| backends.contains(&value.backend))
}

/// Of an established flow's entry, as far as it tells alone.
fn fate(key: &FlowKey, value: &FlowValue, now_s: u32) -> Fate {
    let age_s = flow::seconds_since(now_s, value.last_seen_s);
    let idle_s = if key.proto == UDP { flow::UDP_IDLE_S } else { flow::TCP_IDLE_S };
    let may_be_closing = key.proto != UDP && value.flags & (Flags::FIN | Flags::RESET) != 0;
    // An entry without a mark whose other one has an RST is judged with that one.
    if age_s >= idle_s || may_be_closing && age_s >= flow::CLOSING_S { Fate::AskOther } else { Fate::Stays }
}

fn half_open_fate(value: &FlowValue, now_s: u32) -> Fate {
    let age_s = flow::seconds_since(now_s, value.last_seen_s);
    if age_s >= flow::HALF_OPEN_S { Fate::Goes } else { Fate::Stays }
}

/// Seconds of `CLOCK_MONOTONIC`, which the programs read as well.
pub(super) fn now_s() -> u32 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    // The programs cut the seconds to 32 bits, too.
    now.map_or(0, |now| now.tv_sec() as u32)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use gateway_common::abi::{FlowKey, FlowValue, TCP, UDP};
    use gateway_common::flow::{CLOSING_S, Flags, HALF_OPEN_S, TCP_IDLE_S, UDP_IDLE_S};

    use super::{Fate, fate, half_open_fate, is_stranded};

    fn entry(proto: u8, flags: u32) -> (FlowKey, FlowValue) {
        let value = FlowValue { flags, backend: 7, service: 3, last_seen_s: 1_000, ..FlowValue::default() };
        (FlowKey { proto, ..FlowKey::default() }, value)
    }

    fn fate_after(proto: u8, flags: u32, age_s: u32) -> Fate {
        let (key, value) = entry(proto, flags);
        fate(&key, &value, 1_000 + age_s)
    }

    #[test]
    fn other_entry_is_asked_only_when_it_may_matter() {
        assert_eq!(fate_after(TCP, 0, TCP_IDLE_S - 1), Fate::Stays);
        assert_eq!(fate_after(TCP, 0, TCP_IDLE_S), Fate::AskOther);
        assert_eq!(fate_after(TCP, Flags::FIN, CLOSING_S - 1), Fate::Stays);
        assert_eq!(fate_after(TCP, Flags::FIN, CLOSING_S), Fate::AskOther);
        assert_eq!(fate_after(UDP, 0, UDP_IDLE_S), Fate::AskOther);
        assert_eq!(half_open_fate(&entry(TCP, 0).1, 1_000 + HALF_OPEN_S), Fate::Goes);
        assert_eq!(half_open_fate(&entry(TCP, 0).1, 999 + HALF_OPEN_S), Fate::Stays);
    }

    // O15: and TCP connections to it stay.
    #[test]
    fn datagram_flow_goes_with_its_endpoint() {
        let members = |backend| BTreeMap::from([(3, BTreeSet::from([backend]))]);
        let (key, value) = entry(UDP, 0);
        assert!(!is_stranded(&key, &value, &members(7)));
        assert!(is_stranded(&key, &value, &members(8)));
        assert!(is_stranded(&key, &value, &BTreeMap::new()));
        let (key, value) = entry(TCP, 0);
        assert!(!is_stranded(&key, &value, &members(8)));
    }
}
