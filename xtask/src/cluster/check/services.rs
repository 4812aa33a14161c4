//! Names and addresses: of pods, of Services, and from outside of the nodes.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Result, ensure};
use lab::eventually_within;

use super::{DEADLINE, Folder, NAMESPACE, curl, in_client, inside, lan};
use crate::command::output;

pub(super) fn dns(folder: &Folder) -> Result<()> {
    let name = format!("web.{NAMESPACE}.svc.cluster.local");
    eventually_within(DEADLINE, "a pod resolves the Service's name", || {
        let answer = in_client(folder, &["/busybox", "nslookup", &name])?;
        ensure!(answer.contains("10.97.") && answer.contains("fd97::"), "{name} resolves to {answer}");
        Ok(())
    })
}

pub(super) fn cluster_addresses(folder: &Folder) -> Result<()> {
    let addresses = fields(folder, "{.spec.clusterIPs[*]}")?;
    ensure!(addresses.len() == 2, "the Service has {addresses:?}");
    // By name too: what pods do is to ask the resolver of the C library.
    for url in addresses.iter().map(|address| url(address)).chain(["http://web/hostname".to_owned()]) {
        let name = eventually_within(DEADLINE, &format!("{url} answers a pod"), || {
            in_client(folder, &["/curl", "--silent", "--show-error", "--fail", "--max-time", "5", &url])
        })?;
        ensure!(name.starts_with("web-"), "{url} answers {name}");
    }
    Ok(())
}

pub(super) fn load_balancer(folder: &Folder) -> Result<()> {
    for address in balanced(folder)? {
        let url = url(&address);
        let mut seen = BTreeSet::new();
        eventually_within(DEADLINE, &format!("both pods answer at {url}"), || {
            seen.insert(output(&mut curl(&["--fail", &url]))?);
            ensure!(seen.len() == 2, "{seen:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// The address that the Service had of that family is free then.
pub(super) fn wanted_address(folder: &Folder) -> Result<()> {
    let wanted = "172.31.1.77";
    let old = balanced(folder)?;
    inside(
        folder,
        &["patch", "service", "web", "--patch", &format!(r#"{{"spec":{{"loadBalancerIP":"{wanted}"}}}}"#)],
    )?;
    eventually_within(DEADLINE, &format!("the Service is at {wanted}"), || {
        let addresses = balanced(folder)?;
        ensure!(addresses[0] == wanted && addresses[1] == old[1], "{addresses:?}");
        ensure!(route(&old[0])?.is_empty(), "{} is still routed", old[0]);
        output(&mut curl(&["--fail", &url(wanted)])).map(drop)
    })
}

pub(super) fn local_policy(folder: &Folder) -> Result<()> {
    inside(folder, &["patch", "service", "web", "--patch", r#"{"spec":{"externalTrafficPolicy":"Local"}}"#])?;
    inside(folder, &["scale", "deployment/web", "--replicas=1"])?;
    let hop = |address: &str| if address.contains(':') { "via fd31::1" } else { "via 172.31.0.1" };
    for address in balanced(folder)? {
        eventually_within(DEADLINE, &format!("one node is routed to for {address}"), || {
            let route = route(&address)?;
            ensure!(route.matches(hop(&address)).count() == 1, "{route}");
            Ok(())
        })?;
        eventually_within(DEADLINE, &format!("{address} answers"), || {
            output(&mut curl(&["--fail", &url(&address)])).map(drop)
        })?;
    }
    Ok(())
}

/// As elsewhere an address that nobody announces.
pub(super) fn no_endpoint(folder: &Folder) -> Result<()> {
    for (replicas, is_unreachable) in [(0, true), (1, false)] {
        inside(folder, &["scale", "deployment/web", &format!("--replicas={replicas}")])?;
        for address in balanced(folder)? {
            eventually_within(DEADLINE, &format!("{address} follows {replicas} endpoints"), || {
                let route = route(&address)?;
                ensure!(route.starts_with("unreachable") == is_unreachable, "{route}");
                Ok(())
            })?;
        }
    }
    Ok(())
}

pub(super) fn removal(folder: &Folder) -> Result<()> {
    let addresses = balanced(folder)?;
    inside(folder, &["delete", "service", "web"])?;
    for address in addresses {
        eventually_within(DEADLINE, &format!("{address} is unrouted"), || {
            let route = route(&address)?;
            ensure!(route.is_empty(), "{route}");
            Ok(())
        })?;
    }
    Ok(())
}

/// The Service's addresses outside, one of each family.
fn balanced(folder: &Folder) -> Result<Vec<String>> {
    eventually_within(DEADLINE, "the Service has addresses", || {
        let addresses = fields(folder, "{.status.loadBalancer.ingress[*].ip}")?;
        ensure!(
            matches!(&addresses[..], [v4, v6] if v4.starts_with("172.31.1.") && v6.starts_with("fd31:1::")),
            "{addresses:?}"
        );
        Ok(addresses)
    })
}

fn fields(folder: &Folder, path: &str) -> Result<Vec<String>> {
    let text = inside(folder, &["get", "service", "web", &format!("--output=jsonpath={path}")])?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// The router's entry for exactly this address.
fn route(address: &str) -> Result<String> {
    let family = if address.contains(':') { "-6" } else { "-4" };
    output(Command::new("ip").args(["-n", &lan(), family, "route", "show", "exact", address]))
}

fn url(address: &str) -> String {
    if address.contains(':') {
        format!("http://[{address}]/hostname")
    } else {
        format!("http://{address}/hostname")
    }
}
