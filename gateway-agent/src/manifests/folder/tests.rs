//! The folder over time. Time is an argument, so nothing here waits.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use expect_test::{Expect, expect};
use tempfile::TempDir;

use super::{Folder, Load, MAX_FILE_BYTES, MAX_FILES, PATIENCE, SETTLE};

struct Rig {
    temp: TempDir,
    folder: Folder,
    now: Instant,
}

fn service(name: &str, port: i32) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: {port}}}]}}\n"
    )
}

impl Rig {
    fn new(files: &[(&str, &str)]) -> Self {
        let temp = tempfile::tempdir().expect("a folder");
        let dir = temp.path().join("m");
        fs::create_dir(&dir).expect("a folder");
        let mut rig = Self { folder: Folder::new(dir), temp, now: Instant::now() };
        for (name, content) in files {
            rig.write(name, content);
        }
        assert!(rig.look(), "the first load is always new");
        rig
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.dir().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).expect("a file");
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).expect("a file to remove");
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    /// Whether there is a new load.
    fn look(&mut self) -> bool {
        self.folder.reload(self.now).load.is_some()
    }

    /// Looks until nothing more is expected to come by itself.
    fn settle(&mut self) {
        while let Some(wait) = self.folder.reload(self.now).retry_after {
            self.wait(wait);
        }
    }

    /// Objects with their first port, then findings, without the folder's path.
    fn state(&self) -> String {
        let load: &Load = self.folder.load();
        let dir = self.folder.dir().display().to_string();
        let mut text = String::new();
        for ((id, place), object) in load.places.iter().zip(&load.objects) {
            let port = match object {
                crate::api::Object::Service(service) => service
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.ports.as_ref())
                    .map_or(0, |ports| ports[0].port),
                _ => 0,
            };
            text += &format!("{}={port} {}:{}\n", id.name.name, place.file, place.line);
        }
        for finding in &load.findings {
            text += &format!("! {finding}\n");
        }
        text.replace(&format!("{dir}/"), "").replace(&dir, "DIR")
    }

    fn check(&self, expected: Expect) {
        expected.assert_eq(&self.state());
    }
}

