//! Follows the changes: netlink events are only the wake-up, what is published is always read anew, so a lost event
//! costs nothing but a further read.

use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use super::Interfaces;
use super::netlink::{AddressError, read};

const GROUPS: i32 = libc::RTMGRP_LINK
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV6_IFADDR
    | libc::RTMGRP_IPV6_ROUTE;

/// Least time between two reads: a host whose routes flap costs ten reads a second, and one change is seen at once.
const PAUSE: Duration = Duration::from_millis(100);
/// Events are thrown away in a buffer of this size; what is longer is cut, and that does not matter.
const EVENT_LEN: usize = 4096;
/// Events thrown away per turn, so that a storm of them cannot keep the thread.
const EVENTS_PER_TURN_MAX: usize = 1024;

/// Publishes until the receiver is gone; run it on the control runtime.
#[derive(Debug)]
pub struct WatchTask {
    socket: AsyncFd<Socket>,
    sender: watch::Sender<Arc<Interfaces>>,
}

/// Reads the interfaces and begins to follow them. Receivers are notified of every change of links, addresses *and
/// routes*: with a route's change the interfaces may be equal, but [`super::route_to`] may answer otherwise.
///
/// Must be called within a runtime.
pub fn watch() -> Result<(WatchTask, watch::Receiver<Arc<Interfaces>>), AddressError> {
    // Subscribed before the first read, so that no change falls between the two.
    let socket = subscribe().map_err(AddressError::Open)?;
    let (sender, receiver) = watch::channel(Arc::new(read()?));
    Ok((WatchTask { socket, sender }, receiver))
}

fn subscribe() -> io::Result<AsyncFd<Socket>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.set_non_blocking(true)?;
    socket.bind(&SocketAddr::new(0, GROUPS as u32))?;
    // SAFETY: the socket owns its descriptor, answers with the same one each time and closes it when it is dropped.
    let registered = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
    registered.map_err(io::Error::from)
}

impl WatchTask {
    pub async fn run(self) {
        loop {
            let event = tokio::select! {
                () = self.sender.closed() => return,
                event = self.event() => event,
            };
            if let Err(error) = event {
                tracing::warn!(%error, "netlink events are lost, reading the interfaces all the same");
            }
            match read() {
                Ok(interfaces) => drop(self.sender.send_replace(Arc::new(interfaces))),
                Err(error) => tracing::warn!(%error, "interfaces cannot be read, keeping what was known"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits for at least one event and throws away all that are queued.
    async fn event(&self) -> io::Result<()> {
        loop {
            let mut guard = self.socket.readable().await?;
            let mut seen = false;
            for _ in 0..EVENTS_PER_TURN_MAX {
                match guard.try_io(|socket| discard(socket.get_ref())) {
                    Ok(Ok(())) => seen = true,
                    Ok(Err(error)) => return Err(error),
                    Err(_would_block) => break,
                }
            }
            if seen {
                return Ok(());
            }
        }
    }
}

fn discard(socket: &Socket) -> io::Result<()> {
    let mut buffer = [0u8; EVENT_LEN];
    // SAFETY: the buffer is valid for its whole length, which is what the kernel is given.
    let length = unsafe {
        libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
    };
    if length >= 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // Events were dropped because the queue was full: as good as an event, for all is read anew.
        error if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
        error => Err(error),
    }
}

/// For tests that change the network.
#[cfg(test)]
pub(super) mod testing {
    use std::process::Command;
    use std::time::Duration;

    use nix::sched::{CloneFlags, unshare};

    pub(in crate::addresses) fn ip(arguments: &str) {
        let status = Command::new("ip").args(arguments.split(' ')).status().expect("install iproute2");
        assert!(status.success(), "ip {arguments}");
    }

    /// Runs in a network namespace of its own, which goes with the thread.
    pub(in crate::addresses) fn in_namespace(test: impl Future<Output = ()> + Send + 'static) {
        let thread = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace: run the tests as root");
            ip("link set lo up");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), test).await }).unwrap();
        });
        thread.join().unwrap();
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::testing::{in_namespace, ip};
    use super::watch;
    use crate::addresses::{Route, route_to};

    #[test]
    fn changes_of_interfaces_addresses_and_routes_are_told() {
        in_namespace(async {
            let (task, mut interfaces) = watch().unwrap();
            let task = tokio::spawn(task.run());
            assert_eq!(interfaces.borrow_and_update().external(), Vec::<IpAddr>::new());

            ip("link add ga0 type veth peer name ga1");
            interfaces.wait_for(|now| now.0.iter().any(|each| each.name == "ga0")).await.unwrap();
            ip("address add 192.0.2.1/24 dev ga0");
            ip("-6 address add 2001:db8::1/64 dev ga0 nodad");
            ip("link set ga1 up");
            ip("link set ga0 up");
            let expected: [IpAddr; 2] = [[192, 0, 2, 1].into(), "2001:db8::1".parse().unwrap()];
            interfaces.wait_for(|now| now.external() == expected).await.unwrap();

            let far: IpAddr = [198, 51, 100, 1].into();
            assert_eq!(route_to(far).unwrap(), None);
            interfaces.mark_unchanged();
            ip("route add 198.51.100.0/24 via 192.0.2.2");
            let index = interfaces.borrow().0.iter().find(|each| each.name == "ga0").unwrap().index;
            let route = Route { source: expected[0], interface: index, is_local: false };
            while route_to(far).unwrap() != Some(route) {
                interfaces.changed().await.unwrap();
            }
            let far: IpAddr = "2001:db8::2".parse().unwrap();
            let route = Route { source: expected[1], interface: index, is_local: false };
            assert_eq!(route_to(far).unwrap(), Some(route));

            ip("link delete ga0");
            interfaces.wait_for(|now| now.0.iter().all(|each| each.name != "ga0")).await.unwrap();
            assert_eq!(route_to(far).unwrap(), None);
            drop(interfaces);
            task.await.unwrap();
        });
    }

    #[test]
    fn storm_of_events_ends_in_the_last_state() {
        in_namespace(async {
            let (task, mut interfaces) = watch().unwrap();
            let task = tokio::spawn(task.run());
            ip("link add ga0 type veth peer name ga1");
            let mut script = String::new();
            for third in 0..=255 {
                script += &format!("address add 10.0.{third}.1/24 dev ga0\n");
            }
            let path = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(&path, script).unwrap();
            ip(&format!("-batch {}", path.path().display()));
            interfaces.wait_for(|now| now.external().len() == 256).await.unwrap();
            drop(interfaces);
            task.await.unwrap();
        });
    }
}
