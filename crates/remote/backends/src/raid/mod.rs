//! RAID sets of other volumes, such as `raid5:64KiB:[…]`.
//!
//! Members with persistent storage identify their set in their superblocks, so a specification may list them
//! in any order; [`create`] creates a set of them. A set of volatile members, such as RAM volumes, is
//! recreated whenever it is opened: nothing is recorded on its members, and a crash leaves nothing to repair.
//!
//! Reading order: the kinds (this file), `open`, `running` (sets in use), `upkeep` (rebuilding sets in use),
//! [`create`], [`status`], [`scrub`].

mod offline;
mod open;
mod running;
mod service;
mod state;
mod upkeep;

use std::fmt::{self, Display};
use std::sync::Arc;

use block::BlockDevice;
use raid::Level;
use volume::backend::{Backend, BlockPlaces, Kind, Opened, Opening, Options};
use volume::spec::{Bytes, Problem, Spec, Time, Written};

use crate::failure::Failure;

pub use offline::{
    Creation, SetStatus, create, discard_journal, is_one_file, look, replace, scrub, status,
};
pub use running::{Order, PendingOrder, Running, alone, closed, open, sets};
pub(crate) use state::FIGURES;
pub use state::{
    Condition, JournalStatus, Meaning, MemberCondition, MemberStatus, Progress, Scrub, ScrubStatus,
    SetState,
};

/// The default strip length.
const STRIP: Bytes = Bytes(64 << 10);

/// Option: treat missing members as permanently lost.
const LOST: &str = "missing-are-lost";
/// Option: start a set without a journal that is degraded after a crash, although reconstructed data may be
/// wrong.
const WRONG: &str = "data-may-be-wrong";
/// Option: the rate at which a member is rebuilt, whether or not the set has users.
const REBUILD: &str = "rebuild";

/// Option: the time for which a starting server waits for members.
const WAIT: &str = "assemble-wait";

const OPTIONS: Options = Options::Known(&[LOST, WRONG, REBUILD, WAIT]);

macro_rules! kinds {
    ($($static:ident, $name:literal, $level:expr, $usage:literal, $about:literal;)*) => {
        $(pub(crate) static $static: Kind = Kind {
            name: $name,
            usage: $usage,
            about: $about,
            blocks: BlockPlaces::Elsewhere("a RAID set cannot be shrunk"),
            options: OPTIONS,
            read: |written| read(&$static, $level, written),
        };)*

        /// All kinds of RAID sets.
        const KINDS: &[(&Kind, Level)] = &[$((&$static, $level)),*];
    };
}

kinds! {
    RAID0, "raid0", Level::Raid0, "raid0:STRIP:[VOLUME, …]",
        "a striped RAID set of other volumes ([raid.md](raid.md)), lost if any member is lost";
    RAID1, "raid1", Level::Raid1, "raid1:[VOLUME, …]", "a mirrored RAID set, with a copy on each member";
    RAID5, "raid5", Level::Raid5, "raid5:STRIP:[VOLUME, …]",
        "a RAID set with parity; tolerates one failed member";
    RAID6, "raid6", Level::Raid6, "raid6:STRIP:[VOLUME, …]",
        "a RAID set with two parities; tolerates two failed members";
    RAID10, "raid10", Level::Raid10, "raid10:STRIP:[VOLUME, …]",
        "a striped RAID set, with two copies of each strip";
}

/// Rejects a disk that can silently lose cached writes, unless the set has no redundancy. The set would read
/// stale data from it and write that to the other members.
fn check_losses_are_seen(
    level: Level,
    name: &impl Display,
    device: &dyn BlockDevice,
) -> Result<(), Failure> {
    if level == Level::Raid0 || !device.profile().loses_unseen {
        return Ok(());
    }
    Err(Failure::refused(format_args!(
        "{name} may have a write cache, and its protocol does not report that the server has lost the cache: \
         after a restart of that server, the set would read old data, and copy it to the other members. \
         Export the disk over iSCSI, NBD or HyperSCSI, or disable its write cache; to accept the risk, add \
         `?cache-loss-unseen` to its URL"
    )))
}

#[derive(Debug)]
struct Raid {
    kind: &'static Kind,
    level: Level,
    /// The strip length in the specification. The superblocks also record it.
    strip: Option<Bytes>,
    members: Vec<Spec>,
    missing_are_lost: bool,
    data_may_be_wrong: bool,
    /// The rebuild rate in bytes per second.
    rebuild: Option<Bytes>,
    assemble_wait: Option<Time>,
}

