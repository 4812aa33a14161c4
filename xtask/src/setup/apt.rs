//! Debian packages, by the package manager's own sources. It adds no source and starts no service.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::{Purpose, report};
use crate::command::{output, program};

struct Group {
    /// Who needs it. Packages of `Build` are needed by everyone.
    purposes: &'static [Purpose],
    why: &'static str,
    packages: &'static [&'static str],
}

const GROUPS: &[Group] = &[
    Group {
        purposes: &[Purpose::Build],
        why: "the C parts of crates, and the host linker",
        packages: &["gcc", "libc6-dev", "make"],
    },
    Group {
        purposes: &[Purpose::Build],
        why: "bpf-linker links to the compiler's own LLVM version",
        packages: &["llvm-22-dev", "clang-22", "libpolly-22-dev"],
    },
    Group {
        purposes: &[Purpose::Demo, Purpose::Test, Purpose::Bench],
        why: "network namespaces, clients and certificates",
        packages: &["iproute2", "curl", "openssl", "procps"],
    },
    Group { purposes: &[Purpose::Demo], why: "real HTTP and TLS servers", packages: &["nginx-light"] },
    Group {
        purposes: &[Purpose::Test],
        why: "offloads set and packets looked at in the namespace tests",
        packages: &["ethtool", "tcpdump"],
    },
    Group {
        purposes: &[Purpose::Test],
        why: "clients and servers of HTTP/2 in the namespace tests",
        packages: &["nghttp2-client", "nghttp2-server"],
    },
    Group {
        purposes: &[Purpose::Test],
        why: "who speaks the PROXY protocol, and the tracer of system calls, in the namespace tests",
        packages: &["haproxy", "nginx-light", "strace"],
    },
    Group {
        purposes: &[Purpose::Test],
        why: "a client and a server of WebSocket in the namespace tests",
        packages: &["python3", "python3-pip"],
    },
    Group {
        purposes: &[Purpose::Test],
        why: "the virtual machines with other kernels",
        packages: &["qemu-system-x86", "busybox-static", "xz-utils", "zstd"],
    },
    Group {
        purposes: &[Purpose::Test],
        why: "counts the instructions of the hot paths",
        packages: &["valgrind"],
    },
    Group { purposes: &[Purpose::Fuzz], why: "libFuzzer is C++", packages: &["g++"] },
    Group {
        purposes: &[Purpose::Bench],
        why: "peers and load generators of the benches",
        packages: &[
            "nginx-light",
            "libnginx-mod-stream",
            "haproxy",
            "nftables",
            "nghttp2-client",
            "nghttp2-server",
        ],
    },
    Group {
        purposes: &[Purpose::Cluster],
        why: "the nodes of the test cluster: runtime, pod network, Service rules",
        packages: &[
            "containerd",
            "runc",
            "containernetworking-plugins",
            "iproute2",
            "iptables",
            "nftables",
            "busybox-static",
            "curl",
        ],
    },
];

/// How long another run of the package manager is waited for: an unattended upgrade takes minutes.
const LOCK_WAIT: Duration = Duration::from_secs(15 * 60);

pub(super) fn packages(purposes: &[Purpose]) -> Result<()> {
    let mut missing = BTreeSet::new();
    let wanted = GROUPS
        .iter()
        .filter(|group| group.purposes.iter().any(|p| *p == Purpose::Build || purposes.contains(p)));
    for group in wanted {
        let absent = absent(group.packages)?;
        let state =
            if absent.is_empty() { "present".to_owned() } else { format!("missing {}", absent.join(" ")) };
        report(&group.packages.join(" "), group.why, &state);
        missing.extend(absent);
    }
    if missing.is_empty() {
        return Ok(());
    }
    install(&missing.into_iter().collect::<Vec<_>>())
}

fn absent(packages: &'static [&'static str]) -> Result<Vec<&'static str>> {
    let mut query = program("dpkg-query");
    query.args(["--show", "--showformat", "${Package} ${db:Status-Abbrev}\n"]).args(packages);
    let known = match query.output() {
        // It exits with 1 when it does not know one of them and still lists the others.
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("no dpkg-query here: set-up knows Debian 12 only. By hand: {}", packages.join(" "))
        }
        Err(error) => return Err(error).context("cannot start dpkg-query"),
    };
    let installed: BTreeSet<&str> =
        known.lines().filter_map(|line| line.split_once(" ii").map(|(name, _)| name)).collect();
    Ok(packages.iter().copied().filter(|name| !installed.contains(name)).collect())
}

fn install(missing: &[&str]) -> Result<()> {
    if !nix::unistd::Uid::effective().is_root() {
        bail!(
            "packages are missing and this is not root. As root: apt-get install -y --no-install-recommends {}",
            missing.join(" ")
        );
    }
    println!("setup: installing {} packages, some minutes at most ...", missing.len());
    let start = Instant::now();
    let _no_services = NoServices::begin(Path::new("/usr/sbin/policy-rc.d"))?;
    // Without lists, or with lists older than the archive, an installation fails on a machine that has never updated.
    apt_get(&["update", "-q"])?;
    let mut args = vec!["install", "-y", "-q", "--no-install-recommends"];
    args.extend(missing);
    apt_get(&args)?;
    println!("setup: installed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn apt_get(args: &[&str]) -> Result<()> {
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        let mut command = Command::new("apt-get");
        command
            .args(["-o", &format!("DPkg::Lock::Timeout={}", LOCK_WAIT.as_secs())])
            .args(args)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C");
        let Err(error) = output(&mut command) else { return Ok(()) };
        // The option above covers dpkg's locks; those of the lists and of the download folder apt does not wait for.
        let is_locked = error.to_string().contains("Could not get lock");
        if !is_locked || Instant::now() > deadline {
            return Err(error);
        }
        wait_for_lock();
    }
}

#[expect(clippy::disallowed_methods, reason = "apt offers nothing to wait on; the caller has a deadline")]
fn wait_for_lock() {
    std::thread::sleep(Duration::from_secs(2));
}

/// While it lives, packages that bring a daemon do not start it (Debian policy: `invoke-rc.d` asks this script).
struct NoServices<'a> {
    made: Option<&'a Path>,
}

const DENY_ALL: &str = "#!/bin/sh\n# Left by an interrupted `cargo xtask setup`: may be removed.\nexit 101\n";

impl<'a> NoServices<'a> {
    fn begin(path: &'a Path) -> Result<Self> {
        // A policy of the machine's own is left as it is; one of an interrupted run is taken over.
        if std::fs::read_to_string(path).is_ok_and(|text| text != DENY_ALL) {
            return Ok(Self { made: None });
        }
        std::fs::write(path, DENY_ALL).with_context(|| format!("cannot write {}", path.display()))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
        Ok(Self { made: Some(path) })
    }
}

impl Drop for NoServices<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.made
            && let Err(error) = std::fs::remove_file(path)
        {
            eprintln!("setup: cannot remove {}: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_package_is_absent_and_an_essential_one_is_not() {
        assert_eq!(absent(&["dpkg", "no-such-package-here"]).unwrap(), ["no-such-package-here"]);
    }

    #[test]
    fn the_machines_own_service_policy_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy-rc.d");
        drop(NoServices::begin(&path).unwrap());
        assert!(!path.exists());
        std::fs::write(&path, "#!/bin/sh\nexit 0\n").unwrap();
        drop(NoServices::begin(&path).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "#!/bin/sh\nexit 0\n");
    }
}
