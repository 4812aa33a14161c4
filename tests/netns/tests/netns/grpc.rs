//! gRPC with grpcurl as client and grpc-go as server.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use lab::manifests::{service, write};
use lab::{Agent, AgentOptions, Datapath, Family, Lab, Process, eventually, suites};

use crate::bed::{both, on_each_datapath, routed};
use crate::https::serve_in_clear_and_by_tls;

const GRPC: u16 = 9000;

/// The test service, in part with a mirror; reflection by expressions; a service without endpoints.
const ROUTES: &str = r#"
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: calls}
spec:
  parentRefs: [{name: gw}]
  rules:
    - matches:
        - method: {service: grpc.testing.TestService}
        - method: {type: RegularExpression, service: 'grpc\.reflection\..*', method: 'Server.*'}
      backendRefs: [{name: grpc-1, port: 80}]
    - matches: [{method: {service: grpc.testing.TestService, method: EmptyCall}}]
      filters:
        - type: RequestMirror
          requestMirror: {backendRef: {name: grpc-2, port: 80}}
      backendRefs: [{name: grpc-1, port: 80}]
    - matches: [{method: {service: grpc.health.v1.Health}}]
      backendRefs: [{name: empty, port: 80}]
"#;

fn serve(lab: &Lab) -> Result<()> {
    let mut text = ROUTES.to_owned() + &service("empty", "TCP", 80, GRPC, &[]);
    for index in [1, 2] {
        text += &service(&format!("grpc-{index}"), "TCP", 80, GRPC, &both(lab, index));
    }
    serve_in_clear_and_by_tls(lab, &text).map(drop)
}

fn server(lab: &Lab, index: u8) -> Result<Process> {
    let name = format!("grpcd-{index}");
    let address = format!("-address=:{GRPC}");
    lab::Command::new(&name, suites::find("grpcd")?).args([address]).netns(lab.backend(index)).start(lab)
}

/// A way to the gateway.
struct Caller<'a> {
    lab: &'a Lab,
    family: Family,
    is_secure: bool,
}

impl Caller<'_> {
    /// What grpcurl says, also of a call that fails.
    fn call(&self, args: &[&str], method: &str) -> Result<String> {
        let Self { lab, family, is_secure } = *self;
        let address = match lab.gateway_address(family) {
            std::net::IpAddr::V4(v4) => v4.to_string(),
            std::net::IpAddr::V6(v6) => format!("[{v6}]"),
        };
        let address = format!("{address}:{}", if is_secure { 443 } else { 80 });
        let authorities = format!("-cacert={}", lab.folder().join("one.crt").display());
        let security = if is_secure { authorities.as_str() } else { "-plaintext" };
        let mut words = vec!["-v", "-max-time=60", "-authority=one.example.com", security];
        words.extend(args);
        words.extend([address.as_str(), method]);
        let said = lab.client().output(&suites::find("grpcurl")?, &words);
        Ok(said.unwrap_or_else(|error| format!("{error:#}")))
    }

    /// The same of a method of the test service with this data, in which all of `parts` must be.
    fn expect(&self, method: &str, data: &str, parts: &[&str]) -> Result<String> {
        let said = self.call(&["-d", data], &format!("grpc.testing.TestService/{method}"))?;
        check(&said, parts)?;
        Ok(said)
    }
}

fn check(said: &str, parts: &[&str]) -> Result<()> {
    ensure!(parts.iter().all(|part| said.contains(part)), "{parts:?} in {said}");
    Ok(())
}

on_each_datapath!(grpcurl_gets_answers_trailers_and_errors_as_from_the_server_itself);

// O29, O30, O31
fn grpcurl_gets_answers_trailers_and_errors_as_from_the_server_itself(datapath: Datapath) {
    routed(2, |lab| {
        serve(lab)?;
        let _servers = [server(lab, 1)?, server(lab, 2)?];
        // A copy for a server that is not up yet is dropped, and counted for good.
        for index in [1, 2] {
            let to = SocketAddr::new(lab.backend_address(index, Family::V4), GRPC);
            eventually("the server listens", || lab::client::connect(lab.gateway(), to))?;
        }
        let agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        for family in Family::BOTH {
            for is_secure in [false, true] {
                let caller = Caller { lab, family, is_secure };
                // The tool asks the server's reflection for the types of a method before it calls it.
                eventually("the server is up", || {
                    check(&caller.call(&[], "list")?, &["grpc.testing.TestService", "grpc.health.v1.Health"])
                })?;
                answers(&caller)?;
                errors(&caller)?;
            }
        }
        eventually("copies have arrived", || {
            let metrics = agent.metrics()?;
            let n =
                |name: &str| metrics.sum(&format!("gateway_agent_route_{name}_total"), &[("route", "calls")]);
            // One for each of the four turns.
            ensure!((n("mirrored"), n("mirrors_dropped")) == (4.0, 0.0), "{metrics:?}");
            Ok(())
        })
    });
}

