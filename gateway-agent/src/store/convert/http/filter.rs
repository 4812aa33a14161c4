//! Filters of an HTTPRoute. What is not supported, or may not be done, is kept by name.

use std::num::NonZeroU16;
use std::sync::Arc;

use serde::Serialize;

use super::Draft;
use crate::api::grpcroutes::GrpcRouteRulesFilters;
use crate::api::httproutes::{
    HttpRouteRulesFilters, HttpRouteRulesFiltersCors, HttpRouteRulesFiltersRequestMirror,
    HttpRouteRulesFiltersRequestRedirect, HttpRouteRulesFiltersRequestRedirectPathType,
    HttpRouteRulesFiltersRequestRedirectScheme, HttpRouteRulesFiltersType as Type,
    HttpRouteRulesFiltersUrlRewrite, HttpRouteRulesFiltersUrlRewritePathType,
};
use crate::snapshot::{
    Cors, CorsSpec, HeaderChanges, HttpRouteMatch, PathChange, PathMatch, Redirect, RefusedHeader, Rewrite,
    Scheme,
};
use crate::store::convert::{optional, other_kind, port, shared};
use crate::store::objects::{BackendRef, HttpFilters, MirrorRef};
use crate::syntax::path;

/// The default of `requestRedirect.statusCode`.
const FOUND: u16 = 302;

/// The generated API types repeat the same shape under another name for requests and responses.
macro_rules! header_changes {
    ($modifier:expr) => {
        $modifier.as_ref().map(|modifier| {
            HeaderChanges::new(
                modifier.remove.iter().flatten().map(String::as_str),
                modifier.set.iter().flatten().map(|header| (header.name.as_str(), header.value.as_str())),
                modifier.add.iter().flatten().map(|header| (header.name.as_str(), header.value.as_str())),
            )
        })
    };
}

/// Likewise for redirects and rewrites.
macro_rules! path_change {
    ($spec:expr, $kinds:ident, $matches:expr) => {
        $spec
            .as_ref()
            .map(|spec| match spec.r#type {
                $kinds::ReplaceFullPath => full_path(spec.replace_full_path.as_deref()),
                $kinds::ReplacePrefixMatch => prefix(spec.replace_prefix_match.as_deref(), $matches),
            })
            .transpose()
    };
}

/// Takes in the filters of a rule whose matches are known.
pub(in crate::store::convert) fn of_rule(filters: &[HttpRouteRulesFilters], rule: &mut Draft) {
    rule.terms.filters = all("filters", filters, rule);
}

/// The same of a GRPCRoute's rule: fewer kinds, each as it is in an HTTPRoute.
pub(in crate::store::convert) fn of_rule_of_calls(filters: &[GrpcRouteRulesFilters], rule: &mut Draft) {
    let same = same("filters", filters, rule);
    of_rule(&same, rule);
}

/// Takes in the filters of one backend, likewise, of either kind of route.
pub(in crate::store::convert) fn of_backend<F: Serialize>(index: usize, filters: &[F], rule: &mut Draft) {
    let place = format!("backendRefs[{index}].filters");
    let same = same(&place, filters, rule);
    let filters = all(&place, &same, rule);
    rule.terms.backend_filters.push(filters);
}

/// The same shape under another name once more.
fn same<F: Serialize>(place: &str, filters: &[F], rule: &mut Draft) -> Vec<HttpRouteRulesFilters> {
    let same: Vec<HttpRouteRulesFilters> = filters
        .iter()
        .filter_map(|filter| serde_json::from_value(serde_json::to_value(filter).ok()?).ok())
        .collect();
    if same.len() != filters.len() {
        rule.terms.unsupported.push(place.to_owned());
    }
    same
}

