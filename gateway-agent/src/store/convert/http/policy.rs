//! Timeouts and retries of a rule. The error is the field that cannot be served, and why.

use std::time::Duration;

use crate::api::httproutes::{HttpRouteRulesRetry, HttpRouteRulesTimeouts};
use crate::snapshot::{BACKOFF_DEFAULT, HttpTimeouts, Retry};
use crate::syntax::duration;

/// The default of `retry.attempts`.
const ATTEMPTS_DEFAULT: i64 = 1;

pub(super) fn timeouts(spec: &HttpRouteRulesTimeouts) -> Result<HttpTimeouts, String> {
    let HttpRouteRulesTimeouts { backend_request, request } = spec;
    let request = timeout("timeouts.request", request.as_deref())?;
    let backend_request = timeout("timeouts.backendRequest", backend_request.as_deref())?;
    match (request, backend_request) {
        (Some(request), Some(backend)) if backend > request => {
            Err("timeouts.backendRequest (longer than timeouts.request)".into())
        }
        _ => Ok(HttpTimeouts { request, backend_request }),
    }
}

/// Zero is none.
fn timeout(field: &str, text: Option<&str>) -> Result<Option<Duration>, String> {
    let parsed = text.map(|text| parse(field, text)).transpose()?;
    Ok(parsed.filter(|timeout| !timeout.is_zero()))
}

fn parse(field: &str, text: &str) -> Result<Duration, String> {
    duration::parse(text).ok_or_else(|| format!("{field} ({text:?} is not a duration)"))
}

pub(super) fn retry(spec: &HttpRouteRulesRetry) -> Result<Retry, String> {
    let HttpRouteRulesRetry { attempts, backoff, codes } = spec;
    let attempts = attempts.unwrap_or(ATTEMPTS_DEFAULT);
    let attempts = u32::try_from(attempts).ok().ok_or_else(|| format!("retry.attempts ({attempts})"))?;
    let mut statuses = Vec::new();
    for code in codes.iter().flatten() {
        match u16::try_from(*code) {
            Ok(status @ 400..=599) => statuses.push(status),
            _ => return Err(format!("retry.codes ({code})")),
        }
    }
    statuses.sort_unstable();
    statuses.dedup();
    let backoff = match backoff {
        None => BACKOFF_DEFAULT,
        Some(text) => parse("retry.backoff", text)?,
    };
    // Trying again at once is not offered: it makes a storm of an outage.
    if backoff.is_zero() {
        return Err("retry.backoff (must be longer than zero)".into());
    }
    Ok(Retry { attempts, codes: statuses.into(), backoff })
}
