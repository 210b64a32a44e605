//! Commands on blocks other than READ and WRITE (capacity, LBA status, UNMAP, WRITE SAME, COMPARE AND WRITE,
//! EXTENDED COPY), and reservations.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use block::{Extent, Slice};
use derive_more::Display;
use scsi::fields::u32_at;
use scsi::{
    Association, BlockLimits, Capacity, CopyList, CopySegment, CopyTarget, Designator, LbaStatus,
    LbaStatusDescriptor, ListIdUsage, Name, OperatingParameters, RegisteredKeys, Registration,
    Reservation, ReservationCapabilities, ReservationType, ReserveIn, ReserveOut, ReserveOutList,
    Sense, TransportId, UnmapDescriptor, VpdContent, cdb, status,
};

use crate::verbs::{Unit, VerbError, parameters};

/// Consecutive blocks with the same status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaRun {
    /// The blocks.
    pub extent: Extent,
    /// The status of the blocks.
    pub status: LbaStatus,
}

/// The parameters of WRITE SAME.
#[derive(Clone, Debug, Default)]
pub struct WriteSame {
    /// The content to write to each block; `None` for zeros that need not be sent (NDOB, SBC-4 5.50).
    pub block: Option<Slice>,
    /// UNMAP: whether the blocks may be deallocated, if they then read as the same content.
    pub unmap: bool,
    /// ANCHOR: whether the space of the blocks stays reserved.
    pub anchor: bool,
}

/// The result of COMPARE AND WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The blocks matched; the new data has been written.
    Written,
    /// The blocks differed; nothing was written.
    Differs {
        /// The offset of the difference in bytes, if the target reports it.
        offset_bytes: Option<u64>,
    },
}

/// Maximum number of descriptors in one GET LBA STATUS.
const RUNS_AT_ONCE: usize = 256;
/// Maximum length of a WRITE SAME if the target reports no limit. A longer command would take the target too
/// long.
const WRITE_SAME_BLOCKS: u32 = 1 << 21;

impl Unit {
    /// Returns the capacity, by READ CAPACITY(16), or by READ CAPACITY(10) if the target does not support the
    /// longer form.
    pub async fn read_capacity(&self) -> Result<Capacity, VerbError> {
        let name = "READ CAPACITY";
        let capacity = match self.ask(name, cdb::read_capacity_16(32), 32).await {
            Ok(data) => Capacity::parse_16(&data),
            // Try the short form after any rejection. If the reason is not an unsupported command, the target
            // rejects the short form as well.
            Err(VerbError::Refused { .. }) => {
                Capacity::parse_10(&self.ask(name, cdb::read_capacity_10(), 8).await?)
            }
            Err(error) => return Err(error),
        };
        capacity.ok_or(VerbError::Nonsense(name))
    }

    /// Returns the status of all blocks of `extent` (GET LBA STATUS), with several commands if necessary. The
    /// runs are consecutive from the start of the extent. They end early after `runs_max` descriptors, or
    /// where the target's response becomes invalid.
    pub async fn lba_status(
        &self,
        extent: Extent,
        runs_max: usize,
    ) -> Result<Vec<LbaRun>, VerbError> {
        let name = "GET LBA STATUS";
        let end = extent.end().ok_or(VerbError::OutOfRange(name))?.0;
        let (mut runs, mut descriptors, mut next): (Vec<LbaRun>, usize, u64) =
            (Vec::new(), 0, extent.lba.0);
        while next < end && descriptors < runs_max {
            let bytes = 8 + 16 * RUNS_AT_ONCE.min(runs_max - descriptors);
            let answer = self
                .ask(name, cdb::get_lba_status(next, bytes as u32), bytes)
                .await?;
            let came = lba_runs(&answer, next, end);
            let Some(last) = came.last() else { break };
            (next, descriptors) = (
                last.extent.lba.0 + last.extent.blocks.0,
                descriptors + came.len(),
            );
            came.into_iter().for_each(|run| append(&mut runs, run));
        }
        debug_assert_eq!(
            runs.iter().map(|run| run.extent.blocks.0).sum::<u64>(),
            next - extent.lba.0,
            "the runs follow each other from the start"
        );
        Ok(runs)
    }

