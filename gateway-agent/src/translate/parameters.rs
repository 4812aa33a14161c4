//! What the ConfigMap of `spec.infrastructure.parametersRef` may say.
//!
//! Tables have the keys, their defaults and their readers; the page for users is made of the same tables.
//! **Invariant:** a key acts or is refused: none is passed over.

mod provenance;
mod serving;

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

pub(super) use self::serving::Serving;
use super::conditions::Problem;
use super::inputs::Inputs;
use crate::provision::AddressProvider;
use crate::provision::service::{ServiceSettings, type_name};
use crate::snapshot::{ObjectName, Provenance};
use crate::status::names::reason;
use crate::store::objects::{ConfigMap, Gateway, ServiceType};

/// One key of the ConfigMap, of those that are for `T`.
struct Parameter<T: 'static> {
    key: &'static str,
    values: &'static str,
    default: &'static str,
    does: &'static str,
    /// Puts the value in, or says what it should have been.
    read: fn(&mut T, &str) -> Result<(), String>,
}

/// What all keys together say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) service: ServiceSettings,
    pub(super) serving: Serving,
    pub(super) provenance: Provenance,
}

/// All of them say what Service is made, so they act with `--address-provider service` only.
const SERVICE: &[Parameter<ServiceSettings>] = &[
    Parameter {
        key: "allocateLoadBalancerNodePorts",
        values: "`true`, `false`",
        default: "`true`",
        does: "whether nodes listen for it too; `false` where the load balancer sends to pods or to its own address",
        read: |settings, value| {
            settings.without_node_ports = !choice(value, &[("true", true), ("false", false)])?;
            Ok(())
        },
    },
    Parameter {
        key: "externalTrafficPolicy",
        values: "`Cluster`, `Local`",
        default: "`Cluster`",
        does: "`Local` keeps the client's address and sends to replicas on the node that was hit only",
        read: |settings, value| {
            settings.is_traffic_local = choice(value, &[("Cluster", false), ("Local", true)])?;
            Ok(())
        },
    },
    Parameter {
        key: "ipFamilies",
        values: "`IPv4`, `IPv6` or both, the first is the primary one",
        default: "the cluster's",
        does: "of which families the addresses are; the primary one of an existing Service cannot be changed",
        read: |settings, value| {
            settings.ip_families = items(value, |item| choice(item, &[("IPv4", "IPv4"), ("IPv6", "IPv6")]))?;
            if settings.ip_families.len() > 2 || has_duplicates(&settings.ip_families) {
                return Err("each family once".into());
            }
            Ok(())
        },
    },
    Parameter {
        key: "ipFamilyPolicy",
        values: "`SingleStack`, `PreferDualStack`, `RequireDualStack`",
        default: "`PreferDualStack`",
        does: "whether there are addresses of both families",
        read: |settings, value| {
            let policies =
                ["SingleStack", "PreferDualStack", "RequireDualStack"].map(|policy| (policy, policy));
            settings.ip_family_policy = Some(choice(value, &policies)?);
            Ok(())
        },
    },
    Parameter {
        key: "loadBalancerClass",
        values: "a name such as `example.com/internal`",
        default: "the cluster's",
        does: "which load balancer takes the Service; cannot be changed while the Service exists",
        read: |settings, value| {
            let is_name =
                !value.is_empty() && value.len() <= NAME_LEN_MAX && !value.contains(char::is_whitespace);
            settings.load_balancer_class = Some(value.into());
            if is_name { Ok(()) } else { Err("a qualified name".into()) }
        },
    },
    Parameter {
        key: "loadBalancerSourceRanges",
        values: "prefixes such as `192.0.2.0/24, 2001:db8::/32`",
        default: "every client",
        does: "which clients the load balancer lets in, where it can",
        read: |settings, value| {
            settings.source_ranges = items(value, |item| Ok(Arc::from(prefix(item)?.to_string())))?;
            Ok(())
        },
    },
    Parameter {
        key: "nodeAddresses",
        values: "addresses",
        default: "those of the node of the replica that writes status",
        does: "what a Gateway of service type `NodePort` publishes",
        read: |settings, value| {
            settings.node_addresses = items(value, |item| {
                item.parse::<IpAddr>().map_err(|_not_one| format!("{item:?} is no address"))
            })?;
            Ok(())
        },
    },
    Parameter {
        key: "serviceAnnotations",
        values: "lines of `key=value`",
        default: "none",
        does: "annotations for the Service alone; those of `spec.infrastructure` are on all objects made for the Gateway",
        read: |settings, value| {
            for line in value.lines().map(str::trim).filter(|line| !line.is_empty()) {
                let (key, value) = line.split_once('=').ok_or("lines of key=value")?;
                if !is_qualified_name(key.trim()) {
                    return Err(format!("{:?} is no name of an annotation", key.trim()));
                }
                settings.annotations.insert(key.trim().into(), value.trim().into());
            }
            Ok(())
        },
    },
    Parameter {
        key: "serviceType",
        values: "`LoadBalancer`, `ClusterIP`, `NodePort`",
        default: "`LoadBalancer`",
        does: "how the Gateway is reached: from outside, within the cluster, at ports of the nodes",
        read: |settings, value| {
            let types = [ServiceType::LoadBalancer, ServiceType::ClusterIp, ServiceType::NodePort];
            settings.kind = choice(value, &types.map(|kind| (type_name(kind), kind)))?;
            Ok(())
        },
    },
    Parameter {
        key: "sessionAffinity",
        values: "`None`, `ClientIP`",
        default: "`None`",
        does: "`ClientIP` sends all of a client to the same replica",
        read: |settings, value| {
            settings.has_client_affinity = choice(value, &[("None", false), ("ClientIP", true)])?;
            Ok(())
        },
    },
];