fn all(place: &str, filters: &[HttpRouteRulesFilters], rule: &mut Draft) -> HttpFilters {
    let mut converted = HttpFilters::default();
    for (index, filter) in filters.iter().enumerate() {
        let name = type_name(&filter.r#type);
        let may_repeat = matches!(filter.r#type, Type::RequestMirror | Type::ExtensionRef);
        if !may_repeat && filters.iter().take(index).any(|earlier| earlier.r#type == filter.r#type) {
            rule.terms.incompatible.push(format!("{place}[{index}] ({name} cannot be repeated)"));
        } else if let Err(reason) = one(filter, &rule.matches, &mut converted) {
            rule.terms.unsupported.push(format!("{place}[{index}] ({name}: {reason})"));
        }
    }
    let has = |kind: &Type| filters.iter().any(|filter| filter.r#type == *kind);
    if has(&Type::RequestRedirect) && has(&Type::UrlRewrite) {
        rule.terms.incompatible.push(format!("{place} (RequestRedirect together with URLRewrite)"));
    }
    converted
}

const fn type_name(kind: &Type) -> &'static str {
    match kind {
        Type::RequestHeaderModifier => "RequestHeaderModifier",
        Type::ResponseHeaderModifier => "ResponseHeaderModifier",
        Type::RequestMirror => "RequestMirror",
        Type::RequestRedirect => "RequestRedirect",
        Type::UrlRewrite => "URLRewrite",
        Type::ExtensionRef => "ExtensionRef",
        Type::Cors => "CORS",
    }
}

/// The error says what of the filter cannot be served.
fn one(
    filter: &HttpRouteRulesFilters,
    matches: &[HttpRouteMatch],
    all: &mut HttpFilters,
) -> Result<(), String> {
    let headers = |changes: Option<Result<HeaderChanges, RefusedHeader>>| {
        changes.ok_or_else(missing)?.map_err(|refused| refused.to_string())
    };
    match filter.r#type {
        Type::RequestHeaderModifier => {
            all.headers.request = headers(header_changes!(filter.request_header_modifier))?;
        }
        Type::ResponseHeaderModifier => {
            all.headers.response = headers(header_changes!(filter.response_header_modifier))?;
        }
        Type::RequestMirror => {
            all.mirrors.push(mirror(filter.request_mirror.as_ref().ok_or_else(missing)?)?);
        }
        Type::RequestRedirect => {
            let spec = filter.request_redirect.as_ref().ok_or_else(missing)?;
            all.redirect = Some(Arc::new(redirect(spec, matches)?));
        }
        Type::UrlRewrite => {
            all.rewrite = rewrite(filter.url_rewrite.as_ref().ok_or_else(missing)?, matches)?;
        }
        Type::ExtensionRef => {
            let extension = filter.extension_ref.as_ref().ok_or_else(missing)?;
            all.extensions.push(format!("{}/{} {}", extension.group, extension.kind, extension.name));
        }
        Type::Cors => all.cors = Some(Arc::new(cors(filter.cors.as_ref().ok_or_else(missing)?)?)),
    }
    Ok(())
}

fn missing() -> String {
    "the filter's own field is missing".into()
}

fn mirror(spec: &HttpRouteRulesFiltersRequestMirror) -> Result<MirrorRef, String> {
    let HttpRouteRulesFiltersRequestMirror { backend_ref, fraction, percent } = spec;
    let (numerator, denominator) = match (percent, fraction) {
        (None, None) => (1, 1),
        (Some(percent), None) => (*percent, 100),
        (None, Some(fraction)) => (fraction.numerator, fraction.denominator.unwrap_or(100)),
        (Some(_), Some(_)) => return Err("only one of percent and fraction may be given".into()),
    };
    let number = |number: i32| u32::try_from(number).ok();
    match (number(numerator), number(denominator)) {
        (Some(numerator), Some(denominator)) if numerator <= denominator && denominator > 0 => {
            let backend = BackendRef {
                other_kind: other_kind(backend_ref.group.as_deref(), backend_ref.kind.as_deref()),
                namespace: optional(backend_ref.namespace.as_ref()),
                name: shared(&backend_ref.name),
                port: port(backend_ref.port),
                weight: 1,
            };
            Ok(MirrorRef { backend, numerator, denominator })
        }
        _ => Err(format!("{numerator} of {denominator} is no part")),
    }
}

fn cors(spec: &HttpRouteRulesFiltersCors) -> Result<Cors, String> {
    let HttpRouteRulesFiltersCors {
        allow_credentials,
        allow_headers,
        allow_methods,
        allow_origins,
        expose_headers,
        max_age,
    } = spec;
    Cors::new(CorsSpec {
        origins: allow_origins.as_deref().unwrap_or_default(),
        allows_credentials: allow_credentials.unwrap_or(false),
        methods: allow_methods.as_deref().unwrap_or_default(),
        headers: allow_headers.as_deref().unwrap_or_default(),
        exposed: expose_headers.as_deref().unwrap_or_default(),
        max_age: *max_age,
    })
}

fn redirect(
    spec: &HttpRouteRulesFiltersRequestRedirect,
    matches: &[HttpRouteMatch],
) -> Result<Redirect, String> {
    let HttpRouteRulesFiltersRequestRedirect { hostname, path, port: number, scheme, status_code } = spec;
    let status = match status_code {
        None => FOUND,
        Some(status @ (301 | 302 | 303 | 307 | 308)) => u16::try_from(*status).unwrap_or(FOUND),
        Some(other) => return Err(format!("statusCode {other}")),
    };
    Ok(Redirect {
        status,
        scheme: scheme.as_ref().map(|scheme| match scheme {
            HttpRouteRulesFiltersRequestRedirectScheme::Http => Scheme::Http,
            HttpRouteRulesFiltersRequestRedirectScheme::Https => Scheme::Https,
        }),
        hostname: hostname.as_deref().map(precise_hostname).transpose()?,
        port: port(*number).map(NonZeroU16::get),
        path: path_change!(path, HttpRouteRulesFiltersRequestRedirectPathType, matches)?,
    })
}

fn rewrite(spec: &HttpRouteRulesFiltersUrlRewrite, matches: &[HttpRouteMatch]) -> Result<Rewrite, String> {
    let HttpRouteRulesFiltersUrlRewrite { hostname, path } = spec;
    Ok(Rewrite {
        hostname: hostname.as_deref().map(precise_hostname).transpose()?,
        path: path_change!(path, HttpRouteRulesFiltersUrlRewritePathType, matches)?,
    })
}

/// In lower case. Nothing that would end the line or the host gets in.
fn precise_hostname(hostname: &str) -> Result<Arc<str>, String> {
    let is_label_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    if hostname.is_empty() || !hostname.bytes().all(is_label_byte) {
        return Err(format!("hostname {hostname:?}"));
    }
    Ok(hostname.to_ascii_lowercase().into())
}

fn full_path(path: Option<&str>) -> Result<PathChange, String> {
    let full = normal(path.unwrap_or_default())?;
    Ok(PathChange::Full(if full.is_empty() { "/".into() } else { full.into() }))
}

fn prefix(replacement: Option<&str>, matches: &[HttpRouteMatch]) -> Result<PathChange, String> {
    let [only] = matches else {
        return Err("replacePrefixMatch needs exactly one match".into());
    };
    let PathMatch::Prefix(matched) = &only.path else {
        return Err("replacePrefixMatch needs a match of type PathPrefix".into());
    };
    let replacement = normal(replacement.unwrap_or_default())?;
    Ok(PathChange::Prefix { matched: matched.clone(), replacement: replacement.trim_end_matches('/').into() })
}

/// What may replace a path: escaped where it must be, and with one meaning to every server.
fn normal(path: &str) -> Result<String, String> {
    let escaped = path::escaped(path);
    if escaped.is_empty() {
        return Ok(escaped);
    }
    let mut normal = String::new();
    match path::normalise(&escaped, &mut normal) {
        Ok(true) => Ok(normal),
        Ok(false) => Ok(escaped),
        Err(bad) => Err(format!("{path:?} is {bad}")),
    }
}