    /// UNMAP: deallocates the blocks of these extents, in as many commands as the target's Block Limits page
    /// requires. `anchor` keeps their space reserved.
    pub async fn unmap(&self, extents: &[Extent], anchor: bool) -> Result<(), VerbError> {
        let name = "UNMAP";
        if extents.iter().any(|extent| extent.end().is_none()) {
            return Err(VerbError::OutOfRange(name));
        }
        let limits = self.block_limits().await?;
        for list in unmap_lists(extents, &limits) {
            let cdb = cdb::unmap(anchor, list.len() as u16);
            self.tell(name, cdb, parameters(&list)).await?;
        }
        Ok(())
    }

    /// Writes the same content to all blocks of `extent` (WRITE SAME(16)), in commands that respect the
    /// target's Block Limits page. Uses WRITE SAME(10) if the target does not support the longer form, and
    /// the shorter one can express the request.
    pub async fn write_same(&self, extent: Extent, what: &WriteSame) -> Result<(), VerbError> {
        let name = "WRITE SAME";
        extent.end().ok_or(VerbError::OutOfRange(name))?;
        let theirs =
            u32::try_from(self.block_limits().await?.write_same_blocks).unwrap_or(u32::MAX);
        let most = if theirs == 0 {
            WRITE_SAME_BLOCKS
        } else {
            theirs.min(WRITE_SAME_BLOCKS)
        };
        for piece in extent.chunks(u64::from(most)) {
            let (lba, blocks) = (piece.lba.0, piece.blocks.0 as u32);
            let Some(block) = &what.block else {
                self.carry_out(name, write_same_cdb(lba, blocks, what))
                    .await?;
                continue;
            };
            match self
                .tell(name, write_same_cdb(lba, blocks, what), block.clone())
                .await
            {
                Err(error) if error.is_unsupported() && !what.anchor => {
                    let short = cdb::write_same_10(lba, blocks, what.unmap).ok_or(error)?;
                    self.tell(name, short, block.clone()).await?;
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// COMPARE AND WRITE: writes `new` if the blocks contain `expected`. Both have the length of `blocks`
    /// blocks.
    pub async fn compare_and_write(
        &self,
        lba: u64,
        blocks: u8,
        expected: &[u8],
        new: &[u8],
    ) -> Result<Compared, VerbError> {
        let name = "COMPARE AND WRITE";
        if expected.len() != new.len() {
            return Err(VerbError::OutOfRange(name));
        }
        let both = parameters(&[expected, new].concat());
        match self
            .tell(name, cdb::compare_and_write(lba, blocks), both)
            .await
        {
            Ok(()) => Ok(Compared::Written),
            Err(VerbError::Refused {
                status: status::CHECK_CONDITION,
                sense:
                    Some(Sense {
                        key: 0xe,
                        information,
                        ..
                    }),
                ..
            }) => Ok(Compared::Differs {
                offset_bytes: information,
            }),
            Err(error) => Err(error),
        }
    }

    /// WRITE ATOMIC(16): writes either all of the data or nothing, even if power fails. The Block Limits page
    /// contains the maximum length.
    pub async fn write_atomic(&self, lba: u64, blocks: u16, data: Slice) -> Result<(), VerbError> {
        self.tell("WRITE ATOMIC", cdb::write_atomic_16(lba, blocks), data)
            .await
    }
}

fn write_same_cdb(lba: u64, blocks: u32, what: &WriteSame) -> cdb::Cdb {
    let mut cdb = cdb::write_same_16(lba, blocks, what.unmap);
    cdb[1] |= u8::from(what.anchor) << 4 | u8::from(what.block.is_none());
    cdb
}

/// Returns the runs of a response. They start at block `next`, and stop before the first run that does not
/// follow the previous one. The last run ends at `end`, or earlier.
pub(crate) fn lba_runs(answer: &[u8], mut next: u64, end: u64) -> Vec<LbaRun> {
    let mut runs = Vec::new();
    for LbaStatusDescriptor {
        lba,
        blocks,
        status,
    } in LbaStatusDescriptor::parse_list(answer)
    {
        let stop = lba.saturating_add(u64::from(blocks)).min(end);
        if lba > next || stop <= next {
            break;
        }
        debug_assert!(next < stop && stop <= end);
        runs.push(LbaRun {
            extent: Extent::new(next, stop - next),
            status,
        });
        next = stop;
    }
    runs
}

/// Adds a run after the last one, merging runs with the same status.
fn append(runs: &mut Vec<LbaRun>, run: LbaRun) {
    match runs.last_mut() {
        Some(last) if last.status == run.status => last.extent.blocks.0 += run.extent.blocks.0,
        _ => runs.push(run),
    }
}

/// Returns the parameter lists (SBC-3 5.28.2) of the UNMAP commands for these extents.
pub(crate) fn unmap_lists(extents: &[Extent], limits: &BlockLimits) -> Vec<Vec<u8>> {
    let unless_zero = |limit: u32| if limit == 0 { u32::MAX } else { limit };
    let (blocks_most, most) = (
        unless_zero(limits.unmap_blocks),
        unless_zero(limits.unmap_descriptors),
    );
    let descriptors_most = UnmapDescriptor::COUNT_MAX.min(most as usize);
    let mut lists = Vec::new();
    let (mut list, mut blocks) = (Vec::new(), 0);
    for piece in extents
        .iter()
        .flat_map(|extent| extent.chunks(u64::from(blocks_most)))
    {
        let is_full =
            list.len() == descriptors_most || blocks + piece.blocks.0 > u64::from(blocks_most);
        if is_full && !list.is_empty() {
            lists.push(unmap_list(&list));
            list.clear();
            blocks = 0;
        }
        blocks += piece.blocks.0;
        list.push(piece);
        debug_assert!(list.len() <= descriptors_most.max(1) && blocks <= u64::from(blocks_most));
    }
    if !list.is_empty() {
        lists.push(unmap_list(&list));
    }
    lists
}

fn unmap_list(extents: &[Extent]) -> Vec<u8> {
    let descriptor = |extent: &Extent| UnmapDescriptor {
        lba: extent.lba.0,
        blocks: extent.blocks.0 as u32,
    };
    UnmapDescriptor::write_list(extents.iter().map(descriptor))
}

// EXTENDED COPY (SPC-4 6.4): the target copies, and the data does not pass through the initiator.

/// A copy between two logical units that one copy manager can reach. It is executed piece by piece.
#[derive(Clone)]
pub struct ExtendedCopy {
    /// The destination, to which the commands are sent, so that its reservations apply.
    destination: Unit,
    targets: [CopyTarget; 2],
    limits: CopyLimits,
    block_bytes: u32,
}

/// The reason why a target cannot perform a copy.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub enum ExtendedCopyError {
    /// The target does not support copies from block device to block device.
    #[display("the target does not support copying blocks")]
    Unable,
    /// One of the two units has no name that a copy can use: an NAA or EUI-64 designator is required.
    #[display("a copy needs an NAA or EUI-64 name of both sides")]
    NoName,
    /// The block lengths of the units differ.
    #[display("the source has blocks of {_0} bytes, the destination of {_1}")]
    BlockLengths(u32, u32),
    /// A command failed. Earlier pieces have been copied.
    Verb(VerbError),
}

impl ExtendedCopyError {
    /// Returns whether the target does not support the copy at all, so that the initiator must read and write
    /// the data instead.
    pub fn is_unsupported(&self) -> bool {
        match self {
            ExtendedCopyError::Unable
            | ExtendedCopyError::NoName
            | ExtendedCopyError::BlockLengths(..) => true,
            ExtendedCopyError::Verb(error) => error.is_unsupported(),
        }
    }
}

impl std::error::Error for ExtendedCopyError {}

impl From<VerbError> for ExtendedCopyError {
    fn from(error: VerbError) -> ExtendedCopyError {
        ExtendedCopyError::Verb(error)
    }
}

/// The limits of one EXTENDED COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CopyLimits {
    segments: u32,
    segment_blocks: u32,
    /// SNLID: whether a copy may have no list identifier.
    nameless: bool,
}

const NAME: &str = "EXTENDED COPY";
const PARAMETERS: &str = "RECEIVE COPY OPERATING PARAMETERS";
const PARAMETERS_BYTES: u32 = 256;
/// Maximum length that one command copies. It lets a command complete in time even on slow disks.
const COMMAND_BYTES: u32 = 64 << 20;

/// The next list identifier, for targets that require one. Results are never queried by it. If an identifier
/// is used twice at the same time, the target rejects the second copy, without other effects.
static NEXT_LIST: AtomicU8 = AtomicU8::new(1);

/// Copies blocks between two logical units of one target, in as many commands as the target requires.
pub async fn extended_copy(
    source: &Unit,
    destination: &Unit,
    source_lba: u64,
    destination_lba: u64,
    blocks: u64,
) -> Result<(), ExtendedCopyError> {
    let copy = ExtendedCopy::between(source, destination).await?;
    let mut done = 0;
    while done < blocks {
        let piece = (blocks - done).min(copy.blocks_max());
        let from = source_lba
            .checked_add(done)
            .ok_or(VerbError::OutOfRange(NAME))?;
        let to = destination_lba
            .checked_add(done)
            .ok_or(VerbError::OutOfRange(NAME))?;
        copy.copy(from, to, piece).await?;
        done += piece;
    }
    Ok(())
}

impl ExtendedCopy {
    /// Prepares a copy: queries names and block lengths of both units, and the limits of the destination.
    pub async fn between(
        source: &Unit,
        destination: &Unit,
    ) -> Result<ExtendedCopy, ExtendedCopyError> {
        let answer = destination
            .ask(
                PARAMETERS,
                cdb::receive_copy_operating_parameters(PARAMETERS_BYTES),
                PARAMETERS_BYTES as usize,
            )
            .await?;
        let (ours, theirs) = (
            source.read_capacity().await?.block_bytes,
            destination.read_capacity().await?.block_bytes,
        );
        if ours != theirs {
            return Err(ExtendedCopyError::BlockLengths(ours, theirs));
        }
        let limits = CopyLimits::parse(&answer, ours).ok_or(ExtendedCopyError::Unable)?;
        let targets = [
            target(source, ours).await?,
            target(destination, ours).await?,
        ];
        Ok(ExtendedCopy {
            destination: destination.clone(),
            targets,
            limits,
            block_bytes: ours,
        })
    }

    /// Returns the maximum number of blocks of one [`ExtendedCopy::copy`].
    pub fn blocks_max(&self) -> u64 {
        let by_segments = u64::from(self.limits.segments) * u64::from(self.limits.segment_blocks);
        by_segments
            .min(u64::from(COMMAND_BYTES / self.block_bytes))
            .max(1)
    }

    /// Copies up to [`ExtendedCopy::blocks_max`] blocks with one command.
    pub async fn copy(
        &self,
        source_lba: u64,
        destination_lba: u64,
        blocks: u64,
    ) -> Result<(), VerbError> {
        let past_end = |lba: u64| lba.checked_add(blocks).is_none();
        if blocks > self.blocks_max() || past_end(source_lba) || past_end(destination_lba) {
            return Err(VerbError::OutOfRange(NAME));
        }
        let list = self.list(source_lba, destination_lba, blocks);
        self.destination
            .tell(
                NAME,
                cdb::extended_copy(list.len() as u32),
                parameters(&list),
            )
            .await
    }

    fn list(&self, source_lba: u64, destination_lba: u64, blocks: u64) -> Vec<u8> {
        let (id, usage) = match self.limits.nameless {
            true => (0, ListIdUsage::None),
            false => (NEXT_LIST.fetch_add(1, Relaxed), ListIdUsage::Discard),
        };
        let pieces = Extent::new(0, blocks).chunks(u64::from(self.limits.segment_blocks));
        let segment = |piece: Extent| CopySegment {
            destination_counts: false,
            source: 0,
            destination: 1,
            blocks: piece.blocks.0 as u16,
            source_lba: source_lba + piece.lba.0,
            destination_lba: destination_lba + piece.lba.0,
        };
        let segments: Vec<CopySegment> = pieces.map(segment).collect();
        debug_assert!(
            segments.len() <= self.limits.segments as usize,
            "a copy has no more segments than allowed"
        );
        CopyList {
            id,
            usage,
            targets: self.targets.to_vec(),
            segments,
        }
        .write()
    }
}

impl CopyLimits {
    /// Parses the operating parameters; `None` if they are truncated, or the target does not support copies
    /// from block device to block device.
    fn parse(answer: &[u8], block_bytes: u32) -> Option<CopyLimits> {
        let theirs =
            OperatingParameters::parse_all(answer).filter(|theirs| theirs.targets_max >= 2)?;
        let segments_bytes =
            (theirs.descriptor_bytes_max as usize).saturating_sub(2 * CopyTarget::BYTES);
        let list_segments = (segments_bytes / CopySegment::BYTES) as u32;
        let segment_bytes = match theirs.segment_bytes_max {
            0 => u32::MAX,
            limit => limit,
        };
        Some(CopyLimits {
            segments: u32::from(theirs.segments_max).min(list_segments).max(1),
            // NUMBER OF BLOCKS has two bytes.
            segment_blocks: (segment_bytes / block_bytes).clamp(1, u32::from(u16::MAX)),
            nameless: theirs.nameless,
        })
    }
}

/// Creates the descriptor by which the copy manager identifies a logical unit.
async fn target(unit: &Unit, block_bytes: u32) -> Result<CopyTarget, ExtendedCopyError> {
    let VpdContent::Designators(designators) = unit.vpd(0x83).await?.content else {
        return Err(ExtendedCopyError::NoName);
    };
    target_descriptor(&designators, block_bytes).ok_or(ExtendedCopyError::NoName)
}

fn target_descriptor(designators: &[Designator], block_bytes: u32) -> Option<CopyTarget> {
    let of_unit = designators
        .iter()
        .filter(|one| one.association == Association::LogicalUnit);
    let (designator_type, designator) = of_unit.filter_map(Designator::for_copy).next()?;
    Some(CopyTarget {
        null: false,
        designator_type,
        designator,
        block_bytes,
    })
}

// Persistent reservations (SPC-4 5.13, 6.15 and 6.16), and reservations by RESERVE(6) of SPC-2.

/// The actions of PERSISTENT RESERVE OUT. All actions except the two that register require a registration,
/// which the key identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersistentReserve {
    /// Registers a key, or replaces the current key. A new key of zero removes the registration.
    Register {
        /// The current key; zero if no key is registered.
        key: u64,
        /// The new key.
        new_key: u64,
        /// APTPL: whether the registration survives a power loss.
        persist: bool,
    },
    /// Registers a key, whatever key is currently registered.
    RegisterAndIgnoreExistingKey {
        /// The new key.
        new_key: u64,
        /// APTPL: whether the registration survives a power loss.
        persist: bool,
    },
    /// Reserves the logical unit.
    Reserve {
        /// This initiator's key.
        key: u64,
        /// The access denied to others.
        kind: ReservationType,
    },
    /// Releases this initiator's reservation.
    Release {
        /// This initiator's key.
        key: u64,
        /// The type of the reservation.
        kind: ReservationType,
    },
    /// Removes the reservation and all registrations.
    Clear {
        /// This initiator's key.
        key: u64,
    },
    /// Removes the registrations with another key and, if they hold the reservation, takes it over.
    Preempt {
        /// This initiator's key.
        key: u64,
        /// The key of the other registrations.
        victim: u64,
        /// The access denied to others from now on.
        kind: ReservationType,
    },
    /// Like `Preempt`, and also aborts the commands of the other nexuses.
    PreemptAndAbort {
        /// This initiator's key.
        key: u64,
        /// The key of the other registrations.
        victim: u64,
        /// The access denied to others from now on.
        kind: ReservationType,
    },
}

impl PersistentReserve {
    /// Returns the fields SERVICE ACTION and TYPE, and the parameter list.
    fn encode(self) -> (ReserveOut, u8, ReserveOutList) {
        use PersistentReserve as P;
        let list = |key, service_action_key, persist| ReserveOutList {
            key,
            service_action_key,
            persist,
            ..ReserveOutList::default()
        };
        match self {
            P::Register {
                key,
                new_key,
                persist,
            } => (ReserveOut::Register, 0, list(key, new_key, persist)),
            P::RegisterAndIgnoreExistingKey { new_key, persist } => (
                ReserveOut::RegisterAndIgnoreExistingKey,
                0,
                list(0, new_key, persist),
            ),
            P::Reserve { key, kind } => (ReserveOut::Reserve, kind.code(), list(key, 0, false)),
            P::Release { key, kind } => (ReserveOut::Release, kind.code(), list(key, 0, false)),
            P::Clear { key } => (ReserveOut::Clear, 0, list(key, 0, false)),
            P::Preempt { key, victim, kind } => {
                (ReserveOut::Preempt, kind.code(), list(key, victim, false))
            }
            P::PreemptAndAbort { key, victim, kind } => (
                ReserveOut::PreemptAndAbort,
                kind.code(),
                list(key, victim, false),
            ),
        }
    }
}

const IN: &str = "PERSISTENT RESERVE IN";
const OUT: &str = "PERSISTENT RESERVE OUT";
/// Length of the first request, which is enough for about forty registrations. A longer list is requested
/// again.
const BYTES: u32 = 4096;

impl Unit {
    /// Returns the registered keys (READ KEYS).
    pub async fn registered_keys(&self) -> Result<RegisteredKeys, VerbError> {
        let answer = self.reservations(ReserveIn::Keys).await?;
        RegisteredKeys::parse(&answer).ok_or(VerbError::Nonsense(IN))
    }

