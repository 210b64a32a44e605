//! The upkeep of a set in use: it rebuilds members, resynchronises after a crash, replaces failed members
//! with spares, scrubs, and executes orders. It closes the set once the set has no users.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use block::{BlockDevice, DeviceError};
use disk_contents::Consent;
use raid::disks::{Growth, MemberParts, Records};
use raid::superblock::{self, MemberRecord, ScrubRecord, Uuid};
use raid::{MemberState, Progress, RaidDevice};
use volume::backend::{Creation, Opening, Undo};
use volume::spec::{Bytes, Spec};

use crate::failure::Failure;
use crate::raid::check_losses_are_seen;
use crate::raid::offline::{are_one_store, new_member, uuid};
use crate::raid::open::Spare;
use crate::raid::running::{Current, Order, Parts, Running, Stopped};
use crate::raid::state::{Pace, Scrubbing, Throttle, Working};

/// Interval at which the upkeep looks for work.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pause after an error, so that a failing set is not retried continuously.
const PAUSE: Duration = Duration::from_secs(10);
/// Time after which a spare that could not be used is retried. Other spares are tried earlier. Regions that
/// could not be resynchronised are retried after the same time.
const AGAIN_PAUSE: Duration = Duration::from_mins(5);

/// Approximate number of bytes that a growth step zeroes on each member.
const GROWN_BYTES: u64 = 8 << 20;

/// A set and the state needed for its upkeep.
pub(super) struct Upkeep {
    pub(super) set: Arc<RaidDevice>,
    pub(super) running: Arc<Running>,
    /// `None` for a set of volatile members.
    pub(super) records: Option<Arc<Records>>,
    pub(super) spares: Vec<Spare>,
    /// Spares that could not be used, until the given time.
    pub(super) refused_spares: Vec<(Uuid, Instant)>,
    /// The time at which to retry the regions with an unreadable sector.
    pub(super) stuck_until: Instant,
    /// Limits the rate of rebuilds, resyncs, scrubs and growth.
    pub(super) throttle: Throttle,
    pub(super) opening: Opening,
    pub(super) growing: Option<Growth>,
    /// Whether the journal was on a separate volume when this was last logged.
    pub(super) has_journal_device: bool,
    pub(super) current: Weak<Current>,
}

impl Upkeep {
    pub(super) fn new(
        Parts { set, records }: Parts,
        running: Arc<Running>,
        current: Weak<Current>,
        spares: Vec<Spare>,
        throttle: Throttle,
        opening: Opening,
    ) -> Upkeep {
        let has_journal_device = running.state().names.journal.is_some();
        let stuck_until = opening.sleeper.now();
        Upkeep {
            set,
            running,
            records,
            spares,
            refused_spares: Vec::new(),
            stuck_until,
            throttle,
            opening,
            growing: None,
            has_journal_device,
            current,
        }
    }
}

/// Removes members from the set.
pub(super) struct Exit {
    current: Weak<Current>,
    pub(super) running: Arc<Running>,
}

impl Exit {
    pub(super) async fn fail(&self, member: usize) -> Result<String, Failure> {
        let parts = self
            .current
            .upgrade()
            .and_then(|current| current.parts().ok());
        let Parts { set, records } = parts.ok_or_else(has_stopped)?;
        check_member(&set, member)?;
        let disk = self.running.disk(member);
        set.fail(member).await.map_err(|error| match error {
            DeviceError::Unsupported => Failure::refused(format_args!(
                "data would be lost without member {member} ({disk})"
            )),
            error => Failure::device(format_args!("cannot remove member {member}"), error),
        })?;
        if let Some(records) = &records {
            records.release(member);
        }
        Ok(format!("member {member} ({disk}) is removed from the set"))
    }
}

fn check_member(set: &RaidDevice, member: usize) -> Result<MemberState, Failure> {
    let states = set.status().states.members;
    states.get(member).copied().ok_or_else(|| {
        Failure::refused(format_args!(
            "the set has members 0 to {}",
            states.len().saturating_sub(1)
        ))
    })
}

pub(super) fn has_stopped() -> Failure {
    Failure::refused("the set has stopped: `linerate raid assemble` with its volume restarts it")
}

/// The reason why [`Upkeep::keep_up`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpkeepEnd {
    /// The set is closed.
    Ended,
    /// The set is out of service, and its members may belong to another assembly.
    Stopped,
}

