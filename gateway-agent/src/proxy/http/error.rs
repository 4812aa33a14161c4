//! Why a request was not served as asked, and the one place where that becomes a status.

use thiserror::Error;

use super::deadline::Limit;
use crate::proxy::h1::{BodyError, HeadError};

/// Whose doing it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Downstream,
    Internal,
    Upstream,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum Kind {
    #[error("the proxy is shutting down")]
    Aborted,
    #[error("body: {0}")]
    Body(BodyError),
    #[error("no progress of the body within the deadline")]
    BodyStalled,
    #[error("the connection was closed or reset")]
    Closed,
    #[error("no connection could be made")]
    Connect,
    #[error("no connection was made within the deadline")]
    ConnectTimeout,
    #[error("no TLS connection could be made")]
    Handshake,
    #[error("head: {0}")]
    Head(HeadError),
    #[error("no head within the deadline")]
    HeadTimeout,
    #[error("the try took longer than the route allows")]
    BackendTimeout,
    #[error("the backend reference is invalid")]
    InvalidBackend,
    #[error("the host belongs to another listener than the server name")]
    Misdirected,
    #[error("the service has no usable endpoint")]
    NoEndpoint,
    #[error("gRPC needs HTTP/2")]
    NeedsH2,
    #[error("no route matches")]
    NoRoute,
    #[error("the request took longer than the route allows")]
    RequestTimeout,
    #[error("the server refused the request before it began")]
    Refused,
    #[error("more than {} interim answers", crate::proxy::h1::limits::INTERIM_RESPONSES_MAX)]
    TooManyInterim,
    #[error("an upgrade that was not asked for")]
    UnexpectedUpgrade,
    #[error("the rule cannot be served as it is written")]
    UnservableRule,
}

impl Source {
    /// In the access log.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Downstream => "downstream",
            Self::Internal => "internal",
            Self::Upstream => "upstream",
        }
    }
}

impl Kind {
    /// In the access log: names that stay, for who looks for them.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Aborted => "aborted",
            Self::BackendTimeout => "backend-timeout",
            Self::Body(_) => "body",
            Self::BodyStalled => "body-stalled",
            Self::Closed => "closed",
            Self::Connect => "connect",
            Self::ConnectTimeout => "connect-timeout",
            Self::Handshake => "handshake",
            Self::Head(_) => "head",
            Self::HeadTimeout => "head-timeout",
            Self::InvalidBackend => "invalid-backend",
            Self::Misdirected => "misdirected",
            Self::NeedsH2 => "needs-h2",
            Self::NoEndpoint => "no-endpoint",
            Self::NoRoute => "no-route",
            Self::Refused => "refused",
            Self::RequestTimeout => "request-timeout",
            Self::TooManyInterim => "too-many-interim",
            Self::UnexpectedUpgrade => "unexpected-upgrade",
            Self::UnservableRule => "unservable-rule",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{source:?}: {kind}")]
pub(super) struct ProxyError {
    // Not an error's source in the sense of `std::error::Error`.
    #[source]
    pub(super) kind: Kind,
    pub(super) source: Source,
}

impl ProxyError {
    pub(super) const fn downstream(kind: Kind) -> Self {
        Self { source: Source::Downstream, kind }
    }

    pub(super) const fn internal(kind: Kind) -> Self {
        Self { source: Source::Internal, kind }
    }

    /// A limit of the route was reached.
    pub(super) const fn limit(limit: Limit) -> Self {
        Self::upstream(match limit {
            Limit::Request => Kind::RequestTimeout,
            Limit::Try => Kind::BackendTimeout,
        })
    }

    /// Whether it was the route's patience that ended.
    pub(super) const fn is_limit(self) -> bool {
        matches!(self.kind, Kind::BackendTimeout | Kind::RequestTimeout)
    }

    pub(super) const fn upstream(kind: Kind) -> Self {
        Self { source: Source::Upstream, kind }
    }