    /// Returns the reservation (READ RESERVATION); `None` if the logical unit is not reserved.
    pub async fn reservation(&self) -> Result<Option<Reservation>, VerbError> {
        let answer = self.reservations(ReserveIn::Reservation).await?;
        Reservation::parse(&answer).ok_or(VerbError::Nonsense(IN))
    }

    /// Returns the supported features of reservations (REPORT CAPABILITIES).
    pub async fn reservation_capabilities(&self) -> Result<ReservationCapabilities, VerbError> {
        let answer = self
            .ask(
                IN,
                cdb::persistent_reserve_in(ReserveIn::Capabilities, 8),
                8,
            )
            .await?;
        // The data must contain at least the mask of types.
        answer
            .get(..6)
            .map(ReservationCapabilities::parse)
            .ok_or(VerbError::Nonsense(IN))
    }

    /// Returns all registrations (READ FULL STATUS).
    pub async fn registrations(&self) -> Result<Vec<Registration>, VerbError> {
        let answer = self.reservations(ReserveIn::FullStatus).await?;
        Registration::parse_list(&answer).ok_or(VerbError::Nonsense(IN))
    }

    /// Returns the registrations of this session's initiator port at target ports other than this session's.
    /// Such a registration has no effect for this session. A login to another portal group uses another
    /// target port.
    pub async fn registrations_elsewhere(&self) -> Result<Vec<Registration>, VerbError> {
        let nexus = self.target().nexus();
        let ours = TransportId::Iscsi {
            name: nexus.initiator,
            isid: Some(nexus.isid.0),
        };
        let is_ours = |registration: &Registration| registration.initiator.as_ref() == Some(&ours);
        // If the target does not report this session's port, it is unknown whether a registration is at
        // another port.
        let Some(here) = self.relative_port().await? else {
            return Ok(Vec::new());
        };
        let mut registrations = self.registrations().await?;
        registrations.retain(|registration| {
            is_ours(registration) && !registration.all_ports && registration.relative_port != here
        });
        Ok(registrations)
    }

