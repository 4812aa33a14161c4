//! Debian's kernels of several series, found and unpacked without installing anything.
//!
//! A private package state under `target/vm/apt` knows suites that the machine's own does not; the archive's
//! address comes from the machine's configuration. What is unpacked stays in `target/vm/kernels`: remove that folder
//! to look for newer ones. Which modules a guest needs is decided elsewhere.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::command::output;

/// The oldest kernel supported is older than any in a current release, hence the old suite. Two suites of the
/// security archive, because a release's own kernels stay as they were at its last point release.
const SUITES: &[(Archive, &str)] = &[
    (Archive::Main, "bullseye"),
    (Archive::Security, "bookworm-security"),
    (Archive::Main, "trixie"),
    (Archive::Main, "trixie-backports"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Archive {
    Main,
    Security,
}

/// The kernels of a run without arguments. 5.10 is the oldest with what the programs need, 6.1 the last without
/// TCX, 6.12 the oldest with it, 6.18 the newest long-term series.
pub(crate) const SERIES: &[&str] = &["5.10", "6.1", "6.12", "6.18", NEWEST];

pub(crate) const NEWEST: &str = "newest";

#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// As asked for: `5.10` or `newest`.
    pub series: String,
    /// The package's version.
    pub version: String,
    pub vmlinuz: PathBuf,
    /// The module tree.
    pub modules: PathBuf,
}

/// Brings the kernels of `series`, from `dir` where they are already unpacked.
pub(crate) fn fetch(dir: &Path, series: &[String]) -> Result<Vec<Kernel>> {
    let kernels = dir.join("kernels");
    let is_missing = |name: &&String| read(&kernels, name).is_none();
    let missing: Vec<&String> = series.iter().filter(is_missing).collect();
    if !missing.is_empty() {
        println!("vm: looking for {} ...", missing.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(" "));
        let apt = Apt::open(&dir.join("apt"))?;
        let images = apt.images()?;
        for name in missing {
            let image = newest_of(&images, name)
                .with_context(|| format!("no suite of the archive has a kernel {name} any more"))?;
            apt.unpack(image, &kernels.join(name))?;
        }
    }
    series
        .iter()
        .map(|name| read(&kernels, name).with_context(|| format!("kernel {name} was unpacked in part")))
        .collect()
}

/// `VERSION` is written last, so a folder without it is one of an interrupted run.
fn read(kernels: &Path, series: &str) -> Option<Kernel> {
    let dir = kernels.join(series);
    let version = fs::read_to_string(dir.join("VERSION")).ok()?;
    Some(Kernel {
        series: series.to_owned(),
        version,
        vmlinuz: dir.join("vmlinuz"),
        modules: dir.join("modules"),
    })
}

#[derive(Debug, PartialEq, Eq)]
struct Image {
    package: String,
    version: String,
}

/// The highest version of a series. Versions decide, not names: those of 5.10 and 6.1 carry an ABI number instead.
fn newest_of<'a>(images: &'a [Image], series: &str) -> Option<&'a Image> {
    images
        .iter()
        .filter(|image| series == NEWEST || image.version.starts_with(&format!("{series}.")))
        .max_by(|a, b| compare_versions(&a.version, &b.version))
}

/// Numbers by value, in order. Debian's whole order is not needed: the versions of one source package differ in
/// numbers before they differ in anything else.
fn compare_versions(a: &str, b: &str) -> Ordering {
    let numbers = |version: &str| -> Vec<u64> {
        version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
    };
    numbers(a).cmp(&numbers(b))
}

struct Apt {
    options: Vec<String>,
    downloads: PathBuf,
}

impl Apt {
    fn open(dir: &Path) -> Result<Self> {
        let downloads = dir.join("downloads");
        for folder in ["lists/partial", "cache/archives/partial", "downloads"] {
            fs::create_dir_all(dir.join(folder))?;
        }
        let sources = dir.join("sources.list");
        fs::write(&sources, sources_list(&index_targets()?)?)?;
        let option = |key: &str, value: &Path| format!("{key}={}", value.display());
        let options = vec![
            option("Dir::Etc::sourcelist", &sources),
            "Dir::Etc::sourceparts=-".to_owned(),
            option("Dir::State::lists", &dir.join("lists")),
            option("Dir::Cache", &dir.join("cache")),
            // The unprivileged user of apt cannot write below a home folder.
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
        ];
        let apt = Self { options, downloads };
        apt.run("apt-get", &["update", "-q"])?;
        Ok(apt)
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        for option in &self.options {
            command.args(["-o", option]);
        }
        output(command.args(args).env("LC_ALL", "C").current_dir(&self.downloads))
    }

    fn images(&self) -> Result<Vec<Image>> {
        let found =
            self.run("apt-cache", &["search", "--names-only", "^linux-image-[0-9].*-cloud-amd64$"])?;
        let names: Vec<&str> = found.lines().filter_map(|line| line.split_whitespace().next()).collect();
        ensure!(!names.is_empty(), "the archive lists no cloud kernel");
        let mut args = vec!["madison"];
        args.extend(names);
        Ok(parse_madison(&self.run("apt-cache", &args)?))
    }

