//! What servers are told of where a request comes from, and by what it is known.

use super::http2::{ask, get, open};
use super::http2_servers::mirror;
use super::*;
use crate::snapshot::{ForwardedStyle, HeaderMatch, Provenance};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn trusting() -> Provenance {
    Provenance { trusted: ["127.0.0.0/8".parse().unwrap()].into(), ..Provenance::default() }
}

fn publish(lab: &Lab, provenance: Provenance, matches: Vec<HttpMatch>) {
    let mut hosts = HostTable::default();
    hosts.insert(None, Arc::new(VirtualHost::new(matches)));
    lab.publish_listener(HttpVirtualListener { provenance: Arc::new(provenance), ..virtual_listener(hosts) });
}

/// What a server gets of a request with `fields`, from the first that is said of the client on.
async fn told(lab: &Lab, provenance: Provenance, fields: &str) -> String {
    let (address, requests, _) = canned(OK).await;
    publish(lab, provenance, vec![prefix("", forward(&[address]))]);
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
    assert!(lab.ask(&request).await.contains(" 200 "));
    let seen = requests.borrow()[0].clone();
    seen.strip_prefix("GET / HTTP/1.1\r\nHost: a\r\n").unwrap().to_owned()
}

fn trace(parent: &str, states: &[&str]) -> String {
    let states: String = states.iter().map(|state| format!("tracestate: {state}\r\n")).collect();
    format!("traceparent: {parent}\r\n{states}")
}

#[test]
fn nothing_is_believed_of_a_client_unless_it_is_said_so() {
    run(async |lab| {
        let own = "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\n\
                   X-Forwarded-Port: 80\r\n";
        let fields = format!(
            "X-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Request-Id: mine\r\n{}",
            trace(&format!("00-{TRACE}-00f067aa0ba902b7-01"), &["a=1"])
        );
        let seen = told(lab, Provenance::default(), &fields).await;
        let id = seen.strip_prefix(own).unwrap().strip_prefix("X-Request-Id: ").unwrap();
        assert!(id.len() == 36 && id.ends_with("\r\n\r\n") && id != "mine", "{seen}");
        let stranger = Provenance { trusted: ["10.0.0.0/8".parse().unwrap()].into(), ..trusting() };
        assert!(told(lab, stranger, &fields).await.starts_with(own));
    });
}

#[test]
fn a_trusted_client_is_believed_and_added_to() {
    run(async |lab| {
        let fields = "X-Forwarded-For: 203.0.113.7\r\nForwarded: for=203.0.113.7\r\nX-Forwarded-Proto: https\r\n\
                      X-Request-Id: mine\r\n";
        let rest = "X-Forwarded-Host: a\r\nX-Forwarded-Port: 80\r\n";
        assert_eq!(
            told(lab, trusting(), fields).await,
            format!(
                "X-Forwarded-For: 203.0.113.7, 127.0.0.1\r\nX-Forwarded-Proto: https\r\n{rest}X-Request-Id: mine\r\n\r\n"
            )
        );
        let standard = Provenance { style: ForwardedStyle::Forwarded, ..trusting() };
        assert_eq!(
            told(lab, standard, fields).await,
            "Forwarded: for=203.0.113.7, for=127.0.0.1;host=a;proto=http\r\nX-Request-Id: mine\r\n\r\n"
        );
    });
}

#[test]
fn a_trace_context_passes_as_it_came_or_not_at_all() {
    run(async |lab| {
        let good = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let whole = trace(&good, &["a=1", "b=2"]);
        let anybody = Provenance { keeps_all_traces: true, ..Provenance::default() };
        for (provenance, fields, kept) in [
            (trusting(), &whole, &*whole),
            (anybody.clone(), &whole, &whole),
            (Provenance::default(), &whole, ""),
            (anybody.clone(), &trace(&good, &["a=1", "A=2"]), &trace(&good, &[])),
            (anybody.clone(), &trace(&good.to_uppercase(), &["a=1"]), ""),
            (anybody.clone(), &format!("{}{}", trace(&good, &[]), trace(&good, &["a=1"])), ""),
            (anybody, &"tracestate: a=1\r\n".to_owned(), ""),
        ] {
            let seen = told(lab, provenance, fields).await;
            let (before, _) = seen.split_once("X-Forwarded-For").unwrap();
            assert_eq!(before, kept, "{fields}");
        }
    });
}

