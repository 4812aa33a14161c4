//! What one account asked of the API server, by its audit log, held against what a Role allows.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// How often each kind of request was made: `VERB RESOURCE SCOPE`.
pub type Summary = BTreeMap<String, u64>;

/// What any account may ask at cluster scope, by its path.
const OPEN_PATHS: [&str; 4] = ["/api", "/apis", "/openapi", "/version"];

/// What any account may ask about itself.
const OPEN_RESOURCES: [&str; 2] = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];

/// Fails on the first request of `account` that was refused, or that went beyond the namespaces `watched` and what any
/// account may ask; also when there is no request at all.
pub fn judge(log: &str, account: &str, watched: &[&str]) -> Result<Summary> {
    let mut summary = Summary::new();
    let lines: Vec<&str> = log.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let event: Value = match serde_json::from_str(line) {
            Ok(event) => event,
            // The API server is writing it.
            Err(error) if error.is_eof() && at + 1 == lines.len() => break,
            Err(error) => return Err(error).with_context(|| format!("line {} of the audit log", at + 1)),
        };
        if event["user"]["username"] != account || event["stage"] == "ResponseStarted" {
            continue;
        }
        let kind = kind(&event, watched).with_context(|| format!("of {account}: {event}"))?;
        *summary.entry(kind).or_default() += 1;
    }
    ensure!(!summary.is_empty(), "the audit log has no request of {account}");
    Ok(summary)
}

fn kind(event: &Value, watched: &[&str]) -> Result<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let verb = text(&event["verb"]);
    let decision = text(&event["annotations"]["authorization.k8s.io/decision"]);
    ensure!(decision == "allow", "a request was refused");
    let object = &event["objectRef"];
    let Some(resource) = object["resource"].as_str() else {
        let uri = text(&event["requestURI"]);
        let path = uri.split('?').next().unwrap_or_default();
        let is_open = OPEN_PATHS
            .iter()
            .any(|open| path.strip_prefix(open).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
        ensure!(is_open, "a request for {path}");
        return Ok(format!("{verb} {path} cluster"));
    };
    match object["namespace"].as_str() {
        Some(namespace) => {
            ensure!(watched.contains(&namespace), "a request in {namespace}");
            let reason = text(&event["annotations"]["authorization.k8s.io/reason"]);
            ensure!(!reason.contains("ClusterRoleBinding"), "a request that a ClusterRoleBinding allowed");
            Ok(format!("{verb} {resource} {namespace}"))
        }
        None if OPEN_RESOURCES.contains(&resource) => Ok(format!("{verb} {resource} cluster")),
        None => bail!("a request at cluster scope"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(verb: &str, uri: &str, object: Value, decision: &str, reason: &str) -> String {
        json!({
            "stage": "ResponseComplete",
            "verb": verb,
            "requestURI": uri,
            "user": { "username": "agent" },
            "objectRef": object,
            "annotations": {
                "authorization.k8s.io/decision": decision,
                "authorization.k8s.io/reason": reason,
            },
        })
        .to_string()
    }

    fn judged(event: &str) -> Result<Summary> {
        judge(event, "agent", &["a"])
    }

    #[test]
    fn requests_in_watched_namespaces_and_open_ones_pass() {
        let routes = json!({ "resource": "httproutes", "namespace": "a" });
        let review = json!({ "resource": "selfsubjectaccessreviews" });
        let log = [
            event("watch", "/apis/x", routes, "allow", "RBAC: allowed by RoleBinding \"agent/a\""),
            event("create", "/apis/y", review, "allow", ""),
            event("get", "/version?timeout=1s", Value::Null, "allow", ""),
            event("get", "/apis/gateway.networking.k8s.io/v1", Value::Null, "allow", ""),
        ];
        assert_eq!(judged(&log.join("\n")).unwrap().len(), 4);
    }

    #[test]
    fn every_other_request_fails() {
        let at = |namespace: &str| json!({ "resource": "httproutes", "namespace": namespace });
        for (object, decision, reason) in [
            (at("a"), "forbid", ""),
            (at("b"), "allow", ""),
            (at("a"), "allow", "RBAC: allowed by ClusterRoleBinding \"x\""),
            (json!({ "resource": "httproutes" }), "allow", ""),
        ] {
            assert!(judged(&event("list", "/apis/x", object, decision, reason)).is_err());
        }
        assert!(judged(&event("get", "/metrics", Value::Null, "allow", "")).is_err());
        assert!(judged(&event("get", "/apiserver", Value::Null, "allow", "")).is_err());
        assert!(judged("").is_err());
    }
}
