//! What is read, and the defaults that the API server would fill in. Bad input is in the modules below.

mod fields;
mod syntax;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use expect_test::{Expect, expect};
use sha2::{Digest as _, Sha256};

use super::load::{self, Content};
use crate::api::Object;

const GATEWAY: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: g
spec:
  gatewayClassName: gateway-agent
  listeners:
  - name: http
    port: 80
    protocol: HTTP
";

const ROUTE: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: r
spec:
  parentRefs:
  - name: g
  rules:
  - matches:
    - path:
        value: /a
    backendRefs:
    - name: s
      port: 80
";

const SERVICE: &str = "\
apiVersion: v1
kind: Service
metadata:
  name: s
spec:
  ports:
  - port: 80
";

fn read(file: &str, bytes: &[u8]) -> Result<Content, String> {
    load::parse(&Arc::from(file), bytes).map_err(|finding| finding.to_string())
}

fn findings(file: &str, bytes: &[u8]) -> String {
    match read(file, bytes) {
        Ok(content) => content.findings.iter().map(|finding| format!("{finding}\n")).collect(),
        Err(finding) => finding + "\n",
    }
}

fn check(yaml: &str, expected: Expect) {
    expected.assert_eq(&findings("m.yaml", yaml.as_bytes()));
}

/// `base` with one piece of it replaced.
fn check_edit(base: &str, old: &str, new: &str, expected: Expect) {
    assert!(base.contains(old), "{old:?} is in the manifest");
    check(&base.replacen(old, new, 1), expected);
}

/// The findings of several edits, each made on its own.
fn check_edits(base: &str, edits: &[(&str, &str)], expected: Expect) {
    let edited = edits.iter().map(|(old, new)| {
        assert!(base.contains(old), "{old:?} is in the manifest");
        findings("m.yaml", base.replacen(old, new, 1).as_bytes())
    });
    expected.assert_eq(&edited.collect::<String>());
}

fn object(yaml: &str) -> Object {
    let content = read("m.yaml", yaml.as_bytes()).expect("the file parses");
    let findings: Vec<_> = content.findings.iter().map(ToString::to_string).collect();
    assert_eq!(findings, Vec::<String>::new());
    content.entries.into_iter().next().and_then(|entry| entry.object).expect("one good object")
}

#[test]
fn good_objects_give_no_findings() {
    check(&format!("{GATEWAY}---\n{ROUTE}---\n{SERVICE}"), expect![""]);
}

