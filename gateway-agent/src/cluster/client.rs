//! The client of the Kubernetes API: one [`Api`], cloned into every task that asks it something.
//!
//! Requests go by path, so that one malformed object of a kind cannot make the answer about its neighbours unreadable.
//! Every request has a deadline and every answer a bound. **Not here:** retries, which belong to the callers, because only
//! they know what waits meanwhile; and what may be asked, which `access` finds out.

mod connect;
mod error;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

pub use connect::{ConnectError, Credentials, InCluster};
pub(super) use error::Status;
pub use error::{ApiError, ErrorClass};

/// Most answers come in milliseconds. The API server itself gives up a request after 60 s; a list of large objects over a
/// slow link is the longest that is asked for.
pub const READ_DEADLINE: Duration = Duration::from_secs(30);

/// Shorter than the margin that a lease leaves between its holder giving up and another taking over, so that a write
/// cannot arrive after the next leader's first.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(4);

/// One object is at most 1.5 MiB in etcd, and grows a little as JSON; a page of a list holds many. What is longer is asked
/// for in smaller pages.
const MAX_ANSWER: usize = 32 << 20;

/// Enough of a proxy's error page to recognise it.
const MAX_ERROR_TEXT: usize = 1024;

/// No server asks for more patience than this in good faith.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// How an object is changed by [`Api::patch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patch {
    /// RFC 7386.
    Merge,
    /// RFC 6902.
    Json,
    /// Server-side apply, taking over what others own of it.
    Apply,
}

#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    health: Arc<watch::Sender<Health>>,
    /// Where the credentials say that unqualified objects belong: the context's or the pod's namespace.
    namespace: Arc<str>,
    /// In place of the deadlines for reads and writes.
    deadline: Option<Duration>,
}

/// Whether the API server answers at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The last request was answered, be it by a refusal.
    pub is_reachable: bool,
    /// Grows each time that an answer comes after none did: who waits to try again need not wait on.
    pub recoveries: u64,
}

impl Api {
    /// Reads the credentials and makes the client; connects with the first request.
    pub async fn new(credentials: &Credentials) -> Result<Self, ConnectError> {
        let (client, namespace) = connect::client(credentials).await?;
        Ok(Self { client, health: Arc::default(), namespace: namespace.into(), deadline: None })
    }

