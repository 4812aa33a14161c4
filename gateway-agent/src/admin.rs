//! The admin server: `/livez`, `/readyz`, `/metrics`, `/snapshot`. Reads only; nothing can be changed here.
//!
//! It runs on the control runtime, apart from the workers: a busy scrape costs no client anything. What it tells comes
//! from a [`Source`], so that this module knows HTTP and nothing else.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Kubelet's probes, a Prometheus or two and a person: more than that at once is a mistake or an attack.
const MAX_CONNECTIONS: usize = 32;

/// A client on the same node sends its head at once; a silent one gives its place back.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a whole connection may live: keep-alive scrapes reconnect, a client that reads nothing is dropped.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);

/// How long to wait when a connection cannot be accepted (descriptors exhausted), instead of spinning.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(200);

/// What the server tells.
pub trait Source {
    /// `Err` says what is missing: no snapshot in force yet, or draining.
    fn ready(&self) -> Result<(), &'static str>;
    /// The text for Prometheus.
    fn metrics(&self) -> String;
    /// What is served and how, as JSON.
    fn snapshot(&self) -> serde_json::Value;
}

/// Binds the admin address. `[::]` falls back to `0.0.0.0` where the kernel has no IPv6.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error)
            if address.ip() == Ipv6Addr::UNSPECIFIED && error.raw_os_error() == Some(libc::EAFNOSUPPORT) =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        result => result,
    }
}

/// Serves until dropped. Must run inside a `LocalSet`.
pub async fn serve(listener: TcpListener, source: Rc<dyn Source>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept an admin connection");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
                continue;
            }
        };
        let source = source.clone();
        tokio::task::spawn_local(async move {
            let service = service_fn(move |request| {
                let response = answer(&request, &*source);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            if let Ok(Err(error)) = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
                tracing::debug!(%error, "admin connection failed");
            }
            drop(place);
        });
    }
}

fn answer<B>(request: &Request<B>, source: &dyn Source) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".into());
        response.headers_mut().insert(ALLOW, http::HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/livez" => text(StatusCode::OK, "ok\n".into()),
        "/readyz" => match source.ready() {
            Ok(()) => text(StatusCode::OK, "ok\n".into()),
            Err(missing) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{missing}\n")),
        },
        "/metrics" => typed(
            StatusCode::OK,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            source.metrics(),
        ),
        "/snapshot" => typed(StatusCode::OK, "application/json", format!("{:#}\n", source.snapshot())),
        _ => text(StatusCode::NOT_FOUND, "try /livez, /readyz, /metrics or /snapshot\n".into()),
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", body)
}

fn typed(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use http::{Request, StatusCode};

    use super::{Source, answer};

    struct Fixed(Result<(), &'static str>);

    impl Source for Fixed {
        fn ready(&self) -> Result<(), &'static str> {
            self.0
        }
        fn metrics(&self) -> String {
            "# EOF\n".into()
        }
        fn snapshot(&self) -> serde_json::Value {
            serde_json::json!({"revision": 1})
        }
    }

    fn status(method: &str, path: &str, source: &Fixed) -> StatusCode {
        let request = Request::builder().method(method).uri(path).body(()).expect("a valid request");
        answer(&request, source).status()
    }

    #[test]
    fn liveness_does_not_depend_on_readiness() {
        let not_ready = Fixed(Err("no snapshot yet"));
        assert_eq!(status("GET", "/livez", &not_ready), StatusCode::OK);
        assert_eq!(status("GET", "/readyz", &not_ready), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status("GET", "/readyz", &Fixed(Ok(()))), StatusCode::OK);
    }

    #[test]
    fn nothing_can_be_changed() {
        let ready = Fixed(Ok(()));
        assert_eq!(status("POST", "/snapshot", &ready), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(status("DELETE", "/metrics", &ready), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(status("GET", "/", &ready), StatusCode::NOT_FOUND);
    }
}
