//! The inner loop: which crates differ from the main branch, and the few checks that take seconds.
//!
//! A change to a file that belongs to no crate, such as the workspace's manifest, counts for all crates.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::job::Log;
use crate::command::{cargo, output, program, root};
use crate::libtest::Counts;

/// Tests with root and the bpf target belong to the full run.
const NOT_HERE: &[&str] = &["cluster-tests", "deploy-tests", "gateway-ebpf", "kernel-tests", "netns-tests"];

/// Seconds when warm; a cold build takes minutes.
const LIMIT: Duration = Duration::from_secs(20 * 60);

type Run = Box<dyn Fn(&mut Log) -> Result<Counts>>;

pub(super) struct Named {
    pub name: String,
    pub run: Run,
}

struct Package {
    name: String,
    /// From the root, ends in `/`.
    folder: String,
    /// Packages of the workspace that it uses.
    uses: Vec<String>,
}

pub(super) fn jobs() -> Result<Vec<Named>> {
    let packages = packages()?;
    let changed = affected(&packages, &changed_files()?);
    let names: Vec<String> = changed.into_iter().filter(|name| !NOT_HERE.contains(&name.as_str())).collect();
    let shown = if names.is_empty() { "no crate".to_owned() } else { names.join(" ") };
    println!("test: {shown} differs from the main branch");
    let mut jobs = vec![job("fmt", || cargo(["fmt", "--all", "--check"]))];
    if !names.is_empty() {
        let lint = names.clone();
        jobs.push(job("clippy", move || {
            let mut clippy = for_packages(["clippy", "--locked", "--all-targets"], &lint);
            clippy.args(["--", "--deny=warnings"]);
            clippy
        }));
        jobs.push(job("units", move || for_packages(["test", "--locked", "--no-fail-fast"], &names)));
    }
    Ok(jobs)
}

fn job(name: &str, command: impl Fn() -> std::process::Command + 'static) -> Named {
    let run = move |log: &mut Log| {
        log.run(command(), LIMIT)?;
        Ok(log.counts())
    };
    Named { name: name.to_owned(), run: Box::new(run) }
}

fn for_packages(args: [&str; 3], names: &[String]) -> std::process::Command {
    let mut command = cargo(args);
    for name in names {
        command.args(["--package", name]);
    }
    command
}

/// Files that differ from where this branch left the main one, committed or not.
fn changed_files() -> Result<BTreeSet<String>> {
    let git = |args: &[&str]| output(program("git").args(args));
    // A shallow clone has no such point: then what is not committed has to do.
    let base = ["origin/main", "main"]
        .iter()
        .find_map(|branch| git(&["merge-base", "HEAD", branch]).ok())
        .map_or_else(|| "HEAD".to_owned(), |commit| commit.trim().to_owned());
    let committed = git(&["diff", "--name-only", &base])?;
    let new = git(&["ls-files", "--others", "--exclude-standard"])?;
    Ok(committed.lines().chain(new.lines()).map(str::to_owned).collect())
}

fn packages() -> Result<Vec<Package>> {
    let metadata = output(&mut cargo(["metadata", "--format-version=1", "--no-deps", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let list = metadata["packages"].as_array().context("cargo metadata lists packages")?;
    let package = |value: &Value| {
        let manifest = Path::new(value["manifest_path"].as_str()?);
        let folder = manifest.parent()?.strip_prefix(root()).ok()?.to_str()?.to_owned() + "/";
        let uses = value["dependencies"].as_array()?.iter();
        let uses = uses
            .filter(|dependency| !dependency["path"].is_null())
            .filter_map(|dependency| dependency["name"].as_str());
        Some(Package {
            name: value["name"].as_str()?.to_owned(),
            folder,
            uses: uses.map(str::to_owned).collect(),
        })
    };
    Ok(list.iter().filter_map(package).collect())
}

/// The packages that have a changed file, and those that use them.
fn affected(packages: &[Package], files: &BTreeSet<String>) -> BTreeSet<String> {
    let mut affected = BTreeSet::new();
    for file in files {
        // The longest folder is the innermost package.
        let owner = packages.iter().filter(|p| file.starts_with(&p.folder)).max_by_key(|p| p.folder.len());
        match owner {
            Some(package) => {
                affected.insert(package.name.clone());
            }
            None if !file.ends_with(".md") => {
                affected.extend(packages.iter().map(|package| package.name.clone()));
            }
            None => {}
        }
    }
    loop {
        let users: Vec<String> = packages
            .iter()
            .filter(|p| !affected.contains(&p.name) && p.uses.iter().any(|used| affected.contains(used)))
            .map(|package| package.name.clone())
            .collect();
        if users.is_empty() {
            return affected;
        }
        affected.extend(users);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[&str], expected: &[&str]) {
        let package = |name: &str, folder: &str, uses: &[&str]| Package {
            name: name.to_owned(),
            folder: folder.to_owned(),
            uses: uses.iter().map(|&name| name.to_owned()).collect(),
        };
        let packages = [
            package("agent", "agent/", &["common"]),
            package("ebpf", "ebpf/", &["common"]),
            package("common", "ebpf/common/", &[]),
            package("tool", "tool/", &[]),
        ];
        let files = files.iter().map(|&file| file.to_owned()).collect();
        assert_eq!(affected(&packages, &files).into_iter().collect::<Vec<_>>(), expected, "{files:?}");
    }

    #[test]
    fn a_change_counts_for_its_innermost_package_and_its_users() {
        check(&["tool/src/main.rs"], &["tool"]);
        check(&["ebpf/src/main.rs"], &["ebpf"]);
        check(&["ebpf/common/src/lib.rs"], &["agent", "common", "ebpf"]);
        check(&["README.md"], &[]);
        check(&["Cargo.toml"], &["agent", "common", "ebpf", "tool"]);
    }
}
