//! Replays what the fuzzer is fed with, and what it has found: fast, and the same on every machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use wire_tests::targets::TARGETS;

/// Past this an input belongs into the fuzzer's own folder: what is replayed is read by people too.
const INPUT_BYTES_MAX: u64 = 64 * 1024;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut entries: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

#[test]
fn every_input_holds_what_its_target_states() {
    let mut failed = Vec::new();
    for target in TARGETS {
        let inputs = entries(&corpus().join(target.name));
        assert!(!inputs.is_empty(), "no inputs for {}", target.name);
        for input in inputs {
            let bytes = fs::read(&input).unwrap();
            assert!(bytes.len() as u64 <= INPUT_BYTES_MAX, "{}", input.display());
            // The panic's own message is printed above this name.
            if std::panic::catch_unwind(|| (target.run)(&bytes)).is_err() {
                failed.push(format!("{}/{}", target.name, input.file_name().unwrap().display()));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn every_folder_of_inputs_has_a_target() {
    let folders: BTreeSet<_> = entries(&corpus())
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let targets: BTreeSet<_> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(folders, targets);
}

/// Each beginning of each input, too: connections end anywhere.
#[test]
fn inputs_may_end_anywhere() {
    /// Longer ones would take seconds in debug builds, for little.
    const LONGEST: usize = 512;
    for target in TARGETS {
        for input in entries(&corpus().join(target.name)) {
            let bytes = fs::read(&input).unwrap();
            if bytes.len() <= LONGEST {
                (0..bytes.len()).for_each(|end| (target.run)(&bytes[..end]));
            }
        }
    }
}