fn answers(caller: &Caller<'_>) -> Result<()> {
    caller.expect("EmptyCall", "{}", &["received 1 response"])?;
    let metadata = ["-H", "x-grpc-test-echo-initial: first", "-H", "x-grpc-test-echo-trailing-bin: AQID"];
    let unary = [&metadata[..], &["-d", r#"{"response_size": 5}"#]].concat();
    let said = caller.call(&unary, "grpc.testing.TestService/UnaryCall")?;
    let (head, trailers) = said.split_once("Response trailers received:").with_context(|| said.clone())?;
    check(head, &["Response headers received:", r#""body": "AAAAAAA=""#])?;
    check(
        head.split_once("Response headers received:").map_or("", |(_, rest)| rest),
        &["echo-initial: first"],
    )?;
    check(trailers, &["x-grpc-test-echo-trailing-bin: AQID"])?;
    let sizes = r#"{"response_parameters": [{"size": 1}, {"size": 100000}, {"size": 3}]}"#;
    caller.expect("StreamingOutputCall", sizes, &["Sent 1 request and received 3 responses"])?;
    let uploads = r#"{"payload": {"body": "aGVsbG8="}} {"payload": {"body": "aGVsbG8="}}"#;
    caller.expect("StreamingInputCall", uploads, &[r#""aggregatedPayloadSize": 10"#])?;
    let both = r#"{"response_parameters": [{"size": 1}]} {"response_parameters": [{"size": 2}]}"#;
    caller.expect("FullDuplexCall", both, &["Sent 2 requests and received 2 responses"])?;
    Ok(())
}

fn errors(caller: &Caller<'_>) -> Result<()> {
    let refused = "{\"response_status\": {\"code\": 9, \"message\": \"no 'way' \u{fc} %\"}}";
    caller.expect("UnaryCall", refused, &["Code: FailedPrecondition", "Message: no 'way' \u{fc} %"])?;
    // Of the server: it has the service, and not the method.
    caller.expect("UnimplementedCall", "{}", &["Code: Unimplemented", "not implemented"])?;
    // Of the proxy: the route's Service has no endpoints.
    check(&caller.call(&["-d", "{}"], "grpc.health.v1.Health/Check")?, &["Code: Unavailable"])?;
    let slow = ["-max-time=2", "-d", r#"{"response_parameters": [{"size": 1, "interval_us": 30000000}]}"#];
    // Where the time is up before the tool has asked for the types, it says nothing at all.
    eventually("the call is made in time", || {
        let said = caller.call(&slow, "grpc.testing.TestService/StreamingOutputCall")?;
        check(&said, &["Code: DeadlineExceeded"])
    })
}

/// What no route is for is the proxy's to answer, in the way that a client of gRPC understands.
#[test]
fn call_without_a_route_is_unimplemented() {
    routed(2, |lab| {
        serve(lab)?;
        let _server = server(lab, 1)?;
        let _agent = Agent::start(lab, &AgentOptions::new(Datapath::Userspace))?;
        let caller = Caller { lab, family: Family::V4, is_secure: false };
        eventually("the server is up", || caller.expect("UnaryCall", "{}", &["received 1 response"]))?;
        let text = std::fs::read_to_string(lab.manifests().join("all.yaml"))?;
        let without = text.replacen("service: grpc.testing.TestService}", "service: grpc.testing.Other}", 1);
        ensure!(text != without, "the route is written in another way");
        write(&lab.manifests(), "all.yaml", &without)?;
        eventually("the route is gone", || caller.expect("UnaryCall", "{}", &["Code: Unimplemented"]))?;
        Ok(())
    });
}
