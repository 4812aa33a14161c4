//! ReferenceGrant: whether a reference into another namespace is permitted.

use std::sync::Arc;

use crate::snapshot::ObjectName;
use crate::store::Store;
use crate::store::objects::GATEWAY_GROUP;

/// Whether an object of `from_kind` (of the Gateway API) in `from_namespace` may refer to the object `to`. Grants live
/// in the target's namespace; each adds to the others.
pub(super) fn permits(
    store: &Store,
    from_kind: &str,
    from_namespace: &Arc<str>,
    to: (&str, &str, &ObjectName),
) -> bool {
    let (group, kind, target) = to;
    if *from_namespace == target.namespace {
        return true;
    }
    let first = ObjectName { namespace: target.namespace.clone(), name: "".into() };
    let grants = store.grants().range(first..).take_while(|(name, _)| name.namespace == target.namespace);
    grants.map(|(_, entry)| &entry.object).any(|grant| {
        let from = grant.from.iter().any(|from| {
            &*from.group == GATEWAY_GROUP && &*from.kind == from_kind && from.namespace == *from_namespace
        });
        from && grant.to.iter().any(|to| {
            &*to.group == group
                && &*to.kind == kind
                && to.name.as_ref().is_none_or(|name| *name == target.name)
        })
    })
}
