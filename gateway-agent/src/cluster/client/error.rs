//! What a request to the API can come to.

use std::time::Duration;

use serde::Deserialize;

use super::MAX_ERROR_TEXT;

#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The API server answered, and refused.
    #[error("the API server answers {code} {reason}: {message}")]
    Refused { code: u16, reason: String, message: String, retry_after: Option<Duration> },
    #[error("no answer from the API server within {} s", .0.as_secs())]
    Deadline(Duration),
    #[error("cannot reach the API server: {}", root(.0))]
    Unreachable(#[source] kube::Error),
    #[error("the API server's answer is longer than {0} bytes")]
    TooLong(usize),
    #[error("the API server's answer is not what was asked for: {0}")]
    Decode(#[source] serde_json::Error),
    #[error("cannot write the request: {0}")]
    Encode(#[source] serde_json::Error),
    #[error("not a valid request: {0}")]
    Request(#[source] http::Error),
}

/// What went wrong, as the label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorClass {
    /// 410: what was to be continued is forgotten.
    Expired,
    /// 401 and 403.
    Denied,
    /// 404.
    Missing,
    /// 409.
    Conflict,
    /// 429.
    Throttled,
    /// Any other refusal.
    Server,
    /// No connection, or one that broke.
    Unreachable,
    /// Silence beyond the deadline.
    Deadline,
    /// An answer that cannot be used.
    Answer,
}

/// The fields of the API's `Status` that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cluster) struct Status {
    pub code: u16,
    pub reason: String,
    pub message: String,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: u64,
}

impl ApiError {
    /// An answer with an error code, and its text: a `Status`, or whatever a proxy on the way wrote.
    pub(super) fn refusal(code: u16, text: &[u8], retry_after: Option<Duration>) -> Self {
        match serde_json::from_slice::<Status>(text) {
            Ok(status) if !status.reason.is_empty() || !status.message.is_empty() => {
                let mut refusal = Self::from(Status { code, ..status });
                if let (Self::Refused { retry_after: slot, .. }, Some(_)) = (&mut refusal, retry_after) {
                    *slot = retry_after;
                }
                refusal
            }
            _ => {
                let text = &text[..text.len().min(MAX_ERROR_TEXT)];
                let message = String::from_utf8_lossy(text).trim().to_owned();
                Self::Refused { code, reason: String::new(), message, retry_after }
            }
        }
    }

    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Refused { code: 401 | 403, .. } => ErrorClass::Denied,
            Self::Refused { code: 404, .. } => ErrorClass::Missing,
            Self::Refused { code: 409, .. } => ErrorClass::Conflict,
            Self::Refused { code: 410, .. } => ErrorClass::Expired,
            Self::Refused { code: 429, .. } => ErrorClass::Throttled,
            Self::Refused { .. } => ErrorClass::Server,
            Self::Deadline(_) => ErrorClass::Deadline,
            Self::Unreachable(_) => ErrorClass::Unreachable,
            Self::TooLong(_) | Self::Decode(_) | Self::Encode(_) | Self::Request(_) => ErrorClass::Answer,
        }
    }

    /// How long the server asked to be left alone.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl From<Status> for ApiError {
    fn from(status: Status) -> Self {
        let retry_after = status.details.map(|details| details.retry_after_seconds).filter(|wait| *wait > 0);
        Self::Refused {
            code: status.code,
            reason: status.reason,
            message: status.message,
            retry_after: retry_after.map(|wait| Duration::from_secs(wait).min(super::MAX_RETRY_AFTER)),
        }
    }
}

impl ErrorClass {
    pub const ALL: [Self; 9] = [
        Self::Expired,
        Self::Denied,
        Self::Missing,
        Self::Conflict,
        Self::Throttled,
        Self::Server,
        Self::Unreachable,
        Self::Deadline,
        Self::Answer,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Denied => "denied",
            Self::Missing => "missing",
            Self::Conflict => "conflict",
            Self::Throttled => "throttled",
            Self::Server => "server",
            Self::Unreachable => "unreachable",
            Self::Deadline => "deadline",
            Self::Answer => "answer",
        }
    }
}

/// The innermost cause: the layers around it all say that a request failed.
fn root(error: &kube::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    // HTTP and TLS nest a handful of errors; a cycle must not hang a log line.
    for _ in 0..16 {
        match cause.source() {
            Some(source) => cause = source,
            None => break,
        }
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ApiError, ErrorClass};

    // O52: 429 with Retry-After, in the header or in the Status.
    #[test]
    fn a_server_under_load_says_when_to_come_back() {
        let text = br#"{"kind":"Status","reason":"TooManyRequests","message":"slow down","code":429,"details":{"retryAfterSeconds":7}}"#;
        let told = ApiError::refusal(429, text, None);
        assert_eq!(told.class(), ErrorClass::Throttled);
        assert_eq!(told.retry_after(), Some(Duration::from_secs(7)));
        let header = ApiError::refusal(429, text, Some(Duration::from_secs(2)));
        assert_eq!(header.retry_after(), Some(Duration::from_secs(2)));
    }

    #[test]
    fn a_proxys_error_page_is_quoted_in_part() {
        let page = "x".repeat(5000);
        let ApiError::Refused { code, message, .. } = ApiError::refusal(502, page.as_bytes(), None) else {
            panic!("a refusal");
        };
        assert_eq!((code, message.len()), (502, 1024));
    }

    #[test]
    fn codes_have_their_classes() {
        for (code, class) in [
            (401, ErrorClass::Denied),
            (403, ErrorClass::Denied),
            (404, ErrorClass::Missing),
            (409, ErrorClass::Conflict),
            (410, ErrorClass::Expired),
            (500, ErrorClass::Server),
        ] {
            assert_eq!(ApiError::refusal(code, b"", None).class(), class, "{code}");
        }
    }
}