    fn download(&self, package: &str, version: &str) -> Result<PathBuf> {
        self.run("apt-get", &["download", "-q", &format!("{package}={version}")])?;
        let prefix = format!("{package}_");
        for entry in fs::read_dir(&self.downloads)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(&prefix) && name.ends_with(".deb") {
                return Ok(path);
            }
        }
        bail!("apt-get downloaded no {package}")
    }

    fn unpack(&self, image: &Image, dir: &Path) -> Result<()> {
        println!("vm: downloading {} {}", image.package, image.version);
        let whole = dir.with_extension("unpacked");
        for stale in [dir, &whole] {
            if stale.exists() {
                fs::remove_dir_all(stale)?;
            }
            fs::create_dir_all(stale)?;
        }
        let mut debs = vec![self.download(&image.package, &image.version)?];
        // Since 7.2 the image package is empty and names those that hold the kernel and its modules.
        let depends = output(Command::new("dpkg-deb").arg("-f").args(&debs).arg("Depends"))?;
        for package in parts(&depends) {
            debs.push(self.download(package, &image.version)?);
        }
        for deb in debs {
            output(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&whole))?;
            fs::remove_file(deb)?;
        }
        arrange(&whole, dir).with_context(|| format!("{} is not laid out as expected", image.package))?;
        fs::remove_dir_all(&whole)?;
        fs::write(dir.join("VERSION"), &image.version)?;
        Ok(())
    }
}

fn index_targets() -> Result<String> {
    let targets =
        || output(Command::new("apt-get").args(["indextargets", "--format", "$(CODENAME) $(REPO_URI)"]));
    let known = targets()?;
    if !known.trim().is_empty() {
        return Ok(known);
    }
    output(Command::new("apt-get").args(["update", "-q"]))?;
    targets()
}

/// The private sources: our suites at the addresses that the machine itself uses.
fn sources_list(targets: &str) -> Result<String> {
    let address = |wanted: Archive| {
        targets.lines().filter_map(|line| line.split_once(' ')).find_map(|(codename, address)| {
            let archive = match codename.split_once('-') {
                None => Archive::Main,
                Some((_, "security")) => Archive::Security,
                Some(_) => return None,
            };
            let is_debian = address.trim_end_matches('/').contains("debian");
            (archive == wanted && is_debian).then_some(address)
        })
    };
    let mut list = String::new();
    for (archive, suite) in SUITES {
        let address =
            address(*archive).with_context(|| format!("apt knows no archive that could have {suite}"))?;
        list.push_str(&format!(
            "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {address} {suite} main\n"
        ));
    }
    Ok(list)
}

fn parse_madison(text: &str) -> Vec<Image> {
    text.lines()
        .filter_map(|line| {
            let mut columns = line.split('|').map(str::trim);
            let (package, version) = (columns.next()?, columns.next()?);
            Some(Image { package: package.to_owned(), version: version.to_owned() })
        })
        .collect()
}

fn parts(depends: &str) -> impl Iterator<Item = &str> {
    depends
        .split([',', '|'])
        .filter_map(|part| part.split_whitespace().next())
        .filter(|name| name.starts_with("linux-binary-") || name.starts_with("linux-modules-"))
}

/// Moves the kernel and its module tree out of an unpacked package, wherever that release has put them.
fn arrange(whole: &Path, dir: &Path) -> Result<()> {
    let trees = [whole.join("usr/lib/modules"), whole.join("lib/modules")];
    let tree = trees.iter().find(|path| path.is_dir()).context("no module tree")?;
    let release = fs::read_dir(tree)?.next().context("an empty module tree")??.path();
    let boot = whole.join("boot");
    let in_boot = fs::read_dir(&boot)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz")));
    let vmlinuz = in_boot.unwrap_or_else(|| release.join("vmlinuz"));
    fs::rename(vmlinuz, dir.join("vmlinuz")).context("no vmlinuz")?;
    fs::rename(release, dir.join("modules"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(package: &str, version: &str) -> Image {
        Image { package: package.to_owned(), version: version.to_owned() }
    }

    #[test]
    fn the_newest_of_a_series_is_chosen_by_version_and_numbers_by_value() {
        let images = parse_madison(
            " linux-image-6.1.0-9-cloud-amd64 | 6.1.27-1 | host bookworm/main amd64 Packages\n \
             linux-image-6.1.0-57-cloud-amd64 | 6.1.192-3 | host bookworm-security/main amd64 Packages\n \
             linux-image-6.12.9+deb13-cloud-amd64 | 6.12.9-1 | host trixie/main amd64 Packages\n",
        );
        assert_eq!(newest_of(&images, "6.1"), Some(&image("linux-image-6.1.0-57-cloud-amd64", "6.1.192-3")));
        assert_eq!(
            newest_of(&images, NEWEST),
            Some(&image("linux-image-6.12.9+deb13-cloud-amd64", "6.12.9-1"))
        );
        assert_eq!(newest_of(&images, "6.6"), None);
    }

    #[test]
    fn a_split_image_names_its_parts() {
        let depends =
            "kmod, linux-base (>= 4.12), linux-binary-7.3.4 (= 7.3.4-1), linux-modules-7.3.4 (= 7.3.4-1)";
        assert_eq!(parts(depends).collect::<Vec<_>>(), ["linux-binary-7.3.4", "linux-modules-7.3.4"]);
    }

    #[test]
    fn the_sources_use_the_machines_own_addresses() {
        let targets = "bookworm http://a.test/debian\nbookworm-security http://b.test/debian-security\n\
                       nodistro http://c.test/other\n";
        let list = sources_list(targets).unwrap();
        assert!(list.contains("http://a.test/debian trixie-backports main\n"), "{list}");
        assert!(list.contains("http://b.test/debian-security bookworm-security main\n"), "{list}");
        assert!(sources_list("stable http://c.test/other\n").is_err());
    }
}
