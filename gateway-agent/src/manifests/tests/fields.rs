//! Fields that the API server would refuse.

use expect_test::expect;

use super::{GATEWAY, ROUTE, SERVICE, check, check_edit, check_edits};

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
            m.yaml:11: document 1: spec.listeners[0].tls.mode: the text "Both" is none of "Terminate", "Passthrough"
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
            m.yaml:12: document 1: spec.rules[0].matches[0].path.type: the text "Glob" is none of "Exact", "PathPrefix", "RegularExpression"
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
fn rules_between_fields_are_checked() {
    let edits = [
        ("    protocol: HTTP", "    protocol: HTTP\n    tls: {mode: Passthrough}"),
        ("    protocol: HTTP", "    protocol: TLS"),
        ("    protocol: HTTP", "    protocol: HTTP\n  - {name: b, port: 80, protocol: HTTP}"),
        ("    protocol: HTTP", "    protocol: UDP\n    hostname: a.b"),
    ];
    check_edits(
        GATEWAY,
        &edits,
        expect![[r#"
        m.yaml:7: document 1: spec.listeners: tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']
        m.yaml:7: document 1: spec.listeners: tls mode must be set for protocol TLS
        m.yaml:7: document 1: spec.listeners: Combination of port, protocol and hostname must be unique for each listener
        m.yaml:7: document 1: spec.listeners: hostname must not be specified for protocols ['TCP', 'UDP']
    "#]],
    );
    let edits = [
        ("value: /a", "value: a"),
        ("value: /a", "value: /a//b"),
        ("      port: 80", "      weight: 1"),
        ("  - name: g", "  - name: g\n  - name: g"),
        // These differ in their namespace, a word that CEL reserves.
        ("  - name: g", "  - name: g\n  - {name: g, namespace: other}"),
        ("    backendRefs:", "    timeouts: {request: 1s, backendRequest: 1001ms}\n    backendRefs:"),
        ("    backendRefs:", "    timeouts: {request: 60s, backendRequest: 1m}\n    backendRefs:"),
    ];
    check_edits(
        ROUTE,
        &edits,
        expect![[r#"
            m.yaml:10: document 1: spec.rules[0].matches[0].path: value must be an absolute path and start with '/' when type one of ['Exact', 'PathPrefix']
            m.yaml:10: document 1: spec.rules[0].matches[0].path: must not contain '//' when type one of ['Exact', 'PathPrefix']
            m.yaml:13: document 1: spec.rules[0].backendRefs[0]: Must have port for Service reference
            m.yaml:6: document 1: spec.parentRefs: sectionName must be unique when parentRefs includes 2 or more references to the same parent
            m.yaml:12: document 1: spec.rules[0].timeouts: backendRequest timeout cannot be longer than request timeout
        "#]],
    );
    let route = "apiVersion: gateway.networking.k8s.io/v1\nkind: TLSRoute\nmetadata: {name: t}\nspec:\n  hostnames: \
                 [a.b, '*.c']\n  rules:\n  - backendRefs: [{name: s, port: 1}]\n";
    check_edits(
        route,
        &[("", ""), ("a.b", "10.0.0.1"), ("*.c", "a.*.c")],
        expect![[r#"
        m.yaml:5: document 1: spec.hostnames: Hostnames cannot contain an IP
        m.yaml:5: document 1: spec.hostnames[1]: "a.*.c" does not match "^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
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
