//! One virtual machine: started, listened to, limited in time.
//!
//! It is emulated, never accelerated: a machine may offer `/dev/kvm` without the hardware behind it. Nothing is
//! shared with the guest but its initial file system; it answers over a serial port.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

/// A whole run takes one to two minutes, on a busy machine several times that. Past this the guest hangs.
const GUEST_SECONDS_MAX: u32 = 600;

/// The tests need some 100 MB beside the file system, which lies in memory twice while it is unpacked.
const MEMORY_MB: &str = "768";

/// One. With two, a processor may still run an instruction that the other has patched, which the kernel does all the time
/// while it boots (static keys): now and then it meets a breakpoint that nobody owns any more and panics with
/// "Oops: int3". Seen in 1 boot of 10 on a busy machine with QEMU 7.2 and Linux 6.18.
const PROCESSORS: &str = "1";

/// `no_timer_check`: the emulated timer may be late on a busy machine, and the kernel would panic about it.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 panic=-1 oops=panic quiet loglevel=4 no_timer_check";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The exit code that the guest's own script reported.
    Exited(i32),
    /// It went down without a word: a kernel panic.
    Died,
    TimedOut,
}

/// The program that starts as process 1. It names busybox each time: before `/proc` is there its shell finds no
/// applet, and after that it finds its own `ip` before the real one.
pub(crate) const INIT: &str = r#"#!/bin/busybox sh
export PATH=/usr/bin:/bin HOME=/tmp RUST_BACKTRACE=0 GATEWAY_EBPF_OBJECT=/gateway-ebpf
box=/bin/busybox
$box mount -t proc proc /proc
$box mount -t sysfs sysfs /sys
$box mount -t devtmpfs devtmpfs /dev
$box mount -t bpf bpf /sys/fs/bpf
$box mount -t tmpfs tmpfs /tmp
$box mount -t tmpfs tmpfs /run
for module in /modules/*.ko; do $box insmod $module || echo "cannot load $module"; done
/usr/bin/ip link set lo up
exec >/dev/ttyS1 2>&1 </dev/null
echo "RELEASE $($box uname -r)"
code=0
cd /tmp
for test in /tests/*; do $test --test-threads=1 --show-output || code=1; done
echo "EXIT $code"
$box poweroff -f
"#;

/// Runs a guest to its end. Gives how it ended and all that it said, which is also written to `result` as it comes.
pub(crate) fn run(vmlinuz: &Path, initrd: &Path, console: &Path, result: &Path) -> Result<(End, String)> {
    let mut result = File::create(result).with_context(|| format!("cannot write {}", result.display()))?;
    let mut qemu = Command::new("timeout")
        .args(["--kill-after=5", &GUEST_SECONDS_MAX.to_string()])
        .args(["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg", "-cpu", "max"])
        .args(["-smp", PROCESSORS, "-m", MEMORY_MB, "-no-reboot", "-nodefaults", "-display", "none"])
        .args(["-append", KERNEL_ARGUMENTS])
        .arg("-kernel")
        .arg(vmlinuz)
        .arg("-initrd")
        .arg(initrd)
        .args(["-serial", &format!("file:{}", console.display()), "-serial", "stdio"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start qemu-system-x86_64 under timeout: run `cargo xtask setup --for test`")?;
    let stdout = qemu.stdout.take().context("the pipe was asked for")?;
    let mut said = String::new();
    let mut end = End::Died;
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.context("cannot read from the guest")?;
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        if let Some(code) = line.strip_prefix("EXIT ") {
            end = code.parse().map_or(End::Died, End::Exited);
        }
        writeln!(result, "{line}")?;
        said.push_str(line);
        said.push('\n');
    }
    /// What `timeout` exits with when it had to act: 124, or 137 when the kill was needed.
    const TIMED_OUT: [i32; 2] = [124, 137];
    let status = qemu.wait()?;
    if status.code().is_some_and(|code| TIMED_OUT.contains(&code)) {
        end = End::TimedOut;
    }
    Ok((end, said))
}
