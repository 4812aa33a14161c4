//! Copies of requests to mirrors, whose answers nobody reads.
//!
//! A mirror can neither delay nor fail the request that it gets a copy of: copies are sent by tasks of their own, a
//! bounded number per worker, each in bounded time; what goes beyond is dropped and counted. A body is sent once all of
//! it has passed to the server that answers, if it was short enough to be kept. Each mirror is spoken to as its Service
//! asks for, whatever the client and the server that answers speak; trailers of requests are not mirrored.

mod body;
mod h1;
mod h2;

use std::rc::Rc;
use std::sync::Arc;

pub(super) use self::body::Sent;
use super::kept::Kept;
use super::limits::{MIRROR_TIMEOUT, MIRRORS_MAX};
use super::upstream;
use super::worker::HttpWorker;
use crate::certificate::Certificate;
use crate::metrics::RouteCells;
use crate::proxy::h1::Framing;
use crate::proxy::h1::encode::Forwarded;
use crate::proxy::h1::request::MethodKind;
use crate::proxy::message::{Request, encode};
use crate::snapshot::{BackendProtocol, EndpointSet, Filters, Mirror};

/// A request that is to be mirrored.
#[derive(Debug)]
pub(super) struct Copy {
    mirrored: Mirrored,
    head: Head,
    /// Of the request.
    framing: Framing,
}

/// Where to, and what of the request bears on how it is answered.
#[derive(Debug)]
struct Mirrored {
    endpoints: Arc<EndpointSet>,
    /// What they are shown where they are spoken to by TLS.
    certificate: Option<Arc<Certificate>>,
    method: MethodKind,
}

/// As it is sent.
#[derive(Debug)]
enum Head {
    H1(Vec<u8>),
    H2(Box<http::Request<()>>),
    /// There is no such request in what the mirror speaks.
    None,
}

impl Copy {
    /// For a mirror that speaks HTTP/1, of a head that is encoded already.
    pub(super) fn encoded(
        mirror: &Mirror,
        certificate: Option<&Arc<Certificate>>,
        bytes: Vec<u8>,
        (method, framing): (MethodKind, Framing),
    ) -> Self {
        let (endpoints, certificate) = (mirror.endpoints.clone(), certificate.cloned());
        Self { mirrored: Mirrored { endpoints, certificate, method }, head: Head::H1(bytes), framing }
    }

    /// For a mirror that speaks either version. `filters`: what the copy has passed.
    pub(super) fn of_message(
        mirror: &Mirror,
        certificate: Option<&Arc<Certificate>>,
        (request, forwarded): (&Request, Forwarded<'_>),
        filters: &Filters,
    ) -> Self {
        let changes = (&filters.rewrite, &*filters.headers.request);
        if mirror.endpoints.protocol == BackendProtocol::Http1 {
            let mut bytes = Vec::new();
            encode::request_to_h1(request, forwarded, changes, &mut bytes);
            return Self::encoded(mirror, certificate, bytes, (request.method_kind, request.framing));
        }
        let scheme = upstream::scheme(&mirror.endpoints);
        let head = match encode::request_to_h2(request, forwarded, changes, scheme) {
            Ok(head) => Head::H2(Box::new(head)),
            Err(_) => Head::None,
        };
        Self {
            head,
            ..Self::encoded(mirror, certificate, Vec::new(), (request.method_kind, request.framing))
        }
    }

    /// For a mirror that does not get one.
    pub(super) fn none(mirror: &Mirror, method: MethodKind) -> Self {
        Self { head: Head::None, ..Self::encoded(mirror, None, Vec::new(), (method, Framing::None)) }
    }
}

/// One place among those that a worker has.
struct Place(Rc<HttpWorker>);

impl Place {
    fn take(worker: &Rc<HttpWorker>) -> Option<Self> {
        let n_taken = worker.n_mirrors.get();
        (n_taken < MIRRORS_MAX).then(|| {
            worker.n_mirrors.set(n_taken + 1);
            Self(worker.clone())
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.n_mirrors.set(self.0.n_mirrors.get().saturating_sub(1));
    }
}

/// Sends all of `copies`. `sent`: what was kept of the request's body, all of which was sent.
pub(super) fn send_all(
    worker: &Rc<HttpWorker>,
    copies: &mut Vec<Copy>,
    sent: Sent<'_>,
    cells: &Arc<RouteCells>,
) {
    for copy in copies.drain(..) {
        let place = Place::take(worker);
        let body = match copy.head {
            Head::H1(_) => sent.for_h1(copy.framing),
            Head::H2(_) => sent.for_h2(copy.framing),
            Head::None => None,
        };
        let (Some(place), Some(body), false) = (place, body, worker.clock.is_stopping()) else {
            cells.mirrors_dropped.add(1);
            continue;
        };
        let cells = cells.clone();
        // Owned by the worker's set of tasks; ends within its time whatever the mirror does.
        tokio::task::spawn_local(async move {
            let sent = tokio::time::timeout(MIRROR_TIMEOUT, send(&place.0, copy, body)).await;
            let counter = if sent == Ok(Some(())) { &cells.mirrored } else { &cells.mirrors_dropped };
            counter.add(1);
        });
    }
}

/// `None`: the mirror could not be reached, or did not answer as it should.
async fn send(worker: &Rc<HttpWorker>, copy: Copy, body: Option<Kept>) -> Option<()> {
    match copy.head {
        Head::H1(bytes) => h1::send(worker, copy.mirrored, bytes, body).await,
        Head::H2(head) => h2::send(worker, copy.mirrored, *head, body).await,
        Head::None => None,
    }
}
