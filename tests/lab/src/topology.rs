//! The network: a client, a gateway and backends, each a namespace, IPv4 and IPv6.
//!
//! The addresses are the same in every lab, since nothing is shared between labs; `deploy/quickstart` relies on those of
//! [`Shape::Routed`].

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, bail};

use crate::cleanup;
use crate::netns::{Netns, ip};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    pub const fn loopback(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Self::V6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        }
    }

    pub const fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Self::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The gateway has one interface to the client and one to each backend, each a subnet of its own.
    Routed { backends: u8 },
    /// Everyone has one interface on one subnet, as pods on a bridge have.
    Flat { backends: u8 },
}

impl Shape {
    const fn backends(self) -> u8 {
        match self {
            Self::Routed { backends } | Self::Flat { backends } => backends,
        }
    }
}

/// The namespaces and a folder for logs and manifests; all of it goes when this is dropped.
#[derive(Debug)]
pub struct Lab {
    shape: Shape,
    client: Netns,
    gateway: Netns,
    backends: Vec<Netns>,
    names: Vec<String>,
    folder: PathBuf,
}

impl Lab {
    pub fn new(shape: Shape) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        crate::require_root()?;
        crate::require_program("ip", "iproute2")?;
        cleanup::on_interrupt()?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        if count == 0 {
            cleanup::remove_stale();
        }
        let prefix = format!("{}{}-{count}", cleanup::PREFIX, std::process::id());
        let folder = std::env::temp_dir().join(&prefix);
        cleanup::add_folder(&folder);
        std::fs::create_dir_all(folder.join("manifests"))
            .with_context(|| format!("make {}", folder.display()))?;
        let mut names = Vec::new();
        let lab = Self::build(shape, &prefix, folder.clone(), &mut names);
        if lab.is_err() {
            cleanup::remove_namespaces(&names);
            cleanup::remove_folder(&folder);
        }
        lab
    }

    fn build(shape: Shape, prefix: &str, folder: PathBuf, names: &mut Vec<String>) -> Result<Self> {
        let mut create = |role: String| {
            let name = format!("{prefix}-{role}");
            names.push(name.clone());
            Netns::create(&name)
        };
        let client = create("cli".into())?;
        let gateway = create("gw".into())?;
        let backends =
            (1..=shape.backends()).map(|index| create(format!("be{index}"))).collect::<Result<_>>()?;
        let bridge = match shape {
            Shape::Routed { .. } => None,
            Shape::Flat { .. } => Some(create("br".into())?),
        };
        let lab = Self { shape, client, gateway, backends, names: std::mem::take(names), folder };
        for netns in [&lab.client, &lab.gateway].into_iter().chain(&lab.backends) {
            // Nothing may be forwarded by the stack: what passes the gateway, passes by the agent's hand.
            netns.sysctl("ipv4/ip_forward", "0")?;
            netns.sysctl("ipv6/conf/all/forwarding", "0")?;
            netns.ip("link set lo up\n")?;
        }
        match bridge {
            None => lab.wire_routed()?,
            Some(bridge) => lab.wire_flat(&bridge)?,
        }
        Ok(lab)
    }

    fn wire_routed(&self) -> Result<()> {
        let gateway = &self.gateway.name();
        let mut links =
            format!("link add eth0 netns {} type veth peer name cli netns {gateway}\n", self.client.name());
        let mut at_gateway = String::new();
        let mut add = |name: &str, v4: IpAddr, v6: IpAddr| {
            at_gateway += &format!(
                "addr add {v4}/24 dev {name}\naddr add {v6}/64 dev {name} nodad\nlink set {name} up\n"
            );
        };
        add("cli", self.gateway_address(Family::V4), self.gateway_address(Family::V6));
        for (backend, index) in self.backends.iter().zip(1u8..) {
            links += &format!(
                "link add eth0 netns {} type veth peer name be{index} netns {gateway}\n",
                backend.name()
            );
            let (v4, v6) = routed_subnet(index, 1);
            add(&format!("be{index}"), v4, v6);
        }
        ip(&[], &links)?;
        self.gateway.ip(&at_gateway)?;
        let (v4, v6) = routed_subnet(0, 1);
        configure_host(
            &self.client,
            self.client_address(Family::V4),
            self.client_address(Family::V6),
            Some((v4, v6)),
        )?;
        for (backend, index) in self.backends.iter().zip(1u8..) {
            let (v4, v6) = (self.backend_address(index, Family::V4), self.backend_address(index, Family::V6));
            configure_host(backend, v4, v6, Some(routed_subnet(index, 1)))?;
        }
        Ok(())
    }

    fn wire_flat(&self, bridge: &Netns) -> Result<()> {
        let mut links = String::new();
        let mut ports = "link add br0 type bridge\nlink set br0 up\n".to_owned();
        let hosts: Vec<(&Netns, IpAddr, IpAddr)> = [
            (&self.client, self.client_address(Family::V4), self.client_address(Family::V6)),
            (&self.gateway, self.gateway_address(Family::V4), self.gateway_address(Family::V6)),
        ]
        .into_iter()
        .chain(self.backends.iter().zip(1u8..).map(|(backend, index)| {
            (backend, self.backend_address(index, Family::V4), self.backend_address(index, Family::V6))
        }))
        .collect();
        for (number, (netns, ..)) in hosts.iter().enumerate() {
            links += &format!(
                "link add eth0 netns {} type veth peer name p{number} netns {}\n",
                netns.name(),
                bridge.name()
            );
            ports += &format!("link set p{number} master br0\nlink set p{number} up\n");
        }
        ip(&[], &links)?;
        bridge.ip(&ports)?;
        for (netns, v4, v6) in hosts {
            configure_host(netns, v4, v6, None)?;
        }
        Ok(())
    }

    pub fn client(&self) -> &Netns {
        &self.client
    }

    pub fn gateway(&self) -> &Netns {
        &self.gateway
    }

    /// Backends count from 1.
    pub fn backend(&self, index: u8) -> &Netns {
        &self.backends[usize::from(index) - 1]
    }

    pub fn client_address(&self, family: Family) -> IpAddr {
        by_family(routed_subnet(0, 2), family)
    }

    /// The gateway's address that the client reaches.
    pub fn gateway_address(&self, family: Family) -> IpAddr {
        by_family(routed_subnet(0, 1), family)
    }

    /// The gateway's address that the backend sees.
    pub fn gateway_address_towards(&self, index: u8, family: Family) -> IpAddr {
        match self.shape {
            Shape::Routed { .. } => by_family(routed_subnet(index, 1), family),
            Shape::Flat { .. } => self.gateway_address(family),
        }
    }

    pub fn backend_address(&self, index: u8, family: Family) -> IpAddr {
        match self.shape {
            Shape::Routed { .. } => by_family(routed_subnet(index, 2), family),
            Shape::Flat { .. } => by_family(routed_subnet(0, 100 + index), family),
        }
    }

    pub fn at_gateway(&self, family: Family, port: u16) -> SocketAddr {
        SocketAddr::new(self.gateway_address(family), port)
    }

    /// For logs, certificates and whatever else belongs to this lab.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder that [`crate::Agent`] serves unless told otherwise.
    pub fn manifests(&self) -> PathBuf {
        self.folder.join("manifests")
    }

    /// A bpffs of this lab's own, unmounted with it.
    pub fn mount_bpffs(&self) -> Result<PathBuf> {
        let path = self.folder.join("bpffs");
        std::fs::create_dir_all(&path)?;
        cleanup::add_mount(&path);
        nix::mount::mount(Some("bpf"), &path, Some("bpf"), nix::mount::MsFlags::empty(), None::<&str>)
            .with_context(|| format!("mount a bpffs at {}: needs CAP_SYS_ADMIN", path.display()))?;
        Ok(path)
    }

    /// The end of every log file, for failures.
    pub fn logs(&self) -> String {
        // Enough for the start-up of the agent and what it said last.
        const TAIL: usize = 12_000;
        let mut text = String::new();
        let mut paths: Vec<PathBuf> = std::fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "log")) {
            let content = String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
            let start = content.char_indices().rev().nth(TAIL).map_or(0, |(index, _)| index);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            text += &format!("--- {name} ---\n{}\n", content.get(start..).unwrap_or_default());
        }
        text
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        cleanup::remove_namespaces(&self.names);
        cleanup::remove_folder(&self.folder);
    }
}

