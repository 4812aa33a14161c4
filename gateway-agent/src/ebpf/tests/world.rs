//! Three network namespaces: a client, the agent, a backend. Each goes with its last user.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, setns, unshare};

pub(super) const DEADLINE: Duration = Duration::from_secs(20);

/// A network namespace without a name.
#[derive(Debug)]
pub(super) struct Namespace(File);

impl Namespace {
    fn new() -> Self {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace: run the tests as root");
            ip("link set lo up");
            Self(File::open("/proc/thread-self/ns/net").unwrap())
        });
        made.join().unwrap()
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs in a thread that is inside.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(self.0.as_fd(), CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    /// Runs in the background until the test ends; what it serves must end by itself or with the process.
    pub(super) fn background(&self, work: impl FnOnce() + Send + 'static) {
        let namespace = self.0.try_clone().unwrap();
        thread::spawn(move || {
            setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).unwrap();
            work();
        });
    }
}

/// ```text
/// client 192.0.2.2, 2001:db8::2 ── 192.0.2.1, 2001:db8::1 agent 10.0.0.1, 2001:db8:b::1 ── 10.0.0.2, 2001:db8:b::2 backend
/// ```
/// The agent's namespace does not forward.
pub(super) struct World {
    pub(super) client: Namespace,
    pub(super) agent: Namespace,
    pub(super) backend: Namespace,
}

pub(super) const VIP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
pub(super) const BACKEND: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

impl World {
    pub(super) fn new() -> Self {
        let world = Self { client: Namespace::new(), agent: Namespace::new(), backend: Namespace::new() };
        world.agent.run(|| {
            ip(&format!("link add front type veth peer name eth0 netns {}", world.client.path()));
            ip(&format!("link add back type veth peer name eth0 netns {}", world.backend.path()));
            addresses("front", "192.0.2.1/24", "2001:db8::1/64");
            addresses("back", "10.0.0.1/24", "2001:db8:b::1/64");
        });
        world.client.run(|| addresses("eth0", "192.0.2.2/24", "2001:db8::2/64"));
        world.backend.run(|| addresses("eth0", "10.0.0.2/24", "2001:db8:b::2/64"));
        world
    }
}

fn addresses(interface: &str, v4: &str, v6: &str) {
    ip(&format!("address add {v4} dev {interface}"));
    ip(&format!("-6 address add {v6} dev {interface} nodad"));
    ip(&format!("link set {interface} up"));
}

pub(super) fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("install iproute2");
    assert!(status.success(), "ip {arguments}");
}

/// Standard output of a program.
pub(super) fn output(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split(' ')).output().expect("install iproute2");
    String::from_utf8(output.stdout).unwrap()
}
