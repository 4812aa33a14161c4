//! What is to be written for Gateways that are reached by Services.
//!
//! Compares with what is stored, so that nothing is asked for where all is as it should be.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::Config;
use super::gateway::{GatewayPlan, ServicePlace, allocator};
use crate::provision::managed::{Managed, Owner};
use crate::provision::names::Marker;
use crate::provision::service::{self, ServicePlan};
use crate::provision::slices::{self, AgentEndpoint};
use crate::provision::targets::{PortKey, Targets};
use crate::provision::{AddressProvider, Change, Manifest, ManifestKind, ServiceDefaults, Wanted};
use crate::snapshot::ObjectName;
use crate::store::Store;

/// Every write that is wanted, in the Gateways' order, deletions last.
/// `ports`: what each Gateway's listeners have.
pub(super) fn plan(
    gateways: &[GatewayPlan],
    ports: &HashMap<&ObjectName, BTreeSet<PortKey>>,
    store: &Store,
    config: &Config,
) -> Vec<Wanted> {
    let mut planner = Planner { store, config, kept: HashSet::new(), wanted: Vec::new() };
    if let AddressProvider::Service(defaults) = &config.provider {
        let endpoints = agent_endpoints(store, config);
        for (gateway, place, targets) in targets(gateways, ports, store, config, defaults) {
            planner.gateway(gateway, place, &targets, defaults, &endpoints);
        }
    }
    planner.delete_others();
    planner.wanted
}

/// Each Gateway's Service and the ports that it should have.
fn targets<'a>(
    gateways: &'a [GatewayPlan],
    ports: &HashMap<&ObjectName, BTreeSet<PortKey>>,
    store: &Store,
    config: &Config,
    defaults: &ServiceDefaults,
) -> Vec<(&'a GatewayPlan, &'a ServicePlace, Targets)> {
    let places: Vec<(&GatewayPlan, &ServicePlace)> =
        gateways.iter().filter_map(|gateway| Some((gateway, gateway.service.as_ref()?))).collect();
    let claimed = places.iter().map(|(_, place)| place.name.clone()).collect();
    let mut allocator = allocator(store, config, defaults, &claimed);
    let kept: Vec<Targets> = places.iter().map(|(_, place)| allocator.keep(&place.stored)).collect();
    let none = BTreeSet::new();
    places
        .into_iter()
        .zip(kept)
        .map(|((gateway, place), kept)| {
            let ports = ports.get(gateway.name()).unwrap_or(&none);
            (gateway, place, allocator.complete(gateway.name(), ports, &kept))
        })
        .collect()
}

struct Planner<'a> {
    store: &'a Store,
    config: &'a Config,
    /// Objects that are somebody's, whether or not they are as they should be.
    kept: HashSet<(ManifestKind, ObjectName)>,
    wanted: Vec<Wanted>,
}

