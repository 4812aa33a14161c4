//! What the API server tells about the routes of one namespace, and when: the moment at which every watcher hears of a
//! change, so also the gateways.
//!
//! One kubectl for each namespace passes the watch on as it comes. A watch that ends is an error, not opened again.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::api::Name;
use super::objects;

/// One route, as far as its events told.
#[derive(Clone, Copy, Debug)]
struct Seen {
    generation: u64,
    /// When this generation, or its end, was heard of.
    since: Instant,
    is_there: bool,
    /// The generation that the controller accepted.
    accepted: u64,
    accepted_at: Option<Instant>,
}

#[derive(Default)]
struct Routes {
    seen: HashMap<String, Seen>,
    /// Why no event comes any more.
    ended: Option<String>,
}

pub(super) struct Watcher {
    routes: Arc<Mutex<Routes>>,
    kubectl: Child,
    thread: Option<JoinHandle<()>>,
}

fn lock(routes: &Mutex<Routes>) -> MutexGuard<'_, Routes> {
    routes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watcher {
    pub(super) fn start(cluster: &Name, namespace: &str) -> Result<Self> {
        let path = format!("{}?watch=true", objects::routes_path(namespace));
        let mut kubectl = cluster
            .kubectl(&["get", "--raw", &path])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start kubectl")?;
        let output = BufReader::new(kubectl.stdout.take().context("kubectl has a standard output")?);
        let routes = Arc::new(Mutex::new(Routes::default()));
        let shared = Arc::clone(&routes);
        let thread = std::thread::spawn(move || {
            for line in output.lines() {
                let now = Instant::now();
                let event = line.context("read").and_then(|line| Ok(serde_json::from_str::<Value>(&line)?));
                match event.and_then(|event| lock(&shared).hear(&event, now)) {
                    Ok(()) => {}
                    Err(error) => {
                        lock(&shared).ended = Some(format!("{error:#}"));
                        return;
                    }
                }
            }
            lock(&shared).ended = Some("it was closed".into());
        });
        Ok(Self { routes, kubectl, thread: Some(thread) })
    }

    /// When the route's `generation` was heard of.
    pub(super) fn arrival(&self, name: &str, generation: u64) -> Result<Instant> {
        self.wait(
            &format!("an event of {name}"),
            |seen| (seen.is_there && seen.generation >= generation).then_some(seen.since),
            name,
        )
    }

    /// When it was heard that the route is gone.
    pub(super) fn removal(&self, name: &str) -> Result<Instant> {
        self.wait(&format!("the end of {name}"), |seen| (!seen.is_there).then_some(seen.since), name)
    }

    /// Until the controller accepted the route as it is.
    pub(super) fn accepted(&self, name: &str) -> Result<Instant> {
        self.wait(
            &format!("{name} is Accepted"),
            |seen| (seen.is_there && seen.accepted == seen.generation).then_some(seen.accepted_at).flatten(),
            name,
        )
    }

    fn wait<T>(&self, what: &str, read: impl Fn(&Seen) -> Option<T>, name: &str) -> Result<T> {
        const DEADLINE: Duration = Duration::from_secs(60);
        lab::eventually_within(DEADLINE, what, || {
            let routes = lock(&self.routes);
            routes.check()?;
            routes.seen.get(name).and_then(&read).context("not yet")
        })
    }

    /// How many routes are accepted as they are, and when the last one was.
    pub(super) fn all_accepted(&self) -> Result<(usize, Option<Instant>)> {
        let routes = lock(&self.routes);
        routes.check()?;
        let accepted = routes.seen.values().filter(|seen| seen.is_there && seen.accepted == seen.generation);
        Ok(accepted.fold((0, None), |(count, last), seen| (count + 1, last.max(seen.accepted_at))))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Err(error) = self.kubectl.kill().and_then(|()| self.kubectl.wait()) {
            eprintln!("bench: kubectl does not stop: {error}");
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("bench: the thread that reads a watch panicked");
        }
    }
}

impl Routes {
    fn check(&self) -> Result<()> {
        ensure!(self.ended.is_none(), "the watch ended: {:?}", self.ended);
        Ok(())
    }

    fn hear(&mut self, event: &Value, now: Instant) -> Result<()> {
        let object = &event["object"];
        let kind = event["type"].as_str().unwrap_or_default();
        ensure!(matches!(kind, "ADDED" | "MODIFIED" | "DELETED"), "an event of the kind {kind}: {object}");
        let name = object["metadata"]["name"].as_str().context("a route has a name")?;
        let generation = object["metadata"]["generation"].as_u64().context("a route has a generation")?;
        let fresh = Seen { generation, since: now, is_there: true, accepted: 0, accepted_at: None };
        let seen = self.seen.entry(name.to_owned()).or_insert(fresh);
        if kind == "DELETED" {
            seen.is_there = false;
            seen.since = now;
            return Ok(());
        }
        if kind == "ADDED" {
            *seen = fresh;
        } else if seen.generation != generation {
            seen.generation = generation;
            seen.since = now;
        }
        let accepted = accepted_generation(object);
        if accepted != 0 && accepted != seen.accepted {
            seen.accepted = accepted;
            seen.accepted_at = Some(now);
        }
        Ok(())
    }
}

/// 0 when it is not accepted.
fn accepted_generation(route: &Value) -> u64 {
    let parents = route["status"]["parents"].as_array();
    let conditions = parents.into_iter().flatten().filter_map(|parent| parent["conditions"].as_array());
    let accepted = conditions.flatten().find(|c| c["type"] == "Accepted" && c["status"] == "True");
    accepted.and_then(|condition| condition["observedGeneration"].as_u64()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, generation: u64, accepted: u64) -> Value {
        let condition = json!({ "type": "Accepted", "status": "True", "observedGeneration": accepted });
        let parents = if accepted == 0 { json!([]) } else { json!([{ "conditions": [condition] }]) };
        json!({ "type": kind, "object": {
            "metadata": { "name": "r", "generation": generation },
            "status": { "parents": parents },
        }})
    }

    #[test]
    fn a_write_of_status_is_no_arrival_and_a_change_is() {
        let mut routes = Routes::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        routes.hear(&event("ADDED", 1, 0), at(0)).unwrap();
        routes.hear(&event("MODIFIED", 1, 1), at(1)).unwrap();
        assert_eq!(routes.seen["r"].since, at(0));
        assert_eq!(routes.seen["r"].accepted_at, Some(at(1)));
        routes.hear(&event("MODIFIED", 2, 1), at(2)).unwrap();
        assert_eq!(routes.seen["r"].since, at(2));
        assert_eq!(routes.seen["r"].accepted, 1, "of the generation before");
        routes.hear(&event("DELETED", 2, 1), at(3)).unwrap();
        assert!(!routes.seen["r"].is_there);
        routes.hear(&event("ADDED", 1, 0), at(4)).unwrap();
        assert_eq!(routes.seen["r"].accepted, 0, "another route of the same name");
    }

    #[test]
    fn an_error_event_ends_the_watch() {
        let error = json!({ "type": "ERROR", "object": { "code": 410 } });
        assert!(Routes::default().hear(&error, Instant::now()).is_err());
    }
}
