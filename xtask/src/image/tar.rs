//! A tar archive in memory, in the POSIX format: files and folders of root, with the time 0.

use std::collections::BTreeSet;

/// The archive is a sequence of these.
const BLOCK: usize = 512;

#[derive(Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
}

impl Archive {
    /// `name` ends with a slash.
    pub(crate) fn folder(&mut self, name: &str, mode: u32) {
        if self.folders.insert(name.to_owned()) {
            self.entry(name, mode, b'5', &[]);
        }
    }

    /// Adds the folders above it too.
    pub(crate) fn file(&mut self, name: &str, mode: u32, content: &[u8]) {
        for (slash, _) in name.match_indices('/') {
            self.folder(&name[..=slash], 0o755);
        }
        self.entry(name, mode, b'0', content);
    }

    /// A program whose file has `capabilities`, permitted and not effective.
    pub(crate) fn program_with_capabilities(&mut self, name: &str, content: &[u8], capabilities: u64) {
        // The kernel's `vfs_cap_data` of revision 2: permitted and inheritable, the low halves first.
        const REVISION_2: u32 = 0x0200_0000;
        let [a, b, c, d, e, f, g, h] = capabilities.to_le_bytes();
        let mut value = REVISION_2.to_le_bytes().to_vec();
        value.extend([a, b, c, d, 0, 0, 0, 0, e, f, g, h, 0, 0, 0, 0]);
        self.entry(name, 0o644, b'x', &record("SCHILY.xattr.security.capability", &value));
        self.file(name, 0o755, content);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.extend([0; 2 * BLOCK]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, kind: u8, content: &[u8]) {
        let mut header = [0; BLOCK];
        let mut put = |at: usize, field: &[u8]| header[at..at + field.len()].copy_from_slice(field);
        // Ours are short; the format has 100 bytes for a name.
        assert!(name.len() <= 100, "{name} is too long for a tar header");
        put(0, name.as_bytes());
        put(100, format!("{mode:07o}\0").as_bytes());
        for owner in [108, 116] {
            put(owner, b"0000000\0");
        }
        put(124, format!("{:011o}\0", content.len()).as_bytes());
        put(136, b"00000000000\0");
        // The sum is taken with blanks in its own place.
        put(148, b"        ");
        put(156, &[kind]);
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend(header);
        self.bytes.extend(content);
        let rest = content.len().next_multiple_of(BLOCK) - content.len();
        self.bytes.extend(std::iter::repeat_n(0, rest));
    }
}

/// A record of an extended header: its own length, in digits that count too, then key and value.
fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = " =\n".len() + key.len() + value.len();
    let mut len = rest;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    let mut record = format!("{len} {key}=").into_bytes();
    record.extend(value);
    record.push(b'\n');
    record
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_record_counts_the_digits_of_its_own_length() {
        assert_eq!(record("k", b"v"), b"6 k=v\n");
        // 9 bytes without the length: one digit would make 10, which has two.
        assert_eq!(record("k", b"12345"), b"11 k=12345\n".as_slice());
        assert_eq!(record("k", &[b'v'; 93]).len(), 99);
    }

    #[test]
    fn tar_reads_what_is_written() {
        let mut archive = Archive::default();
        archive.folder("tmp/", 0o1777);
        archive.file("bin/program", 0o755, &[7; BLOCK + 1]);
        archive.program_with_capabilities("capable", b"", 1 << 38 | 1 << 12);
        let mut tar = Command::new("tar")
            .args(["--list", "--verbose", "--utc", "--numeric-owner"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(&archive.finish()).unwrap();
        let output = tar.wait_with_output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(lines[0], ["drwxrwxrwt", "0/0", "0", "1970-01-01", "00:00", "tmp/"]);
        assert_eq!(lines[1].last(), Some(&"bin/"));
        assert_eq!(lines[2], ["-rwxr-xr-x", "0/0", "513", "1970-01-01", "00:00", "bin/program"]);
        assert_eq!(lines[3].last(), Some(&"capable"));
    }
}