impl Planner<'_> {
    fn gateway(
        &mut self,
        plan: &GatewayPlan,
        place: &ServicePlace,
        targets: &Targets,
        defaults: &ServiceDefaults,
        endpoints: &[AgentEndpoint],
    ) {
        self.kept.insert((ManifestKind::Service, place.name.clone()));
        let marker = Marker {
            controller: self.config.controller_name.as_str().into(),
            class: plan.gateway.class.clone(),
            gateway: plan.name().name.clone(),
        };
        // An owner without a UID is a manifest of a folder; a Service without ports is refused.
        let is_complete = plan.gateway.uid.is_some() && !targets.is_empty();
        if !place.is_wanted || !is_complete {
            self.keep_slices(place);
            return;
        }
        let owner = Owner {
            marker: &marker,
            gateway_uid: plan.gateway.uid.as_deref().unwrap_or_default(),
            labels: &plan.gateway.infrastructure.labels,
            annotations: &plan.gateway.infrastructure.annotations,
        };
        let is_at_home = *self.config.own_pod.namespace == *place.name.namespace;
        let manifest = service::manifest(&ServicePlan {
            name: &place.name,
            owner,
            settings: &plan.settings,
            ports: targets,
            selector: is_at_home.then_some(&defaults.pod_selector),
            asked: place.asked,
        });
        let stored = self.store.service(&place.name).and_then(|service| service.managed.as_deref());
        self.put(&marker, manifest, stored);
        if !is_at_home {
            for manifest in slices::manifests(&place.name, &owner, targets, endpoints) {
                self.kept.insert((ManifestKind::EndpointSlice, manifest.name.clone()));
                let stored = self.store.slice(&manifest.name).and_then(|slice| slice.managed.as_deref());
                self.put(&marker, manifest, stored);
            }
            self.delete_left_over_slices(&marker, place);
        }
    }

    fn put(&mut self, marker: &Marker, manifest: Manifest, stored: Option<&Managed>) {
        let change = match stored {
            None => Some(Change::Create(manifest)),
            Some(stored) => stored.change(manifest),
        };
        if let Some(change) = change {
            self.push(marker, change);
        }
    }

    fn push(&mut self, marker: &Marker, change: Change) {
        let gateway = ObjectName::new(change.name().namespace.clone(), marker.gateway.clone());
        self.wanted.push(Wanted { class: marker.class.clone(), gateway, change });
    }

    fn keep_slices(&mut self, place: &ServicePlace) {
        let slices =
            self.store.named_slices(&place.name).map(|(name, _)| (ManifestKind::EndpointSlice, name.clone()));
        self.kept.extend(slices);
    }

    /// Kubernetes' own slices stay behind when a Service loses its selector, and would still be used.
    fn delete_left_over_slices(&mut self, marker: &Marker, place: &ServicePlace) {
        let left: BTreeSet<ObjectName> = self
            .store
            .named_slices(&place.name)
            .filter(|(_, slice)| slice.is_of_selector)
            .map(|(name, _)| name.clone())
            .collect();
        for name in left {
            self.push(marker, Change::Delete { kind: ManifestKind::EndpointSlice, name, uid: None });
        }
    }

    /// Objects of ours that no Gateway wants any more. What belongs to a Gateway that is gone is the garbage
    /// collector's; so is what nobody knows the Gateway of, as when the right to read Gateways was lost.
    fn delete_others(&mut self) {
        let services =
            self.store.managed_services().map(|(name, _, managed)| (ManifestKind::Service, name, managed));
        let slices =
            self.store.managed_slices().map(|(name, managed)| (ManifestKind::EndpointSlice, name, managed));
        let gone: Vec<(ManifestKind, ObjectName, &Managed)> = services
            .chain(slices)
            .filter(|(kind, name, managed)| {
                !self.kept.contains(&(*kind, (*name).clone())) && self.may_delete(name, &managed.marker)
            })
            .map(|(kind, name, managed)| (kind, name.clone(), managed))
            .collect();
        for (kind, name, managed) in gone {
            let uid: Option<Arc<str>> = Some(managed.uid.clone());
            self.push(&managed.marker.clone(), Change::Delete { kind, name, uid });
        }
    }

    fn may_delete(&self, name: &ObjectName, marker: &Marker) -> bool {
        let config = self.config;
        let class = &*marker.class;
        let is_ours = *marker.controller == *config.controller_name
            && config.gateway_class_names.iter().any(|name| name == class)
            && !config.foreign_classes.contains(class);
        let gateway = ObjectName::new(name.namespace.clone(), marker.gateway.clone());
        let is_in_scope = config.gateway.as_ref().is_none_or(|only| *only == gateway);
        is_ours && is_in_scope && self.store.gateways().contains_key(&gateway)
    }
}

/// The agent's pods. Without a word of them, this one, which is certainly there.
fn agent_endpoints(store: &Store, config: &Config) -> Vec<AgentEndpoint> {
    let pod = &config.own_pod;
    let service = pod.replicas();
    let slices = service.iter().flat_map(|service| store.named_slices(service));
    let mut endpoints: Vec<AgentEndpoint> = slices
        .flat_map(|(_, slice)| &slice.endpoints)
        .map(|endpoint| AgentEndpoint {
            address: endpoint.address,
            ready: endpoint.ready,
            serving: endpoint.serving,
            terminating: endpoint.terminating,
            node: endpoint.node.clone(),
        })
        .collect();
    if endpoints.is_empty() {
        // Outside of a cluster an agent has no pod, but addresses.
        let own = if pod.ips.is_empty() { &config.local_addresses } else { &pod.ips };
        endpoints.extend(own.iter().map(|address| AgentEndpoint {
            address: *address,
            ready: true,
            serving: true,
            terminating: false,
            node: pod.node.clone(),
        }));
    }
    endpoints
}
