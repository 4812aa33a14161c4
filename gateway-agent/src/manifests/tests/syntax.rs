//! Text that is no YAML, or too much of it, and forms of YAML that must make no difference.

use std::sync::Arc;

use expect_test::expect;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};
use proptest::sample::Index;

use super::super::load;
use super::{GATEWAY, SERVICE, check, check_edit, findings, object, read};
use crate::api::Object;

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a file holds, reading it ends, and what is found lies in it.
    #[test]
    fn no_text_is_fatal(edits in vec((any::<Index>(), 0..6_usize, "[-a: \n{}\\[\\]&*!|>'\"#%@,?\t0-9\u{e4}]{0,4}"), 0..6)) {
        let mut text: Vec<char> = format!("{GATEWAY}---\n{SERVICE}").chars().collect();
        for (at, n_removed, new) in edits {
            let at = at.index(text.len());
            let end = (at + n_removed).min(text.len() - 1);
            text.splice(at..end.max(at), new.chars());
        }
        let text: String = text.into_iter().collect();
        let n_lines = text.split('\n').count();
        for file in ["m.yaml", "m.json"] {
            let lines: Vec<usize> = match load::parse(&Arc::from(file), text.as_bytes()) {
                Ok(content) => content.findings.iter().map(|finding| finding.line).collect(),
                Err(finding) => vec![finding.line],
            };
            prop_assert!(lines.iter().all(|line| (1..=n_lines).contains(line)), "{lines:?} of {n_lines}");
        }
    }
}