#[test]
fn objects_come_in_the_order_of_age_then_files_then_documents() {
    let old = service("old", 3).replace("old}", "old, creationTimestamp: '2020-01-01T00:00:00Z'}");
    let older = old.replace("old,", "older,").replace("2020", "2019");
    let rig = Rig::new(&[
        ("b.yaml", &format!("{}---\n{}", service("d", 1), service("c", 2))),
        ("a.yml", &format!("{}---\n{old}", service("e", 4))),
        (
            "c.json",
            r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "j"}, "spec": {"ports": [{"port": 5}]}}"#,
        ),
        ("d.yaml", &older),
        (".hidden.yaml", &service("h", 6)),
        ("README.md", "no manifest"),
    ]);
    rig.check(expect![[r#"
        older=3 d.yaml:1
        old=3 a.yml:6
        e=4 a.yml:1
        d=1 b.yaml:1
        c=2 b.yaml:6
        j=5 c.json:1
    "#]]);
}

#[test]
fn nothing_new_is_no_load() {
    let mut rig = Rig::new(&[("a.yaml", &service("a", 1))]);
    assert!(!rig.look());
    rig.write("a.yaml", service("a", 1));
    assert!(!rig.look());
    rig.write("notes.txt", "x");
    assert!(!rig.look());
}

#[test]
fn a_good_change_is_taken_at_once() {
    let mut rig = Rig::new(&[("a.yaml", &service("a", 1))]);
    rig.write("a.yaml", service("a", 2));
    assert!(rig.look());
    rig.check(expect![[r#"
        a=2 a.yaml:1
    "#]]);
    rig.write("b.yaml", service("b", 3));
    assert!(rig.look());
    rig.check(expect![[r#"
        a=2 a.yaml:1
        b=3 b.yaml:1
    "#]]);
}

#[test]
fn a_change_of_the_same_size_within_the_clocks_granularity_is_seen() {
    let mut rig = Rig::new(&[("a.yaml", &service("a", 1))]);
    for port in 2..9 {
        rig.write("a.yaml", service("a", port));
        assert!(rig.look(), "{port}");
    }
}

#[test]
fn a_bad_version_keeps_the_last_good_one() {
    let two = format!("{}---\n{}", service("a", 1), service("b", 1));
    let mut rig = Rig::new(&[("a.yaml", &two)]);
    rig.write("a.yaml", two.replace("name: a", "name: a, labels: 1").replace("port: 1", "port: 2"));
    rig.settle();
    rig.check(expect![[r#"
        a=1 a.yaml:1
        b=2 a.yaml:6
        ! a.yaml:3: document 1: metadata.labels: invalid type: integer `1`, expected a map
    "#]]);
    rig.write("a.yaml", two.replace("port: 1", "port: 3"));
    rig.settle();
    rig.check(expect![[r#"
        a=3 a.yaml:1
        b=3 a.yaml:6
    "#]]);
}

#[test]
fn a_bad_object_that_was_never_good_is_not_there() {
    let rig = Rig::new(&[("a.yaml", &service("a", 0)), ("b.yaml", "kind: [\n")]);
    rig.check(expect![[r#"
        ! a.yaml:4: document 1: spec.ports[0].port: 0 is not a port: 1 to 65535
        ! b.yaml:2: document 1: malformed YAML: while parsing a node, did not find expected node content
    "#]]);
}

#[test]
fn a_file_that_no_longer_parses_keeps_all_its_objects() {
    let two = format!("{}---\n{}", service("a", 1), service("b", 1));
    let mut rig = Rig::new(&[("a.yaml", &two)]);
    rig.write("a.yaml", format!("{}---\nx: [", service("a", 2)));
    assert!(!rig.look(), "it may be half written");
    rig.settle();
    rig.check(expect![[r#"
        a=1 a.yaml:1
        b=1 a.yaml:6
        ! a.yaml:7: document 2: malformed YAML: while parsing a node, did not find expected node content
    "#]]);
}

#[test]
fn an_object_gone_from_a_good_file_is_gone() {
    let two = format!("{}---\n{}", service("a", 1), service("b", 1));
    let mut rig = Rig::new(&[("a.yaml", &two)]);
    rig.write("a.yaml", service("b", 1));
    assert!(!rig.look(), "it may be half written");
    rig.settle();
    rig.check(expect![[r#"
        b=1 a.yaml:1
    "#]]);
}

#[test]
fn an_object_whose_kind_is_misspelt_is_kept() {
    let two = format!("{}---\n{}", service("a", 1), service("b", 1));
    let mut rig = Rig::new(&[("a.yaml", &two)]);
    rig.write("a.yaml", two.replacen("Service", "Sevrice", 1));
    rig.settle();
    rig.check(expect![[r#"
        b=1 a.yaml:6
        a=1 a.yaml:1
        ! a.yaml:2: document 1: kind: unknown kind "Sevrice"; did you mean Service?
    "#]]);
}

#[test]
fn a_half_written_file_changes_nothing() {
    let mut rig = Rig::new(&[("a.yaml", &service("a", 1))]);
    for part in ["", "apiVersion", "apiVersion: v1\nkind: Service\nmeta"] {
        rig.write("a.yaml", part);
        assert!(!rig.look(), "{part:?}");
        rig.wait(SETTLE / 2);
    }
    rig.write("a.yaml", service("a", 2));
    assert!(rig.look());
    rig.check(expect![[r#"
        a=2 a.yaml:1
    "#]]);
}

#[test]
fn a_file_that_never_rests_is_believed_in_the_end() {
    let mut rig = Rig::new(&[("a.yaml", &service("a", 1))]);
    let end = rig.now + PATIENCE;
    let mut length = 0;
    while rig.now <= end {
        length += 1;
        rig.write("a.yaml", "[".repeat(length));
        rig.look();
        rig.wait(SETTLE / 2);
    }
    rig.write("a.yaml", "[".repeat(length + 1));
    rig.look();
    rig.check(expect![[r#"
        a=1 a.yaml:1
        ! a.yaml:2: document 1: malformed YAML: while parsing a node, did not find expected node content
    "#]]);
}

#[test]
fn a_file_replaced_by_removal_and_return_changes_nothing_in_between() {
    let mut rig = Rig::new(&[("a.yaml", &service("a", 1))]);
    rig.remove("a.yaml");
    assert!(!rig.look());
    rig.write("a.yaml", service("a", 2));
    assert!(rig.look());
    rig.check(expect![[r#"
        a=2 a.yaml:1
    "#]]);
}

#[test]
fn a_removed_file_takes_its_objects_and_findings_with_it() {
    let mut rig = Rig::new(&[("a.yaml", &service("a", 1)), ("b.yaml", "x")]);
    rig.remove("a.yaml");
    rig.remove("b.yaml");
    rig.settle();
    rig.check(expect![""]);
}

#[test]
fn a_folder_that_vanishes_keeps_everything_and_is_read_when_it_returns() {
    let mut rig = Rig::new(&[("a.yaml", &service("a", 1))]);
    let away = rig.temp.path().join("away");
    fs::rename(rig.folder.dir(), &away).expect("it moves");
    assert!(rig.look());
    assert!(rig.folder.load().unreadable);
    rig.check(expect![[r#"
        a=1 a.yaml:1
        ! DIR: the folder cannot be read: No such file or directory (os error 2); what it held stays in force
    "#]]);
    rig.settle();
    assert!(!rig.look());
    // It comes back empty at first, as when it is made and filled anew.
    fs::create_dir(rig.folder.dir()).expect("a folder");
    assert!(rig.look());
    rig.check(expect![[r#"
        a=1 a.yaml:1
    "#]]);
    rig.write("a.yaml", service("a", 2));
    rig.write("b.yaml", service("b", 2));
    rig.settle();
    rig.check(expect![[r#"
        a=2 a.yaml:1
        b=2 b.yaml:1
    "#]]);
}

#[test]
fn a_folder_that_was_never_there_is_read_once_it_is() {
    let temp = tempfile::tempdir().expect("a folder");
    let mut rig = Rig { folder: Folder::new(temp.path().join("m")), temp, now: Instant::now() };
    assert!(rig.look());
    rig.check(expect![[r#"
        ! DIR: the folder cannot be read: No such file or directory (os error 2)
    "#]]);
    fs::create_dir(rig.folder.dir()).expect("a folder");
    rig.write("a.yaml", service("a", 1));
    rig.settle();
    rig.check(expect![[r#"
        a=1 a.yaml:1
    "#]]);
}

#[test]
fn the_first_of_two_in_order_is_used() {
    let rig = Rig::new(&[
        ("b.yaml", &service("a", 2)),
        ("a.yaml", &format!("{}---\n{}", service("a", 1), service("a", 3))),
    ]);
    rig.check(expect![[r#"
        a=1 a.yaml:1
        ! a.yaml:6: document 2: metadata.name: Service default/a is there already, at a.yaml:1: document 1; that one is used
        ! b.yaml:1: document 1: metadata.name: Service default/a is there already, at a.yaml:1: document 1; that one is used
    "#]]);
}

#[test]
fn a_duplicate_never_takes_over_from_the_object_in_use() {
    let mut rig = Rig::new(&[("b.yaml", &service("a", 2))]);
    rig.write("a.yaml", service("a", 1));
    rig.settle();
    rig.check(expect![[r#"
        a=2 b.yaml:1
        ! a.yaml:1: document 1: metadata.name: Service default/a is there already, at b.yaml:1: document 1; that one is used
    "#]]);
    rig.remove("b.yaml");
    rig.settle();
    rig.check(expect![[r#"
        a=1 a.yaml:1
    "#]]);
}

#[test]
fn a_mounted_config_map_is_followed_through_its_swap() {
    let mut rig = Rig::new(&[]);
    for (version, port) in [("..1", 1), ("..2", 2)] {
        let dir = rig.path(version);
        fs::create_dir(&dir).expect("a folder");
        fs::write(dir.join("a.yaml"), service("a", port)).expect("a file");
    }
    symlink("..1", rig.path("..data")).expect("a link");
    symlink("..data/a.yaml", rig.path("a.yaml")).expect("a link");
    assert!(rig.look());
    rig.check(expect![[r#"
        a=1 a.yaml:1
    "#]]);
    symlink("..2", rig.path("..data_tmp")).expect("a link");
    fs::rename(rig.path("..data_tmp"), rig.path("..data")).expect("it moves");
    fs::remove_dir_all(rig.path("..1")).expect("it goes");
    assert!(rig.look());
    rig.check(expect![[r#"
        a=2 a.yaml:1
    "#]]);
}

#[test]
fn files_have_a_greatest_size_and_number() {
    let mut rig = Rig::new(&[("a.yaml", &service("a", 1)), ("z.yaml", &service("z", 1))]);
    let comment = "#".repeat(usize::try_from(MAX_FILE_BYTES).expect("it fits"));
    rig.write("a.yaml", format!("{}{comment}", service("a", 2)));
    for number in 0..MAX_FILES {
        rig.write(&format!("n{number:04}.yaml"), "");
    }
    rig.settle();
    rig.check(expect![[r#"
        a=1 a.yaml:1
        z=1 z.yaml:1
        ! DIR: more than 1024 manifests; those after them in order are not read
        ! a.yaml: 4194380 bytes, at most 4194304 are read
    "#]]);
}

#[test]
fn what_cannot_be_read_is_told() {
    let mut rig = Rig::new(&[("a.yaml", &service("a", 1))]);
    fs::create_dir(rig.path("dir.yaml")).expect("a folder");
    symlink("nowhere", rig.path("link.yaml")).expect("a link");
    nix::unistd::mkfifo(&rig.path("pipe.yaml"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    rig.settle();
    rig.check(expect![[r#"
        a=1 a.yaml:1
        ! dir.yaml: not a file
        ! link.yaml: cannot be read: No such file or directory (os error 2)
        ! pipe.yaml: not a file
    "#]]);
}
