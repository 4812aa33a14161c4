//! Where one request goes, by the newest snapshot. The same for every version of HTTP: over what routing reads of a
//! request, never over how it came.

use std::net::IpAddr;
use std::sync::Arc;

use super::error::{Kind, ProxyError};
use super::identity::Identity;
use super::record::Ends;
use super::table::Table;
use super::worker::HttpWorker;
use crate::certificate::Certificate;
use crate::proxy::h1::encode::Forwarded;
use crate::proxy::message::grpc;
use crate::snapshot::{
    Backend, BackendSecurity, Cors, EndpointSet, Filters, HttpAction, HttpRule, HttpVirtualListener, Mirror,
    Provenance, Redirect, RequestView,
};

/// The API lets preflights be answered by 200 or 204, and those of other origins by 403.
const PREFLIGHT_ALLOWED: u16 = 204;
const PREFLIGHT_REFUSED: u16 = 403;

/// Where a request goes. Borrows from the table, which is held to the request's end.
pub(super) enum Decision<'t> {
    Answer(u16),
    /// With the filters of the rule or backend whose requests fail.
    Fail(ProxyError, &'t Filters),
    Forward(Target<'t>),
    Redirect(&'t Redirect, &'t Filters),
}

/// The servers behind, and what is done to a request and its answer on the way.
#[derive(Clone, Copy)]
pub(super) struct Target<'t> {
    listener: &'t HttpVirtualListener,
    pub(super) rule: &'t HttpRule,
    pub(super) endpoints: &'t EndpointSet,
    pub(super) filters: &'t Filters,
    /// What endpoints are shown where they are spoken to by TLS.
    pub(super) certificate: Option<&'t Arc<Certificate>>,
    /// Where the backend has filters of its own: its mirrors are not the rule's.
    has_own_filters: bool,
}

/// What the table says of a request.
#[derive(Clone, Copy, Default)]
pub(super) struct Routed<'t> {
    pub(super) listener: Option<&'t Arc<HttpVirtualListener>>,
    pub(super) rule: Option<&'t Arc<HttpRule>>,
    /// What the client says of where the request comes from is believed.
    pub(super) is_trusted: bool,
    failure: Option<Kind>,
}

/// What of a request's version bears on routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    H1,
    H2,
}

/// The listener and the rule for a request. `server_name`: of the handshake, where there was one.
pub(super) fn route<'t, R: RequestView>(
    table: &'t Table,
    (client, server_name): (IpAddr, Option<&str>),
    host: &str,
    (view, version): (&R, Version),
) -> Routed<'t> {
    let routed = match table.listener(server_name, host) {
        Ok(Some(listener)) => {
            let is_trusted = listener.provenance.trusts(client);
            let (rule, failure) = rule(listener, host, &Believing { view, is_trusted }, version);
            Routed { listener: Some(listener), rule, is_trusted, failure }
        }
        Ok(None) => Routed::default(),
        Err(_misdirected) => Routed { failure: Some(Kind::Misdirected), ..Routed::default() },
    };
    let (method, path) = (view.method(), view.path());
    tracing::trace!(method, path, is_routed = routed.rule.is_some(), "request");
    routed
}

/// What routes may match: of where a request comes from, what this proxy believes.
struct Believing<'r, R> {
    view: &'r R,
    is_trusted: bool,
}

impl<R: RequestView> RequestView for Believing<'_, R> {
    fn path(&self) -> &str {
        self.view.path()
    }

    fn method(&self) -> &str {
        self.view.method()
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        let claimed = || self.is_trusted.then(|| self.view.claimed(name)).flatten();
        self.view.header(name).or_else(claimed)
    }

    fn query(&self) -> Option<&str> {
        self.view.query()
    }
}

/// Calls of gRPC go by GRPCRoutes, and by HTTPRoutes where none of those is for them.
fn rule<'t, R: RequestView>(
    listener: &'t HttpVirtualListener,
    host: &str,
    view: &R,
    version: Version,
) -> (Option<&'t Arc<HttpRule>>, Option<Kind>) {
    let is_call = || grpc::is_grpc(view.header("content-type"));
    if version == Version::H2 && is_call() {
        let call = listener.find_call(host, view);
        return (call.or_else(|| listener.find(host, view)), None);
    }
    let rule = listener.find(host, view);
    if rule.is_none() && is_call() && listener.find_call(host, view).is_some() {
        // Its answer would have to end by trailers, which clients of HTTP/1 do not wait for.
        return (None, Some(Kind::NeedsH2));
    }
    (rule, None)
}

