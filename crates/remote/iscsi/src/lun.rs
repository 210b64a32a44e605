//! A logical unit of a target as a block device.

use std::future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use block::{
    Allocation, BlockDevice, Blocks, Buffer, DeviceError, Durability, Extent, Geometry, Lba,
    Losses, Pending, Profile, Run, Slice, StableWrite,
};
use iscsi::pdu::{Lun, Residual};
use scsi::Sense;
use scsi::cdb::{self, Cdb};
use scsi::status::GOOD;

use crate::caches::CachedWrites;
use crate::effect::{Effect, Verdict, verdict};
use crate::error::{CommandError, OpenError, refusal};
use crate::probe::{self, Deallocation, Limits, LunReference};
use crate::remote_target::{Attempt, RemoteTarget};
use crate::session_state::{UnsettledExtents, WriteOutcome};
use crate::tasks::{CommandEnd, CommandSpec, Status, Transfer};
use crate::url::Timeouts;
use crate::verbs::{
    CacheGeneration, CommandResult, Identity, LbaRun, LbaStatus, Unit, lba_runs, parameters,
    unmap_lists,
};

/// A remote logical unit.
///
/// A LUN can be used from any thread that runs a reactor. Its session lives on the thread that opened it.
/// Requests from that thread go directly to the session, without a lock or a message; requests from other
/// threads are passed to that thread and back. That thread's reactor must run while the LUN is in use. When
/// the last LUN of a session is dropped, the session logs out.
///
/// The LUN outlives its session. When the session is lost, requests wait until it is reinstated, up to the
/// setting `reconnect-time`. They are then resent, unless the LUN maps to another device.
pub struct RemoteLun {
    target: Arc<RemoteTarget>,
    lun: Lun,
    number: u16,
    geometry: Geometry,
    /// Capacity in blocks. It is atomic because a LUN may grow while it is in use.
    blocks: AtomicU64,
    /// Identity of the device.
    identity: Identity,
    /// The session in which the identity was verified, identified by the number of reinstatements before it.
    /// Commands are sent only in this session. [`IN_DOUBT`] if there is none.
    epoch: AtomicU64,
    /// Number of times that the device's identity came into doubt.
    doubts: AtomicU64,
    /// The last session in which all features of the LUN were checked.
    looked_at_in: AtomicU64,
    /// Whether the LUN now maps to another device.
    is_another: AtomicBool,
    /// Blocks of writes that may still be executed.
    unsettled: UnsettledExtents,
    profile: Profile,
    limits: Limits,
    /// Unflushed writes.
    cached: CachedWrites,
    /// Whether the target has rejected WRITE SAME(16).
    no_write_same: AtomicBool,
    /// Whether a rejection of commands was logged, and no command has succeeded since.
    waiting_told: AtomicBool,
    /// Whether the target has reported a change of the port's access state, or has rejected a command because
    /// of the access state.
    access_changed: AtomicBool,
}

impl RemoteTarget {
    /// Reads identity, capacity and features of one of the target's LUNs.
    pub async fn lun(self: &Arc<Self>, number: u16) -> Result<RemoteLun, OpenError> {
        RemoteLun::attach(Arc::clone(self), number).await
    }
}

impl RemoteLun {
    /// Reads identity, capacity and features of a LUN of `target`.
    pub(crate) async fn attach(
        target: Arc<RemoteTarget>,
        number: u16,
    ) -> Result<RemoteLun, OpenError> {
        let (unit, epoch) = (target.reported_unit(number).await, target.reinstatements());
        let cached = target.caches.watch(unit.lun());
        let asked_at = cached.mode_changes();
        let probed = probe::look(&unit, number).await?;
        let probe::Probed {
            geometry,
            profile,
            write_through,
            cache_generation,
            limits,
            identity,
        } = probed;
        cached.note_modes(asked_at, write_through);
        cached.note_generation(cache_generation);
        Ok(RemoteLun {
            lun: unit.lun(),
            target,
            number,
            geometry,
            blocks: AtomicU64::new(geometry.blocks.0),
            identity,
            epoch: AtomicU64::new(epoch),
            doubts: AtomicU64::new(0),
            looked_at_in: AtomicU64::new(epoch),
            is_another: AtomicBool::new(false),
            unsettled: UnsettledExtents::default(),
            profile,
            limits,
            cached,
            no_write_same: AtomicBool::new(false),
            waiting_told: AtomicBool::new(false),
            access_changed: AtomicBool::new(false),
        })
    }

    /// Returns the LUN's identity and features.
    pub(crate) fn reference(&self) -> LunReference {
        LunReference {
            identity: self.identity.clone(),
            geometry: self.geometry(),
            profile: self.profile(),
        }
    }

