//! Queries a LUN when it is attached: its type, capacity, cache, features and identity.

use std::time::Duration;

use block::{BlockSize, Blocks, Geometry, OptimalTransfer, Profile};
use scsi::{
    BlockDeviceCharacteristics, BlockLimits, CacheGeneration, Capacity, ModeValues, Modes,
    Provisioning, Sense, Vpd, status,
};

use crate::error::OpenError;
use crate::verbs::{Identity, Unit, VerbError};

/// The properties of a LUN.
pub(crate) struct Probed {
    pub(crate) geometry: Geometry,
    pub(crate) profile: Profile,
    /// Whether the cache is write-through: WCE is zero.
    pub(crate) write_through: bool,
    /// The generation of the cache; `None` if the target does not report it.
    pub(crate) cache_generation: Option<CacheGeneration>,
    pub(crate) limits: Limits,
    pub(crate) identity: Identity,
}

/// Limits per command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Maximum number of blocks of a READ or WRITE.
    pub(crate) transfer_blocks: u32,
    /// Maximum number of blocks of a WRITE SAME.
    pub(crate) write_same_blocks: u32,
    /// Whether the target supports READ(10) and WRITE(10), but not the 16-byte forms.
    pub(crate) short_commands: bool,
    /// Whether the target supports FUA in writes.
    pub(crate) force_unit_access: bool,
    /// LBPRZ: whether deallocated blocks read as zeros.
    pub(crate) holes_are_zeros: bool,
    pub(crate) deallocation: Deallocation,
    /// The limits of UNMAP as reported.
    pub(crate) block: BlockLimits,
}

impl Limits {
    /// Applies the transport's limit on the data of a command.
    fn within(self, data_bytes: Option<usize>, geometry: Geometry) -> Limits {
        let most = data_bytes.map_or(u32::MAX, |bytes| {
            (bytes >> geometry.block_size.shift()).max(1) as u32
        });
        Limits {
            transfer_blocks: self.transfer_blocks.min(most),
            ..self
        }
    }
}

/// The way in which blocks are deallocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deallocation {
    /// Blocks cannot be deallocated.
    No,
    /// By WRITE SAME with UNMAP, which writes zeros if the blocks cannot be deallocated.
    ByWriteSame,
    /// By UNMAP, which is only a hint and leaves the content undefined.
    ByUnmap,
}

/// Maximum data length of a command if the target reports no limit. A fast network transfers about a hundred
/// such commands per second, so larger commands would not be faster.
const TRANSFER_BYTES_MAX: u32 = 16 << 20;
/// Maximum number of bytes that a WRITE SAME zeroes if the target reports no limit. Zeroing 1 GiB already
/// takes some time.
const WRITE_SAME_BYTES_MAX: u32 = 1 << 30;
/// Maximum number of attempts while the unit reports "becoming ready" after a login.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(250);