#[test]
fn unknown_kinds_and_versions_are_errors() {
    check_edit(
        ROUTE,
        "HTTPRoute",
        "HTTPRouet",
        expect![[r#"
        m.yaml:2: document 1: kind: unknown kind "HTTPRouet"; did you mean HTTPRoute?
    "#]],
    );
    check_edit(
        ROUTE,
        "HTTPRoute",
        "Ingress",
        expect![[r#"
        m.yaml:2: document 1: kind: unknown kind "Ingress" of "gateway.networking.k8s.io/v1"
    "#]],
    );
    check_edit(
        ROUTE,
        "/v1",
        "/v1alpha2",
        expect![[r#"
        m.yaml:1: document 1: apiVersion: "gateway.networking.k8s.io/v1alpha2" does not serve HTTPRoute; use gateway.networking.k8s.io/v1 or gateway.networking.k8s.io/v1beta1
    "#]],
    );
    check_edit(
        SERVICE,
        "apiVersion: v1\n",
        "",
        expect![[r#"
        m.yaml:1: document 1: apiVersion: required, but missing
    "#]],
    );
    check_edit(
        SERVICE,
        "kind: Service",
        "kind: [Service]",
        expect![[r#"
        m.yaml:2: document 1: kind: expected string, found a list
    "#]],
    );
    check_edit(
        SERVICE,
        "kind: Service",
        "kind: on",
        expect![[r#"
        m.yaml:2: document 1: kind: expected string, found the boolean true
    "#]],
    );
    check(
        "just text\n",
        expect![[r#"
        m.yaml:1: document 1: expected an object with apiVersion and kind, found the text "just text"
    "#]],
    );
    check(
        "- a\n",
        expect![[r#"
        m.yaml:1: document 1: expected an object with apiVersion and kind, found a list
    "#]],
    );
}

#[test]
fn known_kinds_without_use_are_warnings() {
    check(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: c}\n",
        expect![[r#"
        m.yaml:2: document 1: kind: warning: GatewayClass is not needed: classes are named by --gateway-class-name
    "#]],
    );
    check(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: c}\n",
        expect![[r#"
        m.yaml:2: document 1: kind: warning: Deployment is not used without a cluster
    "#]],
    );
}

#[test]
fn lists_are_taken_apart() {
    let items = SERVICE.replace("80", "0").replace("\n", "\n  ");
    check(
        &format!("apiVersion: v1\nkind: List\nitems:\n- {items}\n"),
        expect![[r#"
        m.yaml:10: document 1: items[0].spec.ports[0].port: 0 is not a port: 1 to 65535
    "#]],
    );
    check(
        "apiVersion: v1\nkind: List\nitems: 1\n",
        expect![[r#"
        m.yaml:3: document 1: items: expected a list
    "#]],
    );
    check("apiVersion: v1\nkind: List\n", expect![""]);
    check(
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n",
        expect![[r#"
        m.yaml:5: document 1: items[0].kind: unknown kind "List" of "v1"
    "#]],
    );
}

#[test]
fn defaults_are_those_of_the_api_server() {
    let Object::HttpRoute(route) = object(&ROUTE.replace("  parentRefs", "  hostnames: null\n  parentRefs"))
    else {
        panic!("an HTTPRoute")
    };
    expect![[r#"{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"r","namespace":"default"},"spec":{"parentRefs":[{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"g"}],"rules":[{"backendRefs":[{"group":"","kind":"Service","name":"s","port":80,"weight":1}],"matches":[{"path":{"type":"PathPrefix","value":"/a"}}]}]}}"#]].assert_eq(&serde_json::to_string(&route).expect("it is JSON"));
    let Object::Gateway(gateway) = object(GATEWAY) else { panic!("a Gateway") };
    expect![[r#"{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{"name":"g","namespace":"default"},"spec":{"gatewayClassName":"gateway-agent","listeners":[{"allowedRoutes":{"namespaces":{"from":"Same"}},"name":"http","port":80,"protocol":"HTTP"}]}}"#]].assert_eq(&serde_json::to_string(&gateway).expect("it is JSON"));
    let Object::Service(service) = object(SERVICE) else { panic!("a Service") };
    expect![[r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","namespace":"default"},"spec":{"ports":[{"port":80,"protocol":"TCP","targetPort":80}],"type":"ClusterIP"}}"#]].assert_eq(&serde_json::to_string(&service).expect("it is JSON"));
    let secret =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: eA==, b: eQ==}\nstringData: {a: z}\n";
    let Object::Secret(secret) = object(secret) else { panic!("a Secret") };
    expect![[r#"{"apiVersion":"v1","kind":"Secret","data":{"a":"eg==","b":"eQ=="},"metadata":{"name":"s","namespace":"default"},"type":"Opaque"}"#]].assert_eq(&serde_json::to_string(&secret).expect("it is JSON"));
}

#[test]
fn status_is_dropped_unread() {
    let Object::Gateway(gateway) = object(&format!("{GATEWAY}status: {{anything: 1}}\n")) else {
        panic!("a Gateway")
    };
    assert_eq!(gateway.status, None);
}

#[test]
fn v1beta1_is_read_as_v1() {
    let Object::HttpRoute(_) = object(&ROUTE.replace("/v1", "/v1beta1")) else { panic!("an HTTPRoute") };
}

#[test]
fn generated_files_are_those_of_the_lock_file() {
    let agent = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lock = fs::read(agent.join("schemas/lock.json")).expect("a lock file");
    let lock: serde_json::Value = serde_json::from_slice(&lock).expect("the lock file is JSON");
    let generated = lock["generated"].as_object().expect("it names the files");
    assert_eq!(generated.len(), 18);
    for (file, expected) in generated {
        let content = fs::read(agent.join(file)).expect("a generated file");
        let hash: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(*expected, hash, "{file} differs from what was generated: run cargo xtask codegen");
        if file.ends_with(".rs") {
            let version =
                lock["generator"].as_str().expect("it names the generator").replace(' ', " version: ");
            let text = String::from_utf8(content).expect("source is text");
            assert!(text.lines().nth(1).is_some_and(|line| line == format!("// {version}")), "{file}");
            assert!(!text.contains("kopium command"), "{file} names a path of the machine it was made on");
        }
    }
}

#[test]
fn every_manifest_for_a_folder_is_read_without_findings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // The rest of `deploy` is for a cluster.
    let mut pending = vec![root.join("deploy/quickstart"), root.join("tests/fixtures")];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending
                .extend(fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            let bytes = fs::read(&path).expect("a file");
            assert_eq!(findings(&path.display().to_string(), &bytes), "");
        }
    }
}
