//! ReferenceGrant: whether a reference into another namespace is permitted.

use std::sync::Arc;

use super::Config;
use super::conditions::Problem;
use crate::snapshot::ObjectName;
use crate::status::names::reason;
use crate::store::Store;
use crate::store::objects::GATEWAY_GROUP;

/// The object that refers: its kind, of the Gateway API, and its namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct From<'a> {
    pub(super) kind: &'static str,
    pub(super) namespace: &'a Arc<str>,
}

/// Why `from` may not refer to the `kind`, of the core group, that is called `target`. Decided before anyone looks
/// whether it exists, so that nothing is told about what may not be seen.
pub(super) fn check(
    store: &Store,
    config: &Config,
    from: From<'_>,
    kind: &str,
    target: &ObjectName,
) -> Result<(), Problem> {
    if !config.watched.contains(&target.namespace) {
        let message = format!("{kind} {target}: namespace {} is not watched by this agent", target.namespace);
        return Err(Problem::new(reason::REF_NOT_PERMITTED, message));
    }
    if permits(store, from, kind, target) {
        return Ok(());
    }
    let message = format!(
        "no ReferenceGrant in namespace {} permits {}s of namespace {} to refer to {kind} {}",
        target.namespace, from.kind, from.namespace, target.name
    );
    Err(Problem::new(reason::REF_NOT_PERMITTED, message))
}

/// Grants live in the target's namespace; each adds to the others.
fn permits(store: &Store, from: From<'_>, kind: &str, target: &ObjectName) -> bool {
    if *from.namespace == target.namespace {
        return true;
    }
    let first = ObjectName::new(target.namespace.clone(), "");
    let grants = store.grants().range(first..).take_while(|(name, _)| name.namespace == target.namespace);
    grants.map(|(_, entry)| &entry.object).any(|grant| {
        let is_from = grant.from.iter().any(|granted| {
            &*granted.group == GATEWAY_GROUP
                && &*granted.kind == from.kind
                && granted.namespace == *from.namespace
        });
        is_from
            && grant.to.iter().any(|to| {
                to.group.is_empty()
                    && &*to.kind == kind
                    && to.name.as_ref().is_none_or(|name| *name == target.name)
            })
    })
}