/// Queries all properties. `number` is the LUN, for errors.
pub(crate) async fn look(unit: &Unit, number: u16) -> Result<Probed, OpenError> {
    is_there(unit, number).await?;
    until_ready(unit).await?;
    let (capacity, geometry) = capacity(unit).await?;
    // A page that is not on the list is not requested, because some targets malfunction when an unsupported
    // page is requested.
    let pages = perhaps("INQUIRY", unit.vpd_pages().await)?.unwrap_or_default();
    let block_limits = page(unit, &pages, 0xb0)
        .await?
        .map(|page| BlockLimits::parse(&page.bytes));
    let provisioning = page(unit, &pages, 0xb2)
        .await?
        .map(|page| Provisioning::parse(&page.bytes));
    let medium = page(unit, &pages, 0xb1)
        .await?
        .map(|page| BlockDeviceCharacteristics::parse(&page.bytes));
    // MEDIUM ROTATION RATE (SBC-3 6.6.3): 1 is "non-rotating medium".
    let solid_state = medium.is_some_and(|medium| medium.medium_rotation_rate == 1);
    let modes = caching(unit).await?;
    // Read the generation after TEST UNIT READY has cleared unit attentions. A later unit attention then
    // concerns a later loss.
    let cache_generation = cache_generation_by(unit, &pages).await?;
    let identity = unit
        .identity_by(&pages)
        .await
        .map_err(|error| failed("INQUIRY", error))?;
    let deallocation = deallocation(&capacity, provisioning);
    if deallocation == Deallocation::ByUnmap {
        tracing::info!(
            "LUN {number} is thin-provisioned, but does not support a WRITE SAME with UNMAP that leaves \
             zeros: it is used as a thick LUN, and its blocks are not deallocated"
        );
    }
    let block = block_limits.unwrap_or_default();
    let limits = Limits {
        force_unit_access: modes.as_ref().is_some_and(|modes| modes.force_unit_access),
        deallocation,
        ..limits(block, &capacity, geometry)
    }
    .within(unit.target().data_bytes_max(), geometry);
    let write_cache = modes.as_ref().and_then(write_cache);
    let profile = Profile {
        read_only: modes.as_ref().is_some_and(|modes| modes.write_protected),
        thin: deallocation == Deallocation::ByWriteSame,
        granularity: Blocks(u64::from(block.unmap_granularity_blocks.max(1))),
        volatile_cache: write_cache == Some(true),
        durable: true,
        solid_state,
        optimal_transfer: optimal_transfer(block),
        // Every loss of the cache is detected, because a reinstated session and a reported reset count as
        // losses.
        loses_unseen: false,
    };
    let write_through = write_cache == Some(false);
    Ok(Probed {
        geometry,
        profile,
        write_through,
        cache_generation,
        limits,
        identity,
    })
}

/// Returns the optimal transfer length. A length that is not a multiple of the granularity is an error of the
/// target, and is ignored.
fn optimal_transfer(limits: BlockLimits) -> Option<OptimalTransfer> {
    let (granularity, length) = (
        u64::from(limits.optimal_granularity.max(1)),
        u64::from(limits.optimal_transfer),
    );
    let optimal = OptimalTransfer {
        granularity: Blocks(granularity),
        length: Blocks(length),
    };
    (length > 0 && length.is_multiple_of(granularity)).then_some(optimal)
}

/// Checks that the unit exists and is a disk.
pub(crate) async fn is_there(unit: &Unit, number: u16) -> Result<(), OpenError> {
    let inquiry = unit
        .inquiry()
        .await
        .map_err(|error| failed("INQUIRY", error))?;
    match inquiry.device_type {
        _ if !inquiry.is_there() => Err(OpenError::NoSuchLun(number)),
        // Disks and optical memory devices are block devices.
        0x00 | 0x07 => Ok(()),
        other => Err(OpenError::NotADisk(other)),
    }
}

/// Reads only the generation of the LUN's cache.
pub(crate) async fn cache_generation(unit: &Unit) -> Result<Option<CacheGeneration>, OpenError> {
    let pages = perhaps("INQUIRY", unit.vpd_pages().await)?.unwrap_or_default();
    cache_generation_by(unit, &pages).await
}

async fn cache_generation_by(
    unit: &Unit,
    pages: &[u8],
) -> Result<Option<CacheGeneration>, OpenError> {
    Ok(page(unit, pages, 0xc0)
        .await?
        .and_then(|page| CacheGeneration::parse(&page.bytes)))
}

/// Reads only whether the LUN has a write-through cache.
pub(crate) async fn is_write_through(unit: &Unit) -> Result<bool, OpenError> {
    Ok(caching(unit).await?.as_ref().and_then(write_cache) == Some(false))
}

async fn caching(unit: &Unit) -> Result<Option<Modes>, OpenError> {
    perhaps(
        "MODE SENSE",
        unit.mode_sense(0x08, 0, ModeValues::Current).await,
    )
}

/// Reads only the capacity.
pub(crate) async fn measure(unit: &Unit) -> Result<Geometry, OpenError> {
    capacity(unit).await.map(|(_, geometry)| geometry)
}

async fn capacity(unit: &Unit) -> Result<(Capacity, Geometry), OpenError> {
    let name = "READ CAPACITY";
    let capacity = unit
        .read_capacity()
        .await
        .map_err(|error| failed(name, error))?;
    let geometry = geometry(&capacity).ok_or(OpenError::BlockSize(capacity.block_bytes))?;
    Ok((capacity, geometry))
}

