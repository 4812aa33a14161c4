//! The header lines of a redirect.

use super::super::h1::RequestHead;
use super::super::h1::encode::field;
use crate::snapshot::{Cors, Filters, HttpVirtualListener, Redirect};

/// Fields that the answer has anyway.
const OWN_FIELDS: [&str; 3] = ["content-type", "date", "location"];

/// Appends `Location` and what the filters add. `local`: the address that was connected to, for clients that name no
/// host.
pub(super) fn lines(
    redirect: &Redirect,
    filters: &Filters,
    listener: &HttpVirtualListener,
    (request, head): (&RequestHead, &[u8]),
    local: &str,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"Location: ");
    let asked = Asked { host: request.host(), path: request.path(head), query: request.query(head) };
    location(redirect, listener, asked, local, out);
    out.extend_from_slice(b"\r\n");
    for (name, value) in further(filters) {
        field(out, name, value.as_bytes());
    }
}

/// What of a request its redirect depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// Empty: the client named none.
    pub(super) host: &'a str,
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
}

/// Appends where the redirect leads to.
pub(super) fn location(
    redirect: &Redirect,
    listener: &HttpVirtualListener,
    asked: Asked<'_>,
    local: &str,
    out: &mut Vec<u8>,
) {
    let scheme = redirect.scheme.unwrap_or(listener.scheme);
    let host = match &redirect.hostname {
        Some(hostname) => hostname,
        None if asked.host.is_empty() => local.rsplit_once(':').map_or(local, |(address, _)| address),
        None => asked.host,
    };
    for part in [scheme.as_str(), "://", host] {
        out.extend_from_slice(part.as_bytes());
    }
    if let Some(port) = redirect.target_port((listener.scheme, listener.port)) {
        out.push(b':');
        append_number(port, out);
    }
    match &redirect.path {
        Some(change) => change.append(asked.path, out),
        None => out.extend_from_slice(asked.path.as_bytes()),
    }
    if let Some(query) = asked.query {
        out.push(b'?');
        out.extend_from_slice(query.as_bytes());
    }
}

/// The fields that header filters give to a redirect; not those that CORS says.
pub(super) fn further(filters: &Filters) -> impl Iterator<Item = (&str, &str)> {
    let is_own =
        |name: &str| OWN_FIELDS.contains(&name) || (filters.cors.is_some() && Cors::owns(name.as_bytes()));
    let free = filters.headers.response.iter().filter(move |change| !is_own(&change.name));
    free.flat_map(|change| change.values.iter().map(|value| (&*change.name, &**value)))
}

fn append_number(number: u16, out: &mut Vec<u8>) {
    let digits = [10_000, 1_000, 100, 10, 1].map(|divisor| number / divisor % 10);
    let leading = digits.iter().take_while(|digit| **digit == 0).count().min(digits.len() - 1);
    // A digit is below 10.
    out.extend(digits.iter().skip(leading).map(|digit| b'0' + u8::try_from(*digit).unwrap_or(0)));
}

#[cfg(test)]
mod tests {
    use super::{append_number, lines};
    use crate::proxy::h1::{RequestHead, Scanner};
    use crate::snapshot::{
        Filters, HeaderChanges, HostTable, HttpVirtualListener, ListenerName, ObjectName, PathChange,
        Redirect, Scheme,
    };

    fn listener(scheme: Scheme, port: u16) -> HttpVirtualListener {
        let gateway = ObjectName::new("ns", "gw");
        let name = ListenerName::of_gateway(&gateway, &"web".into());
        let (hosts, grpc) = (HostTable::default(), HostTable::default());
        let provenance = Default::default();
        HttpVirtualListener { name, port, scheme, client_certificate: None, provenance, hosts, grpc }
    }

    fn location(redirect: &Redirect, listener: &HttpVirtualListener, message: &str) -> String {
        let place = Scanner::request().scan(message.as_bytes()).unwrap().unwrap();
        let mut head = RequestHead::default();
        head.parse(&message.as_bytes()[place]).unwrap();
        let mut out = Vec::new();
        lines(
            redirect,
            &Filters::default(),
            listener,
            (&head, message.as_bytes()),
            "192.0.2.1:8080",
            &mut out,
        );
        String::from_utf8(out).unwrap()
    }

    const PLAIN: Redirect = Redirect { status: 302, scheme: None, hostname: None, port: None, path: None };

    // O37
    #[test]
    fn what_the_filter_leaves_out_is_the_requests() {
        let get = |target: &str, host: &str| format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let to_https = Redirect { scheme: Some(Scheme::Https), ..PLAIN };
        let to_host = Redirect { hostname: Some("b.example".into()), port: Some(8443), ..to_https.clone() };
        let replaced = |path| Redirect { path: Some(path), ..PLAIN };
        let full = replaced(PathChange::Full("/new".into()));
        let prefix = replaced(PathChange::Prefix { matched: "/a".into(), replacement: "/x".into() });
        let web = listener(Scheme::Http, 80);
        for (redirect, listener, message, expected) in [
            (&PLAIN, &web, get("/a/b?c=d", "A.example:80"), "http://a.example/a/b?c=d"),
            (&PLAIN, &listener(Scheme::Http, 8080), get("/", "a:1234"), "http://a:8080/"),
            (&PLAIN, &listener(Scheme::Https, 443), get("/", "a"), "https://a/"),
            (&to_https, &listener(Scheme::Http, 8080), get("/a", "a:8080"), "https://a/a"),
            (&to_https, &web, get("/a", "a:80"), "https://a/a"),
            (&to_host, &web, get("/?q", "a"), "https://b.example:8443/?q"),
            (&full, &web, get("/a/b?c", "a"), "http://a/new?c"),
            (&prefix, &web, get("/a/b?c", "a"), "http://a/x/b?c"),
            (&prefix, &web, get("/a", "[2001:db8::1]:80"), "http://[2001:db8::1]/x"),
            (&PLAIN, &web, get("/%61/../b%20c", "a"), "http://a/b%20c"),
            (&PLAIN, &web, "GET /a HTTP/1.0\r\n\r\n".to_owned(), "http://192.0.2.1/a"),
        ] {
            let expected = format!("Location: {expected}\r\n");
            assert_eq!(location(redirect, listener, &message), expected, "{message}");
        }
    }

    #[test]
    fn response_filters_add_to_a_redirect_and_leave_its_target() {
        let message = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let mut head = RequestHead::default();
        head.parse(message.as_bytes()).unwrap();
        let set = [("Strict-Transport-Security", "max-age=1"), ("Location", "http://evil")];
        let changes = HeaderChanges::new(["x"], set, [("x-a", "1"), ("x-a", "2")]).unwrap();
        let mut out = Vec::new();
        let web = listener(Scheme::Http, 80);
        let mut filters = Filters::default();
        filters.headers.response = changes;
        lines(&PLAIN, &filters, &web, (&head, message.as_bytes()), "192.0.2.1:80", &mut out);
        let expected = "Location: http://a/\r\nstrict-transport-security: max-age=1\r\nx-a: 1\r\nx-a: 2\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn numbers_have_no_leading_zeros() {
        for number in [0, 7, 80, 443, 8080, 65535] {
            let mut out = Vec::new();
            append_number(number, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }
}
