//! `cargo xtask codegen`: the Gateway API types and schemas of `gateway-agent`, from the CRDs of one release.
//!
//! A developer's command, run when the release changes; its output is checked in. A test in `gateway-agent` holds the
//! output against the hashes written here. It needs Go, which fetches the release as a module, and `kopium`.
//! It does not touch `gateway-agent/src/api.rs`, which names the modules by hand.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const MODULE: &str = "sigs.k8s.io/gateway-api";
const VERSION: &str = "v1.7.0";
/// The module asks for Go 1.27; the go command fetches that toolchain by itself.
const GO_TOOLCHAIN: &str = "go1.27.3";
const GENERATOR: &str = "kopium 0.24.0";
/// The kinds that the agent reads, by the plural that names the CRD's file and the Rust module.
const PLURALS: [&str; 9] = [
    "backendtlspolicies",
    "gateways",
    "grpcroutes",
    "httproutes",
    "listenersets",
    "referencegrants",
    "tcproutes",
    "tlsroutes",
    "udproutes",
];

/// Writes `gateway-agent/src/api/*.rs`, `gateway-agent/schemas/*.json` and `gateway-agent/schemas/lock.json`.
pub(crate) fn run() -> Result<()> {
    let agent = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask lies in the workspace")?
        .join("gateway-agent");
    let generator = output(Command::new("kopium").arg("--version"))
        .with_context(|| format!("install it: cargo install kopium --version {}", &GENERATOR[7..]))?;
    ensure!(generator.trim() == GENERATOR, "expected {GENERATOR}, found {}", generator.trim());
    let crds = download()?.join("config/crd/standard");
    let mut sources = BTreeMap::new();
    let mut generated = BTreeMap::new();
    for plural in PLURALS {
        let name = format!("gateway.networking.k8s.io_{plural}.yaml");
        let path = crds.join(&name);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        sources.insert(name, sha256(text.as_bytes()));
        let schema = serde_json::to_string(&schema(&text).with_context(|| format!("in {plural}"))?)? + "\n";
        for (file, content) in
            [(format!("src/api/{plural}.rs"), types(&path)?), (format!("schemas/{plural}.json"), schema)]
        {
            generated.insert(file.clone(), sha256(content.as_bytes()));
            let target = agent.join(file);
            fs::create_dir_all(target.parent().context("a file lies in a folder")?)?;
            fs::write(&target, content).with_context(|| format!("cannot write {}", target.display()))?;
        }
    }
    let lock = json!({
        "module": format!("{MODULE}@{VERSION}"),
        "generator": GENERATOR,
        "crds": sources,
        "generated": generated,
    });
    fs::write(agent.join("schemas/lock.json"), serde_json::to_string_pretty(&lock)? + "\n")?;
    println!("wrote {} kinds of {MODULE}@{VERSION}", PLURALS.len());
    Ok(())
}

/// The folder that holds the release.
fn download() -> Result<PathBuf> {
    let module = tempfile::tempdir()?;
    fs::write(module.path().join("go.mod"), "module codegen\n")?;
    let answer = output(
        Command::new("go")
            .args(["mod", "download", "-json", &format!("{MODULE}@{VERSION}")])
            .current_dir(module.path())
            .env("GOTOOLCHAIN", GO_TOOLCHAIN),
    )?;
    let answer: Value = serde_json::from_str(&answer)?;
    Ok(PathBuf::from(answer["Dir"].as_str().context("go mod download names no folder")?))
}

/// The Rust types of a CRD, without the line that holds the path of the CRD on this machine.
fn types(crd: &Path) -> Result<String> {
    let text = output(Command::new("kopium").arg("-f").arg(crd).args(["--derive", "PartialEq"]))?;
    let kept = text.lines().filter(|line| !line.starts_with("// kopium command:"));
    Ok(kept.fold(String::new(), |mut text, line| {
        // Writing to a string cannot fail.
        writeln!(text, "{line}").expect("write to a string");
        text
    }))
}

/// The schema of the served version v1, which every other served version must share.
fn schema(text: &str) -> Result<Value> {
    let documents = documents(text)?;
    let crd = documents.iter().find(|crd| crd["kind"] == "CustomResourceDefinition").context("no CRD")?;
    let mut served: BTreeMap<&str, Value> = BTreeMap::new();
    for version in crd["spec"]["versions"].as_array().context("no versions")? {
        if version["served"] == true {
            let mut schema = version["schema"]["openAPIV3Schema"].clone();
            strip_descriptions(&mut schema);
            served.insert(version["name"].as_str().context("no version name")?, schema);
        }
    }
    let schema = served.get("v1").context("v1 is not served")?;
    // The agent validates every served version with one schema.
    ensure!(served.values().all(|other| other == schema), "served versions differ in their schema");
    Ok(schema.clone())
}

fn strip_descriptions(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    schema.remove("description");
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            // Names of fields, one of which may well be `description`.
            ("properties", Value::Object(fields)) => fields.values_mut().for_each(strip_descriptions),
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(strip_descriptions);
            }
            ("additionalProperties" | "items" | "not", value) => strip_descriptions(value),
            _ => {}
        }
    }
}

/// The documents of a CRD file, in which there are no tags, no anchors, and no scalars but text, integers and booleans.
fn documents(text: &str) -> Result<Vec<Value>> {
    let mut documents = Vec::new();
    // Collections that are not yet at their end, each with the key that waits for its value.
    let mut open: Vec<(Value, Option<String>)> = Vec::new();
    for event in Parser::new_from_str(text) {
        let done = match event?.0 {
            Event::MappingStart(0, None) => {
                open.push((json!({}), None));
                continue;
            }
            Event::SequenceStart(0, None) => {
                open.push((json!([]), None));
                continue;
            }
            Event::MappingEnd | Event::SequenceEnd => open.pop().context("an end without a start")?.0,
            Event::Scalar(text, style, 0, None) => scalar(&text, style),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => continue,
            other => bail!("a CRD has no {other:?}"),
        };
        match open.last_mut() {
            None => documents.push(done),
            Some((Value::Array(items), _)) => items.push(done),
            Some((Value::Object(fields), key)) => match key.take() {
                Some(key) => drop(fields.insert(key, done)),
                None => *key = Some(done.as_str().context("a key is no text")?.to_owned()),
            },
            Some(_) => bail!("only collections are open"),
        }
    }
    Ok(documents)
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    match text {
        _ if style != ScalarStyle::Plain => json!(text),
        "" | "null" => Value::Null,
        "true" => json!(true),
        "false" => json!(false),
        _ => text.parse::<i64>().map_or_else(|_| json!(text), |number| json!(number)),
    }
}

fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("write to a string");
        text
    })
}

fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot run {program}"))?;
    ensure!(output.status.success(), "{program} failed: {}", output.status);
    String::from_utf8(output.stdout).with_context(|| format!("{program} printed no UTF-8"))
}
