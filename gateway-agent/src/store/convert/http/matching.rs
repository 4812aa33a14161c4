//! Matches of an HTTPRoute. What cannot be expressed is kept by name.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use crate::api::httproutes::{
    HttpRouteRulesMatches, HttpRouteRulesMatchesHeaders, HttpRouteRulesMatchesHeadersType,
    HttpRouteRulesMatchesMethod, HttpRouteRulesMatchesPath, HttpRouteRulesMatchesPathType,
    HttpRouteRulesMatchesQueryParams, HttpRouteRulesMatchesQueryParamsType,
};
use crate::snapshot::{HeaderMatch, HttpRouteMatch, PathMatch, Pattern, QueryMatch, TextMatch};
use crate::store::convert::shared;
use crate::syntax::path::{self, BadPath};

/// Regular expressions of one route. Each may hold 64 KiB, and some more per thread once it is used.
const PATTERNS_MAX: usize = 64;

/// How many regular expressions a route has had so far.
#[derive(Debug, Default)]
pub(in crate::store::convert) struct Patterns(usize);

impl Patterns {
    fn compile(&mut self, text: &str) -> Result<Pattern, String> {
        self.0 += 1;
        if self.0 > PATTERNS_MAX {
            return Err(format!("the route has more than {PATTERNS_MAX} of them"));
        }
        Pattern::new(text)
    }
}

/// Reads one match.
pub(in crate::store::convert) struct Reader<'a> {
    /// Where it stands in its rule.
    pub(in crate::store::convert) place: String,
    pub(in crate::store::convert) patterns: &'a mut Patterns,
    pub(in crate::store::convert) unsupported: &'a mut Vec<String>,
}

/// How a value is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::convert) enum Form {
    Exact,
    Expression,
}

impl Reader<'_> {
    pub(in crate::store::convert) fn read(&mut self, one: &HttpRouteRulesMatches) -> Option<HttpRouteMatch> {
        let HttpRouteRulesMatches { headers, method, path, query_params } = one;
        // All of them first, so that all is said.
        let path = self.path(path.as_ref());
        let headers = self.headers(headers.as_deref().unwrap_or_default());
        let query = self.query(query_params.as_deref().unwrap_or_default());
        Some(HttpRouteMatch {
            path: path?,
            method: method.as_ref().map(|method| shared(method_name(method))),
            headers: headers?,
            query: query?,
        })
    }

    pub(in crate::store::convert) fn pattern(&mut self, field: &str, text: &str) -> Option<Pattern> {
        let compiled = self.patterns.compile(text);
        compiled
            .map_err(|error| {
                let place = &self.place;
                self.unsupported.push(format!("{place}.{field} (RegularExpression {text:?}: {error})"));
            })
            .ok()
    }

    fn path(&mut self, path: Option<&HttpRouteRulesMatchesPath>) -> Option<PathMatch> {
        let Some(path) = path else {
            return Some(PathMatch::Prefix(shared("")));
        };
        let value = path.value.as_deref().unwrap_or("/");
        match path.r#type {
            // "A trailing slash is ignored" (`PathMatchPathPrefix`).
            None | Some(HttpRouteRulesMatchesPathType::PathPrefix) => {
                Some(PathMatch::Prefix(shared(normal_path(value).trim_end_matches('/'))))
            }
            Some(HttpRouteRulesMatchesPathType::Exact) => Some(PathMatch::Exact(shared(&normal_path(value)))),
            Some(HttpRouteRulesMatchesPathType::RegularExpression) => {
                self.pattern("path", value).map(PathMatch::Regex)
            }
        }
    }

    fn headers(&mut self, headers: &[HttpRouteRulesMatchesHeaders]) -> Option<Arc<[HeaderMatch]>> {
        self.header_matches(headers.iter().map(|header| {
            let form = match header.r#type {
                None | Some(HttpRouteRulesMatchesHeadersType::Exact) => Form::Exact,
                Some(HttpRouteRulesMatchesHeadersType::RegularExpression) => Form::Expression,
            };
            (header.name.as_str(), form, header.value.as_str())
        }))
    }

    /// Names with their values. Of entries with an equivalent name only the first counts (`HTTPHeaderMatch.name`).
    pub(in crate::store::convert) fn header_matches<'h>(
        &mut self,
        headers: impl Iterator<Item = (&'h str, Form, &'h str)>,
    ) -> Option<Arc<[HeaderMatch]>> {
        let mut seen = HashSet::new();
        let mut matches = Vec::new();
        for (index, (name, form, value)) in headers.enumerate() {
            let name = name.to_ascii_lowercase();
            if !seen.insert(name.clone()) {
                continue;
            }
            let value = match form {
                Form::Exact => Some(TextMatch::Exact(shared(value))),
                Form::Expression => self.pattern(&format!("headers[{index}]"), value).map(TextMatch::Regex),
            };
            matches.push(value.map(|value| HeaderMatch { name: name.into(), value }));
        }
        all(matches)
    }

    /// Names are case-sensitive here; of equal ones only the first counts.
    fn query(&mut self, params: &[HttpRouteRulesMatchesQueryParams]) -> Option<Arc<[QueryMatch]>> {
        let mut seen = HashSet::new();
        let mut matches = Vec::with_capacity(params.len());
        for (index, param) in params.iter().enumerate() {
            if !seen.insert(param.name.as_str()) {
                continue;
            }
            let value = match param.r#type {
                None | Some(HttpRouteRulesMatchesQueryParamsType::Exact) => {
                    Some(TextMatch::Exact(shared(&param.value)))
                }
                Some(HttpRouteRulesMatchesQueryParamsType::RegularExpression) => {
                    self.pattern(&format!("queryParams[{index}]"), &param.value).map(TextMatch::Regex)
                }
            };
            matches.push(value.map(|value| QueryMatch { name: shared(&param.name), value }));
        }
        all(matches)
    }
}

/// `None` where one is missing. That of no matches is one allocation for all.
fn all<T>(matches: Vec<Option<T>>) -> Option<Arc<[T]>> {
    if matches.is_empty() { Some(Arc::default()) } else { matches.into_iter().collect() }
}

/// As paths of requests are brought to: `/%61` is `/a`. What has no normal form matches no request, and stays.
fn normal_path(path: &str) -> Cow<'_, str> {
    let mut normal = String::new();
    match path::normalise(path, &mut normal) {
        Ok(true) => normal.into(),
        Ok(false) | Err(BadPath) => path.into(),
    }
}

const fn method_name(method: &HttpRouteRulesMatchesMethod) -> &'static str {
    match method {
        HttpRouteRulesMatchesMethod::Get => "GET",
        HttpRouteRulesMatchesMethod::Head => "HEAD",
        HttpRouteRulesMatchesMethod::Post => "POST",
        HttpRouteRulesMatchesMethod::Put => "PUT",
        HttpRouteRulesMatchesMethod::Delete => "DELETE",
        HttpRouteRulesMatchesMethod::Connect => "CONNECT",
        HttpRouteRulesMatchesMethod::Options => "OPTIONS",
        HttpRouteRulesMatchesMethod::Trace => "TRACE",
        HttpRouteRulesMatchesMethod::Patch => "PATCH",
    }
}
