//! Names, labels and annotations of what is made for a Gateway.

use std::sync::Arc;

use crate::snapshot::ObjectName;

/// GEP-1762: every object made for a Gateway has it.
pub const GATEWAY_NAME_LABEL: &str = "gateway.networking.k8s.io/gateway-name";
pub const CLASS_NAME_LABEL: &str = "gateway.networking.k8s.io/gateway-class-name";
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY_LABEL`], and who owns fields of a server-side apply.
pub const MANAGER: &str = "gateway-agent";

// What makes an object ours: annotations, because label values hold 63 characters and names 253.
pub const CONTROLLER_ANNOTATION: &str = "gateway-agent.dev/controller-name";
pub const CLASS_ANNOTATION: &str = "gateway-agent.dev/gateway-class-name";
pub const GATEWAY_ANNOTATION: &str = "gateway-agent.dev/gateway-name";
/// Of the manifest that was applied last: tells that a field was removed from it, which comparing cannot.
pub const DIGEST_ANNOTATION: &str = "gateway-agent.dev/digest";

/// The length of a DNS label and of a label value.
const LABEL_LEN_MAX: usize = 63;
/// Hexadecimal digits behind a name that was cut: a trillion values, and what shares them must share 52 characters too.
const DIGEST_LEN: usize = 10;

/// `<gateway>-<class>` (GEP-1762) where that is a name that a Service can have.
pub fn service_name(gateway: &str, class: &str) -> String {
    let name = format!("{gateway}-{class}");
    let starts_well = name.starts_with(|first: char| first.is_ascii_lowercase());
    if name.len() <= LABEL_LEN_MAX && starts_well && !name.contains('.') {
        return name;
    }
    digested_service_name(gateway, class)
}

/// Where the plain name is another Gateway's: `a-b` of class `c` and `a` of class `b-c` have the same.
pub fn digested_service_name(gateway: &str, class: &str) -> String {
    let mut name = format!("{gateway}-{class}").replace('.', "-");
    // A Service's name is a DNS label of RFC 1035: it starts with a letter.
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        name.insert_str(0, "gw-");
    }
    // No name has a slash.
    shortened(&name, &format!("{gateway}/{class}"))
}

/// A name as the value of a label.
pub fn label_value(name: &str) -> String {
    if name.len() <= LABEL_LEN_MAX { name.to_owned() } else { shortened(name, name) }
}

fn shortened(name: &str, of: &str) -> String {
    let mut short = name.to_owned();
    short.truncate(name.floor_char_boundary(LABEL_LEN_MAX - 1 - DIGEST_LEN));
    let digest = format!("{:016x}", digest(of.as_bytes()));
    format!("{}-{}", short.trim_end_matches(['-', '.']), &digest[..DIGEST_LEN])
}

/// FNV-1a: stable over versions, which the standard library's hashes are not.
pub fn digest(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Whose an object is: the annotations of ours say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub controller: Arc<str>,
    pub class: Arc<str>,
    /// In the object's namespace.
    pub gateway: Arc<str>,
}

impl Marker {
    pub fn is_of(&self, controller: &str, class: &str, gateway: &ObjectName) -> bool {
        *self.controller == *controller && *self.class == *class && self.gateway == gateway.name
    }
}

#[cfg(test)]
mod tests {
    use super::{digest, digested_service_name, label_value, service_name};

    #[test]
    fn service_is_named_by_gateway_and_class() {
        assert_eq!(service_name("edge", "gateway-agent"), "edge-gateway-agent");
    }

    #[test]
    fn service_name_is_a_label_whatever_the_gateway_is_called() {
        let names =
            ["a.b", "1", "a", &"x".repeat(253), &"1.".repeat(126), &format!("{}.{}", "y".repeat(50), "z")];
        for gateway in names {
            for class in ["gateway-agent", "c.example", &"k".repeat(253)] {
                for name in [service_name(gateway, class), digested_service_name(gateway, class)] {
                    assert!(name.len() <= 63, "{name}");
                    assert!(name.starts_with(|first: char| first.is_ascii_lowercase()), "{name}");
                    assert!(name.ends_with(|last: char| last.is_ascii_alphanumeric()), "{name}");
                    let is_allowed =
                        |one: char| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '-';
                    assert!(name.chars().all(is_allowed), "{name}");
                }
            }
        }
    }

    #[test]
    fn long_names_that_begin_alike_stay_apart() {
        let long = |end: &str| format!("{}{end}", "x".repeat(200));
        assert_ne!(service_name(&long("a"), "c"), service_name(&long("b"), "c"));
        assert_ne!(label_value(&long("a")), label_value(&long("b")));
        assert_ne!(service_name("a.b", "c"), service_name("a-b", "c"));
        assert_ne!(digested_service_name("a-b", "c"), digested_service_name("a", "b-c"));
    }

    #[test]
    fn label_value_is_the_name_where_it_fits() {
        assert_eq!(label_value(&"x".repeat(63)), "x".repeat(63));
        assert_eq!(label_value(&"x".repeat(64)).len(), 63);
    }

    #[test]
    fn digest_is_that_of_the_published_vectors() {
        assert_eq!(digest(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(digest(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(digest(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
