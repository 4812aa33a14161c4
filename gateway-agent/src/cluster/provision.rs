//! Writes what Gateways need in the cluster: their Services and EndpointSlices.
//!
//! Only while the lease is held, only what differs from what is stored (the plan has nothing else), and only what is
//! ours: what is made is made where nothing is, what is changed or deleted is named by its UID.
//!
//! **Not here:** what is wanted (`translate`, `provision`).

mod attempts;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::attempts::Attempts;
use super::Desired;
use super::client::{Api, ApiError, ErrorClass, Patch};
use super::lease::Leadership;
use crate::provision::names::MANAGER;
use crate::provision::{Change, Manifest, ManifestKind, Wanted};
use crate::snapshot::ObjectName;

/// Requests under way at a time. A hundred new Gateways are written within a second, and the API server's priority
/// level for service accounts, which holds dozens, is not filled by one agent.
const PARALLEL: usize = 4;

/// By Gateway, what keeps its objects from being as they should be.
pub type Problems = BTreeMap<ObjectName, String>;

/// Writes by kind, verb and outcome: whether it succeeded.
pub type Counts = BTreeMap<(&'static str, &'static str, bool), u64>;

/// The task; run it on the control runtime.
pub(super) struct Provisioner {
    api: Api,
    leadership: Leadership,
    desired: watch::Receiver<Arc<Desired>>,
    attempts: Attempts,
    problems: watch::Sender<Arc<Problems>>,
    counts: Rc<RefCell<Counts>>,
}

impl Provisioner {
    /// The receiver is told of [`Problems`].
    pub(super) fn new(
        api: Api,
        leadership: Leadership,
        desired: watch::Receiver<Arc<Desired>>,
        counts: Rc<RefCell<Counts>>,
    ) -> (Self, watch::Receiver<Arc<Problems>>) {
        let (problems, receiver) = watch::channel(Arc::default());
        (Self { api, leadership, desired, attempts: Attempts::default(), problems, counts }, receiver)
    }

    /// Runs until the control loop is gone. Cancellation leaves each object as it was or as it should be.
    pub(super) async fn run(mut self) {
        loop {
            let wanted = self.desired.borrow_and_update().provisions.clone();
            let leads =
                |wanted: &Wanted| self.leadership.leads(&wanted.change.name().namespace, &wanted.class);
            let (due, next) = self.attempts.due(&wanted, leads, Instant::now());
            if due.is_empty() {
                self.tell(&wanted);
                tokio::select! {
                    changed = self.desired.changed() => if changed.is_err() { return },
                    () = self.leadership.changed() => {}
                    () = until(next) => {}
                }
            } else {
                let batch: Vec<Wanted> = due.into_iter().take(PARALLEL).cloned().collect();
                self.write(batch).await;
            }
        }
    }

    async fn write(&mut self, batch: Vec<Wanted>) {
        let mut requests = JoinSet::new();
        for wanted in batch {
            let writer = Writer { api: self.api.clone(), leadership: self.leadership.clone() };
            requests.spawn_local(async move {
                let result = writer.write(&wanted).await;
                (wanted, result)
            });
        }
        while let Some(joined) = requests.join_next().await {
            // A panic was reported by its hook; the write is tried again.
            let Ok((wanted, result)) = joined else { continue };
            let (kind, verb) = (wanted.change.kind().as_str(), wanted.change.verb());
            let name = wanted.change.name();
            match &result {
                Ok(()) => tracing::info!(kind, verb, %name, gateway = %wanted.gateway, "object written"),
                Err(error) => {
                    tracing::warn!(kind, verb, %name, gateway = %wanted.gateway, %error, "object cannot be written");
                }
            }
            *self.counts.borrow_mut().entry((kind, verb, result.is_ok())).or_default() += 1;
            self.attempts.tried(&wanted, result.err().map(|error| error.to_string()), Instant::now());
        }
    }

    fn tell(&self, wanted: &[Wanted]) {
        let problems = self.attempts.problems(wanted);
        self.problems.send_if_modified(|before| {
            let is_news = **before != problems;
            if is_news {
                *before = Arc::new(problems);
            }
            is_news
        });
    }
}

async fn until(next: Option<Instant>) {
    match next {
        Some(next) => sleep_until(next).await,
        None => std::future::pending().await,
    }
}

/// Why an object was not written.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("there is one of this name already")]
    Exists,
    #[error("another agent leads now")]
    Lost,
    #[error("{0}")]
    Api(#[from] ApiError),
}

/// Makes one write.
struct Writer {
    api: Api,
    leadership: Leadership,
}

impl Writer {
    async fn write(&self, wanted: &Wanted) -> Result<(), WriteError> {
        let path = path(wanted.change.kind(), wanted.change.name());
        match &wanted.change {
            Change::Create(manifest) => self.create(wanted, &path, manifest).await,
            Change::Apply { manifest, uid } => {
                let mut body = manifest.body.clone();
                // If it was deleted and somebody else made another one, this is a conflict.
                body["metadata"]["uid"] = (**uid).into();
                let path = format!("{path}?fieldManager={MANAGER}&force=true");
                Ok(self.api.patch::<Value>(&path, Patch::Apply, &body).await.map(drop)?)
            }
            Change::Delete { uid, .. } => {
                let options = match uid {
                    Some(uid) => json!({"preconditions": {"uid": &**uid}}),
                    None => json!({}),
                };
                match self.api.delete_with(&path, &options).await {
                    Err(error) if error.class() == ErrorClass::Missing => Ok(()),
                    result => Ok(result?),
                }
            }
        }
    }

    /// Server-side apply cannot be told to make and never to change, so it is asked first whether there is one, and then
    /// applied without force: what came in between has other values in fields of others, which is a conflict.
    async fn create(&self, wanted: &Wanted, path: &str, manifest: &Manifest) -> Result<(), WriteError> {
        match self.api.get::<Value>(path).await {
            Ok(_) => return Err(WriteError::Exists),
            Err(error) if error.class() == ErrorClass::Missing => {}
            Err(error) => return Err(error.into()),
        }
        // A read may take longer than a lease lasts.
        if !self.leadership.leads(&manifest.name.namespace, &wanted.class) {
            return Err(WriteError::Lost);
        }
        let path = format!("{path}?fieldManager={MANAGER}");
        Ok(self.api.patch::<Value>(&path, Patch::Apply, &manifest.body).await.map(drop)?)
    }
}

fn path(kind: ManifestKind, name: &ObjectName) -> String {
    let (group, plural) = match kind {
        ManifestKind::EndpointSlice => ("/apis/discovery.k8s.io/v1", "endpointslices"),
        ManifestKind::Service => ("/api/v1", "services"),
    };
    format!("{group}/namespaces/{}/{plural}/{}", name.namespace, name.name)
}