    /// Returns the relative identifier of the session's target port, if the target reports it.
    async fn relative_port(&self) -> Result<Option<u16>, VerbError> {
        let VpdContent::Designators(designators) = self.vpd(0x83).await?.content else {
            return Ok(None);
        };
        let mut of_port = designators
            .into_iter()
            .filter(|one| one.association == Association::TargetPort);
        Ok(of_port.find_map(|one| match one.name {
            Name::RelativeTargetPort(port) => Some(port),
            _ => None,
        }))
    }

    /// Executes an action of PERSISTENT RESERVE OUT. A wrong key causes a RESERVATION CONFLICT.
    pub async fn persistent_reserve(&self, what: PersistentReserve) -> Result<(), VerbError> {
        let (action, kind, list) = what.encode();
        let cdb = cdb::persistent_reserve_out(action, kind, ReserveOutList::BYTES as u32);
        self.tell(OUT, cdb, parameters(&list.write())).await
    }

    /// RESERVE(6): gives this session exclusive use of the logical unit, until the session releases it or
    /// ends, or the unit is reset.
    pub async fn reserve(&self) -> Result<(), VerbError> {
        self.carry_out("RESERVE(6)", cdb::reserve_6()).await
    }

    /// Releases this session's reservation (RELEASE(6)). Releasing a unit that is not reserved is not an
    /// error.
    pub async fn release(&self) -> Result<(), VerbError> {
        self.carry_out("RELEASE(6)", cdb::release_6()).await
    }