    /// Returns the number of resets and of lost writes that the target has reported.
    pub(crate) fn cache_events(&self) -> (u64, u64) {
        self.cached.events()
    }

    /// Returns the generation of the LUN's cache when it was last read, if the target reports it.
    pub(crate) fn cache_generation(&self) -> Option<CacheGeneration> {
        self.cached.generation()
    }

    /// Returns whether the target has reported a change of the port's access state since the last call.
    pub(crate) fn take_access_changed(&self) -> bool {
        self.access_changed.load(Relaxed) && self.access_changed.swap(false, Relaxed)
    }

    /// Sends a command and returns the target's response, without retries.
    pub async fn command(
        &self,
        cdb: Cdb,
        transfer: Transfer,
    ) -> Result<CommandResult, CommandError> {
        self.unit().command(cdb, transfer).await
    }

    /// Returns whether the target reported a volatile write cache when the LUN was opened.
    pub fn reports_volatile_cache(&self) -> bool {
        self.profile.volatile_cache
    }

    /// Returns the logical unit, for commands that a block device does not provide.
    pub fn unit(&self) -> Unit {
        Unit::new(Arc::clone(&self.target), self.lun)
    }

    /// Returns the session of the LUN.
    pub fn target(&self) -> &Arc<RemoteTarget> {
        &self.target
    }

    /// Logs out and waits for the target's confirmation, or the timeout.
    pub async fn close(self) {
        self.target.close().await;
    }