impl<'t> Routed<'t> {
    /// Why no server can be asked, whatever the request is.
    pub(super) fn failure(&self) -> Option<ProxyError> {
        let kind = match self.rule {
            None => Some(self.failure.unwrap_or(Kind::NoRoute)),
            Some(rule) => matches!(rule.action, HttpAction::Respond(_)).then_some(Kind::UnservableRule),
        };
        kind.map(ProxyError::internal)
    }

    /// Whether the trace context of this client is passed on.
    pub(super) fn keeps_trace(&self) -> bool {
        self.is_trusted || self.provenance().is_some_and(|provenance| provenance.keeps_all_traces)
    }

    /// Whether the answer tells the request's id.
    pub(super) fn tells_request_id(&self) -> bool {
        self.provenance().is_some_and(|provenance| provenance.tells_request_id)
    }

    fn provenance(&self) -> Option<&'t Provenance> {
        self.listener.map(|listener| &*listener.provenance)
    }

    /// What is to be done. Takes the next share of the rule's backends.
    pub(super) fn decide(self, worker: &HttpWorker) -> Decision<'t> {
        let (Some(listener), Some(rule)) = (self.listener, self.rule) else {
            return Decision::Answer(self.failure().and_then(ProxyError::status).unwrap_or(404));
        };
        let split = match &rule.action {
            HttpAction::Forward(split) => split,
            HttpAction::Redirect(redirect) => return Decision::Redirect(redirect, &rule.filters),
            HttpAction::Respond(status) => return Decision::Answer(*status),
        };
        let mut shares = worker.shares.get();
        let point = shares.next(split.total);
        worker.shares.set(shares);
        let Some(share) = split.pick(point) else {
            return Decision::Fail(ProxyError::internal(Kind::InvalidBackend), &rule.filters);
        };
        let filters = share.filters.as_deref().unwrap_or(&rule.filters);
        match &share.backend {
            Backend::Invalid => Decision::Fail(ProxyError::internal(Kind::InvalidBackend), filters),
            Backend::Endpoints(_) if let Some(redirect) = &filters.redirect => {
                Decision::Redirect(redirect, filters)
            }
            Backend::Endpoints(set) if set.security == BackendSecurity::Refused => {
                Decision::Fail(ProxyError::internal(Kind::InvalidBackend), filters)
            }
            Backend::Endpoints(set) if set.addresses.is_empty() => {
                Decision::Fail(ProxyError::internal(Kind::NoEndpoint), filters)
            }
            Backend::Endpoints(endpoints) => {
                let has_own_filters = share.filters.is_some();
                let certificate = listener.client_certificate.as_ref();
                Decision::Forward(Target { listener, rule, endpoints, filters, certificate, has_own_filters })
            }
        }
    }
}

impl<'t> Decision<'t> {
    /// What CORS makes of it: a preflight is answered here. Gives the fields that the answer has to have to `write`,
    /// whoever answers.
    #[must_use]
    pub(super) fn with_cors<R: RequestView>(self, view: &R, write: impl FnMut(&'static str, &[u8])) -> Self {
        let filters = match &self {
            Self::Answer(_) => return self,
            Self::Fail(_, filters) | Self::Redirect(_, filters) => *filters,
            Self::Forward(target) => target.filters,
        };
        let Some(cors) = &filters.cors else { return self };
        if Cors::is_preflight(view) {
            let is_allowed = cors.preflight(view, write);
            return Self::Answer(if is_allowed { PREFLIGHT_ALLOWED } else { PREFLIGHT_REFUSED });
        }
        cors.answer(view, write);
        self
    }
}

impl<'t> Target<'t> {
    /// What servers are told of the client and its request.
    pub(super) fn forwarded<'a>(&self, ends: Ends<'a>, identity: &'a Identity) -> Forwarded<'a> {
        let Ends { client, local, scheme } = ends;
        let HttpVirtualListener { port, provenance, .. } = self.listener;
        Forwarded {
            client,
            proto: scheme,
            port: *port,
            local,
            request_id: identity.request_id(),
            style: provenance.style,
            is_trusted: identity.is_trusted,
        }
    }

    /// Mirrors that get a copy of this request, each with the filters that its copy has passed.
    pub(super) fn mirrors(&self, worker: &HttpWorker) -> impl Iterator<Item = (&'t Mirror, &'t Filters)> {
        let Self { rule, filters, has_own_filters, .. } = *self;
        // What a backend's filters do is for that backend and its own mirrors alone.
        let of_backend = has_own_filters.then_some(filters);
        let all = [Some(&*rule.filters), of_backend].into_iter().flatten();
        all.flat_map(|filters| filters.mirrors.iter().map(move |mirror| (mirror, filters))).filter(
            |(mirror, _)| {
                let mut random = worker.random.get();
                let is_hit = random.hits(mirror.numerator, mirror.denominator);
                worker.random.set(random);
                is_hit
            },
        )
    }
}
