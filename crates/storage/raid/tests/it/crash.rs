//! The model check: compares random requests with a plain array, while members fail, and with a crash at any
//! point.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent, Lba};
use raid::{Level, MemberState, Origin, RaidDevice, Scrubbed};

use crate::disk::Disk;
use crate::model::Model;
use crate::rig::{Guard, Rig};
use crate::world::{End, Task, draw, end, once_in, pause, run, seed};

/// The kinds of trouble in a case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trouble {
    pub(crate) crashes: bool,
    /// Whether some crashes kill only the process, shortly after flushes of members have failed, and whether
    /// crashes also interrupt assembly.
    pub(crate) kills: bool,
    /// Whether members fail while the set is in use.
    pub(crate) failures: bool,
    /// Whether a member is missing after a crash.
    pub(crate) lost_members: bool,
    /// Whether blocks are silently corrupted. They then have checksums.
    pub(crate) corruption: bool,
    /// Whether blocks of members become unreadable until they are written.
    pub(crate) bad_sectors: bool,
    /// Whether members do not report doubts about their losses.
    pub(crate) hides_doubt: bool,
    /// Whether failed members return with the content of their stable storage, and are then rebuilt.
    pub(crate) comebacks: bool,
}

/// Runs the case of a seed. `Err` describes the failure.
pub(crate) fn case(
    level: Level,
    guard: Guard,
    trouble: Trouble,
    number: u64,
) -> Result<(), String> {
    let mut scene = Scene::new(level, guard, trouble, number);
    for _ in 0..10 {
        scene.batch()?;
    }
    scene.all_is_right()
}

/// Runs a case that crashes in use only once, after `polls` polls of its third batch. Returns `None` if the batch ends
/// earlier.
pub(crate) fn crash_at(
    level: Level,
    guard: Guard,
    trouble: Trouble,
    number: u64,
    polls: u64,
) -> Option<Result<(), String>> {
    debug_assert!(!trouble.crashes, "one crash");
    let mut scene = Scene::new(level, guard, trouble, number);
    let begun = (0..2).try_for_each(|_| scene.batch());
    if begun.is_err() {
        return Some(begun);
    }
    if run(scene.requests(), polls) == End::Done {
        return None;
    }
    // Content that a failed flush has left in the cache is lost only in a later power failure.
    let crashes = if trouble.kills { 3 } else { 1 };
    Some(
        (0..crashes)
            .try_for_each(|_| scene.crash())
            .and_then(|()| scene.all_is_right()),
    )
}

struct Scene {
    rig: Rig,
    device: Arc<RaidDevice>,
    model: Rc<RefCell<Model>>,
    trouble: Trouble,
    /// For each member, whether its disk has failed or is about to fail.
    doomed: Vec<bool>,
    /// Number of synchronised stripes in the first unsynchronised region.
    synchronised: u64,
    /// A silently corrupted block of a mirror, if any.
    corrupt: Option<u64>,
}

impl Scene {
    fn new(level: Level, guard: Guard, trouble: Trouble, number: u64) -> Scene {
        seed(number);
        let members = level.members_min() + draw(3) as usize;
        let rows = 2 + draw(4);
        let has_sums = trouble.corruption
            || (trouble.bad_sectors && number % 2 == 1 && guard.takes_sums(level));
        let mut rig = Rig::with(level, members, rows, guard, has_sums);
        // If the disks report no cache, the journal uses only a part of its ring.
        if number % 4 == 1 {
            rig.disks
                .iter()
                .chain([&rig.journal])
                .for_each(Disk::say_no_cache);
        }
        // Also test sets whose data may be wrong, which is possible only with a bitmap.
        rig.accepts_wrong_data = true;
        if trouble.hides_doubt {
            rig.disks.iter().for_each(Disk::hide_doubt);
        }
        let device = rig.created();
        let blocks = rig.layout.blocks().0;
        let model = Rc::new(RefCell::new(Model::new(blocks, guard.is_journal())));
        Scene {
            rig,
            device,
            model,
            trouble,
            doomed: vec![false; members],
            synchronised: 0,
            corrupt: None,
        }
    }

