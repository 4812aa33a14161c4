//! Bad input, and the defaults that the API server would fill in.

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
fn malformed_yaml_is_named_by_line_and_document() {
    check(
        &format!("{SERVICE}---\na: [1, 2\nb: 3\n"),
        expect![[r#"
        m.yaml:10: document 2: malformed YAML: illegal placement of ':' indicator
    "#]],
    );
    check(
        "a: b: c\n",
        expect![[r#"
        m.yaml:1: document 1: malformed YAML: mapping values are not allowed in this context
    "#]],
    );
    check(
        "a: 'x\n",
        expect![[r#"
        m.yaml:1: document 1: malformed YAML: while scanning a quoted scalar, found unexpected end of stream
    "#]],
    );
    check(
        "- a\nb: c\n",
        expect![[r#"
        m.yaml:2: document 1: malformed YAML: while parsing a block collection, did not find expected '-' indicator
    "#]],
    );
    check(
        "a: *nowhere\n",
        expect![[r#"
        m.yaml:1: document 1: malformed YAML: while parsing node, found unknown anchor
    "#]],
    );
    check(
        "a: !Ref b\n",
        expect![[r#"
        m.yaml:1: document 1: the tag !Ref is not supported
    "#]],
    );
    check(
        "a: !!set {b}\n",
        expect![[r#"
        m.yaml:1: document 1: apiVersion: required, but missing
        m.yaml:1: document 1: kind: required, but missing
    "#]],
    );
    check(
        "? [a]\n: b\n",
        expect![[r#"
        m.yaml:1: document 1: a key must be text
    "#]],
    );
    check(
        "a: .nan\n",
        expect![[r#"
        m.yaml:1: document 1: .nan has no form in JSON; quote it if it is text
    "#]],
    );
    check(
        "%YAML 9.9\n---\na: b\n",
        expect![[r#"
        m.yaml:3: document 1: apiVersion: required, but missing
        m.yaml:3: document 1: kind: required, but missing
    "#]],
    );
}

#[test]
fn tabs_cannot_indent_yaml() {
    check(
        "spec:\n\tports: 1\n",
        expect![[r#"
        m.yaml:2: document 1: malformed YAML: tabs disallowed within this context (block indentation)
    "#]],
    );
    check(
        "spec:\n  ports:\n\t- 1\n",
        expect![[r#"
        m.yaml:3: document 1: malformed YAML: tabs disallowed within this context (block indentation)
    "#]],
    );
}

#[test]
fn a_key_cannot_be_there_twice() {
    check_edit(
        SERVICE,
        "spec:",
        "metadata:\n  name: t\nspec:",
        expect![[r#"
        m.yaml:5: document 1: the key "metadata" is there twice in one mapping
    "#]],
    );
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
fn unknown_fields_are_errors_however_deep() {
    check_edit(
        GATEWAY,
        "    port: 80",
        "    port: 80\n    prot: x",
        expect![[r#"
        m.yaml:10: document 1: spec.listeners[0].prot: unknown field; did you mean port?
    "#]],
    );
    check_edit(
        ROUTE,
        "        value: /a",
        "        value: /a\n        vlaue: /b",
        expect![[r#"
        m.yaml:12: document 1: spec.rules[0].matches[0].path.vlaue: unknown field; did you mean value?
    "#]],
    );
    check_edit(
        ROUTE,
        "  name: r",
        "  name: r\n  lables: {}",
        expect![[r#"
        m.yaml:5: document 1: metadata.lables: unknown field
    "#]],
    );
    check_edit(
        SERVICE,
        "  - port: 80",
        "  - port: 80\n    targetport: 1",
        expect![[r#"
        m.yaml:8: document 1: spec.ports[0].targetport: unknown field
    "#]],
    );
    check_edit(
        SERVICE,
        "spec:",
        "sepc: 1\nspec:",
        expect![[r#"
        m.yaml:5: document 1: sepc: unknown field
    "#]],
    );
    check_edit(
        GATEWAY,
        "spec:",
        "data: 1\nspec:",
        expect![[r#"
        m.yaml:5: document 1: data: unknown field
    "#]],
    );
}

#[test]
fn what_the_schema_forbids_is_told_with_its_constraint() {
    let edits = [
        ("port: 80", "port: 0"),
        ("port: 80", "port: 65536"),
        ("port: 80", "port: 9999999999"),
        ("name: http", "name: ht tp"),
        ("    protocol: HTTP\n", ""),
        ("  gatewayClassName: gateway-agent\n", ""),
        ("  listeners:", "  addresses: [{value: not an ip}]\n  listeners:"),
        ("    protocol: HTTP", "    protocol: HTTP\n    tls: {mode: Both}"),
        ("  gatewayClassName: gateway-agent", "  gatewayClassName: ''"),
    ];
    check_edits(
        GATEWAY,
        &edits,
        expect![[r#"
        m.yaml:9: document 1: spec.listeners[0].port: 0 is less than the minimum of 1
        m.yaml:9: document 1: spec.listeners[0].port: 65536 is greater than the maximum of 65535
        m.yaml:9: document 1: spec.listeners[0].port: 9999999999 is greater than the maximum of 65535
        m.yaml:8: document 1: spec.listeners[0].name: "ht tp" does not match "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
        m.yaml:8: document 1: spec.listeners[0].protocol: required, but missing
        m.yaml:5: document 1: spec.gatewayClassName: required, but missing
        m.yaml:7: document 1: spec.addresses[0].value: the text "not an ip" is not of the form ipv4 or ipv6
        m.yaml:11: document 1: spec.listeners[0].tls.mode: "Both" is not one of "Terminate" or "Passthrough"
        m.yaml:6: document 1: spec.gatewayClassName: "" is shorter than 1 character
    "#]],
    );
    let hosts = format!("  hostnames: [{}]\n  rules:", "a,".repeat(17));
    let edits = [
        ("value: /a", "value: /a\n        type: Glob"),
        ("      port: 80", "      port: 80\n      weight: 1000001"),
        ("  rules:", &hosts),
        ("spec:", "spec: {}\nstatus:"),
    ];
    check_edits(
        ROUTE,
        &edits,
        expect![[r#"
        m.yaml:12: document 1: spec.rules[0].matches[0].path.type: "Glob" is not one of "Exact", "PathPrefix" or "RegularExpression"
        m.yaml:15: document 1: spec.rules[0].backendRefs[0].weight: 1000001 is greater than the maximum of 1000000
        m.yaml:8: document 1: spec.hostnames: the list has more than 16 items
    "#]],
    );
    let route =
        "apiVersion: gateway.networking.k8s.io/v1\nkind: TCPRoute\nmetadata: {name: t}\nspec: {rules: []}\n";
    check_edits(
        route,
        &[("", ""), ("spec: {rules: []}", "")],
        expect![[r#"
        m.yaml:4: document 1: spec.rules: the list has less than 1 item
        m.yaml:1: document 1: spec: required, but missing
    "#]],
    );
}

#[test]
fn wrong_types_are_told() {
    let edits = [
        ("port: 80", "port: \"80\""),
        ("name: http", "name: on"),
        ("  listeners:", "  addresses: {}\n  listeners:"),
        ("    port: 80", "    port: 1.5"),
    ];
    check_edits(
        GATEWAY,
        &edits,
        expect![[r#"
        m.yaml:9: document 1: spec.listeners[0].port: expected integer, found the text "80"
        m.yaml:8: document 1: spec.listeners[0].name: expected string, found the boolean true; in YAML y, n, yes, no, on and off are booleans unless they are quoted
        m.yaml:7: document 1: spec.addresses: expected array, found an object
        m.yaml:9: document 1: spec.listeners[0].port: expected integer, found the number 1.5
    "#]],
    );
    check_edits(
        ROUTE,
        &[("value: /a", "value: 1"), ("- name: g", "- g")],
        expect![[r#"
        m.yaml:11: document 1: spec.rules[0].matches[0].path.value: expected string, found the number 1
        m.yaml:7: document 1: spec.parentRefs[0]: expected object, found the text "g"
    "#]],
    );
    let edits = [
        ("port: 80", "port: http"),
        ("port: 80", "port: 80\n    targetPort: [1]"),
        ("name: s", "name: 1"),
        ("name: s", "name: y"),
        ("spec:\n  ports:\n  - port: 80\n", "spec: 1\n"),
        ("  name: s", "  name: s\n  creationTimestamp: yesterday"),
    ];
    check_edits(
        SERVICE,
        &edits,
        expect![[r#"
        m.yaml:7: document 1: spec.ports[0].port: invalid type: string "http", expected i32
        m.yaml:8: document 1: spec.ports[0].targetPort: invalid type: sequence, expected IntOrString
        m.yaml:4: document 1: metadata.name: invalid type: integer `1`, expected a string
        m.yaml:4: document 1: metadata.name: invalid type: boolean `true`, expected a string; in YAML y, n, yes, no, on and off are booleans unless they are quoted
        m.yaml:5: document 1: spec: invalid type: integer `1`, expected ServiceSpec
        m.yaml:5: document 1: metadata.creationTimestamp: failed to parse four digit integer as year: invalid digit, expected 0-9 but got y
    "#]],
    );
}

#[test]
fn entries_of_a_keyed_list_are_distinct() {
    let second = "    protocol: HTTP\n  - name: http\n    port: 81\n    protocol: HTTP";
    check_edit(
        GATEWAY,
        "    protocol: HTTP",
        second,
        expect![[r#"
        m.yaml:11: document 1: spec.listeners[1]: duplicate of spec.listeners[0]: name "http"
    "#]],
    );
}

#[test]
fn names_are_checked() {
    check_edit(
        SERVICE,
        "name: s",
        "name: S",
        expect![[r#"
        m.yaml:4: document 1: metadata.name: "S" is not a DNS label: lower-case letters, digits and '-', beginning and ending with a letter or digit
    "#]],
    );
    check_edit(
        SERVICE,
        "  name: s",
        "  generateName: s-",
        expect![[r#"
        m.yaml:4: document 1: metadata.generateName: there is no API server to make a name; write metadata.name
    "#]],
    );
    check_edit(
        ROUTE,
        "metadata:\n  name: r\n",
        "",
        expect![[r#"
        m.yaml:1: document 1: metadata.name: required, but missing
    "#]],
    );
    check_edit(
        SERVICE,
        "  name: s",
        "  name: s\n  namespace: a.b",
        expect![[r#"
        m.yaml:5: document 1: metadata.namespace: "a.b" is not a DNS label: lower-case letters, digits and '-', beginning and ending with a letter or digit
    "#]],
    );
    check_edit(
        SERVICE,
        "  name: s",
        "  name: s\n  labels: {a/b/c: x, d: '-'}",
        expect![[r#"
        m.yaml:5: document 1: metadata.labels[a/b/c]: "b/c" must be letters, digits, '-', '_' and '.', beginning and ending with a letter or digit
        m.yaml:5: document 1: metadata.labels.d: "-" must be letters, digits, '-', '_' and '.', beginning and ending with a letter or digit
    "#]],
    );
    check(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: m, namespace: n1}\n",
        expect![[r#"
        m.yaml:3: document 1: metadata.namespace: a Namespace has no namespace
    "#]],
    );
}

#[test]
fn services_are_checked() {
    check_edit(
        SERVICE,
        "  - port: 80\n",
        "",
        expect![[r#"
        m.yaml:6: document 1: spec.ports: at least one port is required
    "#]],
    );
    check_edit(
        SERVICE,
        "  - port: 80\n",
        "  - port: 80\n  - port: 80\n",
        expect![[r#"
        m.yaml:7: document 1: spec.ports[0].name: required where a Service has several ports
        m.yaml:8: document 1: spec.ports[1]: port 80 of TCP is there twice
        m.yaml:8: document 1: spec.ports[1].name: required where a Service has several ports
    "#]],
    );
    check_edit(
        SERVICE,
        "  - port: 80\n",
        "  - {name: a, port: 70000}\n  - {name: a, port: 81, protocol: tcp, targetPort: 80a-}\n",
        expect![[r#"
            m.yaml:7: document 1: spec.ports[0].port: 70000 is not a port: 1 to 65535
            m.yaml:8: document 1: spec.ports[1].protocol: "tcp" is none of TCP, UDP and SCTP
            m.yaml:8: document 1: spec.ports[1].name: the name a is there twice
            m.yaml:8: document 1: spec.ports[1].targetPort: "80a-" is not the name of a port: at most 15 lower-case letters, digits and single '-', at least one letter
        "#]],
    );
    check_edit(
        SERVICE,
        "  ports:",
        "  type: Ingress\n  ports:",
        expect![[r#"
        m.yaml:6: document 1: spec.type: "Ingress" is none of ClusterIP, ExternalName, LoadBalancer and NodePort
    "#]],
    );
}

#[test]
fn endpoint_slices_are_checked() {
    let slice = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: s\n  labels: \
                 {kubernetes.io/service-name: s}\naddressType: IPv4\nendpoints:\n- addresses: [10.0.0.1]\nports:\n- \
                 {port: 80}\n";
    check(slice, expect![""]);
    check_edit(
        slice,
        "IPv4",
        "IPv5",
        expect![[r#"
        m.yaml:6: document 1: addressType: "IPv5" is none of FQDN, IPv4 and IPv6
    "#]],
    );
    check_edit(
        slice,
        "addressType: IPv4\n",
        "",
        expect![[r#"
        m.yaml:1: document 1: addressType: required, but missing
    "#]],
    );
    check_edit(
        slice,
        "10.0.0.1",
        "10.0.0.1, 'fd00::1', 10.0.0, 0.0.0.0",
        expect![[r#"
        m.yaml:8: document 1: endpoints[0].addresses[1]: "fd00::1" is not an address of type IPv4
        m.yaml:8: document 1: endpoints[0].addresses[2]: "10.0.0" is not an address of type IPv4
        m.yaml:8: document 1: endpoints[0].addresses[3]: "0.0.0.0" is not an address of type IPv4
    "#]],
    );
    check_edit(
        slice,
        "[10.0.0.1]",
        "[]",
        expect![[r#"
        m.yaml:8: document 1: endpoints[0].addresses: 0 addresses, 1 to 100 are allowed
    "#]],
    );
    check_edit(
        slice,
        "port: 80",
        "port: 0",
        expect![[r#"
        m.yaml:10: document 1: ports[0].port: 0 is not a port: 1 to 65535
    "#]],
    );
    check_edit(
        slice,
        "- {port: 80}",
        "- {port: 80}\n- {port: 81}",
        expect![[r#"
        m.yaml:11: document 1: ports[1].name: only one port may be without a name
    "#]],
    );
    check_edit(
        slice,
        "kubernetes.io/service-name: s",
        "app: s",
        expect![[r#"
        m.yaml:5: document 1: metadata.labels: warning: without the label kubernetes.io/service-name it belongs to no Service
    "#]],
    );
}

#[test]
fn secrets_and_config_maps_are_checked() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ntype: kubernetes.io/tls\ndata:\n  tls.crt: eA==\n  \
                  tls.key: eA==\n";
    check(secret, expect![""]);
    check_edit(
        secret,
        "eA==",
        "not base64!",
        expect![[r#"
        m.yaml:6: document 1: data[tls.crt]: not base64: Invalid symbol 32, offset 3.
    "#]],
    );
    check_edit(
        secret,
        "  tls.key: eA==\n",
        "",
        expect![[r#"
        m.yaml:5: document 1: data[tls.key]: required in a Secret of type kubernetes.io/tls, but missing
    "#]],
    );
    check_edit(
        secret,
        "tls.key: eA==",
        "tls.key: eA==\n  a b: eA==",
        expect![[r#"
        m.yaml:8: document 1: data[a b]: "a b" is not a key: at most 253 letters, digits, '-', '_' and '.', not beginning with '..'
    "#]],
    );
    let map =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata:\n  a: text\nbinaryData: {b: eA==}\n";
    check(map, expect![""]);
    check_edit(
        map,
        "{b:",
        "{a:",
        expect![[r#"
        m.yaml:6: document 1: binaryData.a: the key is in data too
    "#]],
    );
    check_edit(
        map,
        "a: text",
        "a: {b: c}",
        expect![[r#"
        m.yaml:5: document 1: data.a: invalid type: map, expected a string
    "#]],
    );
    check_edit(
        map,
        "text",
        &"x".repeat((1 << 20) + 1),
        expect![[r#"
        m.yaml:4: document 1: data: 1048578 bytes in all, at most 1048576 are allowed
    "#]],
    );
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    expect![[r#"
        m.yaml:2: not UTF-8 text
    "#]]
    .assert_eq(&findings("m.yaml", b"a: b\nc: \xff\n"));
    expect![[r#"
        m.yaml:1: not UTF-8 text
    "#]]
    .assert_eq(&findings("m.yaml", b"\xff\xfea\x00"));
    expect![[r#"
        m.yaml:1: document 1: malformed YAML: found unprintable character
    "#]]
    .assert_eq(&findings("m.yaml", b"a: \x00\n"));
}

#[test]
fn empty_files_and_documents_hold_nothing() {
    for empty in ["", "\n", "# nothing\n", "---\n", "---\n---\n# nothing\n...\n"] {
        check(empty, expect![""]);
    }
    // Empty documents count.
    check(
        "---\n---\nkind: Service\n",
        expect![[r#"
        m.yaml:3: document 2: apiVersion: required, but missing
    "#]],
    );
}

#[test]
fn line_ends_and_byte_order_marks_change_nothing() {
    let bad = GATEWAY.replace("port: 80", "port: 0");
    let expected = findings("m.yaml", bad.as_bytes());
    assert_eq!(findings("m.yaml", bad.replace('\n', "\r\n").as_bytes()), expected);
    assert_eq!(findings("m.yaml", format!("\u{feff}{bad}").as_bytes()), expected);
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
fn json_is_read_as_it_is_written() {
    let json = "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"ConfigMap\",\n\t\"metadata\": {\"name\": \"m\"},\n\t\
                \"data\": {\"a\": \"\\ud83d\\ude00 \\\\ud83d \\u00e4 \\/ \\t\", \"b\": 1}\n}\n";
    expect![[r#"
        m.json:5: document 1: data.b: invalid type: integer `1`, expected a string
    "#]]
    .assert_eq(&findings("m.json", json.as_bytes()));
    let content = read("m.json", json.replace(", \"b\": 1", "").as_bytes()).expect("JSON parses");
    let Some(Object::ConfigMap(map)) = &content.entries[0].object else { panic!("a ConfigMap") };
    let data = map.data.as_ref().expect("it has data");
    assert_eq!(data["a"], "\u{1f600} \\ud83d \u{e4} / \t");
}

#[test]
fn nesting_documents_and_aliases_are_bounded() {
    check(
        &"[".repeat(1 << 20),
        expect![[r#"
        m.yaml:1: document 1: malformed YAML: recursion limit exceeded
    "#]],
    );
    check(
        &"- ".repeat(1 << 20),
        expect![[r#"
        m.yaml:1: document 1: nested more than 64 deep
    "#]],
    );
    check(
        &"{a: ".repeat(1 << 20),
        expect![[r#"
        m.yaml:1: document 1: malformed YAML: recursion limit exceeded
    "#]],
    );
    check(
        &"---\n".repeat(10_001),
        expect![[r#"
        m.yaml:10001: document 10000: more than 10000 documents in one file
    "#]],
    );
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..20 {
        let below = format!("*a{}", level - 1);
        bomb += &format!("a{level}: &a{level} [{}]\n", [below.as_str(); 10].join(", "));
    }
    check(
        &bomb,
        expect![[r#"
        m.yaml:6: document 1: the file takes more than 64 MiB in memory once its aliases are expanded
    "#]],
    );
    check(
        &format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a, ".repeat(100)),
        expect![[r#"
        m.yaml:2: document 1: the file takes more than 64 MiB in memory once its aliases are expanded
    "#]],
    );
    check(
        "a: &a [*a]\n",
        expect![[r#"
        m.yaml:1: document 1: an alias within the node that it names
    "#]],
    );
}

#[test]
fn aliases_and_merges_are_expanded() {
    let yaml = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec:\n  ports:\n  - &p {name: a, port: 80, protocol: \
                UDP}\n  - {<<: *p, name: b, port: 81}\n";
    let Object::Service(service) = object(yaml) else { panic!("a Service") };
    let ports = service.spec.and_then(|spec| spec.ports).expect("ports");
    assert_eq!(ports[1].name.as_deref(), Some("b"));
    assert_eq!(ports[1].protocol.as_deref(), Some("UDP"));
    check_edit(
        yaml,
        "port: 81",
        "prot: 81",
        expect![[r#"
        m.yaml:7: document 1: spec.ports[1].prot: unknown field
        m.yaml:7: document 1: spec.ports[1]: port 80 of UDP is there twice
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
    assert_eq!(generated.len(), 12);
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
fn every_shipped_manifest_is_read_without_findings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pending = vec![root.join("deploy"), root.join("tests/fixtures")];
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
