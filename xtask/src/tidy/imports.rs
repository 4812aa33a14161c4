//! Which part of the tree may name what: the one-way flow of ARCHITECTURE.md, held mechanically.

use super::source::{names, paths, product_code};
use super::{File, Finding};

/// Code that decides and does nothing else: the same input gives the same output, on any machine, at any time. A path
/// ending in `/` is a folder, any other a file.
const PURE: &[&str] = &[
    "gateway-agent/src/certificate.rs",
    "gateway-agent/src/certificate/",
    "gateway-agent/src/control.rs",
    "gateway-agent/src/features.rs",
    "gateway-agent/src/snapshot.rs",
    "gateway-agent/src/snapshot/",
    "gateway-agent/src/provision.rs",
    "gateway-agent/src/provision/",
    "gateway-agent/src/syntax.rs",
    "gateway-agent/src/syntax/",
    "gateway-agent/src/store.rs",
    "gateway-agent/src/store/",
    "gateway-agent/src/translate.rs",
    "gateway-agent/src/translate/",
    "gateway-agent/src/status.rs",
    "gateway-agent/src/status/",
    "gateway-agent/src/api/",
    "gateway-agent/src/cluster/access/rules.rs",
    "gateway-agent/src/cluster/backoff.rs",
    "gateway-agent/src/cluster/board.rs",
    "gateway-agent/src/cluster/decode.rs",
    "gateway-agent/src/cluster/kinds.rs",
    "gateway-agent/src/cluster/lease/name.rs",
    "gateway-agent/src/cluster/lease/step.rs",
    "gateway-agent/src/cluster/stored/format.rs",
    "gateway-agent/src/cluster/sync.rs",
    "gateway-agent/src/cluster/watch/stream.rs",
    "gateway-agent/src/ebpf/plan.rs",
    "gateway-agent/src/ebpf/plan/",
    "gateway-agent/src/ebpf/encode.rs",
    "gateway-agent/src/proxy/h1.rs",
    "gateway-agent/src/proxy/h1/",
    "gateway-agent/src/proxy/http/balance.rs",
    "gateway-agent/src/proxy/http/identity.rs",
    "gateway-agent/src/proxy/http/json.rs",
    "gateway-agent/src/proxy/http/kept.rs",
    "gateway-agent/src/proxy/http/retry.rs",
    "gateway-agent/src/proxy/http/h2/budget.rs",
    "gateway-agent/src/proxy/message.rs",
    "gateway-agent/src/proxy/message/",
    "gateway-agent/src/proxy/proxy_protocol.rs",
    "gateway-agent/src/proxy/proxy_protocol/",
    "gateway-agent/src/proxy/tls/hello.rs",
    "gateway-agent/src/interner.rs",
    "gateway-agent/src/random.rs",
    "gateway-ebpf/common/src/",
];

/// The one file in a pure folder that hands its result to another thread.
const PURE_BUT: &[&str] = &["gateway-agent/src/snapshot/publish.rs"];

const NOT_IN_PURE: &[&str] = &[
    "tokio",
    "tokio_util",
    "kube::Client",
    "kube::client",
    "nix",
    "libc",
    "socket2",
    "std::fs",
    "std::env",
    "std::process",
    "std::thread",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::net::ToSocketAddrs",
    "Instant::now",
    "SystemTime",
    "Timestamp::now",
    "rand",
    "getrandom",
];

/// What may be named in some places only.
struct Only {
    what: &'static [&'static str],
    places: &'static [&'static str],
    why: &'static str,
}