    fn batch(&mut self) -> Result<(), String> {
        if self.trouble.failures && once_in(3) {
            self.doom_one();
        }
        // A doubt because of a restarted server or a re-established session, without a loss, is not a
        // failure.
        if self.trouble.failures && once_in(4) {
            self.rig.disks[draw(self.doomed.len() as u64) as usize].doubt();
        }
        if self.rig.guard == Guard::JournalDisk && self.trouble.failures && once_in(6) {
            match draw(4) {
                0 => self.rig.journal.die(),
                1 => self.rig.journal.fail_write_after(draw(12)),
                2 => self.rig.journal.lose_cache_unseen(),
                _ => self.rig.journal.lose_cache(),
            }
        }
        if self.trouble.corruption && once_in(2) {
            self.corrupt_one();
        }
        if self.trouble.bad_sectors && once_in(2) {
            self.spoil_some();
        }
        let mut tasks = self.requests();
        tasks.extend(self.maintenance());
        let polls = if self.trouble.crashes && once_in(2) {
            draw(400)
        } else {
            u64::MAX
        };
        if run(tasks, polls) == End::Crashed {
            self.crash()?;
        }
        self.synchronised = 0;
        match self.model.borrow_mut().fault.take() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    /// Draws concurrent requests that do not overlap.
    fn requests(&self) -> Vec<Task> {
        let stripe_blocks = self.rig.layout.stripe_blocks();
        let mut tasks: Vec<Task> = Vec::new();
        // Do not write to a corrupt block: without a journal, after a crash during the write, it would be
        // unknown which copy is right.
        let corrupt = self.corrupt.filter(|_| self.is_spoilt());
        let mut taken: Vec<(u64, u64)> = corrupt.map(|lba| (lba, 1)).into_iter().collect();
        if let Some(lba) = corrupt.filter(|_| once_in(2)) {
            let (device, model) = (Arc::clone(&self.device), Rc::clone(&self.model));
            tasks.push(Box::pin(read(device, model, Extent::new(lba, 1))));
        }
        for _ in 0..1 + draw(4) {
            let free = self.model.borrow().free_extent(&mut taken, stripe_blocks);
            let Some((lba, blocks)) = free else { continue };
            let (device, model) = (Arc::clone(&self.device), Rc::clone(&self.model));
            let extent = Extent::new(lba, blocks);
            tasks.push(match draw(12) {
                0..=4 => Box::pin(write(device, model, extent, Durability::Cached)),
                5 => Box::pin(write(device, model, extent, Durability::Stable)),
                6 => Box::pin(clear(device, model, extent)),
                7 => Box::pin(write_and_go(device, model, extent)),
                8 => Box::pin(flush(device, model)),
                _ => Box::pin(read(device, model, extent)),
            });
        }
        tasks
    }

    /// Draws maintenance tasks: a few steps of rebuild, resync and scrub.
    fn maintenance(&mut self) -> Vec<Task> {
        let mut tasks: Vec<Task> = Vec::new();
        let states = self.device.status().states.members;
        for (member, state) in states.iter().enumerate() {
            let (device, model) = (Arc::clone(&self.device), Rc::clone(&self.model));
            match state {
                MemberState::Failed if self.trouble.comebacks && once_in(2) => {
                    if !self.rig.store.is_missed_noted() {
                        continue;
                    }
                    let disk = self.rig.disks[member].clone();
                    disk.crash();
                    disk.revive();
                    self.doomed[member] = false;
                    let data = self.rig.data(&disk);
                    let area = self.area_of(member, &disk);
                    tasks.push(Box::pin(async move {
                        let vacancy = device.vacancy(member).expect("it has failed");
                        let result = device.readd(vacancy, data, area).await;
                        expect(&model, "readd", result);
                    }));
                }
                MemberState::Failed if once_in(3) => {
                    self.rig.store.forget_missed();
                    let disk = self.rig.spare();
                    self.rig.disks[member] = disk.clone();
                    self.doomed[member] = false;
                    let data = self.rig.data(&disk);
                    let area = self.area_of(member, &disk);
                    tasks.push(Box::pin(async move {
                        let vacancy = device.vacancy(member).expect("it has failed");
                        let result = device.replace(vacancy, data, area).await;
                        expect(&model, "replace", result);
                    }));
                }
                MemberState::Rebuilding { .. } => {
                    let steps = draw(4);
                    tasks.push(Box::pin(async move {
                        for _ in 0..steps {
                            pause().await;
                            // The member is allowed to fail meanwhile, but a bad sector must not make the
                            // rebuild fail.
                            if let Err(error @ DeviceError::Unreadable(_)) =
                                device.rebuild_step(member).await
                            {
                                model.borrow_mut().complain(format!("rebuild: {error}"));
                            }
                        }
                    }));
                }
                MemberState::InSync | MemberState::Failed => {}
            }
        }
        let (device, model) = (Arc::clone(&self.device), Rc::clone(&self.model));
        if self.trouble.comebacks && once_in(2) {
            let (device, model) = (Arc::clone(&device), Rc::clone(&model));
            tasks.push(Box::pin(async move {
                let known = device.settle(0).await;
                expect(&model, "settle", known.map(drop));
            }));
        }
        if once_in(4) {
            let stripe = draw(self.rig.layout.stripes());
            tasks.push(Box::pin(async move {
                let result = device.scrub_step(stripe, true).await;
                expect(&model, "scrub", result);
            }));
        } else if self.device.status().unsynced_regions > 0 {
            tasks.push(Box::pin(async move {
                let result = device.synchronise_step(0).await;
                expect(&model, "synchronise", result);
            }));
        }
        tasks
    }

    /// Returns the area for the journal or bitmap on a spare for this member, if the member has such an area.
    fn area_of(&self, member: usize, disk: &Disk) -> Option<Arc<dyn BlockDevice>> {
        let has_one = member < self.rig.areas() && self.rig.guard != Guard::Nothing;
        has_one.then(|| self.rig.area(disk))
    }

    /// Makes a member fail, if the set survives this in addition to the members that already fail.
    fn doom_one(&mut self) {
        let status = self.device.status();
        let member = draw(self.doomed.len() as u64) as usize;
        let mut lacking = status.states.lacking();
        lacking
            .iter_mut()
            .zip(&self.doomed)
            .for_each(|(lacks, doomed)| *lacks |= doomed);
        if lacking[member] {
            return;
        }
        lacking[member] = true;
        // With parity and without a journal, a degraded set that has not been synchronised unavoidably has
        // corrupt data.
        let may_differ = self.rig.layout.has_parity() && status.unsynced_regions > 0;
        if !self.rig.layout.survives(&lacking) || may_differ || self.is_spoilt() {
            return;
        }
        let trouble = draw(5);
        if trouble == 4 && self.trouble.bad_sectors {
            return self.spoil_some();
        }
        let disk = &self.rig.disks[member];
        match trouble {
            0 => disk.die(),
            1 => disk.fail_write_after(draw(6)),
            2 => disk.lose_cache(),
            3 => disk.lose_cache_unseen(),
            _ => {
                // A bad sector that becomes readable when it is written is not a failure, but its content
                // must be reconstructed from the other members.
                return disk.spoil(self.rig.data_lba(draw(self.rig.layout.member_blocks().0)));
            }
        }
        self.doomed[member] = true;
    }

    /// Corrupts a block of a member, if the others can reconstruct it. Without a journal, corrupts only a
    /// block on stable storage, because an earlier crash can leave a checksum that is older than the block.
    fn corrupt_one(&mut self) {
        let mut lacking = self.device.status().states.lacking();
        let member = draw(self.doomed.len() as u64) as usize;
        lacking
            .iter_mut()
            .zip(&self.doomed)
            .for_each(|(lacks, doomed)| *lacks |= doomed);
        let is_whole = !lacking[member];
        lacking[member] = true;
        let layout = self.rig.layout;
        if !is_whole || self.is_spoilt() || !layout.survives(&lacking) {
            return;
        }
        let stripe = draw(layout.stripes());
        let Some(strip) = layout.strip_of(stripe, member) else {
            return;
        };
        let column = draw(layout.strip_blocks());
        self.corrupt = (!layout.has_parity()).then_some(stripe * layout.stripe_blocks() + column);
        if self
            .corrupt
            .is_none_or(|lba| self.model.borrow().is_stable(lba))
        {
            let lba = layout.strip(stripe, strip).lba + column;
            self.rig.disks[member].corrupt(self.rig.data_lba(lba));
        }
    }

    /// Makes blocks of any members unreadable, mostly in columns that already have bad blocks.
    fn spoil_some(&mut self) {
        let layout = self.rig.layout;
        for _ in 0..1 + draw(3) {
            let (stripe, column) = (
                draw(layout.stripes()),
                draw(if once_in(2) { 2 } else { layout.strip_blocks() }),
            );
            let strip = draw(layout.strips() as u64) as usize;
            let place = layout.strip(stripe, strip);
            self.rig.disks[place.member].spoil(self.rig.data_lba(place.lba + column));
            let mut model = self.model.borrow_mut();
            for data in 0..layout.data_strips() as u64 {
                let lba = stripe * layout.stripe_blocks() + data * layout.strip_blocks() + column;
                model.may_be_lost.insert(lba);
            }
        }
    }

    fn is_spoilt(&self) -> bool {
        if self.trouble.bad_sectors {
            return false;
        }
        self.rig.disks.iter().any(|disk| disk.is_spoilt())
    }

    /// Makes power fail and return, or kills only the process.
    fn stop(&self) {
        let is_power_failure = !self.trouble.kills || once_in(2);
        for disk in self.rig.disks.iter().chain([&self.rig.journal]) {
            if is_power_failure {
                disk.crash();
                continue;
            }
            disk.kill();
            if once_in(2) {
                disk.fail_flush_unseen();
            }
        }
    }

    /// Stops the set and assembles it again, possibly without a member.
    fn crash(&mut self) -> Result<(), String> {
        self.stop();
        // The device must be present as long as the set names it.
        self.rig.journal.revive();
        self.model.borrow_mut().crashed();
        let states = self.rig.store.states();
        // A failed device whose failure the set has not yet detected returns as a normal member.
        for (doomed, disk) in self.doomed.iter_mut().zip(&self.rig.disks) {
            *doomed = disk.is_dead();
        }
        let mut missing: Vec<usize> = (0..self.doomed.len())
            .filter(|at| self.doomed[*at])
            .collect();
        if self.trouble.lost_members && once_in(2) {
            let member = draw(self.doomed.len() as u64) as usize;
            let mut lacking = states.lacking();
            lacking[member] = true;
            missing.iter().for_each(|other| lacking[*other] = true);
            if self.rig.layout.survives(&lacking) && !missing.contains(&member) && !self.is_spoilt()
            {
                self.rig.disks[member].die();
                self.doomed[member] = true;
                missing.push(member);
            }
        }
        if self.trouble.comebacks && self.rig.store.is_missed_noted() {
            for member in 0..self.doomed.len() {
                if states.members[member] == MemberState::Failed && once_in(2) {
                    self.rig.disks[member].revive();
                    self.doomed[member] = false;
                    missing.retain(|other| *other != member);
                    self.rig.returning.push(member);
                }
            }
        }
        while self.trouble.kills && once_in(2) {
            let assembly = self.rig.assembly(Origin::Existing, &missing);
            run(
                vec![Box::pin(async move {
                    drop(RaidDevice::assemble(assembly).await)
                })],
                draw(400),
            );
            self.stop();
        }
        let assembled = self.rig.assemble(Origin::Existing, &missing);
        self.device = Arc::new(assembled.map_err(|error| format!("assembly: {error}"))?);
        if self.rig.guard.is_journal() || once_in(2) {
            let data = self.read_all("after a crash")?;
            // From now on, the data that was read must persist, whichever member fails. But a set with parity
            // and no journal stores it again only when it is synchronised.
            if !self.trouble.kills || self.rig.guard.is_journal() || !self.rig.layout.has_parity() {
                self.model.borrow_mut().settle(&data);
            }
        }
        if self.rig.guard.is_journal() {
            return Ok(());
        }
        if once_in(2) {
            self.synchronise()?;
        }
        Ok(())
    }

    /// Synchronises all regions that may be inconsistent.
    fn synchronise(&mut self) -> Result<(), String> {
        let device = Arc::clone(&self.device);
        let result = end(async move {
            let mut done = 0;
            while let Some(progress) = device.synchronise_step(done).await? {
                done = if progress.done == progress.total {
                    0
                } else {
                    progress.done
                };
            }
            device.flush().await
        });
        result.map_err(|error| format!("synchronising: {error}"))?;
        let status = self.device.status();
        if status.unsynced_regions > 0 && !status.states.lacking().contains(&true) {
            return Err(format!(
                "{} regions are not synchronised",
                status.unsynced_regions
            ));
        }
        let data = self.read_all("after it was synchronised")?;
        self.model.borrow_mut().settle(&data);
        Ok(())
    }

    /// Reads all blocks. Returns `None` for unreadable blocks that are allowed to be unreadable.
    fn read_all(&self, when: &str) -> Result<Vec<Option<Vec<u8>>>, String> {
        let blocks = self.model.borrow().blocks();
        let (device, model) = (Arc::clone(&self.device), Rc::clone(&self.model));
        let data = end(async move { read_blocks(&device, &model, Extent::new(0, blocks)).await });
        let data = data.map_err(|error| format!("{when}: reading: {error}"))?;
        let mut model = self.model.borrow_mut();
        for (lba, content) in (0..).zip(&data) {
            content
                .iter()
                .for_each(|content| model.check(lba, content, when));
        }
        model.fault.take().map_or(Ok(data), Err)
    }

    /// Writes all unreadable blocks and no others. After that, all blocks must be readable, and a scrub must
    /// not find errors.
    fn heal(&mut self) -> Result<(), String> {
        let unreadable = |data: Vec<Option<Vec<u8>>>| {
            (0..)
                .zip(data)
                .filter_map(|(lba, content)| content.is_none().then_some(lba))
                .collect::<Vec<u64>>()
        };
        for lba in unreadable(self.read_all("before it is healed")?) {
            let (device, model) = (Arc::clone(&self.device), Rc::clone(&self.model));
            let written = write(device, model, Extent::new(lba, 1), Durability::Cached);
            run(vec![Box::pin(written)], u64::MAX);
        }
        for stripe in 0..self.rig.layout.stripes() {
            if let found @ (Ok(
                Scrubbed::Mismatch { .. } | Scrubbed::Unreadable { is_repaired: false },
            )
            | Err(_)) = self.scrub(stripe)
            {
                return Err(format!(
                    "scrubbing stripe {stripe} after all was written: {found:?}"
                ));
            }
        }
        self.model.borrow_mut().may_be_lost.clear();
        let status = self.device.status();
        match status.lost_blocks.iter().sum() {
            0_u64 => Ok(()),
            lost => Err(format!("{lost} blocks are lost after all was written")),
        }
    }

    fn scrub(&self, stripe: u64) -> Result<Scrubbed, DeviceError> {
        let device = Arc::clone(&self.device);
        end(async move { device.scrub_step(stripe, true).await })
    }

    /// Repairs what can be repaired, and checks every way to read the data.
    fn all_is_right(&mut self) -> Result<(), String> {
        self.rig
            .disks
            .iter()
            .for_each(|disk| disk.let_writes_succeed());
        self.rig.journal.let_writes_succeed();
        self.rig.journal.revive();
        self.synchronise()?;
        for member in 0..self.doomed.len() {
            if self.rig.disks[member].is_dead() {
                // Mark members failed whose failures have not been detected yet.
                let device = Arc::clone(&self.device);
                let _ = end(async move { device.fail(member).await });
            }
        }
        // A member that has lost its cache is detected when it is read.
        for stripe in 0..self.rig.layout.stripes() {
            if let Ok(found @ Scrubbed::Mismatch { .. }) = self.scrub(stripe) {
                return Err(format!(
                    "scrubbing stripe {stripe} before a rebuild: {found:?}"
                ));
            }
        }
        let states = self.device.status().states.members;
        for (member, state) in states.iter().enumerate() {
            let device = Arc::clone(&self.device);
            let disk = self.rig.spare();
            let (data, is_failed) = (self.rig.data(&disk), *state == MemberState::Failed);
            let area = self.area_of(member, &disk);
            if is_failed {
                self.rig.disks[member] = disk;
            }
            let result = end(async move {
                if is_failed {
                    device.replace(device.vacancy(member)?, data, area).await?;
                }
                while device.rebuild_step(member).await?.is_some() {}
                Ok::<(), DeviceError>(())
            });
            result.map_err(|error| format!("rebuilding: {error}"))?;
        }
        self.read_all("after it was rebuilt")?;
        if self.trouble.bad_sectors {
            self.heal()?;
        }
        for stripe in 0..self.rig.layout.stripes() {
            match self.scrub(stripe) {
                Ok(Scrubbed::Right | Scrubbed::Unreadable { is_repaired: true }) => {}
                other => return Err(format!("scrubbing stripe {stripe}: {other:?}")),
            }
        }
        for member in 0..self.doomed.len() {
            let mut lacking = vec![false; self.doomed.len()];
            lacking[member] = true;
            if self.rig.layout.survives(&lacking) {
                // Work on copies of the disks, because running without this member changes the others.
                let copies = self.rig.disks.iter().map(Disk::copy).collect();
                let disks = std::mem::replace(&mut self.rig.disks, copies);
                let journal = self.rig.journal.copy();
                let journal = std::mem::replace(&mut self.rig.journal, journal);
                let device = self.rig.assemble(Origin::Existing, &[member]);
                self.device = Arc::new(device.map_err(|error| format!("assembly: {error}"))?);
                self.read_all("without a member")?;
                (self.rig.disks, self.rig.journal) = (disks, journal);
                self.rig.store.reset(self.doomed.len());
            }
        }
        Ok(())
    }
}

fn expect<T>(model: &RefCell<Model>, what: &str, result: Result<T, DeviceError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            model.borrow_mut().complain(format!("{what}: {error}"));
            None
        }
    }
}

