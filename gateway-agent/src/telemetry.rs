//! Logs: `tracing` to standard error, as text or JSON.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;

/// The codec of HTTP/2 warns of frames that any client may send, as many as it likes. Before the filter of the user, who
/// may say otherwise.
const QUIET: &str = "h2=error";

/// Installs the process-wide subscriber. Fails on a malformed filter.
pub fn init(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter =
        EnvFilter::try_new(format!("{QUIET},{filter}")).with_context(|| format!("--log-level {filter}"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
    }
    Ok(())
}
