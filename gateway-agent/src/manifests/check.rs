//! `gateway-agent check`: what a folder of manifests would make of the agent, without serving it.

use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use super::{Finding, Folder, Load, Severity};

/// The exit status of `gateway-agent check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing found but warnings.
    Fine,
    Findings,
    /// The folder or a file in it could not be read, or the findings could not be written.
    Unreadable,
}

/// Writes one line per finding to `out`. `extra` adds what only shows when the objects are put together.
pub fn check(dir: &Path, out: &mut dyn Write, extra: impl FnOnce(&Load) -> Vec<Finding>) -> Outcome {
    let mut folder = Folder::new(dir);
    folder.reload(Instant::now());
    let load = folder.load();
    let mut findings = load.findings.clone();
    findings.extend(extra(load));
    findings.sort();
    if write(&findings, out).is_err() || load.unreadable {
        return Outcome::Unreadable;
    }
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        Outcome::Findings
    } else {
        Outcome::Fine
    }
}

fn write(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    for finding in findings {
        writeln!(out, "{finding}")?;
    }
    out.flush()
}

impl From<Outcome> for std::process::ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(match outcome {
            Outcome::Fine => 0,
            Outcome::Findings => 1,
            Outcome::Unreadable => 2,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Outcome, check};
    use crate::manifests::{Load, Severity};

    #[test]
    fn the_outcome_tells_findings_from_what_cannot_be_read() {
        let temp = tempfile::tempdir().expect("a folder");
        let file = temp.path().join("a.yaml");
        let run = |content: Option<&str>, dir: &str, severity: Option<Severity>| {
            if let Some(content) = content {
                fs::write(&file, content).expect("a file");
            }
            let mut out = Vec::new();
            let extra = |load: &Load| {
                let (id, _) = load.places.first()?;
                load.finding(id, "spec", severity?, "no route is attached")
            };
            let outcome = check(&temp.path().join(dir), &mut out, |load| extra(load).into_iter().collect());
            let text = String::from_utf8(out).expect("text");
            (outcome, text.replace(&temp.path().display().to_string(), "DIR"))
        };
        let map = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n";
        assert_eq!(run(Some(map), "", None), (Outcome::Fine, String::new()));
        assert_eq!(
            run(None, "", Some(Severity::Error)),
            (Outcome::Findings, "DIR/a.yaml:2: document 1: spec: no route is attached\n".into())
        );
        assert_eq!(
            run(None, "", Some(Severity::Warning)),
            (Outcome::Fine, "DIR/a.yaml:2: document 1: spec: warning: no route is attached\n".into())
        );
        assert_eq!(run(Some("kind: 1"), "", None).0, Outcome::Findings);
        let (outcome, text) = run(None, "nowhere", None);
        assert_eq!(outcome, Outcome::Unreadable);
        assert!(text.starts_with("DIR/nowhere: the folder cannot be read: "), "{text}");
    }
}