    /// Sends a command until it is executed or has failed permanently.
    ///
    /// Every command passed here must have the same effect when it is executed twice. This is not the case if
    /// another initiator's command is executed in between; initiators that share a LUN must prevent this.
    fn carry_out(&self, info: RequestInfo, cdb: Cdb, transfer: Transfer) -> CarryOut<'_> {
        let bytes = (transfer.in_bytes(), transfer.out_bytes());
        let epoch = self.epoch.load(Acquire);
        let attempt = self.attempt(epoch, cdb, transfer, self.target.timeouts().tries);
        let sent = Sent {
            lun: self,
            info,
            cdb,
            epoch,
            may_land: true,
        };
        CarryOut {
            sent,
            bytes,
            attempt,
            further: None,
        }
    }

    /// Sends a command once, in the session `epoch`. If more than one try is allowed (`in_time`), waits until
    /// the command has ended, even after its timeout.
    fn attempt(&self, epoch: u64, cdb: Cdb, transfer: Transfer, in_time: u32) -> Attempt<'_> {
        let (epoch, waits_for_end) = (Some(epoch), in_time > 1);
        self.target.attempt(CommandSpec {
            lun: self.lun,
            cdb,
            transfer,
            epoch,
            waits_for_end,
        })
    }

    /// Handles a failed first try, within the time limit of a request.
    async fn carry_on(
        &self,
        info: RequestInfo,
        cdb: Cdb,
        bytes: (usize, usize),
        epoch: u64,
        ended: CommandEnd,
    ) -> Result<Completion, DeviceError> {
        self.within_its_time(self.try_again(info, cdb, bytes, epoch, ended))
            .await
    }

    /// Cancels `work` at the request's time limit.
    async fn within_its_time<T>(
        &self,
        work: impl Future<Output = Result<T, DeviceError>>,
    ) -> Result<T, DeviceError> {
        let limit = self.target.timeouts().request();
        reactor::timeout(limit, work).await.unwrap_or_else(|_| {
            let (lun, seconds) = (self.number, limit.as_secs());
            tracing::warn!("LUN {lun}: a request timed out after {seconds} s");
            Err(DeviceError::NotReady)
        })
    }

    async fn try_again(
        &self,
        info: RequestInfo,
        cdb: Cdb,
        bytes: (usize, usize),
        epoch: u64,
        mut ended: CommandEnd,
    ) -> Result<Completion, DeviceError> {
        let &Timeouts {
            tries,
            command: time,
            ..
        } = self.target.timeouts();
        let mut retries = Retries::new(tries);
        let mut sent = Sent {
            lun: self,
            info,
            cdb,
            epoch,
            may_land: false,
        };
        loop {
            let CommandEnd {
                outcome,
                transfer,
                was_sent,
            } = ended;
            match outcome {
                Ok(status) => {
                    let sense = Sense::parse(&status.sense);
                    if sense.is_some_and(Sense::may_be_of_another_unit) {
                        self.doubt();
                    }
                    if sense.is_some_and(Sense::tells_of_access) {
                        self.access_changed.store(true, Relaxed);
                    }
                    match verdict(status.status, sense, info.extent, info.writing) {
                        Verdict::Done => {
                            self.waiting_told.store(false, Relaxed);
                            return Ok(Completion { status, transfer });
                        }
                        Verdict::Retry => retries.once_more(time).await?,
                        Verdict::RetryLater => {
                            retries.pause(time).await?;
                            if retries.pause == PAUSE_LONGEST
                                && !self.waiting_told.swap(true, Relaxed)
                            {
                                let says = refusal(status.status, sense);
                                let (lun, most) = (self.number, time.as_secs());
                                tracing::warn!(
                                    "LUN {lun} refuses commands temporarily ({says}): retrying for {most} s"
                                );
                            }
                        }
                        Verdict::Failed(error) => return Err(error),
                    }
                    if sense.is_some_and(Sense::tells_of_capacity) {
                        self.measure_again().await;
                    }
                    if sense.is_some_and(Sense::tells_of_modes) {
                        self.look_at_cache_again().await;
                    }
                }
                Err(CommandError::Reinstated) => self.look_again().await?,
                Err(CommandError::ConnectionLost) => {
                    sent.may_land = was_sent;
                    retries.once_more(time).await?;
                    // A command that changes nothing may be executed late. A command that changes something
                    // must have completed or been aborted before it is sent again.
                    self.target
                        .usable(changes(&cdb).then_some(sent.epoch))
                        .await?;
                    self.target.replayed();
                }
                Err(CommandError::Aborted) => {
                    retries.in_time = retries.in_time.saturating_sub(1);
                    retries.once_more(time).await?;
                    self.target.replayed();
                }
                Err(error) => {
                    // A command that has timed out is still outstanding: it is being aborted.
                    sent.may_land = error == CommandError::TimedOut && was_sent;
                    return Err(error.into());
                }
            }
            // Since the command was submitted, an earlier write of the same blocks may have become unsettled.
            if changes(&cdb) && self.is_barred(info.extent) {
                return Err(DeviceError::Unsettled);
            }
            // If the carrier has not returned the data of a WRITE, the WRITE cannot be sent again.
            if (transfer.in_bytes(), transfer.out_bytes()) != bytes {
                return Err(DeviceError::NotReady);
            }
            sent.epoch = self.epoch.load(Acquire);
            sent.may_land = true;
            ended = self
                .attempt(sent.epoch, cdb, transfer, retries.in_time)
                .await;
            sent.may_land = false;
        }
    }

    /// Records that a command sent in the session `epoch` failed or was abandoned, and may still be
    /// outstanding. If the command changes anything, its blocks are blocked while it may still be executed,
    /// because it could overwrite a newer write.
    fn bar(&self, RequestInfo { extent, .. }: RequestInfo, cdb: &Cdb, epoch: u64) {
        // If the session is not recovered, the LUN cannot be used again, and nothing needs to be logged.
        let is_recovered = !self.target.timeouts().reconnect.is_zero();
        let is_news = changes(cdb) && self.unsettled.add(epoch, extent);
        if is_recovered && is_news && self.target.is_unsettled(epoch) {
            tracing::error!(
                lun = self.number,
                lba = extent.lba.0,
                blocks = extent.blocks.0,
                "a write failed, but the target may still execute it: requests for its blocks fail until the \
                 session has logged in to the same portal group again; then rewrite these blocks"
            );
        }
    }

    /// Returns whether an abandoned change to these blocks is still outstanding in the session. A new change
    /// must then wait, because targets execute commands with the SIMPLE task attribute in any order (SAM-5).
    fn has_earlier(&self, extent: Extent) -> bool {
        self.unsettled
            .has(extent, WriteOutcome::InSession, |epoch| {
                self.target.outcome(epoch)
            })
    }

    /// Resolves when no abandoned change to these blocks is outstanding. Such changes are being aborted.
    async fn ends_earlier(&self, extent: Extent) -> Result<(), DeviceError> {
        let ended = async {
            while self.has_earlier(extent) {
                self.quiesced().await?;
            }
            Ok(())
        };
        self.within_its_time(ended).await?;
        if self.is_barred(extent) {
            Err(DeviceError::Unsettled)
        } else {
            Ok(())
        }
    }

    fn is_barred(&self, extent: Extent) -> bool {
        self.unsettled
            .has(extent, WriteOutcome::Unsettled, |epoch| {
                self.target.outcome(epoch)
            })
    }

    /// Records that the LUN may map to another device. No further command is sent until the device has been
    /// checked.
    fn doubt(&self) {
        self.doubts.fetch_add(1, AcqRel);
        self.epoch.store(IN_DOUBT, Release);
    }

    /// Records that the device was verified in the session `epoch`. Has no effect if the device has come into
    /// doubt again since the count `doubts` was read.
    fn trust(&self, epoch: u64, doubts: u64) {
        debug_assert_ne!(epoch, IN_DOUBT);
        self.epoch.store(epoch, SeqCst);
        if self.doubts.load(SeqCst) != doubts {
            self.epoch.store(IN_DOUBT, Release);
        }
    }

    /// Checks that the device at the LUN is the same as before, after the session was reinstated or the
    /// target has reported changes.
    async fn look_again(&self) -> Result<(), DeviceError> {
        match self.looked_at_in.load(Relaxed) == self.target.reinstatements() {
            true => self.look_who_is_there().await,
            false => self.look_after_an_outage().await,
        }
    }

    /// Checks the identity of the device. Uses only INQUIRY, which succeeds despite reservations, and while
    /// the unit is not ready.
    async fn look_who_is_there(&self) -> Result<(), DeviceError> {
        let (epoch, doubts) = (self.target.reinstatements(), self.doubts.load(Acquire));
        let seen = match probe::is_there(&self.unit(), self.number).await {
            Ok(()) => self
                .unit()
                .identity()
                .await
                .map_err(|error| probe::failed("INQUIRY", error)),
            Err(error) => Err(error),
        };
        match seen {
            _ if self.is_another.load(Relaxed) => return Err(DeviceError::NotReady),
            Ok(identity) if identity == self.identity => {}
            // A device that reports no identity is not a different one.
            Ok(Identity::Unknown) => {
                tracing::warn!(
                    lun = self.number,
                    "the device at the LUN no longer identifies itself"
                );
                return Err(DeviceError::NotReady);
            }
            Ok(_) => return Err(self.is_another()),
            Err(error) => {
                tracing::warn!(
                    lun = self.number,
                    "cannot identify the device at the LUN: {error}"
                );
                return Err(DeviceError::NotReady);
            }
        }
        self.measure_again().await;
        self.trust(epoch, doubts);
        Ok(())
    }

    /// Marks the LUN as mapped to another device. It is not used from now on.
    fn is_another(&self) -> DeviceError {
        if !self.is_another.swap(true, Relaxed) {
            tracing::error!(
                lun = self.number,
                "the LUN now maps to a different device; it is not used"
            );
        }
        self.doubt();
        DeviceError::NotReady
    }

    /// Checks the device after an outage. A restarted target may have another configuration, and may accept
    /// logins before it has all of its LUNs.
    async fn look_after_an_outage(&self) -> Result<(), DeviceError> {
        let until = reactor::now() + self.target.timeouts().reconnect;
        while !self.is_another.load(Relaxed) {
            self.target.usable(None).await?;
            let (epoch, asked_at) = (self.target.reinstatements(), self.cached.mode_changes());
            let (doubts, asked_after) = (self.doubts.load(Acquire), self.cached.doubts());
            match probe::look(&self.unit(), self.number).await {
                Ok(probed)
                    if probed.identity == self.identity
                        && probed.geometry.block_size == self.geometry.block_size =>
                {
                    self.cached.look_again(
                        (asked_at, asked_after),
                        probed.write_through,
                        probed.cache_generation,
                    );
                    self.grow_to(probed.geometry.blocks.0);
                    self.looked_at_in.fetch_max(epoch, Relaxed);
                    self.trust(epoch, doubts);
                    return Ok(());
                }
                Ok(_) => return Err(self.is_another()),
                // Manual intervention is required, so waiting does not help. The user of the LUN may have
                // another path.
                Err(OpenError::Refused {
                    sense: Some(sense), ..
                }) if sense.is_out_of_service() => {
                    tracing::warn!(lun = self.number, "the LUN is out of service ({sense})");
                    break;
                }
                Err(error) if reactor::now() < until => {
                    // A restarted target that adds its LUNs one by one may never report a reset of this LUN.
                    if matches!(error, OpenError::NoSuchLun(_) | OpenError::Refused { .. }) {
                        self.cached.note_reset();
                    }
                    tracing::debug!(lun = self.number, "the LUN is not available yet: {error}");
                    reactor::sleep(PAUSE_LONGEST).await;
                }
                Err(error) => {
                    tracing::warn!(lun = self.number, "gave up waiting for the LUN: {error}");
                    break;
                }
            }
        }
        Err(DeviceError::NotReady)
    }

    /// Reads the cache mode again if mode parameters have changed, because the write cache may have been
    /// enabled or disabled.
    async fn look_at_cache_again(&self) {
        if self.cached.are_modes_in_doubt() {
            let asked_at = self.cached.mode_changes();
            // If the mode parameters cannot be read, a volatile cache is assumed.
            let write_through = probe::is_write_through(&self.unit()).await.unwrap_or(false);
            self.cached.note_modes(asked_at, write_through);
        }
    }

    /// Updates the capacity if it has grown. A block device never shrinks while it is in use: if the LUN has
    /// shrunk, the target rejects access beyond the new end.
    fn grow_to(&self, blocks: u64) {
        let before = self.blocks.fetch_max(blocks, Relaxed);
        if blocks < before {
            tracing::warn!(
                lun = self.number,
                "the LUN now has {blocks} blocks instead of {before}: requests beyond its new end fail"
            );
        }
    }

    /// Reads the capacity again, after the target has reported a change of the LUN. If the capacity cannot be
    /// read, the old value is used until it can.
    async fn measure_again(&self) {
        match probe::measure(&self.unit()).await {
            Ok(geometry) if geometry.block_size == self.geometry.block_size => {
                self.grow_to(geometry.blocks.0);
            }
            Ok(_) => {
                tracing::error!(
                    lun = self.number,
                    "the LUN now has a different block size; it is not used"
                );
                self.is_another.store(true, Relaxed);
                self.doubt();
            }
            Err(error) => {
                tracing::warn!(
                    lun = self.number,
                    "the LUN has changed, and its size is unknown: {error}"
                )
            }
        }
    }

    fn read_piece(
        &self,
        piece: Extent,
        buffer: Buffer,
        range: Range<usize>,
    ) -> Result<ReadOrWrite<'_, Buffer>, DeviceError> {
        debug_assert!(
            self.is_one_piece(piece),
            "a command is not longer than its target allows"
        );
        let info = RequestInfo {
            extent: piece,
            writing: false,
        };
        let command = self.carry_out(info, self.read_cdb(piece)?, Transfer::In { buffer, range });
        Ok(ReadOrWrite {
            command,
            outcome: Completion::has_read,
        })
    }

    fn write_piece(
        &self,
        piece: Extent,
        data: Slice,
        stable: bool,
    ) -> Result<ReadOrWrite<'_, ()>, DeviceError> {
        debug_assert!(
            self.is_one_piece(piece),
            "a command is not longer than its target allows"
        );
        debug_assert_eq!(
            data.len() as u64,
            self.geometry.length(piece),
            "a command sends the data of its blocks"
        );
        let info = RequestInfo {
            extent: piece,
            writing: true,
        };
        let command = self.carry_out(info, self.write_cdb(piece, stable)?, Transfer::Out(data));
        Ok(ReadOrWrite {
            command,
            outcome: Completion::has_written,
        })
    }

    fn is_one_piece(&self, extent: Extent) -> bool {
        !extent.is_empty() && extent.blocks.0 <= u64::from(self.limits.transfer_blocks)
    }

    async fn read_pieces(&self, extent: Extent, mut buffer: Buffer) -> Result<Buffer, DeviceError> {
        for piece in extent.chunks(u64::from(self.limits.transfer_blocks)) {
            buffer = self
                .read_piece(piece, buffer, self.bytes_within(extent, piece))?
                .await?;
        }
        Ok(buffer)
    }

    /// Makes a write durable without FUA, by a flush after the write.
    async fn write_and_flush(&self, extent: Extent, data: Slice) -> Result<(), DeviceError> {
        let write = self.cached.begin_stable_write();
        self.write_pieces(extent, data, false).await?;
        self.synchronize(Some(write)).await
    }

    /// Sends SYNCHRONIZE CACHE, for a flush or after a stable write.
    async fn synchronize(&self, behind: Option<StableWrite>) -> Result<(), DeviceError> {
        let all = Extent {
            lba: Lba(0),
            blocks: self.geometry().blocks,
        };
        let info = RequestInfo {
            extent: all,
            writing: true,
        };
        let flush = self.cached.begin_flush();
        let answer = match self
            .carry_out(info, cdb::synchronize_cache(), Transfer::None)
            .await
        {
            Ok(_) => Ok(()),
            // A target without a cache need not support the command.
            Err(DeviceError::Unsupported) if !self.profile.volatile_cache => Ok(()),
            Err(error) => Err(error),
        };
        let answer = answer.and(self.look_for_loss().await);
        match behind {
            Some(write) => self.cached.end_stable_write(write, flush, answer),
            None => self.cached.end_flush(flush, answer),
        }
    }

    /// Reads the generation of the cache until no doubt remains: another doubt may be raised during a read.
    /// Without a response, the doubt remains.
    async fn look_for_loss(&self) -> Result<(), DeviceError> {
        self.look_at_cache_again().await;
        for _ in 0..TIMES_AT_ONCE {
            if !self.cached.is_in_doubt() {
                return Ok(());
            }
            let asked_after = self.cached.doubts();
            let asked = probe::cache_generation(&self.unit()).await;
            self.cached
                .compare(asked_after, asked.map_err(|_| DeviceError::NotReady)?);
        }
        if self.cached.is_in_doubt() {
            Err(DeviceError::NotReady)
        } else {
            Ok(())
        }
    }

    async fn write_pieces(
        &self,
        extent: Extent,
        data: Slice,
        stable: bool,
    ) -> Result<(), DeviceError> {
        for piece in extent.chunks(u64::from(self.limits.transfer_blocks)) {
            let data = data
                .part(self.bytes_within(extent, piece))
                .ok_or(DeviceError::OutOfRange)?;
            self.write_piece(piece, data, stable)?.await?;
        }
        Ok(())
    }

    fn read_cdb(&self, piece: Extent) -> Result<Cdb, DeviceError> {
        let blocks = blocks_of(piece)?;
        let short = self
            .limits
            .short_commands
            .then(|| cdb::read_10(piece.lba.0, blocks));
        short
            .unwrap_or(Some(cdb::read_16(piece.lba.0, blocks)))
            .ok_or(DeviceError::OutOfRange)
    }

    fn write_cdb(&self, piece: Extent, stable: bool) -> Result<Cdb, DeviceError> {
        let blocks = blocks_of(piece)?;
        let short = self
            .limits
            .short_commands
            .then(|| cdb::write_10(piece.lba.0, blocks, stable));
        short
            .unwrap_or(Some(cdb::write_16(piece.lba.0, blocks, stable)))
            .ok_or(DeviceError::OutOfRange)
    }

    async fn write_same(&self, extent: Extent, unmap: bool) -> Result<(), DeviceError> {
        let zero = Buffer::zeroed(self.geometry.block_size.bytes() as usize).share();
        for piece in extent.chunks(u64::from(self.limits.write_same_blocks)) {
            let info = RequestInfo {
                extent: piece,
                writing: true,
            };
            let cdb = cdb::write_same_16(piece.lba.0, blocks_of(piece)?, unmap);
            self.carry_out(info, cdb, Transfer::Out(zero.clone()))
                .await?;
        }
        Ok(())
    }

    async fn unmap_blocks(&self, extent: Extent) -> Result<(), DeviceError> {
        for list in unmap_lists(&[extent], &self.limits.block) {
            let cdb = cdb::unmap(false, list.len() as u16);
            let info = RequestInfo {
                extent,
                writing: true,
            };
            self.carry_out(info, cdb, Transfer::Out(parameters(&list)))
                .await?;
        }
        Ok(())
    }

    async fn write_zero_blocks(&self, extent: Extent) -> Result<(), DeviceError> {
        let step = self
            .limits
            .transfer_blocks
            .min(ZEROS_BYTES >> self.geometry.block_size.shift())
            .max(1);
        let longest = Extent {
            lba: extent.lba,
            blocks: Blocks(extent.blocks.0.min(u64::from(step))),
        };
        let zeros = Buffer::zeroed(self.geometry.length(longest) as usize).share();
        for piece in extent.chunks(u64::from(step)) {
            let data = zeros
                .part(0..self.geometry.length(piece) as usize)
                .ok_or(DeviceError::OutOfRange)?;
            self.write_piece(piece, data, false)?.await?;
        }
        Ok(())
    }

    fn check(&self, extent: Extent) -> Result<(), DeviceError> {
        if !self.geometry().contains(extent) {
            return Err(DeviceError::OutOfRange);
        }
        if self.is_barred(extent) {
            Err(DeviceError::Unsettled)
        } else {
            Ok(())
        }
    }

    /// Returns the range of a chunk's bytes within its extent.
    fn bytes_within(&self, extent: Extent, piece: Extent) -> Range<usize> {
        debug_assert!(extent.lba <= piece.lba && piece.blocks <= extent.blocks);
        let start = (self.geometry.offset(piece) - self.geometry.offset(extent)) as usize;
        start..start + self.geometry.length(piece) as usize
    }
}