const ONLY: &[Only] = &[
    Only {
        what: &["aya"],
        places: &["gateway-agent/src/ebpf.rs", "gateway-agent/src/ebpf/", "gateway-ebpf/"],
        why: "the kernel's maps and programs have one owner",
    },
    Only {
        what: &["tokio::net"],
        places: &["gateway-agent/src/proxy.rs", "gateway-agent/src/proxy/", "gateway-agent/src/admin.rs"],
        why: "sockets belong to the proxy and to the admin server",
    },
    Only {
        what: &["kube::Client", "kube::client", "kube::Api", "kube::api"],
        places: &["gateway-agent/src/cluster.rs", "gateway-agent/src/cluster/"],
        why: "the Kubernetes API is read and written in one place",
    },
    Only {
        what: &["std::env::var", "std::env::var_os", "std::env::args", "std::env::args_os"],
        // The holder starts its worker with the arguments that it got itself.
        places: &[
            "gateway-agent/src/args.rs",
            "gateway-agent/src/holder/parent.rs",
            "gateway-agent/build.rs",
        ],
        why: "the configuration comes in at one place",
    },
    Only {
        what: &["anyhow"],
        places: &[
            "gateway-agent/src/app.rs",
            "gateway-agent/src/app/",
            "gateway-agent/src/main.rs",
            "gateway-agent/src/telemetry.rs",
            "gateway-agent/build.rs",
        ],
        why: "errors of the library have types",
    },
];

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let Some(path) = file.path.to_str().filter(|path| is_product(path)) else { continue };
        let named = paths(&product_code(&file.text));
        if lies_in(path, PURE) && !lies_in(path, PURE_BUT) {
            for what in NOT_IN_PURE.iter().filter(|what| named.iter().any(|path| names(path, what))) {
                let text = format!("names {what}, but this code is pure: pass in what it gives");
                findings.push(Finding::new(&file.path, text));
            }
        }
        for only in ONLY.iter().filter(|only| !lies_in(path, only.places)) {
            for what in only.what.iter().filter(|what| named.iter().any(|path| names(path, what))) {
                let text = format!("names {what}: only {} may, since {}", only.places.join(", "), only.why);
                findings.push(Finding::new(&file.path, text));
            }
        }
    }
    findings
}

/// The agent and the kernel programs; tests and developer tools may name what they like.
fn is_product(path: &str) -> bool {
    let is_part = path.starts_with("gateway-agent/") || path.starts_with("gateway-ebpf/");
    let is_test = path.contains("/tests/") || path.contains("/benches/") || is_test_module(path);
    is_part && path.ends_with(".rs") && !is_test
}

/// A test module in a file of its own is declared under `cfg(test)` by its parent.
fn is_test_module(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    matches!(name, "tests.rs" | "testing.rs") || name.ends_with("_tests.rs")
}

fn lies_in(path: &str, places: &[&str]) -> bool {
    places.iter().any(|place| if place.ends_with('/') { path.starts_with(place) } else { path == *place })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        check(&[File { path: PathBuf::from(path), text: text.to_owned() }]).len()
    }

    #[test]
    fn pure_code_reads_no_clock_and_opens_no_socket() {
        assert_eq!(findings("gateway-agent/src/translate/route.rs", "use std::time::Instant;\n"), 0);
        assert_eq!(findings("gateway-agent/src/translate/route.rs", "let a = Instant::now();\n"), 1);
        assert_eq!(findings("gateway-agent/src/proxy/h1/parse.rs", "use tokio::io::AsyncRead;\n"), 1);
        assert_eq!(findings("gateway-agent/src/snapshot/publish.rs", "use tokio::sync::watch;\n"), 0);
        assert_eq!(findings("gateway-ebpf/common/src/flow.rs", "use std::{env, fs::read};\n"), 2);
    }

    #[test]
    fn a_rule_names_the_only_places() {
        assert_eq!(findings("gateway-agent/src/proxy/tcp.rs", "use aya::maps::HashMap;\n"), 1);
        assert_eq!(findings("gateway-agent/src/ebpf/apply.rs", "use aya::maps::HashMap;\n"), 0);
        assert_eq!(findings("gateway-agent/src/drain.rs", "use anyhow::Result;\n"), 1);
    }

    #[test]
    fn every_place_of_a_rule_is_in_the_tree() {
        let places = ONLY.iter().flat_map(|only| only.places).chain(PURE).chain(PURE_BUT);
        for place in places {
            assert!(crate::command::root().join(place).exists(), "{place}");
        }
    }

    #[test]
    fn tests_and_tools_are_free() {
        assert_eq!(findings("gateway-agent/tests/fixtures.rs", "use anyhow::Result;\n"), 0);
        assert_eq!(findings("gateway-agent/src/translate/tests.rs", "use std::fs;\n"), 0);
        assert_eq!(findings("xtask/src/main.rs", "use anyhow::Result;\n"), 0);
    }
}