impl Upkeep {
    pub(super) async fn keep_up(&mut self) -> UpkeepEnd {
        let (mut known, mut written): (Vec<MemberState>, u64) = (Vec::new(), 0);
        let (mut wrong, mut lost) = (Vec::new(), Vec::new());
        let mut is_told = false;
        self.resume_scrub();
        loop {
            while let Some(ordered) = self.running.next_order() {
                let is_last = matches!(ordered.order, Order::Close);
                let result = self.carry_out(&ordered.order).await;
                ordered.end(result);
                if is_last {
                    return UpkeepEnd::Ended;
                }
            }
            if !self.running.is_used() {
                // Ignore an error of this close: users have already received the errors of their requests.
                let _ = self.close().await;
                return UpkeepEnd::Ended;
            }
            let status = self.set.status();
            let states = status.states.members;
            self.tell(&known, &states);
            known = states;
            if status.is_out_of_service {
                let is_taken_over = self.is_taken_over();
                if !std::mem::replace(&mut is_told, true) {
                    self.tell_of_stop(is_taken_over);
                }
                // The set does not restart if another host has taken over a member, because that host's
                // members must not be modified, or if the members are volatile, because then there is no
                // record to restart from.
                if !is_taken_over && self.records.is_some() {
                    return UpkeepEnd::Stopped;
                }
            }
            self.tell_of_wrong(&mut wrong);
            self.tell_of_lost(&mut lost);
            if self.has_lost_journal() {
                self.has_journal_device = false;
                self.tell_of_journal();
            }
            let ended = self.one_round().await;
            written = self.set.settle(written).await.unwrap_or(written);
            self.running.state().trouble = ended.err().map(|error| self.trouble(error));
            let pause = match ended {
                Ok(()) => LOOK_EVERY,
                // The next iteration reports the stop.
                Err(_) if self.set.status().is_out_of_service && !is_told => continue,
                Err(error) => {
                    tracing::warn!(
                        set = self.running.label(),
                        "a RAID set cannot be repaired: {error}"
                    );
                    PAUSE
                }
            };
            self.running
                .woken(self.opening.sleeper.as_ref(), pause)
                .await;
        }
    }

    /// Logs one line when the set's requests start to fail, with the members' states and the remedy.
    fn tell_of_stop(&self, is_taken_over: bool) {
        let (set, status) = (self.running.label(), self.running.status());
        let members = status.members.iter().enumerate().map(|(number, member)| {
            let failing = self.set.status().stopped_by.filter(|(by, _)| *by == number);
            let state =
                failing.map_or_else(|| member.state.to_string(), |(_, error)| error.to_string());
            format!(
                "member {number} ({}): {state}",
                member.volume.as_deref().unwrap_or("missing")
            )
        });
        let members = members.collect::<Vec<_>>().join(", ");
        let remedy = match (is_taken_over, self.records.is_some()) {
            (true, _) => {
                "another host uses a member: stop that use, then remove the volume and add it again, or \
                 restart the server"
                    .to_owned()
            }
            (false, true) => format!(
                "it restarts automatically when all its members respond, or with `linerate raid assemble {set}`"
            ),
            (false, false) => "its members do not keep data: restart the server to recreate it".to_owned(),
        };
        let why = format!("its requests fail; {members}; {remedy}");
        tracing::error!(set, "a RAID set has stopped: {why}");
        self.running.state().stopped = Some(Stopped {
            states: self.set.status().states,
            why,
        });
    }
}

impl Upkeep {
    /// Logs one line for each member with new checksum mismatches since the last check.
    fn tell_of_wrong(&self, known: &mut Vec<u64>) {
        let wrong = self.set.status().wrong_blocks;
        for (member, blocks) in wrong.iter().enumerate() {
            let new = blocks.saturating_sub(known.get(member).copied().unwrap_or(0));
            if new > 0 {
                let (set, disk) = (self.running.label(), self.running.disk(member));
                tracing::warn!(
                    set,
                    member,
                    disk,
                    blocks = new,
                    "blocks of a member of a RAID set have wrong checksums"
                );
            }
        }
        *known = wrong;
    }

    /// Logs one line for each member with more lost blocks, or with none left, since the last check.
    fn tell_of_lost(&self, known: &mut Vec<u64>) {
        let lost = self.set.status().lost_blocks;
        for (member, blocks) in lost.iter().enumerate() {
            let (set, disk) = (self.running.label(), self.running.disk(member));
            match (known.get(member).copied().unwrap_or(0), *blocks) {
                (before, blocks) if blocks > before => tracing::error!(
                    set,
                    member,
                    disk,
                    blocks,
                    "blocks of a member of a RAID set are lost: reads of these fail until they are rewritten"
                ),
                (1.., 0) => {
                    tracing::info!(
                        set,
                        member,
                        disk,
                        "a member of a RAID set no longer has lost blocks"
                    )
                }
                _ => {}
            }
        }
        *known = lost;
    }

