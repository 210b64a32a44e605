//! Reading all of a set, and comparing it.

use std::fmt;

use raid::superblock::ScrubRecord;
use raid::{AssemblyError, ProtectionAreas, Scrubbed, has_journal, newer_journal};
use serde::{Deserialize, Serialize};
use volume::backend::Opening;
use volume::spec::Spec;

use super::named;
use super::open::{Assembled, LostJournal, Manner};
use crate::failure::Failure;
use crate::opening;

/// What a scrub has found, in stripes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrub {
    /// Looked at.
    pub stripes: u64,
    /// With nothing to compare: a member lacks its strip.
    pub degraded: u64,
    /// With strips that cannot be read.
    pub unreadable: u64,
    /// With strips that do not fit each other.
    pub mismatches: u64,
    /// Of the last two, those that are right now.
    pub repaired: u64,
    /// Of those that do not fit, those that are to be synchronised when the set is used, after a crash or since it was made.
    #[serde(default)]
    pub unsynchronised: u64,
    /// Of a set with checksums: of each member, how often a block was not what its checksum says.
    pub wrong_blocks: Vec<u64>,
}

impl From<&ScrubRecord> for Scrub {
    fn from(record: &ScrubRecord) -> Scrub {
        Scrub {
            stripes: record.stripes,
            degraded: record.degraded,
            unreadable: record.unreadable,
            mismatches: record.mismatches,
            repaired: record.repaired,
            unsynchronised: 0,
            wrong_blocks: record.wrong_blocks.iter().map(|blocks| u64::from(*blocks)).collect(),
        }
    }
}

impl Scrub {
    /// As it is recorded, of one that has not ended and does not repair.
    pub(super) fn record(&self) -> ScrubRecord {
        let Scrub { stripes, degraded, unreadable, mismatches, repaired, ref wrong_blocks, .. } = *self;
        let wrong = |blocks: &u64| u32::try_from(*blocks).unwrap_or(u32::MAX);
        ScrubRecord {
            repairs: false,
            has_ended: false,
            stripes,
            degraded,
            unreadable,
            mismatches,
            repaired,
            wrong_blocks: wrong_blocks.iter().map(wrong).collect(),
        }
    }

    /// Whether all of the set was compared, and is right.
    pub fn is_proof(&self) -> bool {
        self.is_right() && self.degraded == 0
    }

    /// Whether nothing is left that is not right, of what was compared.
    pub fn is_right(&self) -> bool {
        self.unreadable + self.mismatches == self.repaired
    }

    pub(super) fn add(&mut self, found: Scrubbed) {
        self.stripes += 1;
        match found {
            Scrubbed::Right => {}
            Scrubbed::Degraded => self.degraded += 1,
            Scrubbed::Unreadable { is_repaired } => {
                self.unreadable += 1;
                self.repaired += u64::from(is_repaired);
            }
            Scrubbed::Mismatch { is_repaired } => {
                self.mismatches += 1;
                self.repaired += u64::from(is_repaired);
            }
        }
    }
}

impl fmt::Display for Scrub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scrub { stripes, mismatches, unreadable, repaired, .. } = self;
        write!(
            f,
            "{stripes} stripes: {mismatches} do not fit, {unreadable} cannot be read, {repaired} of these repaired"
        )?;
        let wrong = self.wrong_blocks.iter().enumerate().filter(|(_, blocks)| **blocks > 0);
        for (member, blocks) in wrong {
            write!(f, "; member {member} had blocks that do not fit their checksums ({blocks} times)")?;
        }
        if self.unsynchronised > 0 {
            write!(
                f,
                "; {} of those that do not fit were never synchronised, since a crash or since the set was made over used disks: that is \
                 done when the set is used, or by --repair",
                self.unsynchronised
            )?;
        }
        match self.degraded {
            0 => Ok(()),
            degraded => {
                write!(
                    f,
                    "; {degraded} could not be compared, since a member lacks them or is not rebuilt yet"
                )
            }
        }
    }
}

/// Reads all stripes of a set that nobody else uses, and with `repairs` makes strips fit each other: data count, parity and
/// later copies are written anew. `tells` hears how many stripes are done, and of how many.
///
/// # Errors
/// The set does not start, or a request fails.
pub async fn scrub(spec: &Spec, repairs: bool, tells: &mut dyn FnMut(u64, u64)) -> Result<Scrub, Failure> {
    // Nothing else repairs it meanwhile, and nothing is written where that is not asked for.
    let opening = Opening { read_only: !repairs, ..opening() };
    let assembled = named(spec)?.assembled(&opening).await?;
    scrubbed(assembled, repairs, false, tells).await
}

