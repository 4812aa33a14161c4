//! What was measured, as a table, and as a dated file in Markdown and JSON.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::figure::{Figure, HEADS};
use super::load::Outcome;
use crate::command::{output, program, root};

pub(super) struct Report {
    path: &'static str,
    /// Day and minute, UTC.
    date: String,
    kernel: String,
    cpu: String,
    commit: String,
    rows: Vec<Row>,
    /// What is no work in rounds.
    pub(super) figures: Vec<Figure>,
    pub(super) targets: Vec<Target>,
    pub(super) notes: Vec<String>,
    /// Why the measurement failed, whatever it measured; said at the very end.
    pub(super) fault: Option<String>,
}

/// All rounds of one candidate at one kind of work.
pub(super) struct Row {
    candidate: String,
    work: String,
    unit: &'static str,
    outcomes: Vec<Outcome>,
}

pub(super) struct Target {
    text: String,
    value: f64,
    bound: f64,
    is_upper: bool,
}

impl Target {
    pub(super) fn at_most(text: &str, value: f64, bound: f64) -> Self {
        Self { text: text.to_owned(), value, bound, is_upper: true }
    }

    pub(super) fn at_least(text: &str, value: f64, bound: f64) -> Self {
        Self { text: text.to_owned(), value, bound, is_upper: false }
    }

    fn is_met(&self) -> bool {
        if self.is_upper { self.value <= self.bound } else { self.value >= self.bound }
    }

    fn line(&self) -> String {
        let sign = if self.is_upper { '≤' } else { '≥' };
        let met = if self.is_met() { "met" } else { "NOT MET" };
        format!("{}: {:.2} ({sign} {}): {met}", self.text, self.value, self.bound)
    }
}