impl BlockDevice for RemoteLun {
    fn geometry(&self) -> Geometry {
        Geometry {
            blocks: Blocks(self.blocks.load(Relaxed)),
            ..self.geometry
        }
    }

    /// Reports a volatile cache, whatever the LUN reports. The cache mode can change while the LUN is in use,
    /// and a user that has seen no volatile cache would not flush one that is enabled later.
    fn profile(&self) -> Profile {
        Profile {
            volatile_cache: true,
            ..self.profile
        }
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        if let Err(error) = self.check(extent) {
            return Box::pin(future::ready(Err(error)));
        }
        if !self.is_one_piece(extent) {
            return Box::pin(self.read_pieces(extent, buffer));
        }
        match self.read_piece(extent, buffer, self.bytes_within(extent, extent)) {
            Ok(piece) => Box::pin(piece),
            Err(error) => Box::pin(future::ready(Err(error))),
        }
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        if let Err(error) = self.check(extent) {
            return Box::pin(future::ready(Err(error)));
        }
        if self.has_earlier(extent) {
            return Box::pin(async move {
                self.ends_earlier(extent).await?;
                self.write(extent, data, durability).await
            });
        }
        let (stable, whole) = (
            durability == Durability::Stable,
            self.bytes_within(extent, extent),
        );
        if stable && !self.limits.force_unit_access {
            return Box::pin(self.write_and_flush(extent, data));
        }
        if !self.is_one_piece(extent) || data.len() != whole.len() {
            return Box::pin(self.write_pieces(extent, data, stable));
        }
        match self.write_piece(extent, data, stable) {
            Ok(piece) => Box::pin(piece),
            Err(error) => Box::pin(future::ready(Err(error))),
        }
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(self.synchronize(None))
    }

