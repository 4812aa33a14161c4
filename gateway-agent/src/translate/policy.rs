//! BackendTLSPolicy: which Services it covers, which of several wins, and what it is told.
//!
//! What a policy covers is spoken to by TLS or not at all: where the policy that wins is not valid, requests are
//! answered with an error rather than sent in clear.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Config;
use super::authority::Maps;
use super::conditions::{Problem, condition, merge};
use super::inputs::Inputs;
use crate::api::ObjectId;
use crate::certificate::Authorities;
use crate::snapshot::{BackendSecurity, BackendTls, ObjectName};
use crate::status::names::{kind, reason};
use crate::status::{ObjectStatus, Scope, ScopeStatus};
use crate::store::objects::{BackendTlsPolicy, LocalRef, PolicyTarget};

/// The Kubernetes kind.
pub(super) const KIND: &str = "BackendTLSPolicy";

/// `status.ancestors` holds at most this many (`PolicyStatus.ancestors`).
const MAX_ANCESTORS: usize = 16;

/// The Service ports that policies speak of: by Service, the names of ports; `None` stands for all of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cover {
    sections: BTreeMap<ObjectName, BTreeMap<Option<Arc<str>>, BackendSecurity>>,
}

impl Cover {
    /// How the port is to be spoken to. A policy for the port goes before one for the whole Service.
    pub(super) fn security(&self, service: &ObjectName, port_name: &Arc<str>) -> BackendSecurity {
        let sections = self.sections.get(service);
        let of_port = sections.and_then(|sections| sections.get(&Some(port_name.clone())));
        of_port.or_else(|| sections?.get(&None)).cloned().unwrap_or_default()
    }

    /// The Services of which they do not say the same.
    pub(super) fn differences(&self, other: &Self) -> BTreeSet<ObjectName> {
        let names = self.sections.keys().chain(other.sections.keys());
        names.filter(|name| self.sections.get(name) != other.sections.get(name)).cloned().collect()
    }
}

/// All policies, judged.
#[derive(Debug, Default)]
pub(super) struct Policies {
    pub(super) cover: Cover,
    pub(super) plans: BTreeMap<ObjectName, PolicyPlan>,
    /// By Service: the policies that name it.
    of_service: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
    /// What they were judged by.
    pub(super) reads: BTreeSet<ObjectId>,
}

#[derive(Debug)]
pub(super) struct PolicyPlan {
    policy: Arc<BackendTlsPolicy>,
    accepted: Result<String, Problem>,
    unresolved: Option<Problem>,
    /// Those that it names, whether they exist or not.
    pub(super) services: BTreeSet<ObjectName>,
}

/// A Service, or one port of it by name.
type Place<'a> = (ObjectName, Option<&'a Arc<str>>);

pub(super) fn plan(inputs: Inputs<'_>, maps: &mut Maps, config: &Config) -> Policies {
    let policies: Vec<&Arc<BackendTlsPolicy>> = inputs
        .store()
        .backend_tls_policies()
        .values()
        .map(|entry| &entry.object)
        .filter(|policy| config.watched.contains(&policy.meta.name.namespace))
        .collect();
    let mut winners: BTreeMap<Place<'_>, &Arc<BackendTlsPolicy>> = BTreeMap::new();
    for policy in &policies {
        for (service, section) in places(policy) {
            let winner = winners.entry((service, section)).or_insert(policy);
            if policy.meta.seniority() < winner.meta.seniority() {
                *winner = policy;
            }
        }
    }
    let mut planned = Policies::default();
    for policy in policies {
        let is_won = |place: &Place<'_>| winners.get(place).is_some_and(|winner| Arc::ptr_eq(winner, policy));
        let Verdict { accepted, unresolved, security } = judge(policy, is_won, &inputs, maps, config);
        let services: BTreeSet<ObjectName> = places(policy).map(|(service, _)| service).collect();
        for (service, section) in places(policy).filter(is_won) {
            let sections = planned.cover.sections.entry(service).or_default();
            sections.insert(section.cloned(), security.clone());
        }
        for service in &services {
            let of_service = planned.of_service.entry(service.clone()).or_default();
            of_service.insert(policy.meta.name.clone());
        }
        let plan = PolicyPlan { policy: policy.clone(), accepted, unresolved, services };
        planned.plans.insert(policy.meta.name.clone(), plan);
    }
    maps.sweep();
    planned.reads = inputs.into_reads();
    planned
}

/// The targets that can be: only Services are.
fn places(policy: &BackendTlsPolicy) -> impl Iterator<Item = Place<'_>> {
    let targets = policy.targets.iter().filter(|target| is_service(&target.reference));
    targets.map(|target| (service(policy, target), target.section.as_ref()))
}

fn is_service(reference: &LocalRef) -> bool {
    reference.group.is_empty() && &*reference.kind == "Service"
}

fn service(policy: &BackendTlsPolicy, target: &PolicyTarget) -> ObjectName {
    ObjectName::new(policy.meta.name.namespace.clone(), target.reference.name.clone())
}

/// What becomes of a policy.
struct Verdict {
    /// With the message.
    accepted: Result<String, Problem>,
    /// ResolvedRefs=False.
    unresolved: Option<Problem>,
    /// What it means where it wins.
    security: BackendSecurity,
}