async fn write(
    device: Arc<RaidDevice>,
    model: Rc<RefCell<Model>>,
    extent: Extent,
    durability: Durability,
) {
    pause().await;
    let (lba, blocks) = (extent.lba.0, extent.blocks.0);
    let (value, data) = model.borrow_mut().write_begins(lba, blocks, false);
    let was_degraded = is_degraded(&device);
    let result = device
        .write(extent, Buffer::from(&data[..]).share(), durability)
        .await;
    if is_excused(&device, was_degraded, &model, &result) {
        return model.borrow_mut().write_dropped(lba, blocks, value);
    }
    if expect(&model, "write", result).is_some() {
        model
            .borrow_mut()
            .write_ended(lba, blocks, value, durability == Durability::Stable);
    }
}

/// Whether a failed write is allowed: data of a missing member cannot be stored where another member has a
/// bad sector.
fn is_excused(
    device: &RaidDevice,
    was_degraded: bool,
    model: &RefCell<Model>,
    result: &Result<(), DeviceError>,
) -> bool {
    matches!(result, Err(DeviceError::Unreadable(_)))
        && device.layout().has_parity()
        // A rebuild may have ended in the meantime.
        && (was_degraded || is_degraded(device))
        && !model.borrow().may_be_lost.is_empty()
}