    fn losses(&self) -> Losses {
        self.cached.losses()
    }

    /// Sends a command. In a reinstated session, this causes the device and the generation of its cache to be
    /// checked.
    fn resolve_losses(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            if self.cached.is_in_doubt() {
                self.refresh().await?;
                self.look_for_loss().await?;
            }
            Ok(())
        })
    }

    /// Uses WRITE SAME with UNMAP. This trait guarantees the content of unmapped blocks for thin devices,
    /// whereas the UNMAP command does not. If only UNMAP is supported, uses UNMAP; such a device does not
    /// report itself as thin.
    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(async move {
            self.check(extent)?;
            self.ends_earlier(extent).await?;
            match self.limits.deallocation {
                Deallocation::ByWriteSame => self.write_same(extent, true).await,
                Deallocation::ByUnmap => self.unmap_blocks(extent).await,
                Deallocation::No => Err(DeviceError::Unsupported),
            }
        })
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(async move {
            self.check(extent)?;
            self.ends_earlier(extent).await?;
            if !self.no_write_same.load(Relaxed) {
                match self
                    .write_same(extent, may_unmap && self.profile.thin)
                    .await
                {
                    Err(DeviceError::Unsupported) => self.no_write_same.store(true, Relaxed),
                    other => return other,
                }
            }
            self.write_zero_blocks(extent).await
        })
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(async move {
            self.check(extent)?;
            let mapped = vec![Run {
                extent,
                allocation: Allocation::Mapped,
            }];
            if !self.limits.holes_are_zeros || extent.is_empty() {
                return Ok(mapped);
            }
            let bytes = 8 + 16 * runs_max.clamp(1, RUNS_MAX);
            let cdb = cdb::get_lba_status(extent.lba.0, bytes as u32);
            let transfer = Transfer::into_all_of(Buffer::zeroed(bytes));
            let done = match self
                .carry_out(
                    RequestInfo {
                        extent,
                        writing: false,
                    },
                    cdb,
                    transfer,
                )
                .await
            {
                Err(DeviceError::Unsupported) => return Ok(mapped),
                done => done?,
            };
            let Transfer::In { buffer, .. } = done.transfer else {
                return Ok(mapped);
            };
            let answer = buffer.get(..done.status.in_bytes).unwrap_or_default();
            let end = extent.end().ok_or(DeviceError::OutOfRange)?;
            let runs = lba_runs(answer, extent.lba.0, end.0);
            Ok(if runs.is_empty() {
                mapped
            } else {
                runs.into_iter().map(run).collect()
            })
        })
    }

    /// Sends a command, because targets report events only in the response to a command. The response may
    /// report a changed capacity.
    fn refresh(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let all = Extent {
                lba: Lba(0),
                blocks: self.geometry().blocks,
            };
            let info = RequestInfo {
                extent: all,
                writing: false,
            };
            self.carry_out(info, cdb::test_unit_ready(), Transfer::None)
                .await
                .map(|_| ())
        })
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let before = self.unsettled.mark();
            self.target.quiesced().await?;
            self.unsettled.end_before(before);
            Ok(())
        })
    }
}

