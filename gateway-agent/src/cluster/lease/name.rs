//! What the leases are called.
//!
//! **Invariant:** pure, and the same in every version: two versions that disagree would both write.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::LeaseName;
use crate::cluster::Scope;

/// As a label's value, so that it can be one.
const MAX_NAME: usize = 63;

const PREFIX: &str = "gateway-agent-";

/// One lease for each class in each watched namespace; for all namespaces one for each class, in the agent's own.
pub(super) fn names<'a>(
    scope: &Scope,
    own_namespace: &Arc<str>,
    classes: impl IntoIterator<Item = &'a str> + Clone,
) -> BTreeSet<LeaseName> {
    let namespaces = match scope {
        Scope::All => BTreeSet::from([own_namespace.clone()]),
        Scope::Namespaces(namespaces) => namespaces.clone(),
    };
    let of = |namespace: &Arc<str>| {
        let namespace = namespace.clone();
        classes.clone().into_iter().map(move |class| LeaseName {
            namespace: namespace.clone(),
            class: class.into(),
            name: name(class).into(),
        })
    };
    namespaces.iter().flat_map(of).collect()
}

/// The class after our prefix; where that is too long, or no name of a lease, as much of it as fits and a hash.
fn name(class: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let ends_well = class.bytes().next_back().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if class.bytes().all(is_plain) && ends_well && PREFIX.len() + class.len() <= MAX_NAME {
        return format!("{PREFIX}{class}");
    }
    let hash = format!("-{:016x}", fnv(class.as_bytes()));
    let room = MAX_NAME - PREFIX.len() - hash.len();
    let readable: String =
        class.bytes().take(room).map(|byte| if is_plain(byte) { char::from(byte) } else { '-' }).collect();
    format!("{PREFIX}{readable}{hash}")
}

/// FNV-1a, 64 bits: <http://www.isthe.com/chongo/tech/comp/fnv/>.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Scope, fnv, name, names};

    #[test]
    fn a_short_class_is_in_the_name() {
        assert_eq!(name("gateway-agent"), "gateway-agent-gateway-agent");
    }

    #[test]
    fn long_and_dotted_classes_have_names_of_their_own() {
        let classes =
            ["example.com", "example-com", &"x".repeat(253), &format!("{}y", "x".repeat(252)), "", "x-"];
        let names: BTreeSet<String> = classes.iter().map(|class| name(class)).collect();
        assert_eq!(names.len(), classes.len(), "{names:?}");
        for name in names {
            assert!(name.len() <= 63, "{name}");
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            );
            assert!(name.ends_with(|last: char| last.is_ascii_alphanumeric()), "{name}");
        }
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn there_is_one_lease_per_class_and_namespace() {
        let own = "own".into();
        let two = Scope::Namespaces(["a".into(), "b".into()].into());
        assert_eq!(names(&two, &own, ["x", "y"]).len(), 4);
        let all = names(&Scope::All, &own, ["x", "y"]);
        assert!(all.len() == 2 && all.iter().all(|name| &*name.namespace == "own"), "{all:?}");
    }
}