    /// Returns the reason why a round stopped, and the remedy.
    fn trouble(&self, error: DeviceError) -> String {
        match error {
            DeviceError::Unreadable(_) if self.set.status().is_lost_list_full => format!(
                "{error}, and the list of lost blocks is full: rewrite the unreadable blocks, or replace the \
                 members that have bad sectors"
            ),
            error => error.to_string(),
        }
    }

    /// Logs that the journal's volume has failed.
    fn tell_of_journal(&self) {
        let (set, disk) = (
            self.running.label(),
            self.running
                .state()
                .names
                .journal
                .clone()
                .unwrap_or_default(),
        );
        tracing::error!(
            set,
            disk,
            "the volume with the journal of a RAID set has failed: the journal is now on members"
        );
    }

    /// Logs one line for each member whose state has changed.
    fn tell(&self, known: &[MemberState], states: &[MemberState]) {
        let set = self.running.label();
        for (member, state) in states.iter().enumerate() {
            let was = known.get(member).copied().unwrap_or(MemberState::InSync);
            let disk = self.running.disk(member);
            match (was, *state) {
                (MemberState::Failed, MemberState::Failed) => {}
                (_, MemberState::Failed) => {
                    tracing::error!(set, member, disk, "a member of a RAID set has failed");
                }
                (MemberState::Rebuilding { .. }, MemberState::InSync) => {
                    tracing::info!(set, member, disk, "a member of a RAID set is rebuilt");
                }
                (MemberState::Rebuilding { .. }, MemberState::Rebuilding { .. }) => {}
                (_, MemberState::Rebuilding { done }) => {
                    tracing::info!(
                        set,
                        member,
                        disk,
                        from_stripe = done,
                        "a member of a RAID set is being rebuilt"
                    );
                }
                (_, MemberState::InSync) => {}
            }
        }
    }

    /// Returns whether the journal's volume has failed and the failure has not been reported yet.
    fn has_lost_journal(&self) -> bool {
        self.has_journal_device && !self.set.status().is_journal_on_device
    }

    fn failed(&self) -> usize {
        self.set
            .status()
            .states
            .members
            .iter()
            .filter(|state| **state == MemberState::Failed)
            .count()
    }

    async fn one_round(&mut self) -> Result<(), DeviceError> {
        if self.is_taken_over() {
            return Err(DeviceError::Fenced);
        }
        self.use_spares().await?;
        let before = self.failed();
        let result = self.long_work(before).await;
        self.running.state().working = None;
        result
    }

