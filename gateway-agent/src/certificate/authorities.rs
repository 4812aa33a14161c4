//! Authorities that certificates of others are verified by.
//!
//! **Invariant:** pure. Does not verify anything itself.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Certificates that are trusted as they are. Equal by these, in their order.
#[derive(Clone)]
pub struct Authorities {
    certificates: Box<[CertificateDer<'static>]>,
    /// Of all certificates: comparing and finding begin with it.
    digest: u64,
}

/// Why a text makes no authorities.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthoritiesError {
    #[error("is not PEM: {0}")]
    Pem(String),
    #[error("holds no certificate")]
    Empty,
    #[error("holds a certificate that is none: {0}")]
    Malformed(String),
}

impl Authorities {
    /// Of a bundle; one bad certificate makes it bad, for it tells of a mistake.
    pub fn parse(pem: &[u8]) -> Result<Self, AuthoritiesError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let certificates = certificates.map_err(|error| AuthoritiesError::Pem(error.to_string()))?;
        for certificate in &certificates {
            webpki::anchor_from_trusted_cert(certificate)
                .map_err(|error| AuthoritiesError::Malformed(error.to_string()))?;
        }
        Self::new(certificates).ok_or(AuthoritiesError::Empty)
    }

    /// Of these, as far as they can be read. `None` where none is left.
    pub fn readable(certificates: Vec<CertificateDer<'static>>) -> Option<Self> {
        let is_readable =
            |certificate: &CertificateDer<'static>| webpki::anchor_from_trusted_cert(certificate).is_ok();
        Self::new(certificates.into_iter().filter(is_readable).collect())
    }

    /// Those of all parts. `None` where there is no part.
    pub fn union(parts: &[Arc<Self>]) -> Option<Arc<Self>> {
        match parts {
            [] => None,
            [one] => Some(one.clone()),
            several => {
                let all = several.iter().flat_map(|part| part.certificates.iter().cloned());
                Self::new(all.collect()).map(Arc::new)
            }
        }
    }

    fn new(certificates: Vec<CertificateDer<'static>>) -> Option<Self> {
        let mut distinct: Vec<CertificateDer<'static>> = Vec::with_capacity(certificates.len());
        let mut seen = std::collections::HashSet::new();
        distinct.extend(certificates.into_iter().filter(|certificate| seen.insert(certificate.clone())));
        let mut hasher = DefaultHasher::new();
        distinct.hash(&mut hasher);
        let digest = hasher.finish();
        (!distinct.is_empty()).then(|| Self { certificates: distinct.into(), digest })
    }

    pub fn len(&self) -> usize {
        self.certificates.len()
    }

    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// As verification needs them.
    pub fn root_store(&self) -> RootCertStore {
        let mut store = RootCertStore::empty();
        // All were read before.
        store.add_parsable_certificates(self.certificates.iter().cloned());
        store
    }
}

impl PartialEq for Authorities {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest && self.certificates == other.certificates
    }
}

impl Eq for Authorities {}

impl Hash for Authorities {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rcgen::{CertificateParams, KeyPair};

    use super::{Authorities, AuthoritiesError};

    fn pem(name: &str) -> String {
        let key = KeyPair::generate().unwrap();
        CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap().pem()
    }

    fn parse(text: &str) -> Result<Authorities, AuthoritiesError> {
        Authorities::parse(text.as_bytes())
    }

    #[test]
    fn bundle_is_taken_whole_or_not_at_all() {
        let (a, b) = (pem("a"), pem("b"));
        assert_eq!(parse(&format!("{a}\nsome words\n{b}")).unwrap().len(), 2);
        assert_eq!(parse(&format!("{a}{a}")).unwrap().len(), 1);
        assert_eq!(parse(""), Err(AuthoritiesError::Empty));
        let broken = a.replace("-----END CERTIFICATE-----", "");
        assert!(matches!(parse(&broken), Err(AuthoritiesError::Pem(_))));
        let none = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(parse(&format!("{a}{none}")), Err(AuthoritiesError::Malformed(_))));
    }

    #[test]
    fn union_holds_each_certificate_once() {
        let (a, b) = (Arc::new(parse(&pem("a")).unwrap()), Arc::new(parse(&pem("b")).unwrap()));
        assert!(Arc::ptr_eq(&Authorities::union(std::slice::from_ref(&a)).unwrap(), &a));
        let both = Authorities::union(&[a.clone(), b.clone(), a.clone()]).unwrap();
        assert_eq!(both.len(), 2);
        assert_eq!(both, Authorities::union(&[a.clone(), b]).unwrap());
        assert_ne!(both, a);
        assert_eq!(Authorities::union(&[]), None);
    }
}