/// Converts a capacity; `None` if the block length is not supported here.
fn geometry(capacity: &Capacity) -> Option<Geometry> {
    let block_size = BlockSize::new(capacity.block_bytes)?;
    let blocks = Blocks(capacity.blocks);
    Some(Geometry {
        block_size,
        blocks,
        physical_exponent: capacity.physical_exponent,
    })
}

/// Waits for a unit that is becoming ready.
async fn until_ready(unit: &Unit) -> Result<(), OpenError> {
    let becoming_ready = |error: &VerbError| {
        matches!(
            error,
            VerbError::Refused {
                sense: Some(Sense {
                    key: 2,
                    code: 4,
                    qualifier: 1,
                    ..
                }),
                ..
            }
        )
    };
    for _ in 0..TRIES {
        match unit.test_unit_ready().await {
            Err(error) if becoming_ready(&error) => reactor::sleep(PAUSE).await,
            answer => return answer.map_err(|error| failed("TEST UNIT READY", error)),
        }
    }
    unit.test_unit_ready()
        .await
        .map_err(|error| failed("TEST UNIT READY", error))
}

/// Reads a vital product data page; `None` if it is not in the list of supported pages, or the target rejects
/// the request.
async fn page(unit: &Unit, pages: &[u8], code: u8) -> Result<Option<Vpd>, OpenError> {
    if !pages.contains(&code) {
        return Ok(None);
    }
    perhaps("INQUIRY", unit.vpd(code).await)
}

/// Returns the response to an optional command; `None` if the target rejected the command.
fn perhaps<T>(name: &'static str, answer: Result<T, VerbError>) -> Result<Option<T>, OpenError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(VerbError::Refused { .. } | VerbError::Orphaned(_) | VerbError::Nonsense(_)) => {
            Ok(None)
        }
        Err(error) => Err(failed(name, error)),
    }
}

pub(crate) fn failed(name: &'static str, error: VerbError) -> OpenError {
    match error {
        VerbError::Lost(error) => OpenError::Command { name, error },
        VerbError::Refused {
            name,
            status,
            sense,
        } => OpenError::Refused {
            name,
            status,
            sense,
        },
        VerbError::Orphaned(name) => OpenError::Refused {
            name,
            status: status::RESERVATION_CONFLICT,
            sense: None,
        },
        VerbError::Nonsense(name) | VerbError::OutOfRange(name) => OpenError::Nonsense(name),
    }
}

/// Determines how blocks are deallocated. A target without the Logical Block Provisioning page is assumed to
/// support WRITE SAME; if it does not, it rejects the command.
fn deallocation(capacity: &Capacity, provisioning: Option<Provisioning>) -> Deallocation {
    let by_write_same = provisioning.is_none_or(|ways| ways.by_write_same_16);
    match provisioning {
        _ if !capacity.thin => Deallocation::No,
        _ if capacity.read_zeros && by_write_same => Deallocation::ByWriteSame,
        Some(ways) if ways.by_unmap => Deallocation::ByUnmap,
        _ => Deallocation::No,
    }
}

/// Determines the limits from the Block Limits page, in which zero means no limit. FUA and deallocation are
/// set elsewhere.
fn limits(block: BlockLimits, capacity: &Capacity, geometry: Geometry) -> Limits {
    let shift = geometry.block_size.shift();
    let short_commands = !capacity.long_commands;
    let most = if short_commands {
        u32::from(u16::MAX)
    } else {
        u32::MAX
    };
    let own = |bytes: u32| (bytes >> shift).clamp(1, most);
    let least = |own: u32, theirs: u64| {
        if theirs == 0 {
            own
        } else {
            u64::from(own).min(theirs) as u32
        }
    };
    Limits {
        transfer_blocks: least(own(TRANSFER_BYTES_MAX), u64::from(block.transfer_blocks)),
        write_same_blocks: least(own(WRITE_SAME_BYTES_MAX), block.write_same_blocks),
        short_commands,
        force_unit_access: false,
        holes_are_zeros: capacity.thin && capacity.read_zeros,
        deallocation: Deallocation::No,
        block,
    }
}