impl Row {
    fn sorted(&self, read: impl Fn(&Outcome) -> f64) -> Vec<f64> {
        let mut values: Vec<f64> = self.outcomes.iter().map(read).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn median(&self, read: impl Fn(&Outcome) -> f64) -> f64 {
        let values = self.sorted(read);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The median of each figure by itself.
    pub(super) fn medians(&self) -> Outcome {
        Outcome {
            gateway: self.median(|outcome| outcome.gateway),
            total: self.median(|outcome| outcome.total),
            rate: self.median(|outcome| outcome.rate),
            p50_us: self.median(|outcome| outcome.p50_us),
            p99_us: self.median(|outcome| outcome.p99_us),
            paced: self.median(|outcome| outcome.paced),
            rss_mb: self.median(|outcome| outcome.rss_mb),
        }
    }

    /// `median (min-max)`.
    fn range(&self, read: impl Fn(&Outcome) -> f64 + Copy) -> String {
        let values = self.sorted(read);
        let (min, max) = (values.first().unwrap_or(&f64::NAN), values.last().unwrap_or(&f64::NAN));
        format!("{} ({}-{})", short(self.median(read)), short(*min), short(*max))
    }

    fn rate(&self) -> String {
        let rate = self.medians().rate;
        if self.unit == "ms/GB" { format!("{:.1} Gb/s", rate * 8.0 / 1e9) } else { format!("{rate:.0}/s") }
    }

    fn latency(&self) -> String {
        let medians = self.medians();
        let at = if medians.paced > 0.0 { format!(" at {:.0}/s", medians.paced) } else { String::new() };
        if medians.p99_us > 0.0 {
            format!("{:.0}/{:.0}{at}", medians.p50_us, medians.p99_us)
        } else {
            "-".into()
        }
    }

    fn memory(&self) -> String {
        let memory = self.medians().rss_mb;
        if memory > 0.0 { short(memory) } else { "-".into() }
    }

    fn json(&self) -> Value {
        let rounds: Vec<Value> = self
            .outcomes
            .iter()
            .map(|outcome| {
                json!({
                    "gateway": outcome.gateway, "total": outcome.total, "rate": outcome.rate,
                    "p50_us": outcome.p50_us, "p99_us": outcome.p99_us, "paced": outcome.paced,
                    "rss_mb": outcome.rss_mb,
                })
            })
            .collect();
        json!({"candidate": self.candidate, "work": self.work, "unit": self.unit, "rounds": rounds})
    }
}

/// Three significant digits or whole numbers.
fn short(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

impl Report {
    pub(super) fn new(path: &'static str) -> Result<Self> {
        let cpu = fs::read_to_string("/proc/cpuinfo")?;
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
        Ok(Self {
            path,
            date: output(program("date").args(["-u", "+%Y-%m-%d %H:%M"]))?.trim().to_owned(),
            kernel: output(program("uname").arg("-r"))?.trim().to_owned(),
            cpu: model.trim_start_matches([' ', '\t', ':']).to_owned(),
            commit: output(program("git").args(["rev-parse", "--short", "HEAD"]))
                .unwrap_or_default()
                .trim()
                .to_owned(),
            rows: Vec::new(),
            figures: Vec::new(),
            targets: Vec::new(),
            notes: Vec::new(),
            fault: None,
        })
    }

    pub(super) fn add(&mut self, candidate: &str, work: &str, unit: &'static str, outcome: Outcome) {
        match self.rows.iter_mut().find(|row| row.candidate == candidate && row.work == work) {
            Some(row) => row.outcomes.push(outcome),
            None => self.rows.push(Row {
                candidate: candidate.to_owned(),
                work: work.to_owned(),
                unit,
                outcomes: vec![outcome],
            }),
        }
    }

    pub(super) fn row(&self, candidate: &str, work: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.candidate == candidate && row.work == work)
    }

    /// Rows of one kind of work together, in the order in which they were first measured.
    fn ordered(&self) -> Vec<&Row> {
        let mut works: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !works.contains(&row.work.as_str()) {
                works.push(&row.work);
            }
        }
        works.into_iter().flat_map(|work| self.rows.iter().filter(move |row| row.work == work)).collect()
    }

    pub(super) fn print(&self) {
        if !self.figures.is_empty() {
            self.print_figures();
        }
        if !self.rows.is_empty() {
            self.print_rows();
        }
        println!();
        for target in &self.targets {
            println!("target: {}", target.line());
        }
        for note in &self.notes {
            println!("note: {note}");
        }
    }

    fn print_figures(&self) {
        let heads = HEADS.map(str::to_owned);
        println!();
        for [what, routes, candidate, unit, cells @ ..] in
            [heads].into_iter().chain(self.figures.iter().map(Figure::cells))
        {
            let cells = cells.map(|cell| format!("{cell:>16}")).concat();
            println!("{what:<44} {routes:>6} {candidate:<10} {unit:<8}{cells}");
        }
    }

    fn print_rows(&self) {
        println!(
            "\n{:<14} {:<22} {:<14} {:<24} {:<24} {:>12} {:>24} {:>8}",
            "work",
            "candidate",
            "unit",
            "gateway CPU (min-max)",
            "total CPU (min-max)",
            "rate",
            "p50/p99 µs",
            "RSS MB"
        );
        for row in self.ordered() {
            println!(
                "{:<14} {:<22} {:<14} {:<24} {:<24} {:>12} {:>24} {:>8}",
                row.work,
                row.candidate,
                row.unit,
                row.range(|outcome| outcome.gateway),
                row.range(|outcome| outcome.total),
                row.rate(),
                row.latency(),
                row.memory()
            );
        }
    }

    /// Writes `tests/bench/results/DATE-PATH.md` and `.json`.
    pub(super) fn write(&self) -> Result<()> {
        let folder = root().join("tests/bench/results");
        fs::create_dir_all(&folder)?;
        let name = format!("{}-{}", self.date.replace(' ', "T").replace(':', ""), self.path);
        let json = json!({
            "path": self.path, "date": self.date, "kernel": self.kernel, "cpu": self.cpu, "commit": self.commit,
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
            "figures": self.figures.iter().map(Figure::json).collect::<Vec<_>>(),
            "targets": self.targets.iter().map(|target| json!({
                "text": target.text, "value": target.value, "bound": target.bound, "met": target.is_met(),
            })).collect::<Vec<_>>(),
            "notes": self.notes,
        });
        fs::write(folder.join(format!("{name}.json")), format!("{json:#}\n")).context("write the result")?;
        let path = folder.join(format!("{name}.md"));
        fs::write(&path, self.markdown()?).context("write the result")?;
        println!("\nwritten: {}", path.strip_prefix(root()).unwrap_or(&path).display());
        Ok(())
    }

    fn markdown(&self) -> Result<String> {
        let Self { path, date, kernel, cpu, commit, .. } = self;
        let mut text = format!("# {path}, {date} UTC\n\nKernel {kernel}, {cpu}, commit {commit}. ");
        if self.figures.is_empty() {
            self.rows_as_table(&mut text)?
        } else {
            self.figures_as_table(&mut text)?
        }
        text += "\n";
        for target in &self.targets {
            writeln!(text, "- {}", target.line())?;
        }
        for note in &self.notes {
            writeln!(text, "- {note}")?;
        }
        Ok(text)
    }

    fn figures_as_table(&self, text: &mut String) -> Result<()> {
        writeln!(text, "All samples are in the JSON file.\n")?;
        writeln!(text, "| {} |\n{}|", HEADS.join(" | "), "|---".repeat(HEADS.len()))?;
        for figure in &self.figures {
            writeln!(text, "| {} |", figure.cells().join(" | "))?;
        }
        Ok(())
    }

    fn rows_as_table(&self, text: &mut String) -> Result<()> {
        writeln!(
            text,
            "CPU time by the scheduler's account: gateway is its processes alone; total is client, gateway, backend \
             and the kernel's packet threads. Median (min-max) of {} rounds; rate and latency are wall clock, for \
             information.\n",
            self.rows.first().map_or(0, |row| row.outcomes.len()),
        )?;
        *text += "| work | candidate | unit | gateway CPU | total CPU | rate | p50/p99 µs | RSS MB |\n|---|---|---|---|---|---|---|---|\n";
        for row in self.ordered() {
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} |",
                row.work,
                row.candidate,
                row.unit,
                row.range(|outcome| outcome.gateway),
                row.range(|outcome| outcome.total),
                row.rate(),
                row.latency(),
                row.memory()
            )?;
        }
        Ok(())
    }
}