fn is_degraded(device: &RaidDevice) -> bool {
    device.status().states.lacking().contains(&true)
}

async fn clear(device: Arc<RaidDevice>, model: Rc<RefCell<Model>>, extent: Extent) {
    pause().await;
    let (lba, blocks) = (extent.lba.0, extent.blocks.0);
    let (value, _) = model.borrow_mut().write_begins(lba, blocks, true);
    let was_degraded = is_degraded(&device);
    let result = if once_in(2) {
        device.unmap(extent).await
    } else {
        device.write_zeroes(extent, once_in(2)).await
    };
    if is_excused(&device, was_degraded, &model, &result) {
        return model.borrow_mut().write_dropped(lba, blocks, value);
    }
    if expect(&model, "write of zeros", result).is_some() {
        model.borrow_mut().write_ended(lba, blocks, value, false);
    }
}

/// Makes a write, and drops it after a few polls.
async fn write_and_go(device: Arc<RaidDevice>, model: Rc<RefCell<Model>>, extent: Extent) {
    let (lba, blocks) = (extent.lba.0, extent.blocks.0);
    let (value, data) = model.borrow_mut().write_begins(lba, blocks, false);
    {
        let mut request = device.write(extent, Buffer::from(&data[..]).share(), Durability::Cached);
        let mut polls = draw(6);
        poll_fn(|cx| {
            polls = polls.saturating_sub(1);
            if polls == 0 {
                Poll::Ready(())
            } else {
                request.as_mut().poll(cx).map(drop)
            }
        })
        .await;
    }
    model.borrow_mut().write_dropped(lba, blocks, value);
    expect(&model, "quiesced", device.quiesced().await);
}