/// Returns WCE from the caching mode page (SBC-3 6.5.5), if there is one.
fn write_cache(modes: &Modes) -> Option<bool> {
    modes.caching().map(|caching| caching.wce)
}

// The identity of the opened logical unit, to which every path must lead.

/// The data that identifies a logical unit on another path.
#[derive(Clone, Debug)]
pub(crate) struct LunReference {
    pub(crate) identity: Identity,
    pub(crate) geometry: Geometry,
    pub(crate) profile: Profile,
}

impl LunReference {
    /// Returns the reason why `now` cannot be the same unit; `None` if it can be. A larger capacity is
    /// allowed.
    pub(crate) fn difference(&self, now: &LunReference) -> Option<String> {
        if self.identity == Identity::Unknown {
            return Some("it has no identifier".to_owned());
        }
        if now.identity != self.identity {
            return Some(format!(
                "it is {} instead of {}",
                now.identity, self.identity
            ));
        }
        let (old, new) = (self.geometry, now.geometry);
        if new.block_size != old.block_size || new.blocks < old.blocks {
            let (old, new) = (old.bytes(), new.bytes());
            return Some(format!(
                "its capacity is {new} bytes instead of {old}, or its block size differs"
            ));
        }
        (now.profile.read_only && !self.profile.read_only)
            .then(|| "it is write-protected".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Capacity {
        Capacity::parse_16(&[0, 0, 0, 0, 0, 0x1f, 0xff, 0xff, 0, 0, 2, 0, 0, 3, 0xc0, 0]).unwrap()
    }

    #[test]
    fn a_capacity_is_the_last_block_and_one() {
        let expected = Geometry {
            block_size: BlockSize::B512,
            blocks: Blocks(1 << 21),
            physical_exponent: 3,
        };
        assert_eq!(geometry(&disk()), Some(expected));
        assert_eq!(
            geometry(&Capacity {
                block_bytes: 513,
                ..disk()
            }),
            None
        );
    }

    #[test]
    fn a_limit_of_zero_is_none() {
        let of = |block| limits(block, &disk(), geometry(&disk()).unwrap());
        let own = of(BlockLimits::default());
        assert_eq!(
            (own.transfer_blocks, own.write_same_blocks),
            (32_768, 1 << 21)
        );
        assert_eq!(
            of(BlockLimits {
                transfer_blocks: 128,
                ..BlockLimits::default()
            })
            .transfer_blocks,
            128
        );
    }

    #[test]
    fn a_target_of_short_commands_is_asked_for_no_more_than_they_can_say() {
        let capacity = Capacity::parse_10(&[0, 0x1f, 0xff, 0xff, 0, 0, 2, 0]).unwrap();
        let limits = limits(
            BlockLimits::default(),
            &capacity,
            geometry(&capacity).unwrap(),
        );
        assert_eq!(
            (limits.short_commands, limits.write_same_blocks),
            (true, 65_535)
        );
    }

    #[test]
    fn only_write_same_promises_zeros() {
        let ways = |by_write_same_16, by_unmap| {
            Some(Provisioning {
                by_write_same_16,
                by_unmap,
                ..Provisioning::default()
            })
        };
        assert_eq!(
            deallocation(&disk(), ways(true, true)),
            Deallocation::ByWriteSame
        );
        assert_eq!(deallocation(&disk(), None), Deallocation::ByWriteSame);
        assert_eq!(
            deallocation(&disk(), ways(false, true)),
            Deallocation::ByUnmap
        );
        let pattern = Capacity {
            read_zeros: false,
            ..disk()
        };
        assert_eq!(
            deallocation(&pattern, ways(true, true)),
            Deallocation::ByUnmap
        );
        assert_eq!(deallocation(&pattern, None), Deallocation::No);
        assert_eq!(
            deallocation(
                &Capacity {
                    thin: false,
                    ..disk()
                },
                ways(true, true)
            ),
            Deallocation::No
        );
    }
}
