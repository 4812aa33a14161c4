//! The class acknowledger: says of every GatewayClass with our controllerName that it is accepted, and which features its
//! agents support. For this alone a right at cluster scope is needed, which is why it is a program of its own.
//!
//! Several may run at once without a leader: each writes only what differs, with the version that it read, so that of two
//! the second finds nothing to do. Only of two *versions* each would want another list of features: so a list that is
//! there is replaced at the start and after a change of the class, but not because another process changed it. The one
//! that started last wins.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use super::access;
use super::backoff::Backoff;
use super::client::{Api, ApiError, ErrorClass};
use super::feed::Feed;
use super::intake::{Acknowledged, Intake};
use super::kinds::CLASSES;
use super::supervise::classes_key;
use super::watch::{Ended, Watch};
use crate::features;
use crate::status::write::{generation, plan_class};

/// Between two looks for a kind or a right that is missing.
const PROBE: Duration = Duration::from_secs(5);

/// Between two writes of one class: whoever else writes it does not make us loop.
const SPACING: Duration = Duration::from_secs(1);

/// Classes whose latest state waits, by name: as many as there are classes of ours.
pub(super) type Pending = Rc<RefCell<BTreeMap<String, SeenClass>>>;

/// A class as the watch delivered it.
pub(super) struct SeenClass {
    /// The API version that it was read at.
    pub version: &'static str,
    pub object: Value,
}

/// Acknowledges classes until dropped. Must run inside a `LocalSet`.
pub async fn acknowledge(api: Api, controller_name: Arc<str>, watch_idle: Duration) {
    let pending = Pending::default();
    let wake = Rc::new(Notify::new());
    let watching = watch(&api, &controller_name, watch_idle, &pending, &wake);
    let writing = Acknowledger { api: api.clone(), written: HashMap::new() }.run(&pending, &wake);
    tokio::join!(watching, writing);
}

/// Keeps `pending` filled with the classes that are ours and have changed.
async fn watch(api: &Api, controller_name: &Arc<str>, idle: Duration, pending: &Pending, wake: &Rc<Notify>) {
    // Nothing is told but through `pending`.
    let (sender, _receiver) = mpsc::channel(1);
    let feed = Feed::new(sender, Rc::default(), None, idle);
    let mut is_told = false;
    loop {
        let answer = async { access::classes(api, &access::discover(api).await?).await };
        match answer.await {
            Ok(Some(version)) => {
                is_told = false;
                let intake =
                    Acknowledged::new(controller_name.clone(), version, pending.clone(), wake.clone());
                let path = CLASSES.path(version, None);
                let intake = Intake::Acknowledged(intake);
                let watch = Watch::new(api.clone(), path, None, classes_key(), intake, feed.clone());
                if let Ended::Denied(why) | Ended::Missing(why) = watch.run().await {
                    tracing::warn!(why, "GatewayClasses cannot be watched any more, trying again");
                }
            }
            Ok(None) if !is_told => {
                tracing::warn!("GatewayClasses are not served or may not be read, trying again");
                is_told = true;
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "cannot ask for GatewayClasses"),
        }
        sleep(PROBE).await;
    }
}

/// The writer.
struct Acknowledger {
    api: Api,
    /// Generation of each class whose features were written, or found to be right, by this process.
    written: HashMap<String, i64>,
}

impl Acknowledger {
    async fn run(mut self, pending: &Pending, wake: &Notify) {
        let mut backoff = Backoff::new(u64::from(std::process::id()));
        loop {
            wake.notified().await;
            let classes = std::mem::take(&mut *pending.borrow_mut());
            for (name, class) in classes {
                match self.bring(&name, &class).await {
                    Ok(()) => backoff.succeeded(),
                    Err(error) => {
                        tracing::warn!(%name, %error, "cannot write the class's status, trying again");
                        sleep(backoff.failed(error.retry_after())).await;
                        // Unless something newer came meanwhile. What is stale by then ends as a conflict.
                        pending.borrow_mut().entry(name).or_insert(class);
                        wake.notify_one();
                    }
                }
            }
            sleep(SPACING).await;
        }
    }

    async fn bring(&mut self, name: &str, class: &SeenClass) -> Result<(), ApiError> {
        let generation = generation(&class.object);
        let keeps_features = self.written.get(name) == Some(&generation);
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        if let Some(status) = plan_class(&class.object, features::SUPPORTED, keeps_features, &now) {
            let metadata = |field| class.object.pointer(&format!("/metadata/{field}"));
            let body = json!({
                "apiVersion": CLASSES.api_version(class.version),
                "kind": CLASSES.kind,
                "metadata": {"name": name, "resourceVersion": metadata("resourceVersion"), "uid": metadata("uid")},
                "status": status,
            });
            let path = format!("{}/{name}/status", CLASSES.path(class.version, None));
            match self.api.update::<Value>(&path, &body).await {
                Ok(_) => tracing::info!(%name, generation, "acknowledged the class"),
                // What the other writer left comes by the watch; a class that is gone needs nothing.
                Err(error) if matches!(error.class(), ErrorClass::Conflict | ErrorClass::Missing) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.written.insert(name.to_owned(), generation);
        Ok(())
    }
}
