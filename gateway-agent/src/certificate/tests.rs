use rcgen::{CertificateParams, KeyPair};

use super::{Certificate, CertificateError, Fit};

/// Chain and key for these names.
fn pem(names: &[&str]) -> (String, String) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn parse((chain, key): &(String, String)) -> Result<Certificate, CertificateError> {
    Certificate::parse(chain.as_bytes(), key.as_bytes())
}

#[test]
fn names_are_those_of_the_certificate_in_lower_case() {
    let certificate = parse(&pem(&["App.example.com", "*.Example.org"])).unwrap();
    assert_eq!(certificate.names().join(" "), "app.example.com *.example.org");
}

#[test]
fn wildcard_of_a_certificate_stands_for_one_label() {
    let certificate = parse(&pem(&["a.example.com", "*.example.com"])).unwrap();
    for (name, expected) in [
        ("a.example.com", Some(Fit::Exact)),
        ("b.example.com", Some(Fit::Wildcard)),
        ("a.b.example.com", None),
        ("example.com", None),
        ("", None),
    ] {
        assert_eq!(certificate.fit(name), expected, "{name}");
    }
}

#[test]
fn key_must_belong_to_the_certificate() {
    let (one, other) = (pem(&["a"]), pem(&["a"]));
    assert!(parse(&one).is_ok());
    assert_eq!(parse(&(one.0, other.1)), Err(CertificateError::KeyMismatch));
}

#[test]
fn what_cannot_be_read_says_which_part_it_is() {
    let (chain, key) = pem(&["a"]);
    let broken = |text: &str| text.replacen("\nM", "\n!M", 1);
    let check = |chain: &str, key: &str| Certificate::parse(chain.as_bytes(), key.as_bytes()).unwrap_err();
    assert_eq!(check("", &key), CertificateError::NoCertificate);
    assert_eq!(check(&key, &key), CertificateError::NoCertificate);
    assert_eq!(check(&chain, ""), CertificateError::NoKey);
    assert_eq!(check(&chain, &chain), CertificateError::NoKey);
    assert!(matches!(check(&broken(&chain), &key), CertificateError::ChainPem(_)));
    assert!(matches!(check(&chain, &broken(&key)), CertificateError::KeyPem(_)));
    let empty = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    assert!(matches!(check(empty, &key), CertificateError::Malformed(_)));
    let foreign = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
    assert_eq!(check(&chain, foreign), CertificateError::UnsupportedKey);
    assert_eq!(check(&chain.repeat(17), &key), CertificateError::ChainTooLong);
}

#[test]
fn chain_may_follow_and_text_may_stand_between() {
    let (own, key) = pem(&["a"]);
    let (further, _) = pem(&["b"]);
    let chain = format!("# server\n{own}\n# issuer\n{further}");
    let certificate = parse(&(chain, key)).unwrap();
    assert_eq!(certificate.names().join(" "), "a");
    assert_eq!(certificate.certified_key().cert.len(), 2);
}

#[test]
fn equal_chains_are_equal_and_the_key_is_never_shown() {
    let text = pem(&["a.example.com"]);
    let (one, again, other) =
        (parse(&text).unwrap(), parse(&text).unwrap(), parse(&pem(&["a.example.com"])).unwrap());
    assert_eq!(one, again);
    assert_ne!(one, other);
    assert_eq!(format!("{one:?}"), r#"Certificate { names: ["a.example.com"], n_chain: 1, .. }"#);
}