/// A session number that no session has.
const IN_DOUBT: u64 = u64::MAX;

/// The blocks of a command, for errors.
#[derive(Clone, Copy)]
struct RequestInfo {
    extent: Extent,
    writing: bool,
}

/// A command that was executed.
struct Completion {
    status: Status,
    transfer: Transfer,
}

impl Completion {
    /// Returns the buffer of a READ.
    fn has_read(self, info: RequestInfo) -> Result<Buffer, DeviceError> {
        match self.transfer {
            Transfer::In { buffer, range } if self.status.in_bytes == range.len() => Ok(buffer),
            // The status is GOOD, but there is less data than the blocks have, so their content is unknown.
            _ => Err(DeviceError::Unreadable(info.extent.lba)),
        }
    }

    fn has_written(self, info: RequestInfo) -> Result<(), DeviceError> {
        match self.status.residual {
            Residual::None => Ok(()),
            // The status is GOOD, but the target has not accepted all data.
            Residual::Underflow(_) | Residual::Overflow(_) => {
                Err(DeviceError::Unwritable(info.extent.lba))
            }
        }
    }
}

/// A command of a request. If the request ends or is dropped while the target may still execute the command,
/// its blocks are blocked.
struct Sent<'a> {
    lun: &'a RemoteLun,
    info: RequestInfo,
    cdb: Cdb,
    /// The session in which the command was sent, identified by the number of reinstatements before it.
    epoch: u64,
    may_land: bool,
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if self.may_land {
            self.lun.bar(self.info, &self.cdb, self.epoch);
        }
    }
}

