//! BackendTLSPolicy: which Services it covers, which of several wins, and what it is told.
//!
//! There is no TLS towards backends yet. A policy is judged and accepted as the spec says, its message says that it is not
//! in force, and what it covers is answered with an error rather than sent in clear.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Config;
use super::authority;
use super::conditions::{Problem, condition, merge};
use super::inputs::Inputs;
use crate::api::ObjectId;
use crate::snapshot::ObjectName;
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
    sections: BTreeMap<ObjectName, BTreeSet<Option<Arc<str>>>>,
}

impl Cover {
    pub(super) fn holds(&self, service: &ObjectName, port_name: &str) -> bool {
        let Some(sections) = self.sections.get(service) else {
            return false;
        };
        sections.iter().any(|section| section.as_deref().is_none_or(|section| section == port_name))
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

pub(super) fn plan(inputs: Inputs<'_>, config: &Config) -> Policies {
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
        let (accepted, unresolved) = judge(policy, is_won, &inputs);
        let services: BTreeSet<ObjectName> = places(policy).map(|(service, _)| service).collect();
        for (service, section) in places(policy) {
            planned.cover.sections.entry(service).or_default().insert(section.cloned());
        }
        for service in &services {
            let of_service = planned.of_service.entry(service.clone()).or_default();
            of_service.insert(policy.meta.name.clone());
        }
        let plan = PolicyPlan { policy: policy.clone(), accepted, unresolved, services };
        planned.plans.insert(policy.meta.name.clone(), plan);
    }
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
    ObjectName { namespace: policy.meta.name.namespace.clone(), name: target.reference.name.clone() }
}

/// Accepted and ResolvedRefs.
fn judge(
    policy: &BackendTlsPolicy,
    is_won: impl Fn(&Place<'_>) -> bool,
    inputs: &Inputs<'_>,
) -> (Result<String, Problem>, Option<Problem>) {
    let (n_good, unresolved) = authorities(policy, inputs);
    let found: Vec<Place<'_>> = places(policy).filter(|place| exists(place, inputs)).collect();
    let n_won = found.iter().filter(|place| is_won(place)).count();
    let refuse = |reason, message: String| Err(Problem::new(reason, message));
    let accepted = if places(policy).next().is_none() {
        refuse(reason::INVALID, "targetRefs names no core Service; other kinds are not supported".into())
    } else if found.is_empty() {
        refuse(reason::TARGET_NOT_FOUND, "no target exists: neither the Service nor its port".into())
    } else if n_won == 0 {
        let message = "another policy, older or first by name, has the same targets";
        refuse(reason::CONFLICTED, message.into())
    } else if let Some(unknown) = policy.well_known_authorities.as_ref().filter(|name| &***name != "System") {
        refuse(reason::INVALID, format!("wellKnownCACertificates {unknown} is not supported; System is"))
    } else if n_good == 0 && policy.well_known_authorities.is_none() {
        let message = "validation.caCertificateRefs: no valid authority is left";
        refuse(reason::NO_VALID_CA_CERTIFICATE, message.into())
    } else {
        let mut message =
            "the policy is valid; not in force: this version of the agent speaks no TLS to backends, \
                           requests to its targets are answered with 500"
                .to_owned();
        if n_won < policy.targets.len() {
            message.push_str(&format!("; {n_won} of {} targets are its own", policy.targets.len()));
        }
        if !policy.options.is_empty() {
            message.push_str(&format!("; without effect: options {}", policy.options.join(", ")));
        }
        Ok(message)
    };
    (accepted, unresolved)
}

fn exists((service, section): &Place<'_>, inputs: &Inputs<'_>) -> bool {
    let ports = inputs.service(service).map(|service| &service.ports);
    ports.is_some_and(|ports| section.is_none_or(|section| ports.iter().any(|port| port.name == *section)))
}

fn authorities(policy: &BackendTlsPolicy, inputs: &Inputs<'_>) -> (usize, Option<Problem>) {
    let mut bad = Vec::new();
    for LocalRef { group, kind, name } in &policy.authorities {
        if !(group.is_empty() && &**kind == "ConfigMap") {
            let message =
                format!("{name} is a {kind} of group {group:?}; only core ConfigMaps are supported");
            bad.push(Problem::new(reason::INVALID_KIND, message));
            continue;
        }
        let name = ObjectName { namespace: policy.meta.name.namespace.clone(), name: name.clone() };
        if let Err(message) = authority::check(inputs, &name) {
            bad.push(Problem::new(reason::INVALID_CA_CERTIFICATE_REF, message));
        }
    }
    (policy.authorities.len() - bad.len(), merge(bad))
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
        ObjectStatus {
            kind: KIND,
            name: self.policy.meta.name.clone(),
            observed_generation: self.policy.meta.generation,
            addresses: Vec::new(),
            attached_listener_sets: None,
            scopes: scopes.collect(),
        }
    }
}
