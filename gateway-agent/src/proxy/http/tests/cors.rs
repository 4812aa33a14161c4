//! Cross-origin requests.

use super::*;
use crate::snapshot::{Cors, CorsSpec, Filters, HeaderChanges, MessageHeaders, Redirect};

fn shared_with(origin: &str, action: HttpAction) -> HttpMatch {
    let spec = CorsSpec {
        origins: &[origin.to_owned()],
        methods: &["GET".to_owned(), "PUT".to_owned()],
        allows_credentials: true,
        ..CorsSpec::default()
    };
    let mut found = prefix("", action);
    let filters = filters(&mut found.rule);
    filters.cors = Some(Arc::new(Cors::new(spec).unwrap()));
    let response = HeaderChanges::new([], [("Access-Control-Allow-Origin", "*"), ("X-A", "1")], []).unwrap();
    filters.headers = MessageHeaders { request: HeaderChanges::default(), response };
    found
}

fn preflight(origin: &str) -> String {
    format!(
        "OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: PUT\r\n\
         Connection: close\r\n\r\n"
    )
}

fn get(origin: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\nOrigin: {origin}\r\nConnection: close\r\n\r\n")
}

#[test]
fn preflight_is_answered_without_a_server() {
    run(async |lab| {
        let (address, requests, _) = canned(OK).await;
        lab.publish(None, vec![shared_with("https://*.example", forward(&[address]))]);
        let expected = "HTTP/1.1 204 No Content\r\nVary: Origin\r\n\
                        Access-Control-Allow-Origin: https://a.example\r\n\
                        Access-Control-Allow-Credentials: true\r\n\
                        Access-Control-Allow-Methods: GET, PUT\r\nAccess-Control-Max-Age: 5\r\n\
                        Vary: Access-Control-Request-Method, Access-Control-Request-Headers\r\n\
                        Connection: close\r\n\r\n";
        assert_eq!(lab.ask(&preflight("https://a.example")).await, expected);
        let refused = lab.ask(&preflight("https://evil.test")).await;
        assert!(
            refused.starts_with("HTTP/1.1 403") && !refused.contains("Access-Control-Allow"),
            "{refused}"
        );
        assert!(requests.borrow().is_empty());
        // Not a preflight.
        let plain = "OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: https://a.example\r\nConnection: close\r\n\r\n";
        assert!(lab.ask(plain).await.starts_with("HTTP/1.1 200"));
        assert_eq!(requests.borrow().len(), 1);
    });
}

#[test]
fn answers_say_what_the_filter_says_and_nothing_else_of_it() {
    run(async |lab| {
        let answer = "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Max-Age: 1\r\n\
                      Content-Length: 2\r\n\r\nok";
        let (address, ..) = canned(answer).await;
        lab.publish(None, vec![shared_with("https://a.example", forward(&[address]))]);
        let allowed = lab.ask(&get("https://a.example")).await;
        let expected = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-a: 1\r\nVary: Origin\r\n\
                        Access-Control-Allow-Origin: https://a.example\r\n\
                        Access-Control-Allow-Credentials: true\r\nConnection: close\r\n\r\nok";
        assert_eq!(allowed, expected);
        let other = lab.ask(&get("https://evil.test")).await;
        assert!(other.ends_with("ok") && !other.contains("Access-Control"), "{other}");
    });
}

#[test]
fn browser_is_shown_redirects_and_errors_of_the_proxy_too() {
    run(async |lab| {
        let redirect =
            Redirect { status: 302, scheme: None, hostname: Some("b".into()), port: None, path: None };
        let allowed = "Access-Control-Allow-Origin: https://a.example\r\n";
        lab.publish(None, vec![shared_with("https://a.example", HttpAction::Redirect(Arc::new(redirect)))]);
        let answer = lab.ask(&get("https://a.example")).await;
        assert!(answer.contains("Location: http://b/\r\n") && answer.contains(allowed), "{answer}");
        assert_eq!(answer.to_ascii_lowercase().matches("access-control-allow-origin").count(), 1);
        lab.publish(None, vec![shared_with("https://a.example", forward(&[]))]);
        let answer = lab.ask(&get("https://a.example")).await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains(allowed), "{answer}");
        lab.publish(None, vec![shared_with("https://a.example", forward(&[refusing().await]))]);
        let answer = lab.ask(&get("https://a.example")).await;
        assert!(answer.starts_with("HTTP/1.1 502") && answer.contains(allowed), "{answer}");
    });
}

#[test]
fn backend_may_redirect_its_share() {
    run(async |lab| {
        let (address, ..) = canned(OK).await;
        let mut backend = endpoints(1, &[address]);
        let redirect =
            Redirect { status: 307, scheme: None, hostname: Some("b".into()), port: None, path: None };
        let filters = Filters { redirect: Some(Arc::new(redirect)), ..Filters::default() };
        backend.filters = Some(Arc::new(filters));
        let split = Split::new(vec![endpoints(1, &[address]), backend]);
        lab.publish(None, vec![prefix("", HttpAction::Forward(split))]);
        let mut statuses = Vec::new();
        for _ in 0..2 {
            statuses.push(lab.ask(&get("x")).await[9..12].to_owned());
        }
        statuses.sort();
        assert_eq!(statuses, ["200", "307"]);
    });
}
