//! The few `bpf(2)` commands that aya has no call for, or only for programs that it has loaded itself: links by
//! descriptor, and batches.
//!
//! Layouts: `union bpf_attr` and `struct bpf_link_info` of `include/uapi/linux/bpf.h`; unused tails are zero, which
//! older kernels that do not know them accept.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

const BPF_OBJ_PIN: u32 = 6;
const BPF_OBJ_GET: u32 = 7;
const BPF_OBJ_GET_INFO_BY_FD: u32 = 15;
const BPF_MAP_LOOKUP_BATCH: u32 = 24;
const BPF_LINK_CREATE: u32 = 28;
const BPF_LINK_UPDATE: u32 = 29;

const BPF_SK_LOOKUP: u32 = 36;
const BPF_TCX_INGRESS: u32 = 46;

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    /// For TCX: relative to which link, and the expected revision of the list; 0: at its end, any.
    rest: [u64; 4],
}

#[repr(C)]
#[derive(Default)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    old_program: u32,
}

#[repr(C)]
struct InfoByFd {
    descriptor: u32,
    length: u32,
    info: u64,
}

#[repr(C)]
#[derive(Default)]
struct RawLinkInfo {
    kind: u32,
    id: u32,
    program_id: u32,
    padding: u32,
    /// TCX: interface; network namespace: its inode.
    target: u32,
    attach_type: u32,
}

#[repr(C)]
struct ObjectPath {
    path: u64,
    descriptor: u32,
    flags: u32,
}

#[repr(C)]
struct Batch {
    input: u64,
    output: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

/// What a link attaches where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkInfo {
    pub(super) program_id: u32,
    /// Interface of a TCX link, inode of the namespace of an `sk_lookup` link; 0 when that is gone.
    pub(super) target: u32,
}

/// Attaches to the ingress of an interface, after whatever is there. EINVAL: the kernel is older than TCX (6.6).
pub(super) fn attach_tcx(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    create_link(program, interface, BPF_TCX_INGRESS)
}

/// Attaches to the socket lookup of a network namespace.
pub(super) fn attach_sk_lookup(program: BorrowedFd<'_>, namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    create_link(program, number(namespace.as_raw_fd()), BPF_SK_LOOKUP)
}

fn create_link(program: BorrowedFd<'_>, target: u32, attach_type: u32) -> io::Result<OwnedFd> {
    let program = number(program.as_raw_fd());
    let mut attributes = LinkCreate { program, target, attach_type, ..LinkCreate::default() };
    let descriptor = bpf(BPF_LINK_CREATE, &mut attributes)?;
    // SAFETY: the kernel has just made this descriptor, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Puts another program in place of the link's, atomically.
pub(super) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let (link, program) = (number(link.as_raw_fd()), number(program.as_raw_fd()));
    bpf(BPF_LINK_UPDATE, &mut LinkUpdate { link, program, ..LinkUpdate::default() })?;
    Ok(())
}

pub(super) fn link_info(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    let mut info = RawLinkInfo::default();
    read_info(link, &mut info)?;
    Ok(LinkInfo { program_id: info.program_id, target: info.target })
}

/// The kernel's number of a program.
pub(super) fn program_id(program: BorrowedFd<'_>) -> io::Result<u32> {
    // Type and id, the first fields of `struct bpf_prog_info`.
    let mut info = [0u32; 2];
    read_info(program, &mut info)?;
    Ok(info[1])
}

fn read_info<T>(object: BorrowedFd<'_>, info: &mut T) -> io::Result<()> {
    let mut attributes = InfoByFd {
        descriptor: number(object.as_raw_fd()),
        length: u32::try_from(size_of::<T>()).unwrap_or(0),
        info: address(info),
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attributes)?;
    Ok(())
}

pub(super) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let descriptor = number(object.as_raw_fd());
    bpf(BPF_OBJ_PIN, &mut ObjectPath { path: path.as_ptr() as u64, descriptor, flags: 0 })?;
    Ok(())
}

pub(super) fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let descriptor =
        bpf(BPF_OBJ_GET, &mut ObjectPath { path: path.as_ptr() as u64, descriptor: 0, flags: 0 })?;
    // SAFETY: the kernel has just made this descriptor, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// What [`lookup_batch`] has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// So many entries; go on at this position.
    Some(usize, u32),
    /// So many entries, the last of the map.
    Last(usize),
    /// The next bucket of the hash table has more entries than the buffers take; nothing was read.
    TooSmall,
}

/// Reads as many entries of a hash map as `keys` and `values` take, from `position` or from the beginning.
pub(super) fn lookup_batch<K: aya::Pod, V: aya::Pod>(
    map: BorrowedFd<'_>,
    position: Option<u32>,
    keys: &mut [K],
    values: &mut [V],
) -> io::Result<Read> {
    let capacity = keys.len().min(values.len());
    let mut input = position.unwrap_or(0);
    let mut output = 0u32;
    let mut attributes = Batch {
        input: if position.is_some() { address(&mut input) } else { 0 },
        output: address(&mut output),
        keys: keys.as_mut_ptr() as u64,
        values: values.as_mut_ptr() as u64,
        count: u32::try_from(capacity).unwrap_or(u32::MAX),
        map: number(map.as_raw_fd()),
        element_flags: 0,
        flags: 0,
    };
    let read = bpf(BPF_MAP_LOOKUP_BATCH, &mut attributes);
    let count = usize::try_from(attributes.count).unwrap_or(0).min(capacity);
    match read {
        Ok(_) => Ok(Read::Some(count, output)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Read::Last(count)),
        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => Ok(Read::TooSmall),
        Err(error) => Err(error),
    }
}

/// A descriptor as the kernel's structures hold it.
fn number(descriptor: RawFd) -> u32 {
    descriptor.cast_unsigned()
}

fn address<T>(value: &mut T) -> u64 {
    std::ptr::from_mut(value) as u64
}

fn bpf<T>(command: u32, attributes: &mut T) -> io::Result<RawFd> {
    // SAFETY: `attributes` is one of the structures above, of the size given, and the addresses in it are of live
    // buffers of the sizes that stand beside them.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    RawFd::try_from(result).map_err(|_out_of_range| io::ErrorKind::InvalidData.into())
}
