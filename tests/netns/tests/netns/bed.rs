//! What the tests share: a lab whose logs are shown when a test fails, and the usual manifests.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use anyhow::{Result, ensure};
use lab::client::Greeting;
use lab::{Agent, Datapath, Family, Lab, Shape, manifests};

/// One test for each data path; both must behave the same unless the test says where they differ.
macro_rules! on_each_datapath {
    ($($name:ident),* $(,)?) => {
        mod ebpf {
            $(#[test] fn $name() { super::$name(lab::Datapath::Ebpf); })*
        }
        mod userspace {
            $(#[test] fn $name() { super::$name(lab::Datapath::Userspace); })*
        }
    };
}
pub(crate) use on_each_datapath;

/// Runs `test` in a lab of its own; a failure shows the logs of every process in it.
pub(crate) fn with_lab(shape: Shape, test: impl FnOnce(&Lab) -> Result<()>) {
    let lab = Lab::new(shape).unwrap_or_else(|error| panic!("{error:#}"));
    match catch_unwind(AssertUnwindSafe(|| test(&lab))) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => panic!("{error:#}\n{}", lab.logs()),
        Err(panic) => {
            eprintln!("{}", lab.logs());
            resume_unwind(panic)
        }
    }
}

pub(crate) fn routed(backends: u8, test: impl FnOnce(&Lab) -> Result<()>) {
    with_lab(Shape::Routed { backends }, test);
}

/// The addresses of a backend in both families.
pub(crate) fn both(lab: &Lab, index: u8) -> [IpAddr; 2] {
    Family::BOTH.map(|family| lab.backend_address(index, family))
}

/// The addresses of these backends in both families.
pub(crate) fn all(lab: &Lab, indexes: &[u8]) -> Vec<IpAddr> {
    indexes.iter().flat_map(|index| both(lab, *index)).collect()
}

/// The listener port of [`serve_l4`].
pub(crate) const PORT: u16 = 5432;
/// Where the backends of [`serve_l4`] listen.
pub(crate) const TARGET: u16 = 7000;

/// A Gateway with one TCP or UDP listener on [`PORT`], a route, and a Service of these endpoints.
pub(crate) fn serve_l4(lab: &Lab, protocol: &str, endpoints: &[IpAddr]) -> Result<()> {
    let text = manifests::gateway("gw", &[("main", protocol, PORT)])
        + &manifests::l4_route(&format!("{protocol}Route"), "route", "gw", "main", &[("svc", 80, 1)]);
    manifests::write(&lab.manifests(), "gateway.yaml", &text)?;
    set_endpoints(lab, protocol, endpoints)
}

/// Replaces the endpoints of [`serve_l4`].
pub(crate) fn set_endpoints(lab: &Lab, protocol: &str, endpoints: &[IpAddr]) -> Result<()> {
    manifests::write(
        &lab.manifests(),
        "service.yaml",
        &manifests::service("svc", protocol, 80, TARGET, endpoints),
    )
}

/// What the proxy accepted on a listener so far.
pub(crate) fn proxied(agent: &Agent, listener: &str) -> Result<f64> {
    Ok(agent.metrics()?.sum("gateway_agent_listener_connections_total", &[("listener", listener)]))
}

/// Fails unless the backend saw the flow come by the data path that `datapath` should use: the kernel path draws from a
/// port range of its own, the relay from the ephemeral ports.
pub(crate) fn check_source(
    lab: &Lab,
    datapath: Datapath,
    backend: u8,
    family: Family,
    seen: &Greeting,
) -> Result<()> {
    let gateway = lab.gateway_address_towards(backend, family);
    ensure!(seen.peer.ip() == gateway, "the backend saw {}, not the gateway's {gateway}", seen.peer);
    check_port(datapath, seen)
}

pub(crate) fn check_port(datapath: Datapath, seen: &Greeting) -> Result<()> {
    let in_kernel_range = (10_000..30_000).contains(&seen.peer.port());
    ensure!(
        in_kernel_range == (datapath == Datapath::Ebpf),
        "source port {} does not belong to data path {}",
        seen.peer.port(),
        datapath.as_str()
    );
    Ok(())
}
