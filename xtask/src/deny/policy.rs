//! What of `deny.toml` is held here. It reads the few forms which that file uses, not TOML.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

#[derive(Debug, Default)]
pub(super) struct Policy {
    pub licences: BTreeSet<String>,
    pub banned: BTreeSet<String>,
    /// `NAME@VERSION`.
    pub skipped: BTreeSet<String>,
}

impl Policy {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let values = values(text);
        let get = |key: &str| values.get(key).map(String::as_str).unwrap_or_default();
        let policy = Self {
            licences: strings(get("licenses.allow")).map(str::to_owned).collect(),
            banned: crates(get("bans.deny")),
            skipped: crates(get("bans.skip")),
        };
        ensure!(!policy.licences.is_empty(), "no licence is allowed");
        Ok(policy)
    }
}

/// Values as they are written, by `SECTION.KEY`; one goes on until its brackets are closed.
fn values(text: &str) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut section = String::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        let line = line.split_once('#').map_or(line, |(before, _)| before).trim();
        let (key, mut value) = match open.take() {
            Some(open) => open,
            None if line.starts_with('[') => {
                section = line.trim_matches(['[', ']']).to_owned();
                continue;
            }
            None => match line.split_once('=') {
                Some((key, value)) => {
                    let key = format!("{section}.{}", key.trim());
                    let value = value.trim().to_owned();
                    if is_closed(&value) {
                        values.insert(key, value);
                    } else {
                        open = Some((key, value));
                    }
                    continue;
                }
                None => continue,
            },
        };
        value.push_str(line);
        if is_closed(&value) {
            values.insert(key, value);
        } else {
            open = Some((key, value));
        }
    }
    values
}

fn is_closed(value: &str) -> bool {
    value.matches('[').count() == value.matches(']').count()
}

fn strings(value: &str) -> impl Iterator<Item = &str> {
    value.split('"').skip(1).step_by(2)
}

/// The `crate = ".."` of each inline table.
fn crates(value: &str) -> BTreeSet<String> {
    value.split("crate = ").skip(1).filter_map(|rest| strings(rest).next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_over_several_lines_are_read() {
        let policy = Policy::parse(
            "[licenses]\nallow = [\n  \"MIT\", # short\n  \"Zlib\",\n]\n\
             [bans]\ndeny = [\n  { crate = \"ring\", reason = \"one \" },\n  { crate = \"x\" },\n]\n\
             skip = [{ crate = \"syn@2.0.1\", reason = \"r\" }]\n",
        )
        .unwrap();
        assert_eq!(policy.licences, ["MIT", "Zlib"].map(str::to_owned).into());
        assert_eq!(policy.banned, ["ring", "x"].map(str::to_owned).into());
        assert_eq!(policy.skipped, ["syn@2.0.1".to_owned()].into());
    }

    #[test]
    fn the_shipped_file_is_read() {
        let text = std::fs::read_to_string(crate::command::root().join("deny.toml")).unwrap();
        let policy = Policy::parse(&text).unwrap();
        assert!(policy.licences.contains("MIT") && policy.banned.contains("ring"));
    }
}