/// What is lost with a journal that both of its headers are lost of, or whose device is lost.
const LOST_WITH_JOURNAL: &str = "the journal is not replayed: writes that were acknowledged shortly before the set ended, and blocks that \
     were being written then, may be as they were before, or garbled; of a member that lacks, other blocks of these stripes, too. With checksums, \
     data that nothing else can tell are taken as they are. All else is whole";

/// Starts a set whose journal cannot be replayed with a new one, and writes parity anew wherever it does not fit its data. That
/// resumes when the set is opened next, if it is interrupted. Without consent nothing is done.
///
/// # Errors
/// It has a journal, or does not start for another reason; or a request fails.
pub async fn discard_journal(
    spec: &Spec,
    has_consent: bool,
    tells: &mut dyn FnMut(u64, u64),
) -> Result<Scrub, Failure> {
    if !has_consent {
        return Err(Failure::refused(format_args!("say --yes if that is accepted: {LOST_WITH_JOURNAL}")));
    }
    let lost_journal: &LostJournal = &|parts| {
        Box::pin(async {
            let ProtectionAreas::Journal(copies) = parts.protection() else {
                return Err(Failure::refused("the set has no journal"));
            };
            // With its device, it is lost whatever members have: a fall back that was not recorded leaves an empty one there.
            let has_area = !parts.is_journal_lost;
            if has_area && let Some(version) = newer_journal(&copies).await {
                return Err(Failure::refused(AssemblyError::NewerJournal { version }));
            }
            let unsure = |error| Failure::device("looking for the journal, which may be there later", error);
            if parts.is_new() {
                return Err(Failure::refused("the set was never used: create it anew"));
            }
            if has_area && has_journal(&copies).await.map_err(unsure)? {
                return Err(Failure::refused(
                    "the set has a journal that can be replayed: it starts as it is",
                ));
            }
            let failed = |error| Failure::device("recording that the set is scrubbed", error);
            let all_of_it = ScrubRecord { repairs: true, ..ScrubRecord::default() };
            parts.records.scrubbed(Some(all_of_it)).await.map_err(failed)
        })
    };
    let manner = Manner { lost_journal: Some(lost_journal), ..Manner::default() };
    let assembled = named(spec)?.assembled_so(&opening(), manner).await?;
    let records = assembled.records.clone();
    let scrub = scrubbed(assembled, true, true, tells).await?;
    if let Some(records) = records {
        let record = ScrubRecord { repairs: true, has_ended: true, ..scrub.record() };
        let failed = |error| Failure::device("recording that the set was scrubbed", error);
        records.scrubbed(Some(record)).await.map_err(failed)?;
        records.close().await.map_err(failed)?;
    }
    Ok(scrub)
}

async fn scrubbed(
    assembled: Assembled,
    repairs: bool,
    accepts: bool,
    tells: &mut dyn FnMut(u64, u64),
) -> Result<Scrub, Failure> {
    let (mut scrub, stripes) = (Scrub::default(), assembled.set.layout().stripes());
    for stripe in 0..stripes {
        let found = match accepts {
            true => assembled.set.accept_step(stripe).await,
            false => assembled.set.scrub_step(stripe, repairs).await,
        };
        let failed = |error| Failure::device(format_args!("cannot scrub stripe {stripe}"), error);
        let found = found.map_err(failed)?;
        let is_expected =
            found == Scrubbed::Mismatch { is_repaired: false } && assembled.set.is_unsynced(stripe);
        scrub.unsynchronised += u64::from(is_expected);
        scrub.add(found);
        tells(scrub.stripes, stripes);
    }
    scrub.wrong_blocks = assembled.set.status().wrong_blocks;
    if let Some(records) = assembled.records.filter(|_| repairs) {
        let failed = |error| Failure::device("closing the set", error);
        let is_synchronised = assembled.set.status().unsynced_regions == 0;
        assembled.set.close().await.map_err(failed)?;
        if is_synchronised {
            records.close().await.map_err(failed)?;
        }
    }
    Ok(scrub)
}
