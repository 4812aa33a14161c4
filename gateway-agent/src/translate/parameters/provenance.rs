//! Keys that say what is believed and said of where requests come from, whoever gives the Gateway its addresses.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Parameter, choice, items, prefix};
use crate::snapshot::{ForwardedStyle, Provenance};

pub(super) const PROVENANCE: &[Parameter<Provenance>] = &[
    Parameter {
        key: "forwardedHeaders",
        values: "`XForwarded`, `Forwarded`, `Both`, `None`",
        default: "`XForwarded`",
        does: "how servers are told who has asked: by `X-Forwarded-For`, `-Proto`, `-Host` and `-Port`, or by `Forwarded` (RFC 7239)",
        read: |provenance, value| {
            let styles = [
                ("XForwarded", ForwardedStyle::XForwarded),
                ("Forwarded", ForwardedStyle::Forwarded),
                ("Both", ForwardedStyle::Both),
                ("None", ForwardedStyle::None),
            ];
            provenance.style = choice(value, &styles)?;
            Ok(())
        },
    },
    Parameter {
        key: "requestIdInAnswers",
        values: "`true`, `false`",
        default: "`false`",
        does: "whether answers tell the client the `X-Request-Id`, also those of the agent itself",
        read: |provenance, value| {
            provenance.tells_request_id = choice(value, &[("true", true), ("false", false)])?;
            Ok(())
        },
    },
    Parameter {
        key: "traceContext",
        values: "`TrustedClients`, `AllClients`",
        default: "`TrustedClients`",
        does: "whose `traceparent` and `tracestate` are passed on, and logged",
        read: |provenance, value| {
            provenance.keeps_all_traces = choice(value, &[("TrustedClients", false), ("AllClients", true)])?;
            Ok(())
        },
    },
    Parameter {
        key: "trustedClients",
        values: "addresses and prefixes such as `192.0.2.1, 10.0.0.0/8, 2001:db8::/32`",
        default: "none",
        does: "load balancers and other proxies whose word is believed, by the address that the agent sees",
        read: |provenance, value| {
            let net = |item: &str| {
                item.parse::<IpAddr>().map_or_else(|_no_address| prefix(item), |one| Ok(IpNet::from(one)))
            };
            provenance.trusted = items(value, net)?.into();
            Ok(())
        },
    },
];