/// The first try of a command, which usually succeeds. Retries have a separate future, to keep this one
/// small.
struct CarryOut<'a> {
    sent: Sent<'a>,
    /// Number of bytes to receive and to send.
    bytes: (usize, usize),
    attempt: Attempt<'a>,
    further: Option<Pending<'a, Completion>>,
}

impl Future for CarryOut<'_> {
    type Output = Result<Completion, DeviceError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.further.is_none() {
            let ended = ready!(Pin::new(&mut this.attempt).poll(cx));
            this.sent.may_land = false;
            match ended {
                CommandEnd {
                    outcome: Ok(status),
                    transfer,
                    ..
                } if status.status == GOOD => {
                    return Poll::Ready(Ok(Completion { status, transfer }));
                }
                ended => {
                    let Sent {
                        lun,
                        info,
                        cdb,
                        epoch,
                        ..
                    } = this.sent;
                    this.further =
                        Some(Box::pin(lun.carry_on(info, cdb, this.bytes, epoch, ended)));
                }
            }
        }
        this.further
            .as_mut()
            .map_or(Poll::Pending, |further| further.as_mut().poll(cx))
    }
}

/// The future of a READ or WRITE, the most frequent requests. An async block instead of this type would move
/// the inner future two more times.
struct ReadOrWrite<'a, T> {
    command: CarryOut<'a>,
    outcome: fn(Completion, RequestInfo) -> Result<T, DeviceError>,
}

