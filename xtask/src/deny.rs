//! `deny`: the rules of `deny.toml` on licences, banned and doubled crates and their sources.
//!
//! Held here from `cargo tree` and `cargo metadata`, because building cargo-deny takes longer than all of this tree. It knows no
//! advisories: those need a database from outside.

mod licence;
mod policy;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use self::policy::Policy;
use crate::command::{cargo, output, root};

/// The platform whose crates count: what is only for other systems is never built.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    /// None for the workspace's own.
    source: Option<String>,
}

pub(crate) fn run() -> Result<()> {
    let path = root().join("deny.toml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let policy = Policy::parse(&text).context("deny.toml")?;
    let metadata = output(&mut cargo([
        "metadata",
        "--format-version=1",
        "--locked",
        "--all-features",
        "--filter-platform",
        PLATFORM,
    ]))?;
    let tree = output(&mut cargo([
        "tree",
        "--locked",
        "--workspace",
        "--all-features",
        "--target",
        PLATFORM,
        "--edges=normal,build,dev",
        "--prefix=none",
        "--format={p}",
    ]))?;
    let packages = packages(&metadata, &tree)?;
    let findings = check(&policy, &packages);
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings against deny.toml", findings.len());
    }
    println!("deny: {} packages keep to deny.toml", packages.len());
    Ok(())
}

/// The packages that are built. Metadata alone also lists optional dependencies that no feature turns on.
fn packages(metadata: &str, tree: &str) -> Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(metadata)?;
    // A line is `name vVERSION`, and more for what is not from the registry or was listed before.
    let used: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect();
    let is_used = |package: &Value| {
        let named = |key: &str| package[key].as_str().unwrap_or_default();
        used.contains(&(named("name"), named("version")))
    };
    let text = |package: &Value, key: &str| package[key].as_str().map(str::to_owned);
    let all = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    all.iter()
        .filter(|package| is_used(package))
        .map(|package| {
            Ok(Package {
                name: text(package, "name").context("a package without a name")?,
                version: text(package, "version").context("a package without a version")?,
                licence: text(package, "license"),
                source: text(package, "source"),
            })
        })
        .collect()
}

fn check(policy: &Policy, packages: &[Package]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Package { name, version, licence, source } in packages {
        versions.entry(name).or_default().insert(version);
        if policy.banned.contains(name) {
            findings.push(format!("{name} {version}: banned"));
        }
        match licence {
            None => findings.push(format!("{name} {version}: states no licence")),
            Some(licence) if !licence::is_allowed(licence, &policy.licences) => {
                findings.push(format!("{name} {version}: licence {licence} is not allowed"));
            }
            Some(_) => {}
        }
        if source.as_ref().is_some_and(|source| !source.starts_with("registry+")) {
            findings.push(format!("{name} {version}: is not from the registry"));
        }
    }
    findings.extend(doubles(policy, &versions));
    findings
}

/// A crate may be there once, and once more for each version that is skipped; a skip that skips nothing goes.
fn doubles(policy: &Policy, versions: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, versions) in versions {
        let counted =
            versions.iter().filter(|version| !policy.skipped.contains(&format!("{name}@{version}"))).count();
        if counted > 1 {
            let list: Vec<&str> = versions.iter().copied().collect();
            findings.push(format!("{name}: in versions {}", list.join(" and ")));
        }
    }
    for skipped in &policy.skipped {
        let is_double = skipped.split_once('@').is_some_and(|(name, version)| {
            versions.get(name).is_some_and(|versions| versions.len() > 1 && versions.contains(version))
        });
        if !is_double {
            findings.push(format!("deny.toml skips {skipped}, which is no longer doubled"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str, licence: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            licence: Some(licence.to_owned()),
            source: Some("registry+x".to_owned()),
        }
    }

    fn policy() -> Policy {
        Policy::parse(
            "[licenses]\nallow = [\"MIT\"]\n[bans]\ndeny = [{ crate = \"ring\" }]\nskip = [{ crate = \"b@1.0.0\" }]\n",
        )
        .unwrap()
    }

    #[test]
    fn a_doubled_crate_needs_a_skip_and_a_skip_needs_a_doubled_crate() {
        let doubled = [package("b", "1.0.0", "MIT"), package("b", "2.0.0", "MIT")];
        assert_eq!(check(&policy(), &doubled), Vec::<String>::new());
        let stale = [package("b", "2.0.0", "MIT")];
        assert_eq!(check(&policy(), &stale).len(), 1);
        let other = [
            package("b", "1.0.0", "MIT"),
            package("b", "2.0.0", "MIT"),
            package("c", "1.0.0", "MIT"),
            package("c", "1.1.0", "MIT"),
        ];
        assert_eq!(check(&policy(), &other), ["c: in versions 1.0.0 and 1.1.0"]);
    }

    #[test]
    fn a_banned_crate_and_a_foreign_licence_are_findings() {
        let mut policy = policy();
        policy.skipped.clear();
        assert_eq!(check(&policy, &[package("ring", "0.17.0", "MIT")]), ["ring 0.17.0: banned"]);
        assert_eq!(check(&policy, &[package("d", "1.0.0", "GPL-3.0")]).len(), 1);
        let unknown =
            Package { licence: None, source: Some("git+x".to_owned()), ..package("d", "1.0.0", "MIT") };
        assert_eq!(check(&policy, &[unknown]).len(), 2);
    }
}