/// Host `host` of subnet `subnet`: 10.0.0.0/24 and fd00::/64 for 0 (the client's), else 10.1.N.0/24 and fd00:1:N::/64.
fn routed_subnet(subnet: u8, host: u8) -> (IpAddr, IpAddr) {
    let (v4, v6) = if subnet == 0 {
        ([10, 0, 0, host], [0xfd00, 0, 0, 0, 0, 0, 0, host.into()])
    } else {
        ([10, 1, subnet, host], [0xfd00, 1, subnet.into(), 0, 0, 0, 0, host.into()])
    };
    (IpAddr::from(v4), IpAddr::from(v6))
}

const fn by_family((v4, v6): (IpAddr, IpAddr), family: Family) -> IpAddr {
    match family {
        Family::V4 => v4,
        Family::V6 => v6,
    }
}

fn configure_host(netns: &Netns, v4: IpAddr, v6: IpAddr, router: Option<(IpAddr, IpAddr)>) -> Result<()> {
    if !v4.is_ipv4() || !v6.is_ipv6() {
        bail!("addresses of {} are swapped", netns.name());
    }
    let mut commands =
        format!("addr add {v4}/24 dev eth0\naddr add {v6}/64 dev eth0 nodad\nlink set eth0 up\n");
    if let Some((v4, v6)) = router {
        commands += &format!("route add default via {v4}\nroute add default via {v6}\n");
    }
    netns.ip(&commands)
}
