//! The scope ConfigMap: what an agent watches, supports and how its replicas do, readable without access to a pod.
//!
//! One per class in the agent's namespace. What all replicas have in common is applied by one that leads; each replica
//! applies a key of its own besides. Both are server-side apply under field managers of their own, so that nobody reads
//! before writing and nobody overwrites another's key. Written when something changes, and not often.
//!
//! A replica takes its key away when it stops. For one that could not, each renews its key every now and then, and who
//! leads removes keys that are not renewed.
//!
//! **Not here:** the numbers themselves, which whoever starts this passes in.

mod text;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

pub use self::text::{ReplicaReport, ScopeFacts};

use self::text::{config_map_name, is_outdated, manager, replica_key};
use super::client::{Api, ApiError, ErrorClass, Patch};
use super::lease::Leadership;

/// How often it is looked whether anything changed: nothing is requested unless it did.
const LOOK: Duration = Duration::from_secs(5);

/// The revision moves with every change of a route. A hundred replicas that each wrote it at once would wake each other
/// ten thousand times: it is written this often at most, unlike a change of state.
const REVISION_PERIOD: Duration = Duration::from_secs(60);

/// How often a replica renews its key though nothing changed, and after how long it counts as gone.
const RENEWAL: Duration = Duration::from_secs(600);
const GONE: Duration = Duration::from_secs(1800);

/// After a failure, and while a right is missing.
const AFTER_FAILURE: Duration = Duration::from_secs(30);
const AFTER_REFUSAL: Duration = Duration::from_secs(300);

/// The writer of the ConfigMaps of all classes.
pub struct ScopeWriter {
    pub api: Api,
    pub leadership: Leadership,
    pub namespace: Arc<str>,
    pub classes: Vec<Arc<str>>,
    /// The pod's name.
    pub replica: String,
    pub facts: ScopeFacts,
    pub report: Rc<dyn Fn() -> ReplicaReport>,
}

/// What was written last for one class.
#[derive(Default)]
struct Written {
    /// When the facts were, which do not change.
    facts: Option<Instant>,
    report: Option<ReplicaReport>,
    renewed: Option<Instant>,
    pruned: Option<Instant>,
    not_before: Option<Instant>,
    is_refusal_told: bool,
}

impl ScopeWriter {
    /// Runs until dropped.
    pub async fn run(&self) {
        let mut written: Vec<Written> = self.classes.iter().map(|_| Written::default()).collect();
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let report = (self.report)();
            for (class, written) in self.classes.iter().zip(&mut written) {
                if written.not_before.is_some_and(|until| Instant::now() < until) {
                    continue;
                }
                match self.bring(class, written, &report).await {
                    Ok(()) => written.not_before = None,
                    Err(error) => self.failed(class, written, &error),
                }
            }
        }
    }

    /// Takes this replica's keys away, within the deadline of a write each.
    pub async fn leave(&self) {
        for class in &self.classes {
            let nothing = self.applied(class, Value::Object(serde_json::Map::new()));
            if let Err(error) = self.apply(class, &manager(&self.replica), &nothing).await {
                tracing::debug!(%class, %error, "cannot leave the scope ConfigMap, others will tidy up");
                return;
            }
        }
    }

    async fn bring(
        &self,
        class: &Arc<str>,
        written: &mut Written,
        report: &ReplicaReport,
    ) -> Result<(), ApiError> {
        let now = Instant::now();
        let leads = self.leadership.leads_class(class);
        // Somebody may have deleted it.
        if leads && written.facts.is_none_or(|applied| now - applied >= RENEWAL) {
            let data = self.facts.data(class);
            self.apply(class, "gateway-agent", &self.applied(class, data)).await?;
            written.facts = Some(now);
        }
        let since = written.renewed.map(|renewed| now - renewed);
        let is_due = match (&written.report, since) {
            (Some(last), Some(since)) => {
                !last.is_same_state(report)
                    || (last != report && since >= REVISION_PERIOD)
                    || since >= RENEWAL
            }
            _ => true,
        };
        if is_due {
            let text = report.text(&Timestamp::now());
            let data = json!({ replica_key(&self.replica): text });
            self.apply(class, &manager(&self.replica), &self.applied(class, data)).await?;
            written.report = Some(report.clone());
            written.renewed = Some(now);
        }
        if leads && written.pruned.is_none_or(|pruned| now - pruned >= RENEWAL) {
            self.prune(class).await?;
            written.pruned = Some(now);
        }
        Ok(())
    }

    /// Removes the keys of replicas that are gone without a word.
    async fn prune(&self, class: &Arc<str>) -> Result<(), ApiError> {
        let path = self.path(class);
        let map: ConfigMap = self.api.get(&path).await?;
        let now = Timestamp::now();
        let gone: serde_json::Map<String, Value> = map
            .data
            .iter()
            .flatten()
            .filter(|(key, text)| is_outdated(key, text, &now, GONE))
            .map(|(key, _)| (key.clone(), Value::Null))
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        // With the version that was read: a replica that renewed its key in between keeps it.
        let patch = json!({"metadata": {"resourceVersion": map.metadata.resource_version}, "data": gone});
        match self.api.patch::<Value>(&path, Patch::Merge, &patch).await {
            Err(error) if error.class() == ErrorClass::Conflict => Ok(()),
            result => result.map(drop),
        }
    }

    async fn apply(&self, class: &Arc<str>, manager: &str, object: &Value) -> Result<(), ApiError> {
        let path = format!("{}?fieldManager={manager}&force=true", self.path(class));
        self.api.patch::<Value>(&path, Patch::Apply, object).await.map(drop)
    }

    fn applied(&self, class: &Arc<str>, data: Value) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": self.namespace, "name": config_map_name(class)},
            "data": data,
        })
    }

    fn path(&self, class: &Arc<str>) -> String {
        format!("/api/v1/namespaces/{}/configmaps/{}", self.namespace, config_map_name(class))
    }

    fn failed(&self, class: &Arc<str>, written: &mut Written, error: &ApiError) {
        let is_refusal = error.class() == ErrorClass::Denied;
        if is_refusal && !written.is_refusal_told {
            tracing::info!(%class, namespace = %self.namespace, %error, "may not write the scope ConfigMap");
            written.is_refusal_told = true;
        } else {
            tracing::debug!(%class, %error, "cannot write the scope ConfigMap");
        }
        written.not_before = Some(Instant::now() + if is_refusal { AFTER_REFUSAL } else { AFTER_FAILURE });
    }
}
