//! What may be watched: discovery says which kinds are served, access reviews which of them the agent may read.
//!
//! Discovery and reviews are open to every authenticated user, so that nothing else has to be asked at cluster scope, and
//! nothing is asked that would be denied (O54).

mod rules;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::authorization::v1::{SelfSubjectAccessReview, SelfSubjectRulesReview};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use serde_json::json;

use self::rules::covers;
use super::client::{Api, ApiError, ErrorClass};
use super::kinds::{CLASSES, GATEWAY_GROUP, Resource};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1";

/// Versions of the Gateway API group that any kind may be read at.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Which resources of the Gateway API group are served, by version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Served(BTreeMap<&'static str, BTreeSet<String>>);

/// Whether a kind can be watched somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    /// At this version.
    Here(&'static str),
    /// Says why.
    Missing(String),
    /// Says which verb is lacking.
    Forbidden(String),
}

/// Asks which kinds of the Gateway API are served.
pub(super) async fn discover(api: &Api) -> Result<Served, ApiError> {
    let mut served = Served::default();
    let Some(group) = optional(api.get::<APIGroup>(&format!("/apis/{GATEWAY_GROUP}")).await)? else {
        return Ok(served);
    };
    for version in VERSIONS {
        if !group.versions.iter().any(|served| served.version == version) {
            continue;
        }
        let path = format!("/apis/{GATEWAY_GROUP}/{version}");
        // It may have gone since the group was read.
        if let Some(list) = optional(api.get::<APIResourceList>(&path).await)? {
            let names =
                list.resources.into_iter().filter(|resource| resource.verbs.iter().any(|v| v == "watch"));
            served.0.insert(version, names.map(|resource| resource.name).collect());
        }
    }
    Ok(served)
}

fn optional<T>(result: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.class() == ErrorClass::Missing => Ok(None),
        Err(error) => Err(error),
    }
}

impl Served {
    /// The version to read a kind at, if there is one. Kinds of other groups are part of every Kubernetes.
    pub(super) fn version(&self, resource: &Resource) -> Option<&'static str> {
        let mut versions = resource.versions.iter().copied();
        if resource.group != GATEWAY_GROUP {
            return versions.next();
        }
        versions.find(|version| self.0.get(version).is_some_and(|names| names.contains(resource.plural)))
    }

    fn why_missing(&self, resource: &Resource) -> String {
        let wanted = resource.versions.join(" or ");
        if self.0.is_empty() {
            format!("the API server does not serve {GATEWAY_GROUP}")
        } else {
            format!("the API server does not serve {} of {GATEWAY_GROUP}/{wanted}", resource.plural)
        }
    }
}

/// Whether each of `resources` can be listed and watched in `namespace`, or in all; in the same order.
pub(super) async fn review(
    api: &Api,
    served: &Served,
    namespace: Option<&str>,
    resources: &[Resource],
) -> Result<Vec<Availability>, ApiError> {
    let rules = match namespace {
        Some(namespace) => rules_in(api, namespace).await?,
        // Rules can be asked for one namespace only, and those of its Roles do not hold in others.
        None => Vec::new(),
    };
    let mut found = Vec::with_capacity(resources.len());
    for resource in resources {
        let Some(version) = served.version(resource) else {
            found.push(Availability::Missing(served.why_missing(resource)));
            continue;
        };
        let mut lacking = Vec::new();
        for verb in ["list", "watch"] {
            // An authorizer that cannot enumerate its rules still answers a question.
            if !covers(&rules, verb, resource.group, resource.plural)
                && !may(api, namespace, verb, resource, None).await?
            {
                lacking.push(verb);
            }
        }
        found.push(if lacking.is_empty() {
            Availability::Here(version)
        } else {
            Availability::Forbidden(format!("no right to {} {}", lacking.join(" and "), resource.plural))
        });
    }
    Ok(found)
}

async fn rules_in(api: &Api, namespace: &str) -> Result<Vec<rules::Rule>, ApiError> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    });
    let path = format!("{REVIEWS}/selfsubjectrulesreviews");
    let answer: SelfSubjectRulesReview = api.ask(&path, &review).await?;
    Ok(answer.status.map(|status| status.resource_rules).unwrap_or_default())
}

/// Asks for one right; `namespace: None` is all of them, or cluster scope.
pub(super) async fn may(
    api: &Api,
    namespace: Option<&str>,
    verb: &str,
    resource: &Resource,
    name: Option<&str>,
) -> Result<bool, ApiError> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "namespace": namespace.unwrap_or_default(),
            "verb": verb,
            "group": resource.group,
            "resource": resource.plural,
            "name": name.unwrap_or_default(),
        }},
    });
    let path = format!("{REVIEWS}/selfsubjectaccessreviews");
    let answer: SelfSubjectAccessReview = api.ask(&path, &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Whether GatewayClasses can be read, and at which version.
pub(super) async fn classes(api: &Api, served: &Served) -> Result<Option<&'static str>, ApiError> {
    let Some(version) = served.version(&CLASSES) else { return Ok(None) };
    for verb in ["list", "watch"] {
        if !may(api, None, verb, &CLASSES, None).await? {
            return Ok(None);
        }
    }
    Ok(Some(version))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::Served;
    use crate::api::Kind;
    use crate::cluster::kinds::resource;

    fn served(versions: &[(&'static str, &[&str])]) -> Served {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        Served(versions.iter().map(|(version, of)| (*version, names(of))).collect::<BTreeMap<_, _>>())
    }

    // O53: a kind that is served at an older version of the same schema is read at that; another kind may be absent.
    #[test]
    fn each_kind_is_read_at_a_version_that_is_served() {
        let served =
            served(&[("v1", &["gateways", "httproutes"]), ("v1beta1", &["gateways", "referencegrants"])]);
        let version = |kind| served.version(&resource(kind));
        assert_eq!(version(Kind::Gateway), Some("v1"));
        assert_eq!(version(Kind::ReferenceGrant), Some("v1beta1"));
        assert_eq!(version(Kind::TcpRoute), None);
        assert_eq!(version(Kind::Service), Some("v1"));
        let why = served.why_missing(&resource(Kind::TcpRoute));
        assert_eq!(why, "the API server does not serve tcproutes of gateway.networking.k8s.io/v1");
    }
}