    async fn reservations(&self, action: ReserveIn) -> Result<block::Buffer, VerbError> {
        let cdb = |bytes| cdb::persistent_reserve_in(action, bytes as u16);
        let whole = |answer: &[u8]| 8 + u64::from(u32_at(answer, 4));
        self.ask_all(IN, cdb, BYTES, u32::from(u16::MAX), whole)
            .await
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use scsi::Name;

    use super::*;

    fn descriptor(lba: u64, blocks: u32, status: u8) -> Vec<u8> {
        [
            &lba.to_be_bytes()[..],
            &blocks.to_be_bytes(),
            &[status, 0, 0, 0],
        ]
        .concat()
    }

    #[test]
    fn runs_of_a_target_that_tells_tales_are_cut_short() {
        let gap = [vec![0; 8], descriptor(0, 10, 0), descriptor(20, 10, 1)].concat();
        assert_eq!(lba_runs(&gap, 0, 100).len(), 1);
        let behind = [vec![0; 8], descriptor(0, 10, 0)].concat();
        assert!(lba_runs(&behind, 50, 60).is_empty());
        let endless = [vec![0; 8], descriptor(u64::MAX - 1, u32::MAX, 0)].concat();
        assert!(lba_runs(&endless, 50, 60).is_empty());
    }

    #[test]
    fn runs_begin_at_the_first_block_and_end_with_the_last() {
        let answer = [vec![0; 8], descriptor(0, 100, 0), descriptor(100, 1000, 1)].concat();
        let runs = lba_runs(&answer, 50, 120);
        assert_eq!(
            runs.iter().map(|run| run.extent).collect::<Vec<_>>(),
            [Extent::new(50, 50), Extent::new(100, 20)]
        );
    }

    #[test]
    fn neighbours_of_a_kind_are_one_run() {
        let run = |lba, blocks, status| LbaRun {
            extent: Extent::new(lba, blocks),
            status,
        };
        let mut runs = Vec::new();
        append(&mut runs, run(0, 8, LbaStatus::Mapped));
        append(&mut runs, run(8, 8, LbaStatus::Mapped));
        append(&mut runs, run(16, 8, LbaStatus::Deallocated));
        assert_eq!(
            runs,
            [
                run(0, 16, LbaStatus::Mapped),
                run(16, 8, LbaStatus::Deallocated)
            ]
        );
    }

    #[test]
    fn no_unmap_asks_for_more_than_the_limits() {
        let limits = BlockLimits {
            unmap_blocks: 100,
            unmap_descriptors: 2,
            ..BlockLimits::default()
        };
        let extents = [
            Extent::new(0, 250),
            Extent::new(1000, 10),
            Extent::new(2000, 10),
            Extent::new(3000, 1),
        ];
        let lists = unmap_lists(&extents, &limits);
        let lengths: Vec<usize> = lists.iter().map(|list| (list.len() - 8) / 16).collect();
        assert_eq!(lengths, [1, 1, 2, 2], "100; 100; 50 and 10; 10 and 1");
        assert_eq!(lists[0][..8], [0, 22, 0, 16, 0, 0, 0, 0]);
    }

    #[test]
    fn an_unmap_without_limits_is_one_command() {
        let extents: Vec<Extent> = (0..4095).map(|index| Extent::new(index * 16, 8)).collect();
        assert_eq!(unmap_lists(&extents, &BlockLimits::default()).len(), 1);
        assert!(unmap_lists(&[], &BlockLimits::default()).is_empty());
    }

    proptest! {
        #[test]
        fn every_block_is_unmapped_once(
            lengths in prop::collection::vec(0u64..5000, 0..20),
            unmap_blocks in 0u32..1000, unmap_descriptors in 0u32..5,
        ) {
            let extent = |(length, index): (&u64, u64)| Extent::new(index * 10_000, *length);
            let extents: Vec<Extent> = lengths.iter().zip(0u64..).map(extent).collect();
            let limits = BlockLimits { unmap_blocks, unmap_descriptors, ..BlockLimits::default() };
            let lists = unmap_lists(&extents, &limits);
            let told = lists.iter().flat_map(|list| UnmapDescriptor::parse_list(list).into_iter().flatten());
            let told: u64 = told.map(|descriptor| u64::from(descriptor.blocks)).sum();
            prop_assert_eq!(told, lengths.iter().sum::<u64>());
        }

        #[test]
        fn any_answer_is_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..96), next: u64, length: u32,
        ) {
            let end = next.saturating_add(u64::from(length));
            let mut at = next;
            for run in lba_runs(&bytes, next, end) {
                prop_assert_eq!(run.extent.lba.0, at);
                at += run.extent.blocks.0;
                prop_assert!(at <= end);
            }
        }
    }

