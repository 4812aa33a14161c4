//! `metadata.resourceVersion`.
//!
//! **Invariant:** pure.

/// Which of its versions an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceVersion(Inner);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Inner {
    /// What the API server gives out: numbers that grow.
    Number(u64),
    /// Anything else can only be told apart.
    Other(Box<str>),
}

impl ResourceVersion {
    /// Whether `other` came before it, as far as that can be told.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Inner::Number(own), Inner::Number(others)) => own > others,
            _ => false,
        }
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        Self(text.parse().map_or_else(|_| Inner::Other(text.into()), Inner::Number))
    }
}

#[cfg(test)]
mod tests {
    use super::ResourceVersion;

    #[test]
    fn only_numbers_have_an_order() {
        let is_newer = |one: &str, other: &str| ResourceVersion::from(one).is_newer_than(&other.into());
        assert!(is_newer("10", "9") && !is_newer("9", "10") && !is_newer("9", "9"));
        assert!(!is_newer("b", "a") && !is_newer("10", "a") && !is_newer("b", "9"));
        assert!(ResourceVersion::from("b") == "b".into() && ResourceVersion::from("b") != "a".into());
    }
}
