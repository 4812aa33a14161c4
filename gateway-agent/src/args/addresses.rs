//! Flags that say where Gateways have their addresses from.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use clap::{Args, ValueEnum};

use super::{ServeArgs, parse_port_range};
use crate::provision::{AddressProvider, IpRange, Pool, ServiceDefaults};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProviderName {
    /// Those of the network namespace, or --address.
    Host,
    /// One Service for each Gateway.
    Service,
    /// Those of --address-pool, which the network must route to the agent.
    Pool,
}

#[derive(Clone, Debug, Args)]
pub struct AddressArgs {
    /// Who gives Gateways their addresses [default: service; with --manifests: host].
    #[arg(long, value_enum)]
    pub address_provider: Option<ProviderName>,

    /// Addresses of the pool: prefixes, ranges, single ones. With the provider `service` those that a load balancer can be
    /// asked for [default: any].
    #[arg(long, value_name = "RANGE", value_delimiter = ',')]
    pub address_pool: Vec<IpRange>,

    /// Ports of the agent's pods that Services lead to; apart from --source-ports and net.ipv4.ip_local_port_range.
    #[arg(long, value_name = "FIRST-LAST", default_value = "61000-65535", value_parser = parse_port_range)]
    pub target_ports: RangeInclusive<u16>,

    /// Labels of the agent's pods, for Services in their namespace.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        env = "POD_SELECTOR",
        value_delimiter = ',',
        value_parser = parse_label,
        default_value = "app.kubernetes.io/component=agent,app.kubernetes.io/name=gateway-agent"
    )]
    pub pod_selector: Vec<(String, String)>,

    /// A headless Service over the agent's pods, in their namespace: it tells the addresses of the replicas.
    #[arg(long, value_name = "NAME", default_value = "gateway-agent")]
    pub agent_service: String,

    /// Set by the downward API.
    #[arg(long, value_name = "IP", hide = true, env = "HOST_IPS", value_delimiter = ',')]
    pub host_ips: Vec<IpAddr>,
}

impl ServeArgs {
    /// Who gives Gateways their addresses; an error says what does not fit together.
    pub fn provider(&self) -> Result<AddressProvider, String> {
        let AddressArgs { address_pool, target_ports, pod_selector, host_ips, .. } = &self.address;
        let is_cluster = self.manifests.is_none();
        let default = if is_cluster { ProviderName::Service } else { ProviderName::Host };
        match self.address.address_provider.unwrap_or(default) {
            ProviderName::Host if address_pool.is_empty() => Ok(AddressProvider::Host),
            ProviderName::Host => Err("--address-pool is without effect with the provider host".into()),
            ProviderName::Pool if address_pool.is_empty() => {
                Err("--address-provider pool needs --address-pool".into())
            }
            ProviderName::Pool => {
                Ok(AddressProvider::Pool(Pool { ranges: address_pool.clone(), is_recorded: is_cluster }))
            }
            ProviderName::Service if !is_cluster => {
                Err("--address-provider service needs a cluster, but --manifests is given".into())
            }
            ProviderName::Service => {
                self.check_target_ports()?;
                Ok(AddressProvider::Service(ServiceDefaults {
                    target_ports: target_ports.clone(),
                    pod_selector: pod_selector
                        .iter()
                        .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                        .collect(),
                    askable: address_pool.clone(),
                    node_addresses: host_ips.clone(),
                }))
            }
        }
    }

    fn check_target_ports(&self) -> Result<(), String> {
        let (targets, sources) = (&self.address.target_ports, &self.source_ports);
        if targets.start() <= sources.end() && sources.start() <= targets.end() {
            return Err("--target-ports and --source-ports have ports in common".into());
        }
        Ok(())
    }
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    let is_plain = |text: &str, others: &[u8]| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
    };
    if key.is_empty() || key.len() > 317 || !is_plain(key, b"-_./") {
        return Err("not the key of a label".into());
    }
    if value.len() > 63 || !is_plain(value, b"-_.") {
        return Err("not the value of a label".into());
    }
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::args::Cli;
    use crate::provision::{AddressProvider, ServiceDefaults};

    fn provider(args: &[&str]) -> Result<AddressProvider, String> {
        let line = ["gateway-agent"].iter().chain(args);
        Cli::try_parse_from(line).map_err(|error| error.to_string())?.serve.provider()
    }

    #[test]
    fn default_is_service_in_a_cluster_and_host_with_manifests() {
        assert_eq!(provider(&[]), Ok(AddressProvider::Service(ServiceDefaults::default())));
        assert_eq!(provider(&["--manifests", "dir"]), Ok(AddressProvider::Host));
    }

    #[test]
    fn pool_needs_addresses() {
        assert!(provider(&["--address-provider", "pool"]).is_err());
        let args = ["--address-provider", "pool", "--address-pool", "192.0.2.0/24,2001:db8::1"];
        let Ok(AddressProvider::Pool(pool)) = provider(&args) else { panic!("a pool") };
        assert_eq!((pool.ranges.len(), pool.is_recorded), (2, true));
        let args = [&args[..], &["--manifests", "dir"]].concat();
        assert!(matches!(provider(&args), Ok(AddressProvider::Pool(pool)) if !pool.is_recorded));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for args in [
            ["--address-provider=host", "--address-pool=192.0.2.1"],
            ["--address-provider=service", "--manifests=dir"],
            ["--target-ports=29000-40000", "--log-level=info"],
            ["--address-provider=pool", "--address-pool=x"],
            ["--pod-selector=app", "--log-level=info"],
            ["--pod-selector=app=a b", "--log-level=info"],
        ] {
            assert!(provider(&args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn selector_is_a_list_of_labels() {
        let Ok(AddressProvider::Service(defaults)) = provider(&["--pod-selector", "app=x,tier=y"]) else {
            panic!("a provider")
        };
        assert_eq!(defaults.pod_selector.len(), 2);
        assert_eq!(defaults.pod_selector.get("tier").map(|value| &**value), Some("y"));
    }
}
