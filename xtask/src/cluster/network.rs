//! The machines' network: a bridge, a router and outside client on it (`lan`), and who has which address.
//!
//! Nothing of it is in the machine's own network namespace, so nothing of it can clash with an address there.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::name;
use crate::command::output;

/// A machine of the cluster and its place in the network.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) name: &'static str,
    /// The last octet, or group, of its addresses.
    pub(super) host: &'static str,
    /// Its part of the pods' ranges; none for the control plane, which runs no pods.
    pub(super) pods: Option<u8>,
}

pub(super) const CONTROL_PLANE: Place = Place { name: "cp", host: "10", pods: None };
pub(super) const NODES: [Place; 2] =
    [Place { name: "n1", host: "11", pods: Some(1) }, Place { name: "n2", host: "12", pods: Some(2) }];

pub(super) const API_SERVER: &str = "172.31.0.10";
pub(super) const API_PORT: u16 = 6443;
/// The fault proxy's ports, at the API server's addresses: for its clients, and for its orders.
pub(super) const FAULTS_PORT: u16 = 6444;
pub(super) const FAULTS_CONTROL_PORT: u16 = 6445;
pub(super) const PODS: &str = "10.245.0.0/16,fd45::/48";
pub(super) const SERVICES: &str = "10.97.0.0/16,fd97::/108";
pub(super) const DNS: [&str; 2] = ["10.97.0.10", "fd97::a"];

impl Place {
    pub(super) fn netns(&self) -> String {
        format!("{}-{}", name(), self.name)
    }

    pub(super) fn v4(&self) -> String {
        format!("172.31.0.{}", self.host)
    }

    pub(super) fn v6(&self) -> String {
        format!("fd31::{}", self.host)
    }

    /// The ranges of its pods, IPv4 first.
    pub(super) fn pod_ranges(&self) -> Option<[String; 2]> {
        self.pods.map(|n| [format!("10.245.{n}.0/24"), format!("fd45:0:0:{n}::/64")])
    }
}

/// The router's namespace.
pub(super) fn lan() -> String {
    format!("{}-lan", name())
}

fn namespaces() -> impl Iterator<Item = String> {
    std::iter::once(lan()).chain([&CONTROL_PLANE].into_iter().chain(&NODES).map(Place::netns))
}

pub(super) fn exists() -> bool {
    namespaces().any(|name| Path::new("/run/netns").join(name).exists())
}

pub(super) fn create() -> Result<()> {
    for name in namespaces() {
        ip(&["netns", "add", &name])?;
        ip(&["-n", &name, "link", "set", "lo", "up"])?;
    }
    let lan = lan();
    for command in [
        "link add br0 type bridge",
        "addr add 172.31.0.1/24 dev br0",
        "addr add fd31::1/64 dev br0 nodad",
        "link set br0 up",
    ] {
        ip_in(&lan, command)?;
    }
    for place in [&CONTROL_PLANE].into_iter().chain(&NODES) {
        attach(&lan, place)?;
    }
    for netns in namespaces() {
        for node in NODES.iter().filter(|node| node.netns() != netns) {
            if let Some([v4, v6]) = node.pod_ranges() {
                ip_in(&netns, &format!("route add {v4} via {}", node.v4()))?;
                ip_in(&netns, &format!("route add {v6} via {}", node.v6()))?;
            }
        }
        let forward = "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding";
        output(
            Command::new("nsenter").arg(format!("--net=/run/netns/{netns}")).args(["sh", "-ec", forward]),
        )?;
    }
    Ok(())
}

/// A cable from the bridge to the machine, its addresses, and the router as its way out.
fn attach(lan: &str, place: &Place) -> Result<()> {
    let (netns, name) = (place.netns(), place.name);
    ip_in(lan, &format!("link add {name} type veth peer name eth0 netns {netns}"))?;
    ip_in(lan, &format!("link set {name} master br0 up"))?;
    for command in [
        format!("addr add {}/24 dev eth0", place.v4()),
        format!("addr add {}/64 dev eth0 nodad", place.v6()),
        "link set eth0 up".to_owned(),
        "route add default via 172.31.0.1".to_owned(),
        "-6 route add default via fd31::1".to_owned(),
    ] {
        ip_in(&netns, &command)?;
    }
    Ok(())
}

/// Deletes what there is; a namespace's links and routes go with it.
pub(super) fn remove() -> Result<()> {
    for name in namespaces() {
        let path = Path::new("/run/netns").join(&name);
        if !path.exists() {
            continue;
        }
        // A crash between making the file and mounting the namespace leaves a file that `ip` does not delete.
        if ip(&["netns", "del", &name]).is_err() {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

fn ip_in(netns: &str, command: &str) -> Result<()> {
    let mut args = vec!["-n", netns];
    args.extend(command.split(' '));
    ip(&args)
}

fn ip(args: &[&str]) -> Result<()> {
    output(Command::new("ip").args(args)).map(drop)
}
