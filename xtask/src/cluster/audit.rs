//! What service accounts asked of the API server, counted from its audit log: one line for each kind of request.
//!
//! It judges nothing: whether an account should have asked for that, its test says. The log begins with the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::Folder;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Only this user, such as `system:serviceaccount:NAMESPACE:NAME`
    #[arg(long)]
    user: Option<String>,
    /// Only what was refused to the user
    #[arg(long)]
    forbidden: bool,
    /// One JSON object for each line
    #[arg(long)]
    json: bool,
}

/// Requests that are one line of the summary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    user: String,
    verb: String,
    /// `GROUP/RESOURCE/SUBRESOURCE`, without what is empty; the path when it is no resource.
    resource: String,
    /// The namespace; `cluster` for objects without one, and for lists and watches over all namespaces.
    scope: String,
    /// 0 while a request is not answered.
    code: u64,
    is_forbidden: bool,
}

/// The summary of one user, as the objects of `--json`.
pub(super) fn of(folder: &Folder, user: &str) -> Result<Vec<Value>> {
    let counts = read(folder)?;
    Ok(counts.iter().filter(|(kind, _)| kind.user == user).map(|(kind, n)| as_json(kind, *n)).collect())
}

pub(super) fn run(folder: &Folder, args: &Args) -> Result<()> {
    let mut counts = read(folder)?;
    counts.retain(|kind, _| {
        args.user.as_ref().is_none_or(|user| kind.user == *user) && (!args.forbidden || kind.is_forbidden)
    });
    for (kind, count) in &counts {
        println!("{}", if args.json { as_json(kind, *count).to_string() } else { as_line(kind, *count) });
    }
    if counts.is_empty() && !args.json {
        println!("cluster: no request");
    }
    Ok(())
}

fn read(folder: &Folder) -> Result<BTreeMap<Kind, u64>> {
    let mut text = String::new();
    for file in files(folder)? {
        text.push_str(&fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    summary(&text)
}

/// The log and what it was before the API server began another for its size.
fn files(folder: &Folder) -> Result<Vec<PathBuf>> {
    let logs = folder.path("logs");
    let mut files = Vec::new();
    for entry in fs::read_dir(&logs).with_context(|| format!("no {}: no cluster runs", logs.display()))? {
        let name = entry?.file_name();
        if name.to_str().is_some_and(|name| name.starts_with("audit") && name.ends_with(".log")) {
            files.push(logs.join(name));
        }
    }
    Ok(files)
}

fn as_line(kind: &Kind, count: u64) -> String {
    let mark = if kind.is_forbidden { "  FORBIDDEN" } else { "" };
    let Kind { user, verb, resource, scope, code, .. } = kind;
    format!("{count:7}  {code:3}  {verb:16} {resource:44} {scope:24} {user}{mark}")
}

fn as_json(kind: &Kind, count: u64) -> Value {
    json!({
        "user": kind.user,
        "verb": kind.verb,
        "resource": kind.resource,
        "scope": kind.scope,
        "code": kind.code,
        "forbidden": kind.is_forbidden,
        "count": count,
    })
}

/// Counts each request once, though a watch has two events: when it begins and when it ends.
fn summary(log: &str) -> Result<BTreeMap<Kind, u64>> {
    let mut seen = BTreeSet::new();
    let mut counts = BTreeMap::new();
    let lines: Vec<&str> = log.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let event: Value = match serde_json::from_str(line) {
            Ok(event) => event,
            // The API server is at it, or was killed at it.
            Err(error) if error.is_eof() && at + 1 == lines.len() => break,
            Err(error) => return Err(error).with_context(|| format!("line {} of the audit log", at + 1)),
        };
        if seen.insert(text(&event["auditID"])) {
            *counts.entry(kind(&event)).or_default() += 1;
        }
    }
    Ok(counts)
}

fn kind(event: &Value) -> Kind {
    let object = &event["objectRef"];
    let (resource, scope) = match object["resource"].as_str() {
        Some(resource) => {
            let parts = [&object["apiGroup"], &Value::from(resource), &object["subresource"]].map(text);
            let name = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
            (name, object["namespace"].as_str().unwrap_or("cluster").to_owned())
        }
        None => {
            let uri = text(&event["requestURI"]);
            (uri.split('?').next().unwrap_or_default().to_owned(), "cluster".to_owned())
        }
    };
    let user = match &event["impersonatedUser"] {
        Value::Null => &event["user"],
        impersonated => impersonated,
    };
    Kind {
        user: text(&user["username"]),
        verb: text(&event["verb"]),
        resource,
        scope,
        code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
        is_forbidden: event["annotations"]["authorization.k8s.io/decision"] == "forbid",
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: &str, verb: &str, object: Value, code: u64, decision: &str) -> String {
        json!({
            "auditID": id,
            "verb": verb,
            "requestURI": "/version?timeout=1s",
            "user": { "username": "u" },
            "objectRef": object,
            "responseStatus": { "code": code },
            "annotations": { "authorization.k8s.io/decision": decision },
        })
        .to_string()
    }

    #[test]
    fn a_watch_counts_once_and_scopes_are_told_apart() {
        let routes =
            json!({ "resource": "httproutes", "namespace": "a", "apiGroup": "gateway.networking.k8s.io" });
        let log = [
            event("1", "watch", routes.clone(), 200, "allow"),
            event(
                "2",
                "get",
                json!({ "resource": "pods", "namespace": "a", "subresource": "log" }),
                200,
                "allow",
            ),
            event("1", "watch", routes, 200, "allow"),
            event("3", "list", json!({ "resource": "nodes" }), 403, "forbid"),
            event("4", "get", Value::Null, 200, "allow"),
            r#"{"auditID": "5", "verb"#.to_owned(),
        ]
        .join("\n");
        let lines: Vec<_> = summary(&log)
            .unwrap()
            .into_iter()
            .map(|(k, n)| format!("{n} {} {} {} {} {}", k.verb, k.resource, k.scope, k.code, k.is_forbidden))
            .collect();
        assert_eq!(
            lines,
            [
                "1 get /version cluster 200 false",
                "1 get pods/log a 200 false",
                "1 list nodes cluster 403 true",
                "1 watch gateway.networking.k8s.io/httproutes a 200 false",
            ]
        );
    }

    #[test]
    fn a_broken_line_before_the_last_is_an_error() {
        assert!(summary("{\n{}").is_err());
    }
}
