//! What a browser is told.

use super::{Cors, CorsSpec};
use crate::snapshot::RequestView;

struct Request<'a> {
    method: &'a str,
    headers: &'a [(&'a str, &'a str)],
}

impl RequestView for Request<'_> {
    fn path(&self) -> &str {
        "/"
    }

    fn method(&self) -> &str {
        self.method
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes())
    }

    fn query(&self) -> Option<&str> {
        None
    }
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

fn cors(origins: &[&str], allows_credentials: bool, methods: &[&str], headers: &[&str]) -> Cors {
    let spec = CorsSpec {
        origins: &names(origins),
        allows_credentials,
        methods: &names(methods),
        headers: &names(headers),
        ..CorsSpec::default()
    };
    Cors::new(spec).unwrap()
}

/// Without `Vary`.
fn preflight(cors: &Cors, headers: &[(&str, &str)]) -> Option<Vec<String>> {
    let request = Request { method: "OPTIONS", headers };
    assert!(Cors::is_preflight(&request));
    let mut said = Vec::new();
    let is_allowed = cors.preflight(&request, |name, value| {
        if name != "Vary" {
            said.push(format!("{name}: {}", str::from_utf8(value).unwrap()));
        }
    });
    is_allowed.then_some(said)
}

fn answer(cors: &Cors, headers: &[(&str, &str)]) -> Vec<String> {
    let mut said = Vec::new();
    cors.answer(&Request { method: "GET", headers }, |name, value| {
        said.push(format!("{name}: {}", str::from_utf8(value).unwrap()));
    });
    said
}

const ASKING: [(&str, &str); 3] = [
    ("origin", "https://www.foo.com"),
    ("access-control-request-method", "PUT"),
    ("access-control-request-headers", "x-header-1, x-header-2"),
];

#[test]
fn lists_are_said_as_they_are_configured() {
    let spec = CorsSpec {
        origins: &names(&["https://www.foo.com", "https://*.bar.com"]),
        allows_credentials: true,
        methods: &names(&["GET", "OPTIONS"]),
        headers: &names(&["x-header-1", "x-header-2"]),
        exposed: &names(&["x-header-3", "x-header-4"]),
        max_age: Some(3600),
    };
    let cors = Cors::new(spec).unwrap();
    let expected = [
        "Access-Control-Allow-Origin: https://www.foo.com",
        "Access-Control-Allow-Credentials: true",
        "Access-Control-Expose-Headers: x-header-3, x-header-4",
        "Access-Control-Allow-Methods: GET, OPTIONS",
        "Access-Control-Allow-Headers: x-header-1, x-header-2",
        "Access-Control-Max-Age: 3600",
    ];
    assert_eq!(preflight(&cors, &ASKING).unwrap(), expected);
    let refused = [("origin", "https://foobar.com"), ("access-control-request-method", "GET")];
    assert_eq!(preflight(&cors, &refused), None);
    let expected = [
        "Vary: Origin",
        "Access-Control-Allow-Origin: https://xpto.www.bar.com",
        "Access-Control-Allow-Credentials: true",
        "Access-Control-Expose-Headers: x-header-3, x-header-4",
    ];
    assert_eq!(answer(&cors, &[("origin", "https://xpto.www.bar.com")]), expected);
    assert_eq!(answer(&cors, &[("origin", "https://foobar.com")]), ["Vary: Origin"]);
    assert_eq!(answer(&cors, &[]), ["Vary: Origin"]);
}

#[test]
fn asterisks_are_never_said_with_credentials() {
    let cors = cors(&["*"], true, &["*"], &["*"]);
    let expected = [
        "Access-Control-Allow-Origin: https://www.foo.com",
        "Access-Control-Allow-Credentials: true",
        "Access-Control-Allow-Methods: PUT",
        "Access-Control-Allow-Headers: x-header-1, x-header-2",
        "Access-Control-Max-Age: 5",
    ];
    assert_eq!(preflight(&cors, &ASKING).unwrap(), expected);
    // Without `Access-Control-Request-Headers` nothing is said of headers.
    assert_eq!(preflight(&cors, &ASKING[..2]).unwrap().len(), 4);
}

#[test]
fn any_origin_without_credentials_is_an_asterisk() {
    let cors = cors(&["*"], false, &["PUT"], &[]);
    let expected =
        ["Access-Control-Allow-Origin: *", "Access-Control-Allow-Methods: PUT", "Access-Control-Max-Age: 5"];
    assert_eq!(preflight(&cors, &ASKING).unwrap(), expected);
    assert_eq!(answer(&cors, &ASKING), ["Access-Control-Allow-Origin: *"]);
    assert_eq!(answer(&cors, &[("origin", "null")]), ["Access-Control-Allow-Origin: *"]);
}

#[test]
fn origins_match_by_scheme_host_and_port() {
    for (allowed, origin, expected) in [
        ("https://foo.com", "https://foo.com", true),
        ("https://foo.com", "HTTPS://FOO.com:443", true),
        ("https://foo.com:443", "https://foo.com", true),
        ("https://foo.com", "https://foo.com:8443", false),
        ("https://foo.com:8443", "https://foo.com:8443", true),
        ("https://foo.com", "http://foo.com", false),
        ("http://foo.com:443", "https://foo.com", false),
        ("https://foo.com", "https://foo.com.evil.example", false),
        ("https://foo.com", "https://xfoo.com", false),
        ("https://*.bar.com", "https://www.bar.com", true),
        ("https://*.bar.com", "https://a.b.bar.com", true),
        ("https://*.bar.com", "https://bar.com", false),
        ("https://*.bar.com", "https://.bar.com", false),
        ("https://*.bar.com", "https://xbar.com", false),
        ("https://*.bar.com", "https://www.bar.com:444", false),
        ("http://*", "http://anything", true),
        ("http://*", "http://[2001:db8::1]", true),
        ("http://*", "http://", false),
        ("http://*", "null", false),
        ("http://*", "http://a:0", false),
        ("http://*", "http://a:x", false),
        ("http://*:8080", "http://a:8080", true),
    ] {
        let cors = cors(&[allowed], false, &[], &[]);
        let is_allowed = answer(&cors, &[("origin", origin)]).len() > 1;
        assert_eq!(is_allowed, expected, "{allowed} {origin}");
    }
}

#[test]
fn what_cannot_be_an_origin_is_refused() {
    for origin in
        ["foo.com", "ftp://foo.com", "https://", "https://*foo.com", "https://a:99999", "https://a/b"]
    {
        let origins = names(&[origin]);
        assert!(Cors::new(CorsSpec { origins: &origins, ..CorsSpec::default() }).is_err(), "{origin}");
    }
    let bad = names(&["x y"]);
    assert!(Cors::new(CorsSpec { headers: &bad, ..CorsSpec::default() }).is_err());
}

#[test]
fn options_without_what_a_preflight_has_is_none() {
    assert!(!Cors::is_preflight(&Request { method: "OPTIONS", headers: &ASKING[..1] }));
    assert!(!Cors::is_preflight(&Request { method: "OPTIONS", headers: &ASKING[1..] }));
    assert!(!Cors::is_preflight(&Request { method: "GET", headers: &ASKING }));
    assert!(Cors::owns(b"access-control-allow-origin") && Cors::owns(b"Access-Control-Max-Age"));
    assert!(!Cors::owns(b"vary") && !Cors::owns(b"access-control-request-method"));
}
