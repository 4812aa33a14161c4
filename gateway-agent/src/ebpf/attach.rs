//! Where the programs are attached, as interfaces come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::keeper::Keeper;
use super::load::NAMESPACE;
use super::probe::{Path, explain};
use super::{clsact, sys};
use crate::addresses::{Interface, Interfaces};

const SK_LOOKUP: &str = "link/sk_lookup";

/// How the TC program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mechanism {
    Tcx,
    Clsact,
}

impl Mechanism {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        }
    }

    /// Asks the kernel for what it has, by an attachment to an interface that cannot be.
    pub(super) fn probe(program: BorrowedFd<'_>) -> (Self, Path) {
        const NO_INTERFACE: u32 = i32::MAX.cast_unsigned();
        match sys::attach_tcx(program, NO_INTERFACE) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                (Self::Clsact, Path { mechanism: Some("clsact"), reason: explain("TCX", &error) })
            }
            // ENODEV: all but the interface is right.
            _ => (Self::Tcx, Path::by("tcx")),
        }
    }
}

/// The TC program at the ingress of every Ethernet interface.
#[derive(Debug)]
pub(super) struct Attachments {
    program: OwnedFd,
    mechanism: Mechanism,
    keeper: Keeper,
    /// By interface; `None`: a clsact filter, which nobody needs to hold.
    links: BTreeMap<u32, Option<OwnedFd>>,
    /// Links of an earlier process that were not looked at yet.
    adopted: BTreeMap<u32, OwnedFd>,
    /// Already told, so that a retry is silent.
    failed: BTreeSet<u32>,
}

impl Attachments {
    pub(super) fn new(
        program: OwnedFd,
        mechanism: Mechanism,
        keeper: Keeper,
        kept: &mut BTreeMap<String, OwnedFd>,
    ) -> Self {
        let mut adopted = BTreeMap::new();
        kept.retain(|name, link| {
            let interface = name.strip_prefix("link/tcx/").and_then(|index| index.parse().ok());
            let copy = link.try_clone().ok();
            let is_ours = interface.is_some();
            adopted.extend(interface.zip(copy));
            !is_ours
        });
        Self { program, mechanism, keeper, links: BTreeMap::new(), adopted, failed: BTreeSet::new() }
    }

    pub(super) const fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// The interfaces whose packets meet the program.
    pub(super) fn interfaces(&self) -> BTreeSet<u32> {
        self.links.keys().copied().collect()
    }

    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Attaches where it is not yet and lets go what is gone. True when something has changed.
    pub(super) fn follow(&mut self, interfaces: &Interfaces) -> bool {
        let wanted: BTreeMap<u32, &Interface> = interfaces
            .0
            .iter()
            .filter(|interface| interface.is_ethernet && !interface.is_loopback)
            .map(|interface| (interface.index, interface))
            .collect();
        let before = self.interfaces();
        let gone: Vec<u32> = before.iter().filter(|index| !wanted.contains_key(index)).copied().collect();
        for index in gone {
            self.links.remove(&index);
            self.forget(index);
        }
        self.failed.retain(|index| wanted.contains_key(index));
        for (index, interface) in wanted {
            if !self.is_attached(index) {
                self.attach(interface);
            }
        }
        for (index, _) in std::mem::take(&mut self.adopted) {
            self.forget(index);
        }
        before != self.interfaces()
    }

    /// A link whose interface went and came back with the same number, as one that moved between namespaces does, is
    /// dead.
    fn is_attached(&self, index: u32) -> bool {
        match self.links.get(&index) {
            Some(Some(link)) => sys::link_info(link.as_fd()).is_ok_and(|info| info.target == index),
            Some(None) => true,
            None => false,
        }
    }

    fn attach(&mut self, interface: &Interface) {
        let index = interface.index;
        match self.try_attach(index) {
            Ok(link) => {
                tracing::info!(
                    interface = interface.name,
                    mechanism = self.mechanism.as_str(),
                    "program attached"
                );
                self.links.insert(index, link);
                self.failed.remove(&index);
            }
            Err(error) => {
                self.links.remove(&index);
                if self.failed.insert(index) {
                    let what = explain("attaching the program", &error);
                    tracing::warn!(
                        interface = interface.name,
                        error = what,
                        "interface is left to the proxy"
                    );
                }
            }
        }
    }

    fn try_attach(&mut self, index: u32) -> io::Result<Option<OwnedFd>> {
        if self.mechanism == Mechanism::Clsact {
            clsact::attach(self.program.as_fd(), index)?;
            return Ok(None);
        }
        if let Some(link) = self.adopted.remove(&index)
            && sys::link_info(link.as_fd())?.target == index
        {
            replace(link.as_fd(), self.program.as_fd())?;
            return Ok(Some(link));
        }
        let link = sys::attach_tcx(self.program.as_fd(), index)?;
        self.keep(index, link.as_fd());
        Ok(Some(link))
    }

    fn keep(&self, index: u32, link: BorrowedFd<'_>) {
        if let Err(error) = self.keeper.keep(&link_name(index), link) {
            tracing::warn!(%error, "link is not kept: a crash of the agent would detach it");
        }
    }

    fn forget(&self, index: u32) {
        if let Err(error) = self.keeper.forget(&link_name(index)) {
            tracing::warn!(%error, "link of a gone interface is still kept");
        }
    }

    /// Takes the program off all interfaces.
    pub(super) fn detach_all(&mut self) {
        for (index, link) in std::mem::take(&mut self.links) {
            match link {
                Some(_) => self.forget(index),
                None => {
                    if let Err(error) = clsact::detach(index) {
                        tracing::warn!(%error, interface = index, "filter cannot be removed");
                    }
                }
            }
        }
    }
}

fn link_name(interface: u32) -> String {
    format!("link/tcx/{interface}")
}

/// Attaches the `sk_lookup` program to this network namespace, or puts it into the link of an earlier process.
pub(super) fn attach_sk_lookup(
    program: BorrowedFd<'_>,
    keeper: &Keeper,
    kept: &mut BTreeMap<String, OwnedFd>,
) -> Result<OwnedFd, String> {
    let mut attach = || {
        if let Some(link) = kept.remove(SK_LOOKUP)
            && sys::link_info(link.as_fd())?.target != 0
        {
            replace(link.as_fd(), program)?;
            return Ok((link, false));
        }
        Ok((sys::attach_sk_lookup(program, File::open(NAMESPACE)?.as_fd())?, true))
    };
    let (link, is_new) = attach().map_err(|error: io::Error| explain("attaching sk_lookup", &error))?;
    if is_new {
        keeper.keep(SK_LOOKUP, link.as_fd()).map_err(|error| error.to_string())?;
    }
    Ok(link)
}

fn replace(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    if sys::link_info(link)?.program_id == sys::program_id(program)? {
        return Ok(());
    }
    sys::update_link(link, program)
}
