//! What the members of a specification say of their sets.

use std::fmt;

use raid::choose::{Found, FoundSet, Trust, find};
use raid::{Level, MemberState, disks};
use serde::Serialize;
use volume::backend::Opening;
use volume::spec::{Bytes, Spec};

use super::named;
use super::open::Members;
use crate::{Failure, opening};

/// A set as its members have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetStatus {
    /// Its UUID.
    pub uuid: String,
    /// Its name; empty without one.
    pub name: String,
    /// `RAID 5`.
    pub level: String,
    /// Length of a strip.
    pub strip_bytes: u64,
    /// Capacity.
    pub bytes: u64,
    /// Of its newest record.
    pub generation: u64,
    /// In the order of the layout.
    pub members: Vec<MemberStatus>,
    /// Names of the volumes that can replace a member.
    pub spares: Vec<String>,
    /// Volumes that were of it, each with the reason for which they are not used.
    pub left_out: Vec<String>,
    /// Why it does not start; `None` if it does.
    pub refusal: Option<String>,
}

/// A member of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberStatus {
    /// The volume; `None` if it is missing.
    pub volume: Option<String>,
    /// `in sync`, `rebuilding`, `failed` or `missing`.
    pub state: &'static str,
    /// How much of it is rebuilt, where it is rebuilding.
    pub percent: Option<u64>,
}

/// The sets of which the volumes of `spec` are members, and a line for each volume that is of none. Nothing is written.
///
/// # Errors
/// It names no set.
pub async fn status(spec: &Spec) -> Result<(Vec<SetStatus>, Vec<String>), Failure> {
    let members = Members::open(&named(spec)?.members, &Opening { read_only: true, ..opening() }).await?;
    let candidates = disks::look_at(&members.disks).await;
    let Found { sets, others } = find(&candidates, Trust::CertainOnly);
    let name = |index: usize| members.disks[index].name.clone();
    let sets = sets.iter().map(|set| of_set(set, &name)).collect();
    let others = others.iter().map(|(index, reason)| format!("{}: {reason}", name(*index)));
    Ok((sets, others.chain(members.absent.iter().cloned()).collect()))
}

fn of_set(set: &FoundSet, name: &dyn Fn(usize) -> String) -> SetStatus {
    let layout = set.record.layout().ok();
    let stripes = layout.map_or(1, |layout| layout.stripes().max(1));
    let members = set.record.members.iter().zip(&set.members).map(|(record, disk)| {
        let (state, percent) = match (record.state, disk) {
            (MemberState::Failed, _) => ("failed", None),
            (_, None) => ("missing", None),
            (MemberState::InSync, _) => ("in sync", None),
            (MemberState::Rebuilding { done }, _) => ("rebuilding", Some(100 * done / stripes)),
        };
        MemberStatus { volume: disk.map(name), state, percent }
    });
    SetStatus {
        uuid: set.record.uuid.to_string(),
        name: set.record.name.clone(),
        level: set.record.level.to_string(),
        strip_bytes: set.record.strip_bytes,
        bytes: layout.map_or(0, |layout| layout.blocks().0 << layout.block_size().shift()),
        generation: set.record.generation,
        members: members.collect(),
        spares: set.spares.iter().map(|(_, disk)| name(*disk)).collect(),
        left_out: set.left_out.iter().map(|(disk, why)| format!("{}: {why}", name(*disk))).collect(),
        refusal: set.refusal.as_ref().map(ToString::to_string),
    }
}

impl fmt::Display for SetStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { String::new() } else { format!(" {:?}", self.name) };
        write!(f, "{} {}{name}: {}", self.level, self.uuid, Bytes(self.bytes))?;
        if self.level != Level::Raid1.to_string() {
            write!(f, ", strips of {}", Bytes(self.strip_bytes))?;
        }
        for (index, MemberStatus { volume, state, percent }) in self.members.iter().enumerate() {
            let percent = percent.map(|percent| format!(", {percent} %")).unwrap_or_default();
            write!(f, "\n  member {index}: {state}{percent}  {}", volume.as_deref().unwrap_or("-"))?;
        }
        self.spares.iter().try_for_each(|spare| write!(f, "\n  spare: {spare}"))?;
        self.left_out.iter().try_for_each(|left_out| write!(f, "\n  left out: {left_out}"))?;
        match &self.refusal {
            Some(refusal) => write!(f, "\n  does not start: {refusal}"),
            None => Ok(()),
        }
    }
}
