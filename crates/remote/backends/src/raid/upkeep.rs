//! What a set does beside its users: it rebuilds members, synchronises what a crash has left different, and puts a spare in
//! the place of a member that fails.

use std::sync::{Arc, Weak};
use std::time::Duration;

use block::{BlockDevice, DeviceError, Sleeper};
use raid::disks::{MemberParts, Records};
use raid::superblock::Uuid;
use raid::{MemberState, Progress, RaidDevice};

/// How often it looks whether there is something to do.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Behind an error, so that a failing set is not asked all the time.
const PAUSE: Duration = Duration::from_secs(10);

/// A set and what it takes to keep it up.
pub(super) struct Upkeep {
    /// Ends with its users.
    pub(super) set: Weak<RaidDevice>,
    pub(super) records: Arc<Records>,
    pub(super) spares: Vec<(Uuid, Arc<dyn BlockDevice>)>,
    /// Of what rebuilding reads and writes.
    pub(super) bytes_per_s: u64,
    pub(super) sleeper: Arc<dyn Sleeper>,
}

/// Ends when nobody uses the set any more.
pub(super) async fn run(mut upkeep: Upkeep) {
    let (mut known, mut written): (Vec<MemberState>, u64) = (Vec::new(), 0);
    loop {
        let Some(set) = upkeep.set.upgrade() else { return };
        let states = set.status().states.members;
        tell(&upkeep.records.set().uuid, &known, &states);
        known = states;
        let ended = upkeep.one_round(&set).await;
        written = set.settle(written).await.unwrap_or(written);
        drop(set);
        let pause = match ended {
            Ok(()) => LOOK_EVERY,
            Err(error) => {
                tracing::warn!(set = %upkeep.records.set().uuid, "a RAID set cannot be repaired: {error}");
                PAUSE
            }
        };
        upkeep.sleeper.sleep(pause).await;
    }
}

/// One line for each member that is not what it was.
fn tell(set: &Uuid, known: &[MemberState], states: &[MemberState]) {
    for (member, state) in states.iter().enumerate() {
        let was = known.get(member).copied().unwrap_or(MemberState::InSync);
        match (was, *state) {
            (MemberState::Failed, MemberState::Failed) => {}
            (_, MemberState::Failed) => tracing::error!(%set, member, "a member of a RAID set has failed"),
            (MemberState::Rebuilding { .. }, MemberState::InSync) => {
                tracing::info!(%set, member, "a member of a RAID set is rebuilt");
            }
            (MemberState::Rebuilding { .. }, MemberState::Rebuilding { .. }) => {}
            (_, MemberState::Rebuilding { done }) => {
                tracing::info!(%set, member, from_stripe = done, "a member of a RAID set is being rebuilt");
            }
            (_, MemberState::InSync) => {}
        }
    }
}

impl Upkeep {
    async fn one_round(&mut self, set: &RaidDevice) -> Result<(), DeviceError> {
        self.use_spares(set).await?;
        let failed = |set: &RaidDevice| {
            set.status().states.members.iter().filter(|state| **state == MemberState::Failed).count()
        };
        let before = failed(set);
        let rebuilding = |state: &MemberState| matches!(state, MemberState::Rebuilding { .. });
        while let Some(member) = set.status().states.members.iter().position(rebuilding) {
            while let Some(progress) = self.paced(set.rebuild_step(member)).await? {
                if progress.done.is_multiple_of((progress.total / 10).max(1)) {
                    let percent = 100 * progress.done / progress.total.max(1);
                    tracing::info!(set = %self.records.set().uuid, member, percent, "rebuilding a member of a RAID set");
                }
                // This round is the only one that still has it, or there is something to tell, and a spare to use.
                if self.set.strong_count() == 1 || failed(set) > before {
                    return Ok(());
                }
            }
        }
        let mut done = 0;
        while set.status().unsynced_regions > 0 {
            match self.paced(set.synchronise_step(done)).await? {
                Some(progress) => done = if progress.done < progress.total { progress.done } else { 0 },
                None => break,
            }
            if self.set.strong_count() == 1 {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A step, in no less time than its bytes may take.
    async fn paced(
        &self,
        step: impl Future<Output = Result<Option<Progress>, DeviceError>>,
    ) -> Result<Option<Progress>, DeviceError> {
        let begun = self.sleeper.now();
        let progress = step.await?;
        if let Some(Progress { moved_bytes, .. }) = progress {
            let time = Duration::from_secs_f64(moved_bytes as f64 / self.bytes_per_s.max(1) as f64);
            self.sleeper.sleep_until(begun + time).await;
        }
        Ok(progress)
    }

    async fn use_spares(&mut self, set: &RaidDevice) -> Result<(), DeviceError> {
        let failed = |state: &MemberState| *state == MemberState::Failed;
        while let Some(member) = set.status().states.members.iter().position(failed) {
            let Some((uuid, disk)) = self.spares.last().cloned() else { return Ok(()) };
            self.records.replace(member, uuid, Arc::clone(&disk)).await?;
            self.spares.pop();
            let parts = MemberParts::new(&self.records.set(), member, &disk)?;
            tracing::info!(set = %self.records.set().uuid, member, spare = %uuid, "a spare replaces a member of a RAID set");
            set.replace(member, parts.data, parts.journal.or(parts.bitmap)).await?;
        }
        Ok(())
    }
}