    /// Runs long operations until there is other work. `failed` is the number of failed members that the
    /// caller has already handled.
    async fn long_work(&mut self, failed: usize) -> Result<(), DeviceError> {
        let is_to_stop = |upkeep: &Upkeep| {
            upkeep.running.is_interrupted() || upkeep.failed() > failed || upkeep.has_lost_journal()
        };
        let rebuilding = |state: &MemberState| matches!(state, MemberState::Rebuilding { .. });
        while let Some(member) = self.set.status().states.members.iter().position(rebuilding) {
            while let Some(progress) = self.paced(self.set.rebuild_step(member)).await? {
                self.works(
                    Some(member),
                    progress.done,
                    progress.total,
                    self.stripe_bytes(),
                );
                if progress.done.is_multiple_of((progress.total / 10).max(1)) {
                    let percent = 100 * progress.done / progress.total.max(1);
                    let (set, disk) = (self.running.label(), self.running.disk(member));
                    tracing::info!(
                        set,
                        member,
                        disk,
                        percent,
                        "rebuilding a member of a RAID set"
                    );
                }
                if is_to_stop(self) {
                    return Ok(());
                }
            }
            self.running.state().working = None;
        }
        if self.opening.sleeper.now() >= self.stuck_until {
            self.stuck_until = self.opening.sleeper.now() + AGAIN_PAUSE;
            self.set.synchronise_again();
        }
        let (mut done, regions) = (0, self.set.status().unsynced_regions);
        while let left @ 1.. = self.set.status().unsynced_regions {
            let Some(progress) = self.paced(self.set.synchronise_step(done)).await? else {
                break;
            };
            let stripes = regions.saturating_sub(left) * progress.total + progress.done;
            self.works(None, stripes, regions * progress.total, self.stripe_bytes());
            done = if progress.done < progress.total {
                progress.done
            } else {
                0
            };
            if is_to_stop(self) {
                return Ok(());
            }
        }
        self.running.state().working = None;
        if self.growing.is_some() && self.failed() > 0 {
            self.stop_growing("a member has failed or was removed")
                .await;
        }
        let grown = loop {
            match self.grow_step().await {
                Ok(true) if is_to_stop(self) => return Ok(()),
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = grown {
            self.stop_growing(&error.to_string()).await;
        }
        {
            let mut state = self.running.state();
            (state.working, state.is_growing) = (None, false);
        }
        while self.scrub_step().await? {
            if is_to_stop(self) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Records the progress: `done` stripes or other parts of a member.
    fn works(&self, member: Option<usize>, done: u64, total: u64, stripe_bytes: u64) {
        let now = self.opening.sleeper.now();
        let mut state = self.running.state();
        match state
            .working
            .as_mut()
            .filter(|working| working.member == member)
        {
            Some(working) => working.pace.done(now, done),
            None => {
                state.working = Some(Working {
                    member,
                    pace: Pace::new(now, done, total, stripe_bytes),
                });
            }
        }
    }

    /// Returns the average size of a stripe on one member.
    fn stripe_bytes(&self) -> u64 {
        let layout = self.set.layout();
        (layout.member_blocks().0 << layout.block_size().shift()) / layout.stripes().max(1)
    }

    /// Runs a step, and waits until its bytes are within the rate limit.
    async fn paced(
        &self,
        step: impl Future<Output = Result<Option<Progress>, DeviceError>>,
    ) -> Result<Option<Progress>, DeviceError> {
        let begun = self.opening.sleeper.now();
        let progress = step.await?;
        if let Some(Progress { moved_bytes, .. }) = progress {
            let (now, members) = (self.opening.sleeper.now(), self.set.layout().members());
            let time = self
                .throttle
                .step_time(now, self.running.requests(), members, moved_bytes);
            match time.checked_sub(now.saturating_duration_since(begun)) {
                Some(left) if !left.is_zero() => {
                    self.running
                        .woken(self.opening.sleeper.as_ref(), left)
                        .await;
                }
                // Steps on RAM volumes never wait, and the thread has other tasks.
                _ => reactor::yield_now().await,
            }
        }
        Ok(progress)
    }

    async fn use_spares(&mut self) -> Result<(), DeviceError> {
        let failed = |state: &MemberState| *state == MemberState::Failed;
        let now = self.opening.sleeper.now();
        self.refused_spares.retain(|(_, until)| *until > now);
        while let Some(member) = self.set.status().states.members.iter().position(failed) {
            let needed = self
                .records
                .as_ref()
                .map_or(0, |records| records.set().areas.end());
            let fits = |spare: &Spare| {
                let is_refused = self
                    .refused_spares
                    .iter()
                    .any(|(uuid, _)| *uuid == spare.uuid);
                spare.disk.geometry().bytes() >= needed && !is_refused
            };
            let Some(at) = self.spares.iter().rposition(fits) else {
                return Ok(());
            };
            let Spare { uuid, name, disk } = self.spares[at].clone();
            let set = self.running.label().to_owned();
            tracing::info!(
                set,
                member,
                spare = name,
                "a spare replaces a member of a RAID set"
            );
            if let Err(error) = self.put_in_place(member, uuid, disk, name.clone()).await {
                if self.is_taken_over() || self.set.status().is_out_of_service {
                    return Err(error);
                }
                tracing::error!(
                    set,
                    spare = name,
                    "a spare of a RAID set cannot be used: {error}"
                );
                self.refused_spares
                    .push((uuid, self.opening.sleeper.now() + AGAIN_PAUSE));
                continue;
            }
            self.spares.remove(at);
            self.running
                .state()
                .names
                .spares
                .retain(|spare| *spare != name);
        }
        Ok(())
    }

    async fn put_in_place(
        &mut self,
        member: usize,
        uuid: Uuid,
        disk: Arc<dyn BlockDevice>,
        name: String,
    ) -> Result<(), DeviceError> {
        let vacancy = self.set.vacancy(member)?;
        // Growing would skip the new member's space, which has not been zeroed.
        self.stop_growing("a member is replaced").await;
        let put = async {
            let Some(records) = &self.records else {
                return self.set.replace(vacancy, disk, None).await;
            };
            records.replace(member, uuid, Arc::clone(&disk)).await?;
            let parts = MemberParts::new(&records.set(), member, &disk)?;
            self.set
                .replace(vacancy, parts.data, parts.journal.or(parts.bitmap))
                .await
        }
        .await;
        self.unless_released(member, put).await?;
        self.running.state().names.put_in_place(member, name);
        Ok(())
    }

    /// If a member could not be replaced, releases it: the member is no longer in the set, its disk is
    /// closed, and no superblock records a rebuild.
    async fn unless_released(
        &self,
        member: usize,
        put: Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if put.is_err() {
            // Ignore an error: if the release cannot be recorded, the set is out of service, which is logged
            // elsewhere.
            let _ = self.release(member).await;
        }
        put
    }

    /// Closes the device of a failed member, which may be added again.
    async fn release(&self, member: usize) -> Result<(), DeviceError> {
        self.set.release(member).await?;
        if let Some(records) = &self.records {
            records.release(member);
        }
        Ok(())
    }

    /// Cancels growing, because it uses the devices that were members when it started.
    async fn stop_growing(&mut self, why: &str) {
        let (Some(growing), Some(records)) = (self.growing.take(), &self.records) else {
            return;
        };
        growing.cancel(records, &self.set).await;
        self.running.state().is_growing = false;
        let set = self.running.label();
        tracing::error!(
            set,
            "cannot grow the RAID set: {why}; its size is unchanged"
        );
    }

    /// Scrubs one stripe, if a scrub was requested. Returns false if there is nothing to scrub.
    async fn scrub_step(&self) -> Result<bool, DeviceError> {
        let scrubbing = self.running.state().scrubbing.clone();
        let Some(mut scrubbing) = scrubbing.filter(|scrubbing| !scrubbing.has_ended) else {
            return Ok(false);
        };
        let layout = self.set.layout();
        let stripe = scrubbing.found.stripes;
        if stripe < layout.stripes() {
            let bytes =
                (layout.strip_blocks() << layout.block_size().shift()) * layout.strips() as u64;
            let mut found = None;
            let step = async {
                found = Some(self.set.scrub_step(stripe, scrubbing.repairs).await?);
                Ok(Some(Progress {
                    done: stripe + 1,
                    total: layout.stripes(),
                    moved_bytes: bytes,
                }))
            };
            self.paced(step).await?;
            found
                .into_iter()
                .for_each(|found| scrubbing.found.add(found));
            scrubbing
                .pace
                .done(self.opening.sleeper.now(), scrubbing.found.stripes);
        }
        scrubbing.has_ended = scrubbing.found.stripes >= layout.stripes();
        scrubbing.add_wrong(self.set.status().wrong_blocks);
        if let Some(record) = scrubbing.to_record(self.opening.sleeper.now()) {
            self.record_scrub(&mut scrubbing, record).await?;
        }
        self.running.state().scrubbing = Some(scrubbing.clone());
        if scrubbing.has_ended {
            let (set, found) = (self.running.label(), &scrubbing.found);
            match found.is_right() {
                true if found.degraded > 0 => {
                    tracing::warn!(set, "a RAID set was scrubbed in part: {found}")
                }
                true => tracing::info!(set, "a RAID set was scrubbed: {found}"),
                false => tracing::error!(set, "a RAID set was scrubbed: {found}"),
            }
        }
        Ok(!scrubbing.has_ended)
    }

    /// Records the progress of a scrub. The repairs reach stable storage first, so a recorded repair is not
    /// lost in a crash.
    async fn record_scrub(
        &self,
        scrubbing: &mut Scrubbing,
        record: ScrubRecord,
    ) -> Result<(), DeviceError> {
        let Some(records) = &self.records else {
            return Ok(());
        };
        if record.repaired > scrubbing.recorded.1.repaired {
            self.set.flush().await?;
        }
        records.scrubbed(Some(record.clone())).await?;
        scrubbing.recorded = (self.opening.sleeper.now(), record);
        Ok(())
    }

    /// Resumes a scrub that was interrupted when the set was last in use, at the recorded stripe.
    fn resume_scrub(&self) {
        let Some(record) = self
            .records
            .as_ref()
            .and_then(|records| records.set().scrub)
        else {
            return;
        };
        let (now, stripes) = (self.opening.sleeper.now(), self.set.layout().stripes());
        let mut scrubbing = Scrubbing::new(record, now, stripes, self.stripe_bytes());
        scrubbing.known_wrong = self.set.status().wrong_blocks;
        if !scrubbing.has_ended {
            let (set, percent) = (self.running.label(), scrubbing.status().progress.percent());
            tracing::info!(set, percent, "a scrub of a RAID set resumes");
        }
        self.running.state().scrubbing = Some(scrubbing);
    }

    /// Returns whether another host has taken over a member. That host may be running the set. If so, this
    /// call also makes this host stop writing superblocks.
    fn is_taken_over(&self) -> bool {
        let is_known = self
            .records
            .as_ref()
            .is_some_and(|records| records.is_taken_over());
        let is = is_known || self.set.status().is_taken_over;
        if let Some(records) = self.records.as_ref().filter(|_| is) {
            records.taken_over();
        }
        is
    }

    pub(super) fn exit(&self) -> Exit {
        Exit {
            current: Weak::clone(&self.current),
            running: Arc::clone(&self.running),
        }
    }

    async fn carry_out(&mut self, order: &Order) -> Result<String, Failure> {
        if self.is_taken_over() && !matches!(order, Order::Close) {
            return Err(Failure::refused(
                "another host has taken over a member of the set, and may be running the set: the set stays \
                 out of service here until it is opened again",
            ));
        }
        match order {
            Order::Fail { member } => self.exit().fail(*member).await,
            Order::Replace {
                member,
                with,
                overwrites,
            } => self.replace(*member, with, *overwrites).await,
            Order::Add { spare, overwrites } => self.add(spare, *overwrites).await,
            Order::Scrub { repairs } => self.scrub(*repairs).await,
            Order::CancelScrub => self.cancel_scrub().await,
            Order::Grow => self.grow().await,
            Order::Assemble => self.add_again().await,
            Order::Close => self.close().await.map(|()| "the set is closed".to_owned()),
        }
    }

    /// Adds returned members to the set again.
    async fn add_again(&mut self) -> Result<String, Failure> {
        let states = self.set.status().states.members;
        let names = self.running.state().names.clone();
        let (mut added, mut others) = (Vec::new(), Vec::new());
        for (member, _) in states
            .iter()
            .enumerate()
            .filter(|(_, state)| **state == MemberState::Failed)
        {
            // A member that was missing at the start is one of the volumes in the specification that no
            // member uses.
            let is_used = |name: &&String| {
                names
                    .members
                    .iter()
                    .flatten()
                    .chain(&names.spares)
                    .any(|used| used == *name)
            };
            let own = names.members.get(member).cloned().flatten();
            let unused = names.written.iter().filter(|name| !is_used(name)).cloned();
            for name in own.into_iter().chain(unused) {
                let Ok(spec) = crate::parse(&name) else {
                    continue;
                };
                if names
                    .members
                    .get(member)
                    .is_some_and(|own| own.as_ref() == Some(&name))
                {
                    // The old device is still open.
                    let failed =
                        |error| Failure::device(format_args!("cannot close {name}"), error);
                    self.release(member).await.map_err(failed)?;
                }
                match self.readd(member, &spec).await {
                    Ok(true) => {
                        added.push(format!("member {member} ({name}) has returned, and the regions that it missed are being rebuilt"));
                        break;
                    }
                    Ok(false) => others.push(format!("member {member} is not {name}, or the regions that it missed are not recorded: use `linerate raid replace`")),
                    Err(failure) => others.push(format!("member {member}: {failure}")),
                }
            }
        }
        match (added.is_empty(), others.is_empty()) {
            (false, _) => Ok(added.join("; ")),
            (true, false) => Err(Failure::refused(format_args!(
                "the set has not stopped, and {}",
                others.join("; ")
            ))),
            (true, true) => Ok("the set has not stopped: there is nothing to do".to_owned()),
        }
    }

    async fn replace(
        &mut self,
        member: usize,
        with: &Spec,
        overwrites: bool,
    ) -> Result<String, Failure> {
        match check_member(&self.set, member)? {
            MemberState::Failed => {}
            MemberState::InSync => {
                return Err(Failure::refused(format_args!(
                    "member {member} ({}) is in sync: remove it first (linerate raid fail)",
                    self.running.disk(member)
                )));
            }
            MemberState::Rebuilding { .. } => {
                return Err(Failure::refused(format_args!(
                    "member {member} ({}) is being rebuilt: remove it first (linerate raid fail)",
                    self.running.disk(member)
                )));
            }
        }
        // The failed member's disk is still open.
        let is_own = self
            .running
            .state()
            .names
            .members
            .get(member)
            .cloned()
            .flatten();
        if is_own.is_some_and(|name| crate::parse(&name).is_ok_and(|own| are_one_store(&own, with)))
        {
            let failed = |error| Failure::device(format_args!("cannot close {with}"), error);
            self.release(member).await.map_err(failed)?;
        }
        if self.readd(member, with).await? {
            return Ok(format!(
                "{with} is member {member} again, and its missed regions are being rebuilt"
            ));
        }
        let disk = self.opened(with, overwrites).await?;
        let failed = |error| Failure::device(format_args!("cannot make {with} a member"), error);
        self.put_in_place(member, uuid(), disk, with.to_string())
            .await
            .map_err(failed)?;
        self.running.state().names.write(&with.to_string());
        Ok(format!(
            "{with} is now member {member}, and is being rebuilt"
        ))
    }

    /// Adds a former member again, if the regions that it missed are recorded. Returns false, and writes
    /// nothing to `with`, if `with` is not that member.
    async fn readd(&mut self, member: usize, with: &Spec) -> Result<bool, Failure> {
        let Some(records) = self
            .records
            .clone()
            .filter(|records| records.set().missed_from > 0)
        else {
            return Ok(false);
        };
        self.check_not_used(with)?;
        if with.path().is_some_and(|path| !path.exists()) {
            return Ok(false);
        }
        let disk = with.open(&self.opening).await.map_err(Failure::from)?;
        check_losses_are_seen(self.set.layout().level(), with, disk.as_ref())?;
        let failed =
            |error| Failure::device(format_args!("cannot make {with} a member again"), error);
        let vacancy = self.set.vacancy(member).map_err(failed)?;
        if disk.geometry().bytes() < records.set().areas.end() {
            return Ok(false);
        }
        let readded = records.readd(member, Arc::clone(&disk)).await;
        if matches!(readded, Ok(false)) {
            return Ok(false);
        }
        self.stop_growing("a member is added again").await;
        let put = async {
            readded?;
            let parts = MemberParts::new(&records.set(), member, &disk)?;
            self.set.readd(vacancy, parts.data, parts.bitmap).await
        }
        .await;
        self.unless_released(member, put).await.map_err(failed)?;
        let mut state = self.running.state();
        state.names.put_in_place(member, with.to_string());
        state.names.write(&with.to_string());
        Ok(true)
    }

    async fn add(&mut self, spare: &Spec, overwrites: bool) -> Result<String, Failure> {
        let Some(records) = self.records.clone() else {
            return Err(Failure::refused(
                "a set of volatile volumes cannot have spares",
            ));
        };
        let disk = self.opened(spare, overwrites).await?;
        let (uuid, name) = (uuid(), spare.to_string());
        let failed = |error| Failure::device(format_args!("cannot make {spare} a spare"), error);
        records
            .add_spare(uuid, Arc::clone(&disk))
            .await
            .map_err(failed)?;
        {
            let mut state = self.running.state();
            state.names.spares.push(name.clone());
            state.names.write(&name);
        }
        self.spares.push(Spare { uuid, name, disk });
        Ok(format!("{spare} is a spare of the set"))
    }

    /// Opens a volume that is to become part of the set.
    async fn opened(&self, spec: &Spec, overwrites: bool) -> Result<Arc<dyn BlockDevice>, Failure> {
        self.check_not_used(spec)?;
        // An administrator has requested this volume, so a missing file is created.
        let opening = Opening {
            creation: Creation::Free,
            undo: Undo::default(),
            ..self.opening.clone()
        };
        let consent = if overwrites {
            Consent::Given
        } else {
            Consent::Ask(&|_| false)
        };
        let opened = match &self.records {
            Some(records) => new_member(spec, &records.set(), consent, &opening).await,
            None => spec.open(&opening).await.map_err(Failure::from),
        };
        let device = opened.inspect_err(|_| opening.undo.take_back())?;
        // Check the superblock also, because exports and LUNs have no locks, and a disk may have two names.
        if let Some(records) = &self.records
            && let Ok((found, _)) = superblock::read(device.as_ref()).await
        {
            let set = records.set();
            let is_used = |member: &MemberRecord| {
                member.uuid == found.member && member.state != MemberState::Failed
            };
            let is_beside =
                set.spares.contains(&found.member) || set.journal_device == Some(found.member);
            if found.set.uuid == set.uuid && (set.members.iter().any(is_used) || is_beside) {
                return Err(Failure::refused(format_args!(
                    "{spec} is already a disk of the set"
                )));
            }
        }
        Ok(device)
    }

    /// Rejects a volume that the set has open. Opening it again would wait until the set releases it.
    fn check_not_used(&self, spec: &Spec) -> Result<(), Failure> {
        if !spec.keeps_data() {
            return Ok(());
        }
        let states = self.set.status().states.members;
        let names = self.running.state().names.clone();
        let is_it = |name: &String| crate::parse(name).is_ok_and(|used| are_one_store(&used, spec));
        let members = names.members.iter().enumerate().zip(&states);
        for ((number, name), state) in members {
            if *state != MemberState::Failed && name.as_ref().is_some_and(is_it) {
                return Err(Failure::refused(format_args!(
                    "{spec} is already member {number} of the set"
                )));
            }
        }
        let beside = names.spares.iter().map(|name| (name, "a spare"));
        let journal = names.journal.iter().map(|name| (name, "the journal"));
        match beside.chain(journal).find(|(name, _)| is_it(name)) {
            Some((_, role)) => Err(Failure::refused(format_args!(
                "{spec} is already {role} of the set"
            ))),
            None => Ok(()),
        }
    }

    async fn scrub(&self, repairs: bool) -> Result<String, Failure> {
        if self.is_scrubbing() {
            return Err(Failure::refused("the set is already being scrubbed"));
        }
        let record = ScrubRecord {
            repairs,
            ..ScrubRecord::default()
        };
        if let Some(records) = &self.records {
            let failed = |error| Failure::device("recording that the set is scrubbed", error);
            records
                .scrubbed(Some(record.clone()))
                .await
                .map_err(failed)?;
        }
        let (now, stripes) = (self.opening.sleeper.now(), self.set.layout().stripes());
        let mut scrubbing = Scrubbing::new(record, now, stripes, self.stripe_bytes());
        scrubbing.known_wrong = self.set.status().wrong_blocks;
        self.running.state().scrubbing = Some(scrubbing);
        Ok("the set is being scrubbed".to_owned())
    }

    fn is_scrubbing(&self) -> bool {
        self.running
            .state()
            .scrubbing
            .as_ref()
            .is_some_and(|scrubbing| !scrubbing.has_ended)
    }

    async fn cancel_scrub(&self) -> Result<String, Failure> {
        if !self.is_scrubbing() {
            return Err(Failure::refused("the set is not being scrubbed"));
        }
        if let Some(records) = &self.records {
            let failed = |error| Failure::device("recording that the set is not scrubbed", error);
            records.scrubbed(None).await.map_err(failed)?;
        }
        let cancelled = self.running.state().scrubbing.take();
        let found = cancelled
            .map(|scrubbing| scrubbing.found)
            .unwrap_or_default();
        Ok(format!("the scrub ended early: {found}"))
    }

    /// Starts using new space of the members.
    async fn grow(&mut self) -> Result<String, Failure> {
        let Some(records) = &self.records else {
            return Err(Failure::refused("a set of volatile volumes cannot grow"));
        };
        if self.growing.is_some() {
            return Err(Failure::refused("the set is already growing"));
        }
        let status = self.set.status();
        if status.states.lacking().contains(&true) || status.is_out_of_service {
            return Err(Failure::refused(
                "the set is degraded: it can grow once all members are in sync",
            ));
        }
        let failed = |error| Failure::device("cannot grow the set", error);
        let disks = records
            .set()
            .members
            .into_iter()
            .map(|member| records.disk(member.uuid));
        let disks: Option<Vec<_>> = disks.collect();
        let disks = disks.ok_or_else(|| failed(DeviceError::NotReady))?;
        for disk in &disks {
            disk.refresh().await.map_err(failed)?;
        }
        let Some(grown) = records.grown() else {
            return Err(Failure::refused(
                match records.set().areas.checksums.bytes {
                    0 => {
                        "there is no new space that the set could use: the smallest member determines how much of each \
                     is used"
                    }
                    _ => {
                        "there is too little new space: the smallest member determines how much of each is used, and \
                     new checksums, 4 bytes for each block, must fit after its current content"
                    }
                },
            ));
        };
        for spare in &self.spares {
            spare.disk.refresh().await.map_err(failed)?;
            if spare.disk.geometry().bytes() < grown.areas.end() {
                return Err(Failure::refused(format_args!(
                    "the spare {} is too small for the larger set",
                    spare.name
                )));
            }
        }
        let growth = Growth::begin(records, &self.set, &grown).map_err(failed)?;
        let layout = growth.layout();
        self.growing = Some(growth);
        self.running.state().is_growing = true;
        let bytes = Bytes(layout.blocks().0 << layout.block_size().shift());
        Ok(format!("the set is growing to {bytes}"))
    }

    /// Runs one growth step. Returns false if no growth is in progress, or the growth is complete.
    async fn grow_step(&mut self) -> Result<bool, DeviceError> {
        let (Some(mut growing), Some(records)) = (self.growing.take(), self.records.clone()) else {
            return Ok(false);
        };
        let step = self.paced(growing.step(&records, &self.set)).await;
        let layout = growing.layout();
        self.growing = Some(growing);
        let Some(progress) = step? else {
            let bytes = Bytes(layout.blocks().0 << layout.block_size().shift());
            tracing::info!(set = self.running.label(), %bytes, "a RAID set has grown");
            self.growing = None;
            return Ok(false);
        };
        let step_bytes = GROWN_BYTES / layout.members() as u64;
        self.works(None, progress.done, progress.total, step_bytes);
        Ok(true)
    }

    /// Closes the set after its last use.
    async fn close(&self) -> Result<(), Failure> {
        self.is_taken_over();
        let failed = |error| Failure::device("closing the set", error);
        self.set.close().await.map_err(failed)?;
        // All repairs are on stable storage now.
        let scrubbing = self.running.state().scrubbing.clone();
        if let (Some(records), Some(scrubbing)) = (&self.records, scrubbing)
            && scrubbing.record() != scrubbing.recorded.1
        {
            records
                .scrubbed(Some(scrubbing.record()))
                .await
                .map_err(failed)?;
        }
        match &self.records {
            Some(records) if self.set.status().unsynced_regions == 0 => {
                records.close().await.map_err(failed)
            }
            // The close is clean even if regions may still differ: the bitmap records them.
            Some(_) | None => Ok(()),
        }
    }
}
