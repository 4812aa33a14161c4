//! The class acknowledger, with the rights of `deploy/acknowledger`.

use anyhow::{Context as _, Result, ensure};
use cluster_tests::{eventually, kubectl, lan, root};
use lab::Command;
use lab::agent::binary;
use serde_json::{Value, json};

/// A class that is deleted with the test.
struct Class(String);

impl Class {
    fn new(name: &str, controller: &str) -> Result<Self> {
        let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": name}, "spec": {"controllerName": controller}});
        kubectl(&["apply", "-f", "-"], &class.to_string())?;
        Ok(Self(name.to_owned()))
    }

    fn get(&self) -> Result<Value> {
        Ok(serde_json::from_str(&kubectl(&["get", "gatewayclass", &self.0, "-o", "json"], "")?)?)
    }

    fn accepted(&self) -> Result<Value> {
        let class = self.get()?;
        let conditions = class["status"]["conditions"].as_array().context("conditions")?;
        let accepted = conditions.iter().find(|condition| condition["type"] == "Accepted");
        accepted.cloned().with_context(|| format!("{class}"))
    }
}

impl Drop for Class {
    fn drop(&mut self) {
        // A test that failed has more to say than this.
        drop(kubectl(&["delete", "gatewayclass", &self.0, "--wait=false"], ""));
    }
}

#[test]
fn classes_of_ours_are_accepted_with_their_features_and_others_left_alone() -> Result<()> {
    let id = std::process::id();
    let controller = format!("example.org/acknowledged-{id}");
    let ours = Class::new(&format!("acknowledged-{id}"), &controller)?;
    let other = Class::new(&format!("other-{id}"), "example.org/other")?;
    let stale = json!({"type": "example.org/StaleCondition", "status": "True", "reason": "Seeded", "message": "",
        "lastTransitionTime": "2001-02-03T04:05:06Z"});
    let mut conditions = ours.get()?["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.insert(0, stale.clone());
    let patch = json!({"status": {"conditions": conditions}}).to_string();
    let patch = ["patch", "gatewayclass", &ours.0, "--subresource=status", "--type=merge", "-p", &patch];
    kubectl(&patch, "")?;

    let folder = tempfile::tempdir()?;
    let kubeconfig = root()?.join("admin.kubeconfig").display().to_string();
    let args = ["acknowledge", "--kubeconfig", &kubeconfig, "--controller-name", &controller];
    let args = args.map(str::to_owned);
    let process =
        Command::new("acknowledger", binary()?).args(args).netns(&lan()?).start_in(folder.path())?;
    eventually("the class is accepted", || {
        let accepted = ours.accepted()?;
        ensure!(accepted["status"] == "True" && accepted["observedGeneration"] == 1, "{accepted}");
        Ok(())
    })
    .with_context(|| process.log())?;
    let status = ours.get()?["status"].clone();
    ensure!(status["conditions"][0] == stale, "{status}");
    let features = std::process::Command::new(binary()?).arg("features").output()?;
    let features: Vec<Value> =
        String::from_utf8(features.stdout)?.lines().map(|name| json!({"name": name})).collect();
    ensure!(!features.is_empty() && status["supportedFeatures"] == Value::from(features), "{status}");

    kubectl(
        &["patch", "gatewayclass", &ours.0, "--type=merge", "-p", r#"{"spec": {"description": "changed"}}"#],
        "",
    )?;
    eventually("the new generation is accepted", || {
        let accepted = ours.accepted()?;
        ensure!(accepted["observedGeneration"] == 2, "{accepted}");
        Ok(())
    })
    .with_context(|| process.log())?;
    ensure!(other.accepted()?["status"] == "Unknown", "{}", other.get()?);
    process.check_running()
}
