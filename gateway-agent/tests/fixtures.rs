//! Manifests in, conditions and snapshot out: `tests/fixtures/NAME.yaml` and the `NAME.snap` beside it.
//!
//! The manifests go through the loader, so that schema, defaults and the rules of the API server are part of it. After a
//! deliberate change: `UPDATE_EXPECT=1 cargo test -p gateway-agent --test fixtures`, and read the diff.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use gateway_agent::certificate::Authorities;
use gateway_agent::manifests::Folder;
use gateway_agent::snapshot::{Revision, Snapshot};
use gateway_agent::status::view::{BackendView, SnapshotView, TargetView, snapshot_view};
use gateway_agent::status::{Applied, Served, join, render};
use gateway_agent::store::Store;
use gateway_agent::translate::{Config, translate};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn config() -> Config {
    let key = rcgen::KeyPair::generate().unwrap();
    let root = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
    Config {
        local_addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        system_authorities: Some(Arc::new(Authorities::parse(root.pem().as_bytes()).unwrap())),
        ..Config::default()
    }
}

/// What a folder comes to, with data paths that serve whatever they are given.
fn outcome(dir: &Path) -> String {
    let mut folder = Folder::new(dir);
    folder.reload(Instant::now());
    let load = folder.load();
    let mut text = String::new();
    for finding in &load.findings {
        writeln!(text, "finding: {}", finding.message).unwrap();
    }
    let mut store = Store::default();
    store.replace_all(&load.objects);
    let translation = translate(&store, &config());
    let snapshot = Snapshot { revision: Revision(1), listeners: translation.listeners };
    let listeners = snapshot.listeners.iter().map(|listener| (listener.key, Served::By("bind"))).collect();
    let proxy = Applied { revision: Revision(1), listeners };
    text.push_str(&render(join(&translation.statuses, snapshot.revision, &proxy, None).iter()));
    text.push('\n');
    text.push_str(&snapshot_text(&snapshot_view(&snapshot, &proxy, None)));
    text
}

fn snapshot_text(view: &SnapshotView) -> String {
    let mut text = String::new();
    for entry in &view.listeners {
        writeln!(text, "{} {}: {}", entry.entry, entry.protocol, entry.names.join(", ")).unwrap();
        for host in &entry.hosts {
            writeln!(text, "  {} at {}", host.hostname, host.listener).unwrap();
            for one in &host.matches {
                let conditions = one.conditions.as_deref().unwrap_or("any");
                let rule = one.rule.map(|rule| format!(" rule {rule}")).unwrap_or_default();
                let action = one.respond.map_or_else(|| backends(&one.backends), |status| status.to_string());
                writeln!(text, "    {conditions}: {}{rule}: {action}", one.route).unwrap();
            }
        }
        if let Some(service) = &entry.service {
            writeln!(text, "  route {}", service.route.as_deref().unwrap_or("none")).unwrap();
            writeln!(text, "    v4: {}", targets(&service.v4)).unwrap();
            writeln!(text, "    v6: {}", targets(&service.v6)).unwrap();
        }
    }
    text
}

fn backends(backends: &[BackendView]) -> String {
    let shares = backends.iter().map(|backend| {
        let service = backend.service.as_deref().unwrap_or("invalid");
        let tls = backend.tls.as_ref().map(|name| format!(" by TLS as {name}")).unwrap_or_default();
        format!("{} x {service} {:?}{tls}", backend.weight, backend.endpoints)
    });
    shares.collect::<Vec<_>>().join(", ")
}

fn targets(targets: &[TargetView]) -> String {
    let one = |target: &TargetView| match target.endpoint {
        Some(endpoint) => format!("{endpoint} x {}", target.slots),
        None => format!("refused x {}", target.slots),
    };
    targets.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[test]
fn fixtures_come_out_as_recorded() {
    let dir = workspace().join("tests/fixtures");
    let mut manifests: Vec<PathBuf> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    manifests.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    manifests.sort();
    assert!(!manifests.is_empty(), "no fixtures in {}", dir.display());
    for path in manifests {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(&path, folder.path().join("objects.yaml")).unwrap();
        expect_test::expect_file![path.with_extension("snap")].assert_eq(&outcome(folder.path()));
    }
}

#[test]
fn quickstart_comes_out_as_recorded() {
    let outcome = outcome(&workspace().join("deploy/quickstart"));
    expect_test::expect_file![workspace().join("tests/fixtures/quickstart.snap")].assert_eq(&outcome);
    assert!(!outcome.contains("finding"), "the quickstart has findings");
    assert!(
        !outcome.lines().any(|line| line.contains("  False   ") && !line.contains("NoConflicts")),
        "{outcome}"
    );
}
