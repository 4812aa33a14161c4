//! Traefik with its Gateway API provider alone: the program from its PyPI wheel, in an image of one file.

use anyhow::Result;
use serde_json::{Value, json};

use super::api::Name;
use super::candidates::REPLICAS;
use crate::bench::wheel::{self, folder};
use crate::image::of_static_program;

const IMAGE: &str = "docker.io/local/traefik:bench";

/// Traefik serves a listener only where an entry point has the same port.
const PORT: u16 = 8000;

/// Gives the port for the Gateway.
pub(super) fn install(cluster: &Name, namespace: &str) -> Result<u16> {
    let archive = folder()?.join("traefik.tar");
    std::fs::write(&archive, of_static_program(IMAGE, &wheel::TRAEFIK.fetch()?)?)?;
    cluster.load(&archive)?;
    cluster.apply(&manifests(namespace))?;
    Ok(PORT)
}

fn manifests(namespace: &str) -> Vec<Value> {
    let meta = json!({ "name": "traefik", "namespace": namespace });
    // What has no namespace is named after ours.
    let wide = json!({ "name": namespace });
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": wide,
            "rules": [
                { "apiGroups": [""], "resources": ["namespaces", "nodes", "services", "secrets", "configmaps"],
                  "verbs": ["get", "list", "watch"] },
                { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"] },
                { "apiGroups": ["gateway.networking.k8s.io"], "resources": ["*"], "verbs": ["get", "list", "watch", "update", "patch"] },
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": wide,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace },
            "subjects": [{ "kind": "ServiceAccount", "name": "traefik", "namespace": namespace }],
        }),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": wide,
            "spec": { "controllerName": "traefik.io/gateway-controller" },
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": meta,
            "spec": {
                "type": "LoadBalancer",
                "selector": { "app": "traefik" },
                "ports": [{ "name": "web", "port": PORT }],
            },
        }),
        deployment(namespace),
    ]
}

fn deployment(namespace: &str) -> Value {
    let labels = json!({ "app": "traefik" });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "traefik", "namespace": namespace },
        "spec": {
            "replicas": REPLICAS,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": {
                "serviceAccountName": "traefik",
                "enableServiceLinks": false,
                "topologySpreadConstraints": [{
                    "topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": { "matchLabels": labels },
                }],
                "containers": [{
                    "name": "traefik",
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "args": [
                        format!("--entrypoints.web.address=:{PORT}"),
                        "--entrypoints.traefik.address=:8080",
                        "--ping",
                        "--log.level=ERROR",
                        "--global.checknewversion=false",
                        "--global.sendanonymoususage=false",
                        "--providers.kubernetesgateway",
                        format!("--providers.kubernetesgateway.namespaces={namespace}"),
                        "--providers.kubernetesgateway.statusaddress.service.name=traefik",
                        format!("--providers.kubernetesgateway.statusaddress.service.namespace={namespace}"),
                    ],
                    "readinessProbe": { "httpGet": { "path": "/ping", "port": 8080 }, "periodSeconds": 2 },
                }],
            }},
        },
    })
}
