//! One watch: everything of one kind in one namespace, listed and then followed.
//!
//! Lists come in pages, watches with bookmarks. A version that the server has forgotten is answered by one fresh list
//! (O52), a connection that went silent by another one (O51), everything else by trying again with backoff; what was
//! known stays meanwhile. Only a refusal for good ends a watch: no right, or no such kind. `supervise` decides what then.
//!
//! **Not here:** what objects mean, and which of them are kept: `intake`.

mod stream;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::BodyExt as _;
use tokio::time::{Instant, sleep, timeout};

use self::stream::{Event, Lines, read_page};
use super::backoff::Backoff;
use super::board::{Restart, WatchKey, WatchState};
use super::client::{Api, ApiError, ErrorClass};
use super::feed::Feed;
use super::intake::Intake;

/// Objects per page: 500 routes are about a megabyte of JSON.
const PAGE: usize = 500;

/// The server ends a watch after this many seconds, and up to half as many more, so that watches do not end together.
const WATCH_SECONDS: u32 = 240;

/// A watch that lived shorter and brought nothing is a failure, however politely it ended.
const SHORT_LIFE: Duration = Duration::from_secs(5);

/// Refusals in a row of the same version, after which it is not trusted any more: a server that was restored from a
/// backup knows no such version yet, and says so in other words than 410.
const MAX_REFUSALS: u32 = 4;

/// So that all watches do not come back in the same instant.
const AFTER_RECOVERY: Duration = Duration::from_millis(300);

pub(super) struct Watch {
    api: Api,
    /// The collection.
    path: String,
    selector: Option<&'static str>,
    key: WatchKey,
    intake: Intake,
    feed: Feed,
    backoff: Backoff,
    page: usize,
    idle: Duration,
}

/// Why a watch is over for good.
#[derive(Debug)]
pub(super) enum Ended {
    /// The agent lacks a right.
    Denied(String),
    /// No such kind.
    Missing(String),
    /// Nobody listens.
    Closed,
}

/// Why one connection of a watch is over.
enum Stop {
    Closed,
    Idle,
    Lost(ApiError),
    Refused(ApiError),
    Expired,
    Unreadable(String),
    Unheard,
}

/// Nobody listens any more.
struct Unheard;

impl Watch {
    pub(super) fn new(
        api: Api,
        path: String,
        selector: Option<&'static str>,
        key: WatchKey,
        intake: Intake,
        feed: Feed,
    ) -> Self {
        let backoff = Backoff::new(seed(&key));
        let idle = feed.idle();
        Self { api, path, selector, key, intake, feed, backoff, page: PAGE, idle }
    }

    /// Lists and follows until it is over for good.
    pub(super) async fn run(mut self) -> Ended {
        loop {
            match self.list().await {
                Ok(Ok(version)) => match self.follow(version).await {
                    None => {
                        let wait = self.backoff.failed(None);
                        sleep(wait).await;
                    }
                    Some(ended) => return ended,
                },
                Ok(Err(Unheard)) => return Ended::Closed,
                Err(error) => {
                    if let Some(ended) = self.failed(&error).await {
                        return ended;
                    }
                }
            }
        }
    }

    /// Lists everything, page by page. The version from which to follow.
    async fn list(&mut self) -> Result<Result<String, Unheard>, ApiError> {
        self.intake.begin();
        let mut next = String::new();
        loop {
            let bytes = match self.api.read(&self.list_path(&next)).await {
                // Few objects can be that large, so that a smaller page fits.
                Err(ApiError::TooLong(_)) if self.page > 1 => {
                    self.page = (self.page / 8).max(1);
                    continue;
                }
                result => result?,
            };
            let intake = &mut self.intake;
            let page = read_page(&bytes, |item| intake.applied(item)).map_err(ApiError::Decode)?;
            drop(bytes);
            let is_last = page.next.is_empty();
            if is_last {
                self.intake.listed();
            }
            if self.flush().await.is_err() {
                return Ok(Err(Unheard));
            }
            if is_last {
                return Ok(Ok(page.resource_version));
            }
            next = page.next;
        }
    }

    fn list_path(&self, next: &str) -> String {
        let mut path = format!("{}?limit={}", self.path, self.page);
        if let Some(selector) = self.selector {
            path.push_str("&fieldSelector=");
            path.push_str(selector);
        }
        // The server's tokens are of the URL-safe base64 alphabet.
        if !next.is_empty() {
            path.push_str("&continue=");
            path.push_str(next);
        }
        path
    }

    fn watch_path(&mut self, version: &str) -> String {
        let spread = self.backoff.jitter(Duration::from_secs(u64::from(WATCH_SECONDS / 2))).as_secs();
        let mut path = format!(
            "{}?watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={}",
            self.path,
            u64::from(WATCH_SECONDS) + spread,
        );
        if let Some(selector) = self.selector {
            path.push_str("&fieldSelector=");
            path.push_str(selector);
        }
        path
    }

