//! Manifests as text: short builders for what tests need, and writing that a watcher never sees half done.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context as _, Result};

/// A backend of a route: Service, port, weight.
pub type BackendRef<'a> = (&'a str, u16, u32);

/// A rule of an HTTPRoute: the YAML of its `matches`, empty for every path, and its backends.
pub type HttpRule<'a> = (&'a str, &'a [BackendRef<'a>]);

/// Replaces `folder/name` at once: written beside, then renamed over.
pub fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let draft = folder.join(format!(".{name}.draft"));
    fs::write(&draft, text).with_context(|| format!("write {}", draft.display()))?;
    let target = folder.join(name);
    fs::rename(&draft, &target).with_context(|| format!("replace {}", target.display()))
}

pub fn remove(folder: &Path, name: &str) -> Result<()> {
    fs::remove_file(folder.join(name)).with_context(|| format!("remove {name}"))
}

/// A Gateway of class `gateway-agent`; a listener is `(name, protocol, port)`, TLS passes through.
pub fn gateway(name: &str, listeners: &[(&str, &str, u16)]) -> String {
    let mut text = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata:\n  name: {name}\nspec:\n  \
         gatewayClassName: gateway-agent\n  listeners:\n"
    );
    for (listener, protocol, port) in listeners {
        text += &format!("    - name: {listener}\n      protocol: {protocol}\n      port: {port}\n");
        if *protocol == "TLS" {
            text += "      tls:\n        mode: Passthrough\n";
        }
    }
    text
}

/// A Service with one port, and its EndpointSlices, one for each family among `endpoints`.
pub fn service(name: &str, protocol: &str, port: u16, target: u16, endpoints: &[IpAddr]) -> String {
    let mut text = format!(
        "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  ports:\n    - name: main\n      \
         protocol: {protocol}\n      port: {port}\n      targetPort: {target}\n"
    );
    for (suffix, family, is_v4) in [("v4", "IPv4", true), ("v6", "IPv6", false)] {
        let members: Vec<&IpAddr> = endpoints.iter().filter(|address| address.is_ipv4() == is_v4).collect();
        if members.is_empty() {
            continue;
        }
        text += &format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {name}-{suffix}\n  labels:\n    \
             kubernetes.io/service-name: {name}\naddressType: {family}\nports:\n  - name: main\n    protocol: \
             {protocol}\n    port: {target}\nendpoints:\n"
        );
        for address in members {
            text += &format!("  - addresses: [\"{address}\"]\n    conditions: {{ready: true}}\n");
        }
    }
    text
}

/// A TCPRoute, UDPRoute or TLSRoute.
pub fn l4_route(kind: &str, name: &str, gateway: &str, section: &str, backends: &[BackendRef<'_>]) -> String {
    l4_route_with(kind, name, gateway, section, &[], backends)
}

/// As [`l4_route`], with the hostnames of a TLSRoute.
pub fn l4_route_with(
    kind: &str,
    name: &str,
    gateway: &str,
    section: &str,
    hostnames: &[&str],
    backends: &[BackendRef<'_>],
) -> String {
    let mut text = route_head(kind, name, gateway, section, hostnames);
    text += "  rules:\n    - backendRefs:\n";
    text += &backend_refs(backends, 8);
    text
}

/// An HTTPRoute.
pub fn http_route(
    name: &str,
    gateway: &str,
    section: &str,
    hostnames: &[&str],
    rules: &[HttpRule<'_>],
) -> String {
    let mut text = route_head("HTTPRoute", name, gateway, section, hostnames);
    text += "  rules:\n";
    for (matches, backends) in rules {
        if matches.is_empty() {
            text += "    - backendRefs:\n";
        } else {
            text += &format!("    - matches: {matches}\n      backendRefs:\n");
        }
        text += &backend_refs(backends, 8);
    }
    text
}

fn route_head(kind: &str, name: &str, gateway: &str, section: &str, hostnames: &[&str]) -> String {
    let mut text = format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\nspec:\n  \
         parentRefs:\n    - name: {gateway}\n      sectionName: {section}\n"
    );
    if !hostnames.is_empty() {
        let quoted: Vec<String> = hostnames.iter().map(|hostname| format!("\"{hostname}\"")).collect();
        text += &format!("  hostnames: [{}]\n", quoted.join(", "));
    }
    text
}

fn backend_refs(backends: &[BackendRef<'_>], indent: usize) -> String {
    backends
        .iter()
        .map(|(service, port, weight)| {
            format!("{:indent$}- {{name: {service}, port: {port}, weight: {weight}}}\n", "")
        })
        .collect()
}
