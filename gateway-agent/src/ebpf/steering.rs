//! `sk_lookup` for the proxy: which (address, port) goes to which listening socket.
//!
//! A key without an address stands for every address of the network namespace, loopback included, and follows them as
//! they change; where a key of one address has the same port, that one has it. The decision is pure ([`entries`]); the
//! rest is map writes.
//!
//! **Invariant:** TCP only; never touches a port that no key is open for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aya::maps::{HashMap, MapData, MapError, SockMap};
use gateway_common::abi::{self, SteerValue};
use gateway_common::maps;

use super::encode;
use super::load::{LoadError, Objects};
use super::plan::Vip;
use crate::addresses::Interfaces;
use crate::proxy::steering::Steering;
use crate::snapshot::{ListenerKey, Transport};

/// Places in the socket map of a key's listening sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sockets {
    v4: u32,
    v6: u32,
}

/// The `sk_lookup` maps; see [`Steering`].
#[derive(Debug)]
pub(super) struct SkLookupSteering {
    inner: Mutex<Inner>,
}

struct Inner {
    steered: HashMap<MapData, abi::ListenerKey, SteerValue>,
    sockets: SockMap<MapData>,
    open: BTreeMap<ListenerKey, Sockets>,
    interfaces: Arc<Interfaces>,
    /// What the map holds.
    written: BTreeMap<Vip, u32>,
    /// Entries of an earlier process: connections to them are dropped, and so tried again by the client, until the
    /// proxy has had the chance to open the listener anew.
    adopted: BTreeMap<Vip, u32>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

/// What the map should hold.
fn entries(open: &BTreeMap<ListenerKey, Sockets>, interfaces: &Interfaces) -> BTreeMap<Vip, u32> {
    let mut entries = BTreeMap::new();
    let mut put = |key: &ListenerKey, address: IpAddr, sockets: &Sockets| {
        let vip = Vip { transport: Transport::Tcp, address, port: key.port.get() };
        let socket = if address.is_ipv4() { sockets.v4 } else { sockets.v6 };
        entries.entry(vip).or_insert(socket);
    };
    for (key, sockets) in open {
        if let Some(address) = key.address {
            put(key, address, sockets);
        }
    }
    let all = interfaces.all();
    for (key, sockets) in open.iter().filter(|(key, _)| key.address.is_none()) {
        for address in &all {
            put(key, *address, sockets);
        }
    }
    entries
}

/// The two lowest places that nothing refers to.
fn free_places(taken: &BTreeSet<u32>) -> Option<Sockets> {
    let mut free = (0..maps::MAX_SOCKETS).filter(|place| !taken.contains(place));
    Some(Sockets { v4: free.next()?, v6: free.next()? })
}

impl SkLookupSteering {
    pub(super) fn open(objects: &Objects, interfaces: Arc<Interfaces>) -> Result<Self, LoadError> {
        let steered: HashMap<MapData, abi::ListenerKey, SteerValue> = objects.typed(maps::STEERED)?;
        let mut adopted = BTreeMap::new();
        for entry in steered.iter() {
            let (key, value) = entry.map_err(|error| LoadError::Map(maps::STEERED, error.to_string()))?;
            adopted.extend(encode::vip(&key).map(|vip| (vip, value.socket)));
        }
        let inner = Inner {
            steered,
            sockets: objects.typed(maps::SOCKETS)?,
            open: BTreeMap::new(),
            interfaces,
            written: BTreeMap::new(),
            adopted,
        };
        Ok(Self { inner: Mutex::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses have changed.
    pub(super) fn follow(&self, interfaces: Arc<Interfaces>) {
        let mut inner = self.lock();
        if *inner.interfaces == *interfaces {
            return;
        }
        inner.interfaces = interfaces;
        if let Err(error) = inner.write() {
            tracing::warn!(%error, "connections to a new address may be refused");
        }
    }

    /// The proxy has opened what there is to open: what is left of an earlier process goes.
    pub(super) fn forget_adopted(&self) {
        let mut inner = self.lock();
        if inner.adopted.is_empty() {
            return;
        }
        for vip in std::mem::take(&mut inner.adopted).into_keys() {
            if !inner.written.contains_key(&vip) {
                inner.remove(&vip);
            }
        }
    }
}

impl Steering for SkLookupSteering {
    fn open(&self, key: ListenerKey, v4: BorrowedFd<'_>, v6: BorrowedFd<'_>) -> io::Result<()> {
        if key.transport != Transport::Tcp {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.lock().open(key, v4, v6)
    }

    fn close(&self, key: ListenerKey) {
        self.lock().close(key);
    }
}

impl Inner {
    fn open(&mut self, key: ListenerKey, v4: BorrowedFd<'_>, v6: BorrowedFd<'_>) -> io::Result<()> {
        let places = match self.open.get(&key) {
            Some(places) => *places,
            None => {
                let open = self.open.values().flat_map(|sockets| [sockets.v4, sockets.v6]);
                // Entries of an earlier process must not come to lead to a socket of another listener.
                let taken = open.chain(self.adopted.values().copied()).collect();
                free_places(&taken).ok_or_else(|| {
                    let message =
                        format!("the kernel path's table of sockets is full ({})", maps::MAX_SOCKETS);
                    io::Error::new(io::ErrorKind::StorageFull, message)
                })?
            }
        };
        // The sockets before the entries that lead to them.
        self.sockets.set(places.v4, &Socket(v4.as_raw_fd()), 0).map_err(to_io)?;
        self.sockets.set(places.v6, &Socket(v6.as_raw_fd()), 0).map_err(to_io)?;
        self.open.insert(key, places);
        let written = self.write();
        if written.is_err() {
            self.close(key);
        }
        written
    }

    fn close(&mut self, key: ListenerKey) {
        let Some(places) = self.open.remove(&key) else { return };
        if let Err(error) = self.write() {
            tracing::warn!(%error, "entries of a closed listener are left: its port drops connections");
        }
        for place in [places.v4, places.v6] {
            // Absent already if the socket was closed before.
            drop(self.sockets.clear_index(&place));
        }
    }

    /// Brings the map up to date: first what is new or moved, then what is gone.
    fn write(&mut self) -> io::Result<()> {
        let entries = entries(&self.open, &self.interfaces);
        for (vip, socket) in &entries {
            if self.written.get(vip) == Some(socket) {
                continue;
            }
            let value = SteerValue { socket: *socket };
            self.steered.insert(&encode::listener_key(vip), &value, 0).map_err(to_io)?;
            self.written.insert(*vip, *socket);
            self.adopted.remove(vip);
        }
        let gone: Vec<Vip> = self.written.keys().filter(|vip| !entries.contains_key(vip)).copied().collect();
        for vip in gone {
            self.remove(&vip);
        }
        Ok(())
    }

    fn remove(&mut self, vip: &Vip) {
        self.written.remove(vip);
        match self.steered.remove(&encode::listener_key(vip)) {
            Ok(()) | Err(MapError::KeyNotFound) => {}
            Err(error) => tracing::debug!(%error, "steering entry cannot be removed"),
        }
    }
}

/// What aya asks of a socket.
struct Socket(RawFd);

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

fn to_io(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        error => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::net::IpAddr;
    use std::num::NonZeroU16;

    use gateway_common::maps;

    use super::{Sockets, entries, free_places};
    use crate::addresses::{Interface, Interfaces};
    use crate::ebpf::plan::Vip;
    use crate::snapshot::{ListenerKey, Transport};

    fn key(address: Option<[u8; 4]>) -> ListenerKey {
        let port = NonZeroU16::new(443).unwrap();
        ListenerKey { transport: Transport::Tcp, address: address.map(IpAddr::from), port }
    }

    fn interfaces(addresses: &[&str]) -> Interfaces {
        Interfaces(vec![Interface {
            name: "lo".into(),
            index: 1,
            is_loopback: true,
            is_ethernet: false,
            is_up: true,
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        }])
    }

    #[test]
    fn key_without_address_stands_for_all_and_an_exact_one_goes_before() {
        let open = BTreeMap::from([
            (key(None), Sockets { v4: 0, v6: 1 }),
            (key(Some([192, 0, 2, 1])), Sockets { v4: 2, v6: 3 }),
        ]);
        let entry = |address: &str, socket| {
            let address = address.parse().unwrap();
            (Vip { transport: Transport::Tcp, address, port: 443 }, socket)
        };
        let expected = BTreeMap::from([entry("127.0.0.1", 0), entry("192.0.2.1", 2), entry("::1", 1)]);
        assert_eq!(entries(&open, &interfaces(&["127.0.0.1", "192.0.2.1", "::1"])), expected);
        // An address that is not there (yet) is steered all the same.
        assert_eq!(entries(&open, &interfaces(&[])), BTreeMap::from([entry("192.0.2.1", 2)]));
    }

    #[test]
    fn places_are_those_that_nothing_refers_to() {
        assert_eq!(free_places(&BTreeSet::from([0, 2])), Some(Sockets { v4: 1, v6: 3 }));
        assert_eq!(free_places(&(1..maps::MAX_SOCKETS).collect()), None);
    }
}