    /// The answer to the client; `None`: nobody is left to read one.
    pub(super) const fn status(self) -> Option<u16> {
        match (self.source, self.kind) {
            (_, Kind::NoRoute) => Some(404),
            (_, Kind::Misdirected) => Some(421),
            (_, Kind::NeedsH2) => Some(505),
            (_, Kind::InvalidBackend) => Some(500),
            (_, Kind::NoEndpoint) => Some(503),
            (_, Kind::BackendTimeout | Kind::RequestTimeout) => Some(504),
            (Source::Downstream, Kind::Head(error)) => Some(refusal(error)),
            (Source::Downstream, Kind::Body(BodyError::Truncated) | Kind::Closed | Kind::Refused) => None,
            (Source::Downstream, Kind::BodyStalled | Kind::HeadTimeout) => Some(408),
            (Source::Downstream, _) => Some(400),
            (Source::Internal, Kind::Aborted) => None,
            (Source::Internal, _) => Some(500),
            (Source::Upstream, Kind::BodyStalled | Kind::ConnectTimeout | Kind::HeadTimeout) => Some(504),
            (Source::Upstream, Kind::Refused) => Some(503),
            (Source::Upstream, _) => Some(502),
        }
    }

    /// The server was asked and has not begun to answer.
    pub(super) const fn is_without_answer(self) -> bool {
        matches!((self.source, self.kind), (Source::Upstream, Kind::Closed | Kind::Refused))
    }
}

const fn refusal(error: HeadError) -> u16 {
    match error {
        HeadError::Expectation => 417,
        HeadError::HeadTooLarge | HeadError::TooManyFields => 431,
        HeadError::RequestLineTooLong => 414,
        HeadError::Connect => 501,
        HeadError::Version => 505,
        HeadError::BareLineFeed
        | HeadError::ConnectionOptions
        | HeadError::ContentLength
        | HeadError::Host
        | HeadError::Status
        | HeadError::Syntax
        | HeadError::Target
        | HeadError::TransferEncoding => 400,
    }
}

#[cfg(test)]
mod tests {
    use super::{BodyError, HeadError, Kind, ProxyError};

    #[test]
    fn page_for_users_names_every_kind() {
        let page = include_str!("../../../../deploy/observing.md");
        for kind in [
            Kind::Aborted,
            Kind::BackendTimeout,
            Kind::Body(BodyError::Chunk),
            Kind::BodyStalled,
            Kind::Closed,
            Kind::Connect,
            Kind::ConnectTimeout,
            Kind::Handshake,
            Kind::Head(HeadError::Syntax),
            Kind::HeadTimeout,
            Kind::InvalidBackend,
            Kind::Misdirected,
            Kind::NeedsH2,
            Kind::NoEndpoint,
            Kind::NoRoute,
            Kind::Refused,
            Kind::RequestTimeout,
            Kind::TooManyInterim,
            Kind::UnexpectedUpgrade,
            Kind::UnservableRule,
        ] {
            assert!(page.contains(&format!("`{}`", kind.as_str())), "{kind:?}");
        }
    }

    #[test]
    fn status_says_whose_fault_it_was() {
        for (error, status) in [
            (ProxyError::downstream(Kind::Head(HeadError::Syntax)), Some(400)),
            (ProxyError::upstream(Kind::Head(HeadError::Syntax)), Some(502)),
            (ProxyError::downstream(Kind::Head(HeadError::HeadTooLarge)), Some(431)),
            (ProxyError::upstream(Kind::Head(HeadError::HeadTooLarge)), Some(502)),
            (ProxyError::downstream(Kind::BodyStalled), Some(408)),
            (ProxyError::upstream(Kind::HeadTimeout), Some(504)),
            (ProxyError::downstream(Kind::Body(BodyError::Truncated)), None),
            (ProxyError::downstream(Kind::Body(BodyError::Chunk)), Some(400)),
            (ProxyError::upstream(Kind::Body(BodyError::Chunk)), Some(502)),
            (ProxyError::internal(Kind::NoRoute), Some(404)),
            (ProxyError::internal(Kind::InvalidBackend), Some(500)),
            (ProxyError::internal(Kind::Misdirected), Some(421)),
            (ProxyError::internal(Kind::NoEndpoint), Some(503)),
        ] {
            assert_eq!(error.status(), status, "{error}");
        }
    }
}