    /// Follows from `version`. `None`: everything has to be listed again.
    async fn follow(&mut self, mut version: String) -> Option<Ended> {
        let mut refusals = 0;
        loop {
            let opened = Instant::now();
            let before = version.clone();
            let stop = self.follow_once(&mut version).await;
            if version != before || opened.elapsed() >= SHORT_LIFE {
                self.backoff.succeeded();
                refusals = 0;
            }
            match stop {
                Stop::Unheard => return Some(Ended::Closed),
                Stop::Closed => {
                    self.restarted(Restart::Closed);
                    if version == before && opened.elapsed() < SHORT_LIFE {
                        let wait = self.backoff.failed(None);
                        self.wait(wait).await;
                    }
                }
                Stop::Idle => {
                    tracing::debug!(watch = %self.key, "nothing came for too long, connecting anew");
                    self.restarted(Restart::Idle);
                }
                Stop::Lost(error) => {
                    self.restarted(Restart::Broken);
                    if let Some(ended) = self.failed(&error).await {
                        return Some(ended);
                    }
                }
                Stop::Refused(error) => {
                    self.restarted(Restart::Broken);
                    refusals += 1;
                    if let Some(ended) = self.failed(&error).await {
                        return Some(ended);
                    }
                    if refusals >= MAX_REFUSALS {
                        return None;
                    }
                }
                Stop::Expired => {
                    self.restarted(Restart::Expired);
                    return None;
                }
                Stop::Unreadable(what) => {
                    tracing::warn!(watch = %self.key, error = %what, "cannot read the watch, listing again");
                    self.restarted(Restart::Broken);
                    self.feed.board().failed(&self.key, ErrorClass::Answer);
                    return None;
                }
            }
        }
    }

    /// Follows over one connection; `version` is then the last that was heard of.
    async fn follow_once(&mut self, version: &mut String) -> Stop {
        let path = self.watch_path(version);
        let mut body = match self.api.stream(&path).await {
            Ok(body) => body,
            Err(error) => {
                return match error.class() {
                    ErrorClass::Expired => Stop::Expired,
                    ErrorClass::Unreachable | ErrorClass::Deadline => Stop::Lost(error),
                    _ => Stop::Refused(error),
                };
            }
        };
        self.set_state(WatchState::Watching);
        let mut lines = Lines::default();
        loop {
            let frame = match timeout(self.idle, body.frame()).await {
                Err(_elapsed) => return Stop::Idle,
                Ok(None) => return Stop::Closed,
                Ok(Some(Err(error))) => return Stop::Lost(ApiError::Unreachable(error)),
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            let mut stop = None;
            let intake = &mut self.intake;
            let pushed = lines.push(&data, |line| {
                if stop.is_none() {
                    stop = take_line(intake, line, version);
                }
            });
            if self.flush().await.is_err() {
                return Stop::Unheard;
            }
            if pushed.is_err() {
                return Stop::Unreadable("a line is longer than any object can be".into());
            }
            if let Some(stop) = stop {
                return stop;
            }
        }
    }

    /// Hands on what was taken in, and notes that something was heard.
    async fn flush(&mut self) -> Result<(), Unheard> {
        let changes = self.intake.take();
        let events = u64::try_from(changes.len()).unwrap_or(u64::MAX);
        self.feed.board().heard(&self.key, now(), events);
        if changes.is_empty() {
            return Ok(());
        }
        self.feed.send(changes).await.map_err(|_closed| Unheard)
    }

    fn restarted(&self, why: Restart) {
        self.feed.board().restarted(&self.key, why);
    }

    /// True when it stood otherwise before.
    fn set_state(&self, state: WatchState) -> bool {
        let name = state.as_str();
        let is_news = self.feed.board().set_watch(&self.key, state);
        if is_news {
            tracing::debug!(watch = %self.key, state = name, "watch");
        }
        is_news
    }

    /// Notes a failure and waits before the next try, unless there is none.
    async fn failed(&mut self, error: &ApiError) -> Option<Ended> {
        self.feed.board().failed(&self.key, error.class());
        match error {
            ApiError::Refused { code: 403, message, .. } => return Some(Ended::Denied(message.clone())),
            ApiError::Refused { code: 404, .. } => return Some(Ended::Missing(error.to_string())),
            _ => {}
        }
        let is_news = self.set_state(WatchState::Failing(error.to_string()));
        // An API server that is away is said once, not once for each watch: see `cluster::follow_health`.
        if is_news && !matches!(error.class(), ErrorClass::Unreachable | ErrorClass::Deadline) {
            tracing::warn!(watch = %self.key, %error, "watch fails, what is known stays");
        }
        let wait = self.backoff.failed(error.retry_after());
        self.wait(wait).await;
        None
    }

    /// Waits, but not on once the API server is back.
    async fn wait(&mut self, span: Duration) {
        if self.api.wait(span).await {
            let spread = self.backoff.jitter(AFTER_RECOVERY);
            sleep(spread).await;
        }
    }
}

/// Takes one line in; `Some`: the server ends the watch.
fn take_line(intake: &mut Intake, line: &[u8], version: &mut String) -> Option<Stop> {
    let (object, is_deleted) = match Event::parse(line) {
        Event::Applied(object) => (object, false),
        Event::Deleted(object) => (object, true),
        Event::Bookmark(at) => {
            if !at.is_empty() {
                *version = at;
            }
            return None;
        }
        Event::Failed(status) => {
            let error = ApiError::from(status);
            return Some(if error.class() == ErrorClass::Expired {
                Stop::Expired
            } else {
                Stop::Refused(error)
            });
        }
        Event::Unreadable(what) => return Some(Stop::Unreadable(what)),
    };
    let at = stream::resource_version(&object);
    if !at.is_empty() {
        at.clone_into(version);
    }
    if is_deleted {
        intake.deleted(object)
    } else {
        intake.applied(object)
    }
    None
}

/// Seconds since the epoch, for display only.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Watches of one agent, and the same watch of two agents, should not try again in step.
pub(super) fn seed(key: &WatchKey) -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(key.to_string())
}
