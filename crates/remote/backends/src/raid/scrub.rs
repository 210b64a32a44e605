//! Reading all of a set, and comparing it.

use std::fmt;

use raid::Scrubbed;
use raid::superblock::ScrubRecord;
use serde::{Deserialize, Serialize};
use volume::backend::Opening;
use volume::spec::Spec;

use super::named;
use crate::{Failure, opening};

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
            wrong_blocks: record.wrong_blocks.iter().map(|blocks| u64::from(*blocks)).collect(),
        }
    }
}

impl Scrub {
    /// Whether something is left that is not right.
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
        match self.degraded {
            0 => Ok(()),
            degraded => write!(f, "; {degraded} could not be compared, since a member lacks them"),
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
    let (mut scrub, stripes) = (Scrub::default(), assembled.set.layout().stripes());
    for stripe in 0..stripes {
        let found = assembled.set.scrub_step(stripe, repairs).await;
        let failed = |error| Failure::device(format_args!("cannot scrub stripe {stripe}"), error);
        scrub.add(found.map_err(failed)?);
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