#[test]
fn answers_tell_the_id_where_it_is_said_so() {
    run(async |lab| {
        let answer = "HTTP/1.1 200 OK\r\nX-Request-Id: of the server\r\nContent-Length: 2\r\n\r\nok";
        let (address, ..) = canned(answer).await;
        let matches = || vec![prefix("/a", forward(&[address]))];
        let request = |path| {
            format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\nConnection: close\r\n\r\n")
        };
        publish(lab, trusting(), matches());
        assert!(lab.ask(&request("/a")).await.contains("X-Request-Id: of the server\r\n"));
        assert!(!lab.ask(&request("/")).await.contains("X-Request-Id"));
        publish(lab, Provenance { tells_request_id: true, ..trusting() }, matches());
        for path in ["/a", "/"] {
            let answer = lab.ask(&request(path)).await;
            assert!(answer.contains("\r\nX-Request-Id: mine\r\n"), "{answer}");
            assert_eq!(answer.matches("X-Request-Id").count(), 1, "{answer}");
        }
        let mut client = open(lab).await;
        for path in ["/a", "/"] {
            let mut asked = get(path);
            asked.headers_mut().insert("x-request-id", "mine".parse().unwrap());
            let (head, ..) = ask(&mut client, asked).await;
            let ids: Vec<_> = head.headers().get_all("x-request-id").iter().collect();
            assert_eq!(ids, ["mine"], "{path}");
        }
    });
}

#[test]
fn the_other_version_is_told_the_same() {
    run(async |lab| {
        let (address, _) = mirror().await;
        let set = |action: HttpAction| match action {
            HttpAction::Forward(split) => {
                let mut backends = split.backends.to_vec();
                for one in &mut backends {
                    if let Backend::Endpoints(set) = &mut one.backend {
                        let old = (**set).clone();
                        *set = Arc::new(EndpointSet { protocol: BackendProtocol::Http2, ..old });
                    }
                }
                HttpAction::Forward(Split::new(backends))
            }
            other => other,
        };
        let matches = vec![prefix("", set(forward(&[address])))];
        publish(lab, Provenance { style: ForwardedStyle::Both, ..trusting() }, matches);
        let mut client = open(lab).await;
        let mut request = get("/");
        let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        for (name, value) in [
            ("x-forwarded-for", "203.0.113.7"),
            ("forwarded", "for=203.0.113.7"),
            ("x-forwarded-prefix", "/shop"),
            ("traceparent", &parent),
            ("tracestate", "bad"),
        ] {
            request.headers_mut().append(name, value.parse().unwrap());
        }
        let (_, text, _) = ask(&mut client, request).await;
        for line in [
            "x-forwarded-for: 203.0.113.7, 127.0.0.1\n",
            "forwarded: for=203.0.113.7, for=127.0.0.1;host=a.example;proto=http\n",
            "x-forwarded-prefix: /shop\n",
            &format!("traceparent: {parent}\n"),
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(!text.contains("tracestate"), "{text}");
    });
}

#[test]
fn routes_match_what_trusted_clients_say_and_nothing_that_others_say() {
    run(async |lab| {
        let header = HeaderMatch { name: "x-forwarded-proto".into(), value: "https".into() };
        let matched = || {
            let mut found = prefix("", forward(&[]));
            Arc::make_mut(&mut found.conditions).headers = [header.clone()].into();
            found
        };
        let request = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\nConnection: close\r\n\r\n";
        publish(lab, Provenance::default(), vec![matched()]);
        assert!(lab.ask(request).await.contains(" 404 "));
        publish(lab, trusting(), vec![matched()]);
        assert!(lab.ask(request).await.contains(" 503 "));
        let mut client = open(lab).await;
        let mut asked = get("/");
        asked.headers_mut().insert("x-forwarded-proto", "https".parse().unwrap());
        assert_eq!(ask(&mut client, asked.clone()).await.0.status(), 503);
        publish(lab, Provenance::default(), vec![matched()]);
        assert_eq!(ask(&mut client, asked).await.0.status(), 404);
    });
}
