//! What the demo prints: aligned, coloured on a terminal only.

use std::io::IsTerminal as _;

use lab::{Family, Lab};

pub(super) struct Screen {
    is_colour: bool,
}

/// Column widths: a command, two answers, the data path. Together with the margins 132 columns.
const COMMAND: usize = 60;
const ANSWER: usize = 23;

impl Screen {
    pub(super) fn new() -> Self {
        Self { is_colour: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.is_colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(super) fn title(&self, text: &str) {
        println!("\n{}\n", self.paint("1", text));
    }

    pub(super) fn section(&self, text: &str) {
        println!("\n{}", self.paint("1;36", text));
    }

    /// A line that shows a program started.
    pub(super) fn command(&self, command: &str, result: &str) {
        println!("\n  $ {command}   {}", self.paint("32", result));
    }

    pub(super) fn network(&self, lab: &Lab) {
        let pair = |v4: std::net::IpAddr, v6: std::net::IpAddr| format!("{v4}, {v6}");
        let client = pair(lab.client_address(Family::V4), lab.client_address(Family::V6));
        let gateway = pair(lab.gateway_address(Family::V4), lab.gateway_address(Family::V6));
        let trunk = format!("client {client} ── gateway {gateway} ─");
        let width = trunk.chars().count();
        for index in 1..=super::N_BACKENDS {
            let backend =
                pair(lab.backend_address(index, Family::V4), lab.backend_address(index, Family::V6));
            let serves = if index == 3 { "web-next" } else { "web, TLS, TCP, UDP" };
            let (left, branch) = match index {
                1 => ("", "┌"),
                2 => (trunk.as_str(), "┼"),
                _ => ("", "└"),
            };
            println!("  {left:<width$}{branch}─ backend-{index} {backend:<22} {serves}");
        }
    }

    /// What the columns of [`Self::row`] are.
    pub(super) fn heading(&self, text: &str) {
        let columns =
            format!("  {:<COMMAND$} {:<ANSWER$} {:<ANSWER$} data path", "", "over IPv4", "over IPv6");
        println!("\n{}", self.paint("2", &columns));
        println!("{}", self.paint("1;36", text));
    }

    /// One command, its answers over IPv4 and IPv6, and the data path that served them.
    pub(super) fn row(&self, command: &str, answers: &[String], path: &str) {
        let shown = shorten(command);
        let mut line = format!("  {shown:<COMMAND$}");
        for answer in answers {
            line += &format!(" {answer:<ANSWER$}");
        }
        println!("{line} {} {}", self.paint("33", path), self.paint("32", "✓"));
    }

    pub(super) fn fact(&self, what: &str, result: &str) {
        println!("  {what:<COMMAND$} {result} {}", self.paint("32", "✓"));
    }

    pub(super) fn table(&self, table: &str) {
        for line in table.lines() {
            println!("  {line}");
        }
    }
}

/// Leaves out of a command line what does not help the reader: quiet flags, deadlines, the filter of the output.
fn shorten(command: &str) -> String {
    let command = command.split(" </dev/null").next().unwrap_or_default();
    let mut words = command.split_whitespace().filter(|word| !matches!(*word, "-s" | "-46")).peekable();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if matches!(word, "--max-time" | "-CAfile" | "--cacert" | "-o" | "-connect") {
            words.next();
        } else if word == "-w" {
            words.next();
            words.next();
            words.next();
        } else {
            kept.push(word);
        }
    }
    kept.join(" ")
}

/// The last table of conditions in the agent's output that holds every object, not only those that changed.
pub(super) fn last_table(log: &str) -> Option<String> {
    // A line of the log begins with the year, a line of the table with a kind or blanks.
    let is_of_table =
        |line: &&str| !line.is_empty() && !line.starts_with(|first: char| first.is_ascii_digit());
    let lines: Vec<&str> = log.lines().collect();
    let starts =
        lines.iter().enumerate().filter(|(_, line)| line.starts_with("KIND ")).map(|(start, _)| start);
    starts
        .map(|start| {
            lines.iter().skip(start).take_while(|line| is_of_table(line)).copied().collect::<Vec<_>>()
        })
        .rfind(|table| {
            ["Gateway ", "UDPRoute "].iter().all(|kind| table.iter().any(|line| line.starts_with(kind)))
        })
        .map(|table| table.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::{last_table, shorten};

    #[test]
    fn last_whole_table_is_found_between_log_lines() {
        let log = "KIND x\nGateway a\nUDPRoute b\n2026 INFO c\nKIND y\nGateway d\n2026 INFO e\n";
        assert_eq!(last_table(log).as_deref(), Some("KIND x\nGateway a\nUDPRoute b"));
        assert_eq!(last_table("KIND x\nGateway a\n"), None);
    }

    #[test]
    fn shown_commands_hold_what_matters() {
        assert_eq!(shorten("curl -s -46 --max-time 10 http://a/"), "curl http://a/");
        assert_eq!(
            shorten("curl -s -46 --max-time 10 -o /dev/null -w '%{http_code} no route' http://b/"),
            "curl http://b/"
        );
        assert_eq!(
            shorten("openssl s_client -46 -connect h:443 -servername n -CAfile f </dev/null 2>&1 | grep x"),
            "openssl s_client -servername n"
        );
    }
}
