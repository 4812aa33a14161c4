//! Objects that the tests share. A route is seen by its answer: 503, for its Service has no endpoints, instead of 404.

use anyhow::Result;
use cluster_tests::Team;

/// Of the listener of [`gateway`].
pub(crate) const PORT: u16 = 8080;

pub(crate) const HERE: u16 = 503;
pub(crate) const ABSENT: u16 = 404;

/// A Gateway `edge` with one listener, and the Service `web` that has no endpoints.
pub(crate) fn gateway(team: &Team) -> Result<()> {
    team.apply(&format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge}}\nspec:\n  \
         gatewayClassName: gateway-agent\n  listeners: [{{name: http, protocol: HTTP, port: {PORT}}}]\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{ports: [{{port: 80}}]}}\n"
    ))
}

/// A route `name` of that Gateway for `host`.
pub(crate) fn route(team: &Team, name: &str, host: &str) -> Result<()> {
    team.apply(&format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}}}\nspec:\n  \
         parentRefs: [{{name: edge}}]\n  hostnames: [{host}]\n  rules: [{{backendRefs: [{{name: web, port: 80}}]}}]\n"
    ))
}