/// Of a qualified name: a prefix of 253 characters, a slash, a name of 63.
const NAME_LEN_MAX: usize = 317;

/// What the Gateway's parameters come to; the problem is the reason and message of Accepted=False.
pub(super) fn read(
    gateway: &Gateway,
    inputs: &Inputs<'_>,
    provider: &AddressProvider,
) -> Result<Parameters, Problem> {
    let Some(parameters) = &gateway.infrastructure.parameters else {
        return Ok(Parameters::default());
    };
    let invalid = |message: String| Problem::new(reason::INVALID_PARAMETERS, message);
    if !(parameters.group.is_empty() && &*parameters.kind == "ConfigMap") {
        return Err(invalid(format!(
            "infrastructure.parametersRef names a {} of group {:?}; only a core ConfigMap is supported",
            parameters.kind, parameters.group
        )));
    }
    let name = ObjectName::new(gateway.meta.name.namespace.clone(), parameters.name.clone());
    let Some(map) = inputs.config_map(&name) else {
        return Err(invalid(format!("infrastructure.parametersRef: ConfigMap {name} does not exist")));
    };
    let read = read_map(map, provider)
        .and_then(|parameters| parameters.serving.fits(&gateway.listeners).map(|()| parameters));
    read.map_err(|message| invalid(format!("ConfigMap {name}: {message}")))
}

fn read_map(map: &ConfigMap, provider: &AddressProvider) -> Result<Parameters, String> {
    let Parameters { service: mut settings, mut serving, mut provenance } = Parameters::default();
    for (key, value) in &map.data {
        if put(serving::SERVING, &mut serving, key, value)?
            || put(provenance::PROVENANCE, &mut provenance, key, value)?
        {
            continue;
        }
        if !SERVICE.iter().any(|parameter| parameter.key == &**key) {
            return Err(format!("unknown key {key}"));
        }
        if !matches!(provider, AddressProvider::Service(_)) {
            return Err(format!(
                "key {key} is of the address provider service, but this agent has --address-provider {}",
                provider.as_str()
            ));
        }
        put(SERVICE, &mut settings, key, value)?;
    }
    serving.is_whole()?;
    if settings.kind != ServiceType::NodePort && !settings.node_addresses.is_empty() {
        return Err("key nodeAddresses acts with serviceType NodePort only".into());
    }
    Ok(Parameters { service: settings, serving, provenance })
}

/// False: the table has no such key.
fn put<T>(table: &[Parameter<T>], settings: &mut T, key: &str, value: &str) -> Result<bool, String> {
    let Some(parameter) = table.iter().find(|parameter| parameter.key == key) else { return Ok(false) };
    (parameter.read)(settings, value.trim())
        .map_err(|expected| format!("key {key}: {value:?} is not valid: {expected}"))?;
    Ok(true)
}

fn choice<T: Copy>(value: &str, choices: &[(&str, T)]) -> Result<T, String> {
    choices.iter().find(|(name, _)| *name == value).map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        format!("one of {}", names.join(", "))
    })
}

/// A list, separated by commas or white space.
fn items<T>(value: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    /// A list that is longer than any load balancer takes.
    const ITEMS_MAX: usize = 256;
    let mut texts = value.split([',', ' ', '\t', '\n']).filter(|item| !item.is_empty());
    let items: Vec<T> = texts.by_ref().take(ITEMS_MAX).map(read).collect::<Result<_, _>>()?;
    if items.is_empty() {
        return Err("at least one".into());
    }
    if texts.next().is_some() {
        return Err(format!("at most {ITEMS_MAX}"));
    }
    Ok(items)
}

fn prefix(item: &str) -> Result<IpNet, String> {
    let net: IpNet = item.parse().map_err(|_not_a_prefix| format!("{item:?} is no prefix"))?;
    Ok(net.trunc())
}

fn has_duplicates<T: PartialEq>(items: &[T]) -> bool {
    items.iter().enumerate().any(|(index, item)| items[..index].contains(item))
}

/// `[prefix/]name` as Kubernetes has it for keys of annotations.
fn is_qualified_name(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_part = |part: &str, others: &[char], max: usize| {
        let alphanumeric = |one: char| one.is_ascii_alphanumeric();
        !part.is_empty()
            && part.len() <= max
            && part.starts_with(alphanumeric)
            && part.ends_with(alphanumeric)
            && part.chars().all(|one| one.is_ascii_alphanumeric() || others.contains(&one))
    };
    is_part(name, &['-', '_', '.'], 63) && prefix.is_none_or(|prefix| is_part(prefix, &['-', '.'], 253))
}

/// The tables for users, in Markdown: of what Service is made, of how listeners serve, and of whom they believe.
pub fn tables() -> [String; 3] {
    [table(SERVICE), table(serving::SERVING), table(provenance::PROVENANCE)]
}

fn table<T>(parameters: &[Parameter<T>]) -> String {
    let mut table = "| key | values | default | what it does |\n|---|---|---|---|\n".to_owned();
    for Parameter { key, values, default, does, read: _ } in parameters {
        table.push_str(&format!("| `{key}` | {values} | {default} | {does} |\n"));
    }
    table
}

#[cfg(test)]
mod tests;