impl<T> Future for ReadOrWrite<'_, T> {
    type Output = Result<T, DeviceError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let done = ready!(Pin::new(&mut self.command).poll(cx))?;
        Poll::Ready((self.outcome)(done, self.command.sent.info))
    }
}

/// Retries of a command.
struct Retries {
    left: u32,
    /// Remaining tries after a timeout.
    in_time: u32,
    pause: Duration,
    /// The time limit. It is set before the first pause, so that most commands never read the clock.
    until: Option<Instant>,
}

/// Number of immediate retries. Several unit attentions can be pending, one for each event.
const TIMES_AT_ONCE: u32 = 10;
/// Size of the writes that zero blocks, if the target has no command for it.
const ZEROS_BYTES: u32 = 1 << 20;
/// Number of descriptors that one GET LBA STATUS requests.
const RUNS_MAX: usize = 256;
const PAUSE_FIRST: Duration = Duration::from_millis(8);
const PAUSE_LONGEST: Duration = Duration::from_secs(1);

impl Retries {
    fn new(in_time: u32) -> Retries {
        Retries {
            left: TIMES_AT_ONCE,
            in_time,
            pause: PAUSE_FIRST,
            until: None,
        }
    }

    /// Allows another try: immediately at first, and then after pauses, because resets by other initiators
    /// may follow each other closely.
    async fn once_more(&mut self, time: Duration) -> Result<(), DeviceError> {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.pause(time).await,
        }
    }

    async fn pause(&mut self, time: Duration) -> Result<(), DeviceError> {
        let now = reactor::now();
        if now + self.pause > *self.until.get_or_insert(now + time) {
            return Err(DeviceError::NotReady);
        }
        reactor::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_LONGEST);
        debug_assert!(self.pause >= PAUSE_FIRST);
        Ok(())
    }
}

/// Returns whether a command changes anything.
fn changes(cdb: &Cdb) -> bool {
    Effect::from_cdb(cdb, &[]).changes_something()
}

fn blocks_of(piece: Extent) -> Result<u32, DeviceError> {
    u32::try_from(piece.blocks.0).map_err(|_| DeviceError::OutOfRange)
}

/// Converts a descriptor. Mapped and anchored blocks count as allocated.
fn run(run: LbaRun) -> Run {
    let is_hole = run.status == LbaStatus::Deallocated;
    let allocation = if is_hole {
        Allocation::Deallocated
    } else {
        Allocation::Mapped
    };
    Run {
        extent: run.extent,
        allocation,
    }
}
