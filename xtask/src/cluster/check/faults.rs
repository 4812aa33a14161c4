//! The fault proxy: that each fault is what it is called, seen by a client of the real API.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab::eventually_within;
use serde_json::{Value, json};

use super::{ACCOUNT, DEADLINE, Folder, NAMESPACE, curl, inside, token};
use crate::command::output;

const PROXY: &str = "https://172.31.0.10:6444";
const CONTROL: &str = "http://172.31.0.10:6445";

/// A client of the proxy with the service account's token.
struct Client {
    ca: String,
    bearer: String,
    url: String,
}

/// What one request came to.
struct Answer {
    /// 0 when there was none.
    code: u32,
    body: Value,
}

impl Client {
    fn new(folder: &Folder) -> Result<Self> {
        Ok(Self {
            ca: folder.path("pki/ca.crt").display().to_string(),
            bearer: format!("Authorization: Bearer {}", token(folder)?),
            url: format!("{PROXY}/api/v1/namespaces/{NAMESPACE}/configmaps"),
        })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = curl(&["--cacert", &self.ca, "--header", &self.bearer]);
        command.args(args);
        command
    }

    /// Makes a ConfigMap.
    fn create(&self, name: &str) -> Result<Answer> {
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
        self.ask(&["--json", &object.to_string(), &self.url])
    }

    fn has(&self, name: &str) -> Result<bool> {
        self.ask(&[&format!("{}/{name}", self.url)]).map(|answer| answer.code == 200)
    }

    fn ask(&self, args: &[&str]) -> Result<Answer> {
        let run = self.command(args).args(["--write-out", "\n%{http_code}"]).output()?;
        let text = String::from_utf8(run.stdout)?;
        let (body, code) = text.rsplit_once('\n').context("curl says nothing")?;
        Ok(Answer { code: code.parse()?, body: serde_json::from_str(body).unwrap_or_default() })
    }

    /// Watches until the watch ends.
    fn watch(&self) -> Result<Child> {
        let url = format!("{}?watch=true", self.url);
        let mut command = self.command(&["--no-buffer", &url]);
        Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?)
    }
}

fn control(method: &str, path: &str, body: &Value) -> Result<Value> {
    let text = output(&mut curl(&[
        "--fail-with-body",
        "--request",
        method,
        "--data",
        &body.to_string(),
        &format!("{CONTROL}{path}"),
    ]))?;
    Ok(serde_json::from_str(&text)?)
}

fn rule(verbs: &[&str], fault: Value) -> Result<Value> {
    let mut rule =
        json!({ "match": { "verbs": verbs, "resource": "configmaps", "user": ACCOUNT }, "times": 1 });
    let (Some(rule_fields), Value::Object(fields)) = (rule.as_object_mut(), fault) else {
        anyhow::bail!("a rule is an object");
    };
    rule_fields.extend(fields);
    control("POST", "/rules", &rule)
}

/// A service account by its token, an administrator by a certificate, which the API server itself does not see.
pub(super) fn passes_on(folder: &Folder) -> Result<()> {
    let client = Client::new(folder)?;
    ensure!(client.create("passed-on")?.code == 201);
    let nodes = client.ask(&[&format!("{PROXY}/api/v1/nodes")])?;
    ensure!(nodes.code == 403, "a service account lists nodes: {}", nodes.code);
    let config = folder.kubeconfig("faults").display().to_string();
    let who = inside(folder, &["--kubeconfig", &config, "auth", "whoami", "--output=json"])?;
    ensure!(who.contains("system:masters"), "the administrator is {who}");
    Ok(())
}

pub(super) fn refuses(folder: &Folder) -> Result<()> {
    let client = Client::new(folder)?;
    for code in [409, 429, 500] {
        let name = format!("refused-{code}");
        rule(&["write"], json!({ "fault": "refuse", "code": code, "retryAfter": 1 }))?;
        let answer = client.create(&name)?;
        ensure!(answer.code == code && answer.body["code"] == code, "{} is not {code}", answer.code);
        ensure!(!client.has(&name)?, "the API server saw a request that was refused");
        let again = client.create(&name)?.code;
        ensure!(again == 201, "a rule for one request applied to two: {again}");
    }
    Ok(())
}

pub(super) fn delays_and_drops(folder: &Folder) -> Result<()> {
    let client = Client::new(folder)?;
    rule(&["create"], json!({ "delay": "1500ms" }))?;
    let start = Instant::now();
    ensure!(client.create("delayed")?.code == 201);
    ensure!(start.elapsed() >= Duration::from_millis(1500), "it took {:?} only", start.elapsed());
    rule(&["create"], json!({ "fault": "drop" }))?;
    ensure!(client.create("dropped")?.code == 0 && !client.has("dropped")?);
    rule(&["create"], json!({ "fault": "drop-answer" }))?;
    ensure!(client.create("unknown-to-the-client")?.code == 0);
    ensure!(client.has("unknown-to-the-client")?, "the write whose answer is dropped happened");
    Ok(())
}

pub(super) fn orders_watches(folder: &Folder) -> Result<()> {
    let client = Client::new(folder)?;
    let events = |order: &str, after: &str| -> Result<(bool, String)> {
        let watch = client.watch()?;
        order_watches(order)?;
        if !after.is_empty() {
            // Half open: what happens now is not told, and nothing ends until the connection does.
            ensure!(client.create("while-on-hold")?.code == 201);
            order_watches(after)?;
        }
        let end = watch.wait_with_output()?;
        Ok((end.status.success(), String::from_utf8(end.stdout)?))
    };
    let (is_orderly, text) = events("end", "")?;
    ensure!(is_orderly, "a watch that ends in good form: {text}");
    let (is_orderly, text) = events("expire", "")?;
    let last: Value = serde_json::from_str(text.lines().last().unwrap_or_default())?;
    ensure!(is_orderly && last["type"] == "ERROR" && last["object"]["code"] == 410, "{last}");
    let (is_orderly, text) = events("hold", "cut")?;
    ensure!(!is_orderly, "a connection that is cut in the middle looks like an end: {text}");
    ensure!(!text.contains("while-on-hold"), "an event passes a watch on hold");
    rule(&["watch"], json!({ "fault": "event", "code": 410 }))?;
    let next = client.ask(&[&format!("{}?watch=true", client.url)])?;
    ensure!(next.code == 200 && next.body["object"]["code"] == 410, "{} {}", next.code, next.body);
    Ok(())
}

/// Gives the order as soon as there is a watch to give it to.
fn order_watches(order: &str) -> Result<()> {
    let body = json!({ "match": { "resource": "configmaps", "user": ACCOUNT }, "order": order });
    eventually_within(DEADLINE, "the watch is open", || {
        let answer = control("POST", "/watches", &body)?;
        ensure!(answer["watches"] == 1, "{answer}");
        Ok(())
    })
}

pub(super) fn resets_connections(folder: &Folder) -> Result<()> {
    let client = Client::new(folder)?;
    for mode in ["reset", "ignore"] {
        control("POST", "/connections", &json!({ "mode": mode, "drop": true }))?;
        let answer = client.ask(&["--max-time", "2", &client.url])?;
        ensure!(answer.code == 0, "a connection in mode {mode} is answered: {}", answer.code);
    }
    control("POST", "/reset", &Value::Null)?;
    let answer = client.ask(&[&client.url])?;
    ensure!(answer.code == 200, "after the reset: {}", answer.code);
    Ok(())
}
