//! Orders to the proxy before the API server. Each names the agent's user, so that tests do not meet each other's faults.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use lab::Netns;
use lab::client::connect;
use lab::http::exchange;
use serde_json::{Value, json};

use crate::{Team, lan};

const CONTROL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(172, 31, 0, 10)), 6445);

/// Faults for one team's agent.
#[derive(Debug)]
pub struct Faults {
    netns: Netns,
    user: String,
}

/// A rule that is in force until this is dropped.
#[derive(Debug)]
pub struct Fault {
    netns: Netns,
    id: u64,
}

impl Faults {
    pub fn of(team: &Team) -> Result<Self> {
        Ok(Self { netns: lan()?, user: team.user() })
    }

    /// Adds a rule: `matching` and `rule` are the fields of its `match` and of itself.
    pub fn add(&self, matching: Value, rule: Value) -> Result<Fault> {
        let mut order = rule;
        order["match"] = self.matching(matching);
        let answer = ask(&self.netns, "POST", "/rules", &order)?;
        let id = answer["id"].as_u64().with_context(|| format!("no id in {answer}"))?;
        Ok(Fault { netns: self.netns.clone(), id })
    }

    /// Gives an order to open watches; how many there were.
    pub fn watches(&self, matching: Value, order: &str) -> Result<u64> {
        let body = json!({"match": self.matching(matching), "order": order});
        let answer = ask(&self.netns, "POST", "/watches", &body)?;
        let count = answer.as_object().and_then(|fields| fields.values().find_map(Value::as_u64));
        count.with_context(|| format!("no count in {answer}"))
    }

    fn matching(&self, mut matching: Value) -> Value {
        matching["user"] = self.user.clone().into();
        matching
    }
}

impl Fault {
    /// How many requests met it.
    pub fn hits(&self) -> Result<u64> {
        let state = ask(&self.netns, "GET", "/", &Value::Null)?;
        let rules = state["rules"].as_array().context("rules")?;
        let ours = rules.iter().find(|rule| rule["id"].as_u64() == Some(self.id));
        Ok(ours.and_then(|rule| rule["hits"].as_u64()).unwrap_or_default())
    }

    /// Ends it, and says so if that fails.
    pub fn end(self) -> Result<()> {
        let path = format!("/rules/{}", self.id);
        ask(&self.netns, "DELETE", &path, &Value::Null)?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        // Its user is gone with the test.
        drop(ask(&self.netns, "DELETE", &format!("/rules/{}", self.id), &Value::Null));
    }
}

fn ask(netns: &Netns, method: &str, path: &str, body: &Value) -> Result<Value> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: faults\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = connect(netns, CONTROL).context("the proxy that makes faults")?;
    let response = exchange(&mut stream, request.as_bytes())?;
    ensure!(response.status < 300, "{method} {path} {body}: {} {}", response.status, response.text());
    Ok(serde_json::from_str(&response.text()).unwrap_or_default())
}
