//! EXTENDED COPY (SPC-4 6.4): the target copies, and the data do not pass through the initiator.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use derive_more::Display;

use block::Extent;
use scsi::{
    Association, CopyList, CopySegment, CopyTarget, Designator, ListIdUsage, OperatingParameters, VpdContent,
    cdb,
};

use super::{VerbError, parameters};
use crate::unit::Unit;

/// A copy between two logical units that one copy manager reaches, ready to be carried out piece by piece.
#[derive(Clone)]
pub struct ExtendedCopy {
    /// It is told to the unit that is written to: its reservations decide.
    destination: Unit,
    targets: [CopyTarget; 2],
    limits: CopyLimits,
    block_bytes: u32,
}

/// Why a target does not copy.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub enum ExtendedCopyError {
    /// The target does not copy from block device to block device.
    #[display("the target does not copy blocks by itself")]
    Unable,
    /// One of the two has no name that a copy could call it by: an NAA or an EUI-64 designator.
    #[display("a copy needs an NAA or EUI-64 name of both sides")]
    NoName,
    /// Their blocks are not of one length.
    #[display("the source has blocks of {_0} bytes, the destination of {_1}")]
    BlockLengths(u32, u32),
    /// A command failed. What was copied before it, was copied.
    Verb(VerbError),
}

impl ExtendedCopyError {
    /// Whether the target cannot do it at all, and reading and writing will.
    pub fn is_unsupported(&self) -> bool {
        match self {
            ExtendedCopyError::Unable | ExtendedCopyError::NoName | ExtendedCopyError::BlockLengths(..) => {
                true
            }
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

/// What one EXTENDED COPY may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CopyLimits {
    segments: u32,
    segment_blocks: u32,
    /// SNLID: a copy need not have a list identifier.
    nameless: bool,
}

const NAME: &str = "EXTENDED COPY";
const PARAMETERS: &str = "RECEIVE COPY OPERATING PARAMETERS";
const PARAMETERS_BYTES: u32 = 256;
/// A command must end in its time, on slow disks too.
const COMMAND_BYTES: u32 = 64 << 20;

/// List identifiers of copies that must have one. Their results are never queried, so that one used twice at
/// a time is a copy refused, and no harm.
static NEXT_LIST: AtomicU8 = AtomicU8::new(1);

/// Copies blocks between two logical units of one target, in as many commands as it wants.
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
        let from = source_lba.checked_add(done).ok_or(VerbError::OutOfRange(NAME))?;
        let to = destination_lba.checked_add(done).ok_or(VerbError::OutOfRange(NAME))?;
        copy.copy(from, to, piece).await?;
        done += piece;
    }
    Ok(())
}

impl ExtendedCopy {
    /// Asks both for their names and their blocks, and the destination for its limits.
    pub async fn between(source: &Unit, destination: &Unit) -> Result<ExtendedCopy, ExtendedCopyError> {
        let answer = destination
            .ask(
                PARAMETERS,
                cdb::receive_copy_operating_parameters(PARAMETERS_BYTES),
                PARAMETERS_BYTES as usize,
            )
            .await?;
        let (ours, theirs) =
            (source.read_capacity().await?.block_bytes, destination.read_capacity().await?.block_bytes);
        if ours != theirs {
            return Err(ExtendedCopyError::BlockLengths(ours, theirs));
        }
        let limits = CopyLimits::parse(&answer, ours).ok_or(ExtendedCopyError::Unable)?;
        let targets = [target(source, ours).await?, target(destination, ours).await?];
        Ok(ExtendedCopy { destination: destination.clone(), targets, limits, block_bytes: ours })
    }

    /// The most blocks of one [`ExtendedCopy::copy`].
    pub fn blocks_max(&self) -> u64 {
        let by_segments = u64::from(self.limits.segments) * u64::from(self.limits.segment_blocks);
        by_segments.min(u64::from(COMMAND_BYTES / self.block_bytes)).max(1)
    }

    /// One command: copies at most [`ExtendedCopy::blocks_max`] blocks.
    pub async fn copy(&self, source_lba: u64, destination_lba: u64, blocks: u64) -> Result<(), VerbError> {
        let past_end = |lba: u64| lba.checked_add(blocks).is_none();
        if blocks > self.blocks_max() || past_end(source_lba) || past_end(destination_lba) {
            return Err(VerbError::OutOfRange(NAME));
        }
        let list = self.list(source_lba, destination_lba, blocks);
        self.destination.tell(NAME, cdb::extended_copy(list.len() as u32), parameters(&list)).await
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
        CopyList { id, usage, targets: self.targets.to_vec(), segments: pieces.map(segment).collect() }
            .write()
    }
}

impl CopyLimits {
    /// `None` if they are cut short, or the target knows no copies from block device to block device.
    fn parse(answer: &[u8], block_bytes: u32) -> Option<CopyLimits> {
        let theirs = OperatingParameters::parse_all(answer).filter(|theirs| theirs.targets_max >= 2)?;
        let segments_bytes = (theirs.descriptor_bytes_max as usize).saturating_sub(2 * CopyTarget::BYTES);
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

/// Names a logical unit to the copy manager.
async fn target(unit: &Unit, block_bytes: u32) -> Result<CopyTarget, ExtendedCopyError> {
    let VpdContent::Designators(designators) = unit.vpd(0x83).await?.content else {
        return Err(ExtendedCopyError::NoName);
    };
    target_descriptor(&designators, block_bytes).ok_or(ExtendedCopyError::NoName)
}

fn target_descriptor(designators: &[Designator], block_bytes: u32) -> Option<CopyTarget> {
    let of_unit = designators.iter().filter(|one| one.association == Association::LogicalUnit);
    let (designator_type, designator) = of_unit.filter_map(Designator::for_copy).next()?;
    Some(CopyTarget { null: false, designator_type, designator, block_bytes })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use scsi::Name;

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
        assert_eq!(limits, CopyLimits { segments: 8, segment_blocks: 2048, nameless: true });
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
        let of = |name| Designator { association: Association::LogicalUnit, protocol: None, name };
        let local = [of(Name::T10 { vendor: "IET".into(), name: "1".into() })];
        assert!(target_descriptor(&local, 512).is_none());
        let named = target_descriptor(&[of(Name::Naa(vec![0x60; 16]))], 4096).unwrap();
        assert_eq!((named.designator_type, named.designator, named.block_bytes), (3, vec![0x60; 16], 4096));
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
}