    fn operating_parameters(segments_max: u16, segment_bytes_max: u32) -> OperatingParameters {
        OperatingParameters {
            nameless: true,
            targets_max: 2,
            segments_max,
            descriptor_bytes_max: 1024,
            segment_bytes_max,
            ..OperatingParameters::default()
        }
    }

    #[test]
    fn the_limits_are_the_targets() {
        let limits = CopyLimits::parse(&operating_parameters(8, 1 << 20).write_all(), 512).unwrap();
        assert_eq!(
            limits,
            CopyLimits {
                segments: 8,
                segment_blocks: 2048,
                nameless: true
            }
        );
        let unlimited = CopyLimits::parse(&operating_parameters(255, 0).write_all(), 512).unwrap();
        assert_eq!((unlimited.segments, unlimited.segment_blocks), (34, 65_535));
    }

    #[test]
    fn a_target_that_knows_other_copies_only_is_of_no_use() {
        let mut answer = operating_parameters(8, 0).write_all();
        answer[44] = 0x0c;
        assert!(CopyLimits::parse(&answer, 512).is_none());
        assert!(CopyLimits::parse(&answer[..43], 512).is_none());
    }

    #[test]
    fn a_unit_is_named_by_what_the_whole_world_agrees_on() {
        let of = |name| Designator {
            association: Association::LogicalUnit,
            protocol: None,
            name,
        };
        let local = [of(Name::T10 {
            vendor: "IET".into(),
            name: "1".into(),
        })];
        assert!(target_descriptor(&local, 512).is_none());
        let named = target_descriptor(&[of(Name::Naa(vec![0x60; 16]))], 4096).unwrap();
        assert_eq!(
            (named.designator_type, named.designator, named.block_bytes),
            (3, vec![0x60; 16], 4096)
        );
    }

    proptest! {
        #[test]
        fn any_parameters_are_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..96), block_bytes in 1u32..=1 << 20,
        ) {
            if let Some(limits) = CopyLimits::parse(&bytes, block_bytes) {
                prop_assert!(limits.segments > 0 && limits.segment_blocks > 0);
            }
        }
    }

    #[test]
    fn the_keys_are_where_the_action_wants_them() {
        let (action, kind, list) = PersistentReserve::Register {
            key: 1,
            new_key: 2,
            persist: true,
        }
        .encode();
        assert_eq!(
            (action, kind, list.key, list.service_action_key),
            (ReserveOut::Register, 0, 1, 2)
        );
        let kind = ReservationType::ExclusiveAccessAllRegistrants;
        let (action, kind, list) = PersistentReserve::PreemptAndAbort {
            key: 1,
            victim: 3,
            kind,
        }
        .encode();
        assert_eq!(
            (action, kind, list.service_action_key),
            (ReserveOut::PreemptAndAbort, 8, 3)
        );
    }
}