async fn flush(device: Arc<RaidDevice>, model: Rc<RefCell<Model>>) {
    pause().await;
    let covered = model.borrow().flush_begins();
    if expect(&model, "flush", device.flush().await).is_some() {
        model.borrow_mut().flush_ended(&covered);
    }
}

async fn read(device: Arc<RaidDevice>, model: Rc<RefCell<Model>>, extent: Extent) {
    pause().await;
    let result = read_blocks(&device, &model, extent).await;
    for (lba, content) in (extent.lba.0..).zip(expect(&model, "read", result).into_iter().flatten())
    {
        content
            .iter()
            .for_each(|content| model.borrow_mut().check(lba, content, "a read"));
    }
}

/// Reads an extent, or each of its blocks separately if it is not readable as a whole. Returns `None` for
/// unreadable blocks that are allowed to be unreadable.
async fn read_blocks(
    device: &RaidDevice,
    model: &RefCell<Model>,
    extent: Extent,
) -> Result<Vec<Option<Vec<u8>>>, DeviceError> {
    let read =
        |extent: Extent| device.read(extent, Buffer::zeroed((extent.blocks.0 * 512) as usize));
    let is_excused = |lba: &Lba| {
        (extent.lba.0..extent.lba.0 + extent.blocks.0).contains(&lba.0)
            && model.borrow().may_be_lost.contains(&lba.0)
    };
    match read(extent).await {
        Ok(data) => {
            return Ok(data
                .chunks_exact(512)
                .map(|block| Some(block.to_vec()))
                .collect());
        }
        Err(DeviceError::Unreadable(lba)) if is_excused(&lba) => {}
        Err(error) => return Err(error),
    }
    let mut blocks = Vec::new();
    for lba in extent.lba.0..extent.lba.0 + extent.blocks.0 {
        match read(Extent::new(lba, 1)).await {
            Ok(data) => blocks.push(Some(data.to_vec())),
            Err(DeviceError::Unreadable(at)) if at.0 == lba && is_excused(&at) => blocks.push(None),
            Err(error) => return Err(error),
        }
    }
    Ok(blocks)
}
