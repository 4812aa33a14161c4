//! Which data path served something, told from the agent's own metrics.

use std::fmt;

use anyhow::{Result, bail};
use lab::Agent;

/// What the proxy and the kernel had counted before an exchange.
pub(super) struct Watch {
    listener: String,
    proxied: f64,
}

/// The data path, and the mechanism by which it has the listener.
pub(super) enum PathSeen {
    Kernel(String),
    Proxy(String),
}

impl fmt::Display for PathSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(mechanism) => write!(f, "kernel ({mechanism})"),
            Self::Proxy(mechanism) => write!(f, "proxy ({mechanism})"),
        }
    }
}

const CONNECTIONS: &str = "gateway_agent_listener_connections_total";
const LISTENER_PATH: &str = "gateway_agent_listener_path";

impl Watch {
    pub(super) fn start(agent: &Agent, listener: &str) -> Result<Self> {
        let proxied = agent.metrics()?.sum(CONNECTIONS, &[("listener", listener)]);
        Ok(Self { listener: listener.to_owned(), proxied })
    }

    /// The proxy counts each connection that it accepts; what it did not see, the kernel served.
    pub(super) fn finish(self, agent: &Agent) -> Result<PathSeen> {
        let metrics = agent.metrics()?;
        let mechanism = |path: &str| {
            metrics
                .samples
                .iter()
                .find(|sample| {
                    sample.name == LISTENER_PATH
                        && sample.labels.get("listener").is_some_and(|name| *name == self.listener)
                        && sample.labels.get("path").is_some_and(|name| name == path)
                })
                .and_then(|sample| sample.labels.get("mechanism").cloned())
        };
        let proxied = metrics.sum(CONNECTIONS, &[("listener", &self.listener)]) > self.proxied;
        match (proxied, mechanism("proxy"), mechanism("kernel")) {
            (true, Some(mechanism), _) => Ok(PathSeen::Proxy(mechanism)),
            (false, _, Some(mechanism)) => Ok(PathSeen::Kernel(mechanism)),
            _ => bail!("the metrics do not tell how listener {} is served", self.listener),
        }
    }
}