    /// The same client, whose requests all have this deadline.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self.clone() }
    }

    pub const fn namespace(&self) -> &Arc<str> {
        &self.namespace
    }

    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    /// The object at `path`.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        decode(&self.read(path).await?)
    }

    /// The answer to a GET of `path`, undecoded.
    pub async fn read(&self, path: &str) -> Result<Bytes, ApiError> {
        self.call(request(Method::GET, path, None, Bytes::new())?, READ_DEADLINE).await
    }

    /// Puts a question to the API that takes its parameters in the body, such as an access review. Changes nothing.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        question: &impl Serialize,
    ) -> Result<T, ApiError> {
        let body = serde_json::to_vec(question).map_err(ApiError::Encode)?;
        let request = request(Method::POST, path, Some("application/json"), Bytes::from(body))?;
        decode(&self.call(request, READ_DEADLINE).await?)
    }

    /// Adds an object to the collection at `path`.
    pub async fn create<T: DeserializeOwned>(
        &self,
        path: &str,
        object: &impl Serialize,
    ) -> Result<T, ApiError> {
        self.write(Method::POST, path, "application/json", object).await
    }

    /// Replaces the object at `path`; with a `resourceVersion` in it only if it is still the one.
    pub async fn update<T: DeserializeOwned>(
        &self,
        path: &str,
        object: &impl Serialize,
    ) -> Result<T, ApiError> {
        self.write(Method::PUT, path, "application/json", object).await
    }

    /// Changes the object at `path`, which may carry a query such as `?fieldManager=NAME`.
    pub async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        how: Patch,
        patch: &impl Serialize,
    ) -> Result<T, ApiError> {
        let content_type = match how {
            Patch::Merge => "application/merge-patch+json",
            Patch::Json => "application/json-patch+json",
            Patch::Apply => "application/apply-patch+yaml",
        };
        self.write(Method::PATCH, path, content_type, patch).await
    }

    /// Deletes the object at `path`.
    pub async fn delete(&self, path: &str) -> Result<(), ApiError> {
        self.call(request(Method::DELETE, path, None, Bytes::new())?, WRITE_DEADLINE).await.map(drop)
    }

    /// Deletes the object at `path`, by `DeleteOptions`: only the one of a certain UID, for example.
    pub async fn delete_with(&self, path: &str, options: &impl Serialize) -> Result<(), ApiError> {
        self.write::<serde_json::Value>(Method::DELETE, path, "application/json", options).await.map(drop)
    }

    /// Opens the answer to a GET of `path` that has no end of its own; the deadline is for its head.
    pub(super) async fn stream(&self, path: &str) -> Result<Body, ApiError> {
        let request = request(Method::GET, path, None, Bytes::new())?;
        let deadline = Instant::now() + READ_DEADLINE;
        Ok(self.answered(request, deadline, READ_DEADLINE).await?.into_body())
    }

    async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: &impl Serialize,
    ) -> Result<T, ApiError> {
        let body = serde_json::to_vec(body).map_err(ApiError::Encode)?;
        decode(
            &self.call(request(method, path, Some(content_type), Bytes::from(body))?, WRITE_DEADLINE).await?,
        )
    }

    async fn call(&self, request: Request<Body>, patience: Duration) -> Result<Bytes, ApiError> {
        let patience = self.deadline.unwrap_or(patience);
        let deadline = Instant::now() + patience;
        let response = self.answered(request, deadline, patience).await?;
        collect(response.into_body(), MAX_ANSWER, deadline, patience).await
    }

    /// A response that is no error.
    async fn answered(
        &self,
        request: Request<Body>,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Response<Body>, ApiError> {
        let sent = timeout_at(deadline, self.client.send(request)).await;
        let response = match sent {
            Err(_elapsed) => Err(ApiError::Deadline(patience)),
            Ok(Err(error)) => Err(ApiError::Unreachable(error)),
            Ok(Ok(response)) => Ok(response),
        };
        self.note_health(response.is_ok());
        let response = response?;
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status().as_u16();
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map(|seconds| Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
        // A server that cannot even finish its refusal is told by its code.
        let text = collect(response.into_body(), MAX_ANSWER, deadline, patience).await.unwrap_or_default();
        Err(ApiError::refusal(code, &text, retry_after))
    }

    /// Waits before another try, but not on once the API server is back. True when it came back. Cancellation-safe.
    pub(super) async fn wait(&self, span: Duration) -> bool {
        let mut health = self.health.subscribe();
        let before = health.borrow_and_update().recoveries;
        let recovered = async {
            // Not `wait_for`: what it returns locks the value, and would do so for as long as the caller lets it live.
            while health.changed().await.is_ok() {
                if health.borrow_and_update().recoveries > before {
                    return;
                }
            }
            std::future::pending().await
        };
        tokio::select! {
            () = sleep(span) => false,
            () = recovered => true,
        }
    }

    fn note_health(&self, is_reachable: bool) {
        self.health.send_if_modified(|health| {
            let has_changed = health.is_reachable != is_reachable;
            if has_changed && is_reachable {
                health.recoveries += 1;
            }
            health.is_reachable = is_reachable;
            has_changed
        });
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("health", &*self.health.borrow()).finish_non_exhaustive()
    }
}

fn request(
    method: Method,
    path: &str,
    content_type: Option<&'static str>,
    body: Bytes,
) -> Result<Request<Body>, ApiError> {
    let mut builder = Request::builder().method(method).uri(path).header(ACCEPT, "application/json");
    if let Some(content_type) = content_type {
        builder = builder.header(CONTENT_TYPE, content_type);
    }
    builder.body(Body::from(body)).map_err(ApiError::Request)
}

fn decode<T: DeserializeOwned>(answer: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(answer).map_err(ApiError::Decode)
}

async fn collect(
    mut body: Body,
    limit: usize,
    deadline: Instant,
    patience: Duration,
) -> Result<Bytes, ApiError> {
    let mut whole: Vec<u8> = Vec::new();
    loop {
        let frame = match timeout_at(deadline, body.frame()).await {
            Err(_elapsed) => return Err(ApiError::Deadline(patience)),
            Ok(None) => return Ok(Bytes::from(whole)),
            Ok(Some(Err(error))) => return Err(ApiError::Unreachable(error)),
            Ok(Some(Ok(frame))) => frame,
        };
        // Trailers say nothing here.
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > limit {
            return Err(ApiError::TooLong(limit));
        }
        whole.extend_from_slice(&data);
    }
}
