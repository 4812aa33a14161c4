//! Filters of an HTTPRoute. What is not supported, or may not be done, is kept by name.

use std::sync::Arc;

use crate::api::httproutes::{
    HttpRouteRulesBackendRefsFilters, HttpRouteRulesBackendRefsFiltersType, HttpRouteRulesFilters,
    HttpRouteRulesFiltersRequestRedirect, HttpRouteRulesFiltersRequestRedirectPath,
    HttpRouteRulesFiltersRequestRedirectPathType, HttpRouteRulesFiltersRequestRedirectScheme,
    HttpRouteRulesFiltersType,
};
use crate::snapshot::{HeaderChanges, MessageHeaders, PathChange, PathMatch, Redirect, Scheme};
use crate::store::objects::HttpRouteRule;
use crate::syntax::path;

/// The default of `requestRedirect.statusCode`.
const FOUND: u16 = 302;

/// The generated API types repeat the same shape under another name for requests, responses, rules and backends.
macro_rules! header_changes {
    ($modifier:expr) => {{
        let modifier = $modifier;
        HeaderChanges::new(
            modifier.remove.iter().flatten().map(String::as_str),
            modifier.set.iter().flatten().map(|header| (header.name.as_str(), header.value.as_str())),
            modifier.add.iter().flatten().map(|header| (header.name.as_str(), header.value.as_str())),
        )
    }};
}

/// Takes in one filter of a rule whose matches are known.
pub(super) fn of_rule(index: usize, filter: &HttpRouteRulesFilters, rule: &mut HttpRouteRule) {
    use HttpRouteRulesFiltersType as Type;
    let name = match filter.r#type {
        Type::RequestHeaderModifier => "RequestHeaderModifier",
        Type::ResponseHeaderModifier => "ResponseHeaderModifier",
        Type::RequestMirror => "RequestMirror",
        Type::RequestRedirect => "RequestRedirect",
        Type::UrlRewrite => "URLRewrite",
        Type::ExtensionRef => "ExtensionRef",
        Type::Cors => "CORS",
    };
    let done = match filter.r#type {
        Type::RequestHeaderModifier => match &filter.request_header_modifier {
            Some(modifier) => add(&mut rule.headers.request, header_changes!(modifier)),
            None => Ok(()),
        },
        Type::ResponseHeaderModifier => match &filter.response_header_modifier {
            Some(modifier) => add(&mut rule.headers.response, header_changes!(modifier)),
            None => Ok(()),
        },
        Type::RequestRedirect => match &filter.request_redirect {
            Some(spec) => redirect(spec, rule).map(|redirect| rule.redirect = Some(Arc::new(redirect))),
            None => Ok(()),
        },
        Type::ExtensionRef if let Some(extension) = &filter.extension_ref => {
            rule.extensions.push(format!("{}/{} {}", extension.group, extension.kind, extension.name));
            Ok(())
        }
        Type::RequestMirror | Type::UrlRewrite | Type::ExtensionRef | Type::Cors => Err(String::new()),
    };
    if let Err(reason) = done {
        rule.unsupported.push(named(&format!("filters[{index}]"), name, &reason));
    }
}

/// The filters of one backend.
pub(super) fn of_backend(
    index: usize,
    filters: &[HttpRouteRulesBackendRefsFilters],
    unsupported: &mut Vec<String>,
) -> MessageHeaders {
    use HttpRouteRulesBackendRefsFiltersType as Type;
    let mut headers = MessageHeaders::default();
    for filter in filters {
        let (name, done) = match filter.r#type {
            Type::RequestHeaderModifier => {
                let changes = filter.request_header_modifier.as_ref();
                let done = changes.map_or(Ok(()), |one| add(&mut headers.request, header_changes!(one)));
                ("RequestHeaderModifier", done)
            }
            Type::ResponseHeaderModifier => {
                let changes = filter.response_header_modifier.as_ref();
                let done = changes.map_or(Ok(()), |one| add(&mut headers.response, header_changes!(one)));
                ("ResponseHeaderModifier", done)
            }
            Type::RequestMirror => ("RequestMirror", Err(String::new())),
            Type::RequestRedirect => ("RequestRedirect", Err(String::new())),
            Type::UrlRewrite => ("URLRewrite", Err(String::new())),
            Type::ExtensionRef => ("ExtensionRef", Err(String::new())),
            Type::Cors => ("CORS", Err(String::new())),
        };
        if let Err(reason) = done {
            unsupported.push(named(&format!("backendRefs[{index}].filters"), name, &reason));
        }
    }
    headers
}

fn named(place: &str, name: &str, reason: &str) -> String {
    if reason.is_empty() { format!("{place} ({name})") } else { format!("{place} ({name}: {reason})") }
}

fn add(
    all: &mut HeaderChanges,
    further: Result<HeaderChanges, crate::snapshot::RefusedHeader>,
) -> Result<(), String> {
    *all = all.then(&further.map_err(|refused| refused.to_string())?);
    Ok(())
}

fn redirect(spec: &HttpRouteRulesFiltersRequestRedirect, rule: &HttpRouteRule) -> Result<Redirect, String> {
    let HttpRouteRulesFiltersRequestRedirect { hostname, path, port, scheme, status_code } = spec;
    let status = match status_code {
        None => FOUND,
        Some(status @ (301 | 302 | 303 | 307 | 308)) => u16::try_from(*status).unwrap_or(FOUND),
        Some(other) => return Err(format!("statusCode {other}")),
    };
    let hostname = hostname.as_ref().map(|hostname| hostname.to_ascii_lowercase());
    let is_label_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    if let Some(hostname) = hostname.as_ref().filter(|hostname| !hostname.bytes().all(is_label_byte)) {
        return Err(format!("hostname {hostname:?}"));
    }
    Ok(Redirect {
        status,
        scheme: scheme.as_ref().map(|scheme| match scheme {
            HttpRouteRulesFiltersRequestRedirectScheme::Http => Scheme::Http,
            HttpRouteRulesFiltersRequestRedirectScheme::Https => Scheme::Https,
        }),
        hostname: hostname.map(Into::into),
        port: super::super::port(*port).map(std::num::NonZeroU16::get),
        path: path.as_ref().map(|path| path_change(path, rule)).transpose()?,
    })
}

fn path_change(
    spec: &HttpRouteRulesFiltersRequestRedirectPath,
    rule: &HttpRouteRule,
) -> Result<PathChange, String> {
    match spec.r#type {
        HttpRouteRulesFiltersRequestRedirectPathType::ReplaceFullPath => {
            let full = path::escaped(spec.replace_full_path.as_deref().unwrap_or_default());
            Ok(PathChange::Full(if full.is_empty() { "/".into() } else { full.into() }))
        }
        HttpRouteRulesFiltersRequestRedirectPathType::ReplacePrefixMatch => {
            let [only] = rule.matches.as_slice() else {
                return Err("replacePrefixMatch needs exactly one match".into());
            };
            let PathMatch::Prefix(matched) = &only.path else {
                return Err("replacePrefixMatch needs a match of type PathPrefix".into());
            };
            let replacement = path::escaped(spec.replace_prefix_match.as_deref().unwrap_or_default());
            let replacement = replacement.trim_end_matches('/').into();
            Ok(PathChange::Prefix { matched: matched.clone(), replacement })
        }
    }
}
