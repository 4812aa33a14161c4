//! What a Rust test binary prints, read for its counts.

use std::ops::AddAssign;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub passed: u64,
    pub failed: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// The sum over all `test result:` lines, and over the closing lines of our own commands. A binary that dies prints none, so its exit code must be looked at too.
pub(crate) fn counts(output: &str) -> Counts {
    let mut sum = Counts::default();
    for line in output.lines() {
        if let Some(result) = line.trim().strip_prefix("test result: ") {
            sum +=
                Counts { passed: number_before(result, " passed"), failed: number_before(result, " failed") };
        } else if let Some(closing) = closing_line(line.trim()) {
            sum += closing;
        }
    }
    sum
}

/// `N passed, N failed`, alone on its line.
fn closing_line(line: &str) -> Option<Counts> {
    let (passed, failed) = line.split_once(", ")?;
    let passed = passed.strip_suffix(" passed")?.parse().ok()?;
    let failed = failed.strip_suffix(" failed")?.parse().ok()?;
    Some(Counts { passed, failed })
}

fn number_before(text: &str, word: &str) -> u64 {
    let Some((before, _)) = text.split_once(word) else { return 0 };
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The names of the tests that failed, without the binary's name.
pub(crate) fn failed_names(output: &str) -> Vec<&str> {
    output.lines().filter_map(|line| line.trim().strip_prefix("test ")?.strip_suffix(" ... FAILED")).collect()
}

/// What the first of the failed tests wrote, by name: a panic's message, or the error that a test returned.
pub(crate) fn failures(output: &str) -> Vec<&str> {
    /// After these the rest is seldom about something else.
    const SHOWN: usize = 12;
    /// The error with its causes is at the end; before it stands what the test printed on its way.
    const LINES_EACH: usize = 40;
    let lines: Vec<&str> = output.lines().collect();
    let is_title = |line: &str| line.starts_with("---- ") && line.ends_with(" stdout ----");
    // `--show-output` shows what the others wrote in the same way.
    let failed = failed_names(output);
    let has_failed = |title: &str| failed.iter().any(|name| title == format!("---- {name} stdout ----"));
    let titles = lines.iter().enumerate().filter(|(_, line)| has_failed(line)).take(SHOWN);
    let mut shown = Vec::new();
    for (index, title) in titles {
        let behind = &lines[index + 1..];
        let end =
            behind.iter().position(|line| is_title(line) || *line == "failures:").unwrap_or(behind.len());
        let written = &behind[..end];
        shown.push(*title);
        shown.extend(&written[written.len().saturating_sub(LINES_EACH)..]);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\nrunning 3 tests\ntest a::b ... ok\ntest c ... FAILED\n\n\
        test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s\n\
        test result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 4 filtered out; finished in 1.00s\r\n";

    #[test]
    fn the_counts_of_all_binaries_are_added() {
        assert_eq!(counts(OUTPUT), Counts { passed: 12, failed: 1 });
        assert_eq!(
            counts("kernel 5.10: 2 passed, 0 failed in 3 s\n5 passed, 1 failed\n"),
            Counts { passed: 5, failed: 1 }
        );
        assert_eq!(counts("error: could not compile"), Counts::default());
    }

    #[test]
    fn a_failed_test_is_shown_with_its_panic_or_its_error() {
        let output = "test a ... FAILED\ntest b ... FAILED\ntest c ... ok\n\n\
            ---- c stdout ----\nall is well\n\nfailures:\n\n---- a stdout ----\nthread 'a' panicked at src/lib.rs:1:1:\n\
            the reason\n---- b stdout ----\nError: cannot serve\n\nCaused by:\n    no address\n\nfailures:\n    a\n";
        let lines = [
            "---- a stdout ----",
            "thread 'a' panicked at src/lib.rs:1:1:",
            "the reason",
            "---- b stdout ----",
            "Error: cannot serve",
            "",
            "Caused by:",
            "    no address",
            "",
        ];
        assert_eq!(failures(output), lines);
    }

    #[test]
    fn of_a_long_story_the_end_is_shown() {
        let story: String = (0..1000).map(|line| format!("{line}\n")).collect();
        let output = format!("test a ... FAILED\n---- a stdout ----\n{story}failures:\n    a\n");
        let shown = failures(&output);
        assert_eq!((shown.first(), shown.last()), (Some(&"---- a stdout ----"), Some(&"999")));
        assert_eq!(shown.len(), 41);
    }

    #[test]
    fn a_failed_test_is_named() {
        assert_eq!(failed_names(OUTPUT), ["c"]);
    }
}
