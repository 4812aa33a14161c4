//! `tidy`: rules of this tree that no compiler and no linter checks. Also a test of this package.
//!
//! It reads the files that git knows or would add, nothing else, and changes only `abi.lock`, on demand.

mod abi;
mod imports;
mod source;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::command::{output, program, root};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Record the ABI of the kernel programs as it is now, after ABI_VERSION was raised
    #[arg(long)]
    bless_abi: bool,
}

/// A rule that is broken: where, and what to do.
#[derive(Debug, PartialEq, Eq)]
struct Finding(String);

impl Finding {
    fn new(path: &Path, text: impl std::fmt::Display) -> Self {
        Self(format!("{}: {text}", path.display()))
    }
}

/// A file of the tree, with its path from the root.
struct File {
    path: PathBuf,
    text: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.bless_abi {
        return abi::bless(root());
    }
    let files = files()?;
    for file in tree::long_files(&files) {
        println!(
            "tidy: {} has {} lines: is it still about one thing?",
            file.path.display(),
            lines(&file.text)
        );
    }
    let findings = check(&files)?;
    if findings.is_empty() {
        println!("tidy: {} files, nothing to say against them", files.len());
        return Ok(());
    }
    for Finding(text) in &findings {
        eprintln!("{text}");
    }
    bail!("{} findings", findings.len())
}

fn check(files: &[File]) -> Result<Vec<Finding>> {
    let mut findings = imports::check(files);
    findings.extend(tree::check(files)?);
    findings.extend(abi::check(root())?);
    Ok(findings)
}

fn lines(text: &str) -> usize {
    text.lines().count()
}

/// All text files of the working tree that are not ignored. One that was removed but is not yet committed is left out.
fn files() -> Result<Vec<File>> {
    let mut list = program("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = output(&mut list).context("tidy looks at the files that git knows")?;
    let mut files = Vec::new();
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        let whole = root().join(path);
        if !whole.is_file() {
            continue;
        }
        let bytes = fs::read(&whole).with_context(|| format!("cannot read {path}"))?;
        // What is not UTF-8 is data of a test.
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File { path: PathBuf::from(path), text });
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let findings = check(&files().unwrap()).unwrap();
        assert!(findings.is_empty(), "{findings:#?}");
    }
}