fn judge(
    policy: &BackendTlsPolicy,
    is_won: impl Fn(&Place<'_>) -> bool,
    inputs: &Inputs<'_>,
    maps: &mut Maps,
    config: &Config,
) -> Verdict {
    let (references, unresolved) = authorities(policy, inputs, maps);
    let trust = trust(policy, references, config);
    let found: Vec<Place<'_>> = places(policy).filter(|place| exists(place, inputs)).collect();
    let n_won = found.iter().filter(|place| is_won(place)).count();
    let refuse = |reason, message: &str| Err(Problem::new(reason, message));
    let accepted = if places(policy).next().is_none() {
        refuse(reason::INVALID, "targetRefs names no core Service; other kinds are not supported")
    } else if found.is_empty() {
        refuse(reason::TARGET_NOT_FOUND, "no target exists: neither the Service nor its port")
    } else if n_won == 0 {
        refuse(reason::CONFLICTED, "another policy, older or first by name, has the same targets")
    } else {
        trust.as_ref().map_err(Clone::clone).map(|_| accepted_message(policy, n_won))
    };
    let security = match trust {
        Err(_) => BackendSecurity::Refused,
        Ok(authorities) => BackendSecurity::Tls(Arc::new(BackendTls {
            server_name: policy.hostname.clone(),
            names: policy.alternative_names.as_slice().into(),
            authorities,
        })),
    };
    Verdict { accepted, unresolved, security }
}

fn accepted_message(policy: &BackendTlsPolicy, n_won: usize) -> String {
    let mut message = "the policy is valid".to_owned();
    if n_won < policy.targets.len() {
        message.push_str(&format!("; {n_won} of {} targets are its own", policy.targets.len()));
    }
    if !policy.options.is_empty() {
        message.push_str(&format!("; without effect: options {}", policy.options.join(", ")));
    }
    message
}

/// Whom backends are verified by. `references`: the good ones of `caCertificateRefs`.
fn trust(
    policy: &BackendTlsPolicy,
    references: Vec<Arc<Authorities>>,
    config: &Config,
) -> Result<Arc<Authorities>, Problem> {
    match policy.well_known_authorities.as_deref() {
        None => Authorities::union(&references).ok_or_else(|| {
            let message = "validation.caCertificateRefs: no valid authority is left";
            Problem::new(reason::NO_VALID_CA_CERTIFICATE, message)
        }),
        Some("System") => config.system_authorities.clone().ok_or_else(|| {
            let message = "wellKnownCACertificates System: the agent's machine has no system certificates; \
                           SSL_CERT_FILE or SSL_CERT_DIR can name some";
            Problem::new(reason::INVALID, message)
        }),
        Some(unknown) => {
            let message = format!("wellKnownCACertificates {unknown} is not supported; System is");
            Err(Problem::new(reason::INVALID, message))
        }
    }
}

fn exists((service, section): &Place<'_>, inputs: &Inputs<'_>) -> bool {
    let ports = inputs.service(service).map(|service| &service.ports);
    ports.is_some_and(|ports| section.is_none_or(|section| ports.iter().any(|port| port.name == *section)))
}

/// The good ones, and what is wrong with the others.
fn authorities(
    policy: &BackendTlsPolicy,
    inputs: &Inputs<'_>,
    maps: &mut Maps,
) -> (Vec<Arc<Authorities>>, Option<Problem>) {
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for LocalRef { group, kind, name } in &policy.authorities {
        if !(group.is_empty() && &**kind == "ConfigMap") {
            let message =
                format!("{name} is a {kind} of group {group:?}; only core ConfigMaps are supported");
            bad.push(Problem::new(reason::INVALID_KIND, message));
            continue;
        }
        let name = ObjectName::new(policy.meta.name.namespace.clone(), name.clone());
        match maps.get(inputs, &name) {
            Ok(authorities) => good.push(authorities),
            Err(message) => bad.push(Problem::new(reason::INVALID_CA_CERTIFICATE_REF, message)),
        }
    }
    (good, merge(bad))
}

impl Policies {
    /// The policies that name the Service.
    pub(super) fn on(&self, service: &ObjectName) -> impl Iterator<Item = &ObjectName> {
        self.of_service.get(service).into_iter().flatten()
    }
}

impl PolicyPlan {
    /// One entry for each Gateway with a route to a Service that the policy names.
    pub(super) fn status(&self, gateways: &BTreeSet<ObjectName>) -> ObjectStatus {
        let message = self.accepted.as_ref().cloned().unwrap_or_default();
        let problem = self.accepted.as_ref().err();
        let conditions = [
            condition(kind::ACCEPTED, reason::ACCEPTED, message, problem),
            condition(
                kind::RESOLVED_REFS,
                reason::RESOLVED_REFS,
                "all references resolve",
                self.unresolved.as_ref(),
            ),
        ];
        let scopes = gateways.iter().take(MAX_ANCESTORS).map(|gateway| {
            ScopeStatus::new(Scope::Ancestor { gateway: gateway.clone() }, conditions.to_vec())
        });
        let meta = &self.policy.meta;
        ObjectStatus::new(KIND, meta.name.clone(), meta.generation, scopes.collect())
    }
}