/// Prints the specification up to its closing bracket.
impl fmt::Display for Raid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&written(self))
    }
}

/// Returns the specification of a set up to its closing bracket.
pub(super) fn written(backend: &dyn Backend) -> String {
    let members = backend
        .members()
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>();
    written_with(backend.kind().name, &backend.argument(), &members)
}

pub(super) fn written_with(kind: &str, argument: &str, members: &[String]) -> String {
    let colon = if argument.is_empty() { "" } else { ":" };
    format!("{kind}:{argument}{colon}[{}]", members.join(", "))
}

fn read(
    kind: &'static Kind,
    level: Level,
    written: &Written<'_>,
) -> Result<Arc<dyn Backend>, Problem> {
    let strip: Option<Bytes> = match written.argument().text.is_empty() {
        true => None,
        false => Some(written.before_brackets(
            "a RAID set needs a strip length, or nothing",
            "raid0:64KiB:[…]",
        )?),
    };
    if let Some(strip) =
        strip.filter(|strip| !strip.0.is_power_of_two() || !(4 << 10..=1 << 20).contains(&strip.0))
    {
        let sentence =
            format!("the strip length {strip} is not valid; use a power of two from 4KiB to 1MiB");
        return Err(Problem::new(written.argument().at.clone(), sentence));
    }
    Ok(Arc::new(Raid {
        kind,
        level,
        strip,
        members: written.members()?,
        missing_are_lost: written.flag(LOST)?,
        data_may_be_wrong: written.flag(WRONG)?,
        rebuild: written.parsed(REBUILD)?,
        assemble_wait: written.parsed(WAIT)?,
    }))
}

impl Backend for Raid {
    fn kind(&self) -> &'static Kind {
        self.kind
    }

    fn argument(&self) -> String {
        self.strip
            .map(|strip| strip.to_string())
            .unwrap_or_default()
    }

    fn options(&self) -> Vec<String> {
        let flags = [
            (self.missing_are_lost, LOST),
            (self.data_may_be_wrong, WRONG),
        ];
        let said = flags.into_iter().filter(|(is_said, _)| *is_said);
        said.map(|(_, flag)| flag.to_owned())
            .chain(self.rebuild.map(|rate| format!("{REBUILD}={rate}")))
            .chain(self.assemble_wait.map(|time| format!("{WAIT}={time}")))
            .collect()
    }

    fn members(&self) -> &[Spec] {
        &self.members
    }

    /// Returns false if losing a volatile member would lose part of the data.
    fn keeps_data(&self) -> bool {
        self.members.iter().all(|member| member.keeps_data())
    }

    /// A set reads its members before it is open, and rebuilds them while it is in use.
    fn opens_later(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async move { Ok(self.in_use(opening).await?) })
    }
}

/// Removes the options that override a refusal to start. They are needed for one start only. If they
/// remained, they would also override the next refusal.
pub fn without_overruling(specification: &str) -> String {
    [LOST, WRONG]
        .iter()
        .fold(specification.to_owned(), |text, option| {
            text.replace(&format!("?{option}&"), "?")
                .replace(&format!("&{option}"), "")
                .replace(&format!("?{option}"), "")
        })
}

/// Returns whether a volume is the specification of a set.
pub fn is_set(spec: &Spec) -> bool {
    KINDS
        .iter()
        .any(|(kind, _)| kind.name == spec.backend().kind().name)
}

/// Returns whether a volume contains a set below its layers.
fn has_set(spec: &Spec) -> bool {
    is_set(spec) || spec.members().iter().any(has_set)
}

/// Parses the specification of a set.
fn named(spec: &Spec) -> Result<Raid, Failure> {
    let backend = spec.backend();
    let known = KINDS
        .iter()
        .find(|(kind, _)| kind.name == backend.kind().name);
    let (kind, level) = known.copied().ok_or_else(|| {
        Failure::refused(format_args!(
            "{spec} is not a RAID set; specify one, such as raid5:64KiB:[file:/a, file:/b, file:/c]"
        ))
    })?;
    Ok(Raid {
        kind,
        level,
        strip: backend.argument().parse().ok(),
        members: backend.members().to_vec(),
        missing_are_lost: backend.options().iter().any(|option| option == LOST),
        data_may_be_wrong: backend.options().iter().any(|option| option == WRONG),
        rebuild: None,
        assemble_wait: None,
    })
}

#[cfg(test)]
mod tests;
