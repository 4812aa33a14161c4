//! From the embedded object, or from what an earlier process has left, to maps and programs in the kernel.
//!
//! What was left is adopted as it is when it belongs to this network namespace and speaks this ABI: in the holder both
//! maps and programs (its worker is always the same binary); from pins the maps, with this binary's programs loaded
//! onto them and put into the links atomically. Pins of another namespace are stale and removed; those of another ABI
//! are refused, for an agent of another version may still serve with them.
//!
//! **Invariant:** attaches nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

use aya::maps::{Array, Map, MapData};
use aya::programs::{Program, ProgramError};
use aya::{EbpfError, EbpfLoader};
use gateway_common::abi::Meta;
use gateway_common::{ABI_VERSION, maps};

use super::keeper::{Keeper, KeeperError};
use super::probe::{OBJECT, explain};

/// Every map that the agent works with.
const MAPS: [&str; 12] = [
    maps::BACKENDS,
    maps::CONFIG,
    maps::COUNTERS,
    maps::FLOWS,
    maps::FRAGMENTS,
    maps::HALF_OPEN,
    maps::LISTENERS,
    maps::META,
    maps::SERVICE_COUNTERS,
    maps::SLOTS,
    maps::SOCKETS,
    maps::STEERED,
];

/// The network namespace's identity is this file's, of the calling thread.
pub(super) const NAMESPACE: &str = "/proc/thread-self/ns/net";

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("the kernel programs cannot be loaded: {0}")]
    Load(String),
    #[error(
        "the pinned maps are of ABI version {found} and this agent's is {ABI_VERSION}: end the agent that made them and \
         remove the folder of pins, or start this one with another --instance"
    )]
    OtherAbi { found: u32 },
    #[error("network namespace {NAMESPACE} cannot be identified")]
    Namespace(#[source] io::Error),
    #[error("map {0} cannot be used: {1}")]
    Map(&'static str, String),
    #[error(transparent)]
    Keeper(#[from] KeeperError),
}

/// A program, or why there is none.
pub(super) type Loaded = Result<OwnedFd, String>;

/// What is in the kernel.
#[derive(Debug)]
pub(super) struct Objects {
    maps: BTreeMap<&'static str, OwnedFd>,
    pub(super) l4_ingress: Loaded,
    pub(super) steer: Loaded,
    /// Links of an earlier process, by name.
    pub(super) links: BTreeMap<String, OwnedFd>,
    /// The maps hold what an earlier process has written.
    pub(super) are_adopted: bool,
}

impl Objects {
    /// A descriptor of its own.
    pub(super) fn map(&self, name: &'static str) -> Result<OwnedFd, LoadError> {
        let map =
            self.maps.get(name).ok_or_else(|| LoadError::Map(name, "it is not in the object".into()))?;
        map.try_clone().map_err(|error| LoadError::Map(name, error.to_string()))
    }

    /// The map as aya knows it.
    pub(super) fn typed<T: TryFrom<Map, Error = aya::maps::MapError>>(
        &self,
        name: &'static str,
    ) -> Result<T, LoadError> {
        typed(name, self.map(name)?)
    }
}

fn typed<T: TryFrom<Map, Error = aya::maps::MapError>>(
    name: &'static str,
    map: OwnedFd,
) -> Result<T, LoadError> {
    MapData::from_fd(map)
        .and_then(Map::from_map_data)
        .and_then(T::try_from)
        .map_err(|error| LoadError::Map(name, error.to_string()))
}

/// Adopts or loads, and has all of it kept.
pub(super) fn objects(keeper: &Keeper, max_flows: u32) -> Result<Objects, LoadError> {
    let namespace = fs::metadata(NAMESPACE).map_err(LoadError::Namespace)?;
    let meta = Meta {
        abi_version: ABI_VERSION,
        reserved: 0,
        netns_device: namespace.dev(),
        netns_inode: namespace.ino(),
    };
    let (maps, programs, links) = sorted(keeper.kept()?);
    if let Some(objects) = adopt(keeper, &meta, maps, programs, links)? {
        return Ok(objects);
    }
    let objects = load(None, max_flows)?;
    // Last in order: maps without it were left by a start that did not finish, and are stale.
    let mut own: Array<MapData, Meta> = objects.typed(maps::META)?;
    keep(keeper, &objects)?;
    own.set(0, &meta, 0).map_err(|error| LoadError::Map(maps::META, error.to_string()))?;
    Ok(objects)
}

type Kept = (BTreeMap<&'static str, OwnedFd>, BTreeMap<String, OwnedFd>, BTreeMap<String, OwnedFd>);

fn sorted(kept: Vec<(String, OwnedFd)>) -> Kept {
    let (mut maps, mut programs, mut links) = Kept::default();
    for (name, object) in kept {
        if let Some(map) = name.strip_prefix("map/") {
            // Of a version with other maps: refused or removed by its META.
            if let Some(known) = MAPS.into_iter().find(|known| *known == map) {
                maps.insert(known, object);
            }
        } else if name.starts_with("program/") {
            programs.insert(name, object);
        } else {
            links.insert(name, object);
        }
    }
    (maps, programs, links)
}

/// `None`: there was nothing, or what there was is gone now.
fn adopt(
    keeper: &Keeper,
    own: &Meta,
    maps: BTreeMap<&'static str, OwnedFd>,
    mut programs: BTreeMap<String, OwnedFd>,
    links: BTreeMap<String, OwnedFd>,
) -> Result<Option<Objects>, LoadError> {
    if maps.is_empty() && programs.is_empty() && links.is_empty() {
        return Ok(None);
    }
    let found = match maps.get(maps::META) {
        Some(map) => read_meta(map.as_fd())?,
        None => Meta::default(),
    };
    let is_here = (found.netns_device, found.netns_inode) == (own.netns_device, own.netns_inode);
    let is_whole = MAPS.iter().all(|name| maps.contains_key(name));
    if found.abi_version != 0 && is_here && found.abi_version != own.abi_version {
        return Err(LoadError::OtherAbi { found: found.abi_version });
    }
    if found.abi_version != own.abi_version || !is_here || !is_whole {
        tracing::info!(
            keeper = keeper.as_str(),
            "removing kernel state that is not of this network namespace"
        );
        let programs = programs.into_keys();
        for name in links.into_keys().chain(programs).chain(MAPS.map(|map| format!("map/{map}"))) {
            keeper.forget(&name)?;
        }
        return Ok(None);
    }
    let mut take = |name: &str| programs.remove(&format!("program/{name}"));
    // The holder's worker is the same binary each time: its programs are those of the object.
    if matches!(keeper, Keeper::Holder(_)) {
        let refused = || "the program was refused when the agent started".to_owned();
        let l4_ingress = take(maps::L4_INGRESS).ok_or_else(refused);
        let steer = take(maps::STEER).ok_or_else(refused);
        return Ok(Some(Objects { maps, l4_ingress, steer, links, are_adopted: true }));
    }
    let loaded = load(Some(keeper), entries(&maps, maps::FLOWS)? / 2)?;
    Ok(Some(Objects { links, are_adopted: true, ..loaded }))
}

fn entries(maps: &BTreeMap<&'static str, OwnedFd>, name: &'static str) -> Result<u32, LoadError> {
    let error = |error: String| LoadError::Map(name, error);
    let map = maps.get(name).ok_or_else(|| error("it is absent".into()))?;
    let map = map.try_clone().map_err(|clone| error(clone.to_string()))?;
    let info = MapData::from_fd(map).and_then(|data| data.info()).map_err(|info| error(info.to_string()))?;
    Ok(info.max_entries())
}

fn read_meta(map: BorrowedFd<'_>) -> Result<Meta, LoadError> {
    let map = map.try_clone_to_owned().map_err(|error| LoadError::Map(maps::META, error.to_string()))?;
    let meta: Array<MapData, Meta> = typed(maps::META, map)?;
    meta.get(&0, 0).map_err(|error| LoadError::Map(maps::META, error.to_string()))
}

fn keep(keeper: &Keeper, objects: &Objects) -> Result<(), LoadError> {
    for (name, map) in &objects.maps {
        keeper.keep(&format!("map/{name}"), map.as_fd())?;
    }
    // Pinned programs would be those of an older binary after an upgrade.
    if matches!(keeper, Keeper::Holder(_)) {
        for (name, program) in [(maps::L4_INGRESS, &objects.l4_ingress), (maps::STEER, &objects.steer)] {
            if let Ok(program) = program {
                keeper.keep(&format!("program/{name}"), program.as_fd())?;
            }
        }
    }
    Ok(())
}

/// Loads the embedded object, onto the pinned maps where there are any.
fn load(pinned: Option<&Keeper>, max_flows: u32) -> Result<Objects, LoadError> {
    let mut loader = EbpfLoader::new();
    loader.map_max_entries(maps::FLOWS, max_flows.saturating_mul(2));
    for name in MAPS {
        if let Some(path) = pinned.and_then(|keeper| keeper.pin_path(&format!("map/{name}"))) {
            loader.map_pin_path(name, path);
        }
    }
    let mut ebpf = loader.load(OBJECT).map_err(|error| LoadError::Load(reason(&error)))?;
    let mut own = BTreeMap::new();
    for name in MAPS {
        let map = ebpf.map(name).ok_or_else(|| LoadError::Map(name, "it is not in the object".into()))?;
        let descriptor = data(map).and_then(|data| data.fd().as_fd().try_clone_to_owned().ok());
        own.insert(
            name,
            descriptor.ok_or_else(|| LoadError::Map(name, "it is of an unexpected type".into()))?,
        );
    }
    Ok(Objects {
        maps: own,
        l4_ingress: load_program(&mut ebpf, maps::L4_INGRESS),
        steer: load_program(&mut ebpf, maps::STEER),
        links: BTreeMap::new(),
        are_adopted: false,
    })
}

fn load_program(ebpf: &mut aya::Ebpf, name: &str) -> Loaded {
    let program = ebpf.program_mut(name).ok_or_else(|| format!("program {name} is not in the object"))?;
    let loaded = match program {
        Program::SchedClassifier(program) => program.load(),
        Program::SkLookup(program) => program.load(),
        _ => return Err(format!("program {name} is of an unexpected type")),
    };
    loaded.map_err(|error| program_reason(name, &error))?;
    let descriptor = program.fd().map_err(|error| error.to_string())?;
    descriptor.as_fd().try_clone_to_owned().map_err(|error| error.to_string())
}

fn data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::SockMap(data) => Some(data),
        _ => None,
    }
}

/// One line for the user; all of it, with the verifier's log, at debug level.
fn program_reason(name: &str, error: &ProgramError) -> String {
    tracing::debug!(program = name, %error, "program was refused");
    match error {
        ProgramError::LoadError { io_error, .. } => explain(&format!("loading the program {name}"), io_error),
        error => first_line(&format!("loading the program {name} failed: {error}")),
    }
}

fn reason(error: &EbpfError) -> String {
    tracing::debug!(%error, "object was refused");
    match error {
        EbpfError::MapError(aya::maps::MapError::CreateError { name, io_error }) => {
            explain(&format!("creating the map {name}"), io_error)
        }
        error => first_line(&error.to_string()),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
