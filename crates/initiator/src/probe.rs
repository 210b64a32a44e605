//! What a LUN is, asked when it is attached: its kind, its size, its cache, and what it can do.

use std::time::Duration;

use block::{BlockSize, Blocks, Buffer, Geometry, Profile};
use iscsi::pdu::Lun;

use crate::cdb::{self, Cdb};
use crate::error::OpenError;
use crate::remote_target::RemoteTarget;
use crate::sense::{Sense, status};
use crate::tasks::Transfer;

/// What was found out.
pub(crate) struct Probed {
    pub(crate) geometry: Geometry,
    pub(crate) profile: Profile,
    pub(crate) limits: Limits,
    pub(crate) identity: Identity,
}

/// What a device says it is, wherever it is asked: the designators of the logical unit in its Device Identification
/// page (SPC-4 7.8.6), not those of the port it is asked by; else its serial number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity(Vec<u8>);

/// What one command may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Blocks of a READ or WRITE.
    pub(crate) transfer_blocks: u32,
    /// Blocks of a WRITE SAME.
    pub(crate) write_same_blocks: u32,
    /// The target knows READ(10) and WRITE(10), and not the sixteen-byte forms.
    pub(crate) short_commands: bool,
    /// The target obeys FUA in writes.
    pub(crate) force_unit_access: bool,
}

/// A request's bytes in one command if the target names no limit: a hundred of these are a second of a fast
/// network, and nothing is gained by more.
const TRANSFER_BYTES_MAX: u32 = 16 << 20;
/// WRITE SAME without a limit: 1 GiB takes a target some time already.
const WRITE_SAME_BYTES_MAX: u32 = 1 << 30;
/// Unit attentions, and "becoming ready", after a login.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(250);

/// Asks `target` for the LUN, whose number is for errors.
pub(crate) async fn look(target: &RemoteTarget, lun: Lun, number: u16) -> Result<Probed, OpenError> {
    let asking = Asking { target, lun };
    let kind = asking.for_data("INQUIRY", cdb::inquiry(None, 96), 96).await?;
    match kind.first().map(|byte| (byte >> 5, byte & 0x1f)) {
        // Peripheral qualifier 000b: something is there; device types 0 (disk) and 7 (optical) read blocks.
        Some((0, 0x00 | 0x07)) => {}
        Some((0, other)) => return Err(OpenError::NotADisk(other)),
        Some(_) => return Err(OpenError::NoSuchLun(number)),
        None => return Err(OpenError::Nonsense("INQUIRY")),
    }
    asking.until_ready().await?;
    let capacity = asking.capacity().await?;
    let pages = asking.pages().await?;
    let block_limits = asking.page(&pages, 0xb0).await?;
    let characteristics = asking.page(&pages, 0xb1).await?;
    let caching = asking.perhaps("MODE SENSE", cdb::mode_sense(0x08, 64), 64).await?;
    let caching = caching.as_deref().unwrap_or_default();
    let limits = limits(&block_limits, capacity, caching);
    let profile = profile(capacity, &characteristics, caching);
    let designators = designators(&asking.page(&pages, 0x83).await?);
    let identity = if designators.is_empty() { asking.page(&pages, 0x80).await? } else { designators };
    Ok(Probed { geometry: capacity.geometry, profile, limits, identity: Identity(identity) })
}

/// Asks only how large the LUN is.
pub(crate) async fn measure(target: &RemoteTarget, lun: Lun) -> Result<Geometry, OpenError> {
    Ok(Asking { target, lun }.capacity().await?.geometry)
}

#[derive(Clone, Copy)]
struct Capacity {
    geometry: Geometry,
    /// LBPME and LBPRZ: blocks can be given back and then read as zeros.
    thin: bool,
    short_commands: bool,
}

struct Asking<'a> {
    target: &'a RemoteTarget,
    lun: Lun,
}

/// What came back for a command.
enum Reply {
    Data(Buffer),
    Refused { status: u8, sense: Option<Sense> },
}

impl Asking<'_> {
    async fn ask(&self, name: &'static str, cdb: Cdb, bytes: usize) -> Result<Reply, OpenError> {
        let transfer = if bytes == 0 { Transfer::None } else { Transfer::into_all_of(Buffer::zeroed(bytes)) };
        let answered = self.target.execute(self.lun, cdb, transfer).await;
        let (answer, transfer) = answered.map_err(|error| OpenError::Command { name, error })?;
        if answer.status != status::GOOD {
            return Ok(Reply::Refused { status: answer.status, sense: Sense::parse(&answer.sense) });
        }
        let mut data = match transfer {
            Transfer::In { buffer, .. } => buffer,
            Transfer::None | Transfer::Out(_) => Buffer::recycled(0),
        };
        data.truncate(answer.in_bytes);
        Ok(Reply::Data(data))
    }

    /// A command that every disk must know.
    async fn for_data(&self, name: &'static str, cdb: Cdb, bytes: usize) -> Result<Buffer, OpenError> {
        match self.ask(name, cdb, bytes).await? {
            Reply::Data(data) => Ok(data),
            Reply::Refused { status, sense } => Err(OpenError::Refused { name, status, sense }),
        }
    }

    /// A command that it need not know.
    async fn perhaps(&self, name: &'static str, cdb: Cdb, bytes: usize) -> Result<Option<Buffer>, OpenError> {
        match self.ask(name, cdb, bytes).await? {
            Reply::Data(data) => Ok(Some(data)),
            Reply::Refused { .. } => Ok(None),
        }
    }

    /// Takes the unit attentions that wait for a new session, and waits for a unit that is becoming ready.
    async fn until_ready(&self) -> Result<(), OpenError> {
        let name = "TEST UNIT READY";
        let mut tries = TRIES;
        loop {
            match self.ask(name, cdb::test_unit_ready(), 0).await? {
                Reply::Data(_) => return Ok(()),
                Reply::Refused { sense: Some(Sense { key: 6, .. }), .. } if tries > 0 => {}
                Reply::Refused { status: status::BUSY | status::TASK_SET_FULL, .. } if tries > 0 => {
                    reactor::sleep(PAUSE).await;
                }
                Reply::Refused { sense: Some(Sense { key: 2, code: 4, qualifier: 1, .. }), .. }
                    if tries > 0 =>
                {
                    reactor::sleep(PAUSE).await;
                }
                Reply::Refused { status, sense } => return Err(OpenError::Refused { name, status, sense }),
            }
            tries -= 1;
        }
    }

    async fn capacity(&self) -> Result<Capacity, OpenError> {
        let name = "READ CAPACITY";
        if let Some(long) = self.perhaps(name, cdb::read_capacity_16(32), 32).await? {
            return capacity_16(&long).ok_or(OpenError::Nonsense(name));
        }
        let short = self.for_data(name, cdb::read_capacity_10(), 8).await?;
        capacity_10(&short).ok_or(OpenError::Nonsense(name))
    }

    /// The vital product data pages there are: one that is not on the list need not be asked for, and some
    /// targets take offence.
    async fn pages(&self) -> Result<Vec<u8>, OpenError> {
        let list = self.perhaps("INQUIRY", cdb::inquiry(Some(0), 255), 255).await?;
        Ok(list.as_deref().and_then(|list| list.get(4..)).unwrap_or_default().to_vec())
    }

    /// One of them; empty if there is none.
    async fn page(&self, pages: &[u8], page: u8) -> Result<Vec<u8>, OpenError> {
        if !pages.contains(&page) {
            return Ok(Vec::new());
        }
        let data = self.perhaps("INQUIRY", cdb::inquiry(Some(page), 252), 252).await?;
        Ok(data.as_deref().unwrap_or_default().to_vec())
    }
}

fn profile(capacity: Capacity, characteristics: &[u8], caching: &[u8]) -> Profile {
    Profile {
        // WP in the header's device-specific parameter (SBC-3 6.5.1).
        read_only: caching.get(2).is_some_and(|byte| byte & 0x80 != 0),
        thin: capacity.thin,
        granularity: Blocks(1),
        volatile_cache: write_cache(caching),
        durable: true,
        // MEDIUM ROTATION RATE of the Block Device Characteristics page (SBC-3 6.6.2): 1 is "non-rotating".
        solid_state: characteristics.get(4..6) == Some(&[0, 1]),
    }
}

/// The designators that are the logical unit's own (ASSOCIATION 00b), one behind the other.
fn designators(page: &[u8]) -> Vec<u8> {
    let mut own = Vec::new();
    let mut rest = page.get(4..).unwrap_or_default();
    while let Some(designator) = rest.get(3).and_then(|length| rest.get(..4 + usize::from(*length))) {
        if designator[1] & 0x30 == 0 {
            own.extend_from_slice(designator);
        }
        rest = &rest[designator.len()..];
    }
    own
}

/// SBC-3 5.16.2.
fn capacity_16(data: &[u8]) -> Option<Capacity> {
    let last = u64::from_be_bytes(*data.first_chunk()?);
    let block_size = BlockSize::new(u32::from_be_bytes(*data.get(8..)?.first_chunk()?))?;
    let blocks = Blocks(last.checked_add(1)?);
    blocks.0.checked_mul(u64::from(block_size.bytes()))?;
    let (exponent, provisioning) = (data.get(13).copied().unwrap_or(0), data.get(14).copied().unwrap_or(0));
    let geometry = Geometry { block_size, blocks, physical_exponent: exponent & 0x0f };
    Some(Capacity { geometry, thin: provisioning & 0xc0 == 0xc0, short_commands: false })
}

/// SBC-3 5.15.2.
fn capacity_10(data: &[u8]) -> Option<Capacity> {
    let last = u32::from_be_bytes(*data.first_chunk()?);
    let block_size = BlockSize::new(u32::from_be_bytes(*data.get(4..)?.first_chunk()?))?;
    let geometry = Geometry { block_size, blocks: Blocks(u64::from(last) + 1), physical_exponent: 0 };
    Some(Capacity { geometry, thin: false, short_commands: true })
}

/// The Block Limits page (SBC-3 6.6.4); all zero, or missing, is no limit.
fn limits(page: &[u8], capacity: Capacity, caching: &[u8]) -> Limits {
    let word =
        |at: usize| page.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b));
    let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
    let shift = capacity.geometry.block_size.shift();
    let most = if capacity.short_commands { u32::from(u16::MAX) } else { u32::MAX };
    let own = |bytes: u32| (bytes >> shift).clamp(1, most);
    let least = |own: u32, theirs: u64| if theirs == 0 { own } else { u64::from(own).min(theirs) as u32 };
    Limits {
        transfer_blocks: least(own(TRANSFER_BYTES_MAX), u64::from(word(8))),
        write_same_blocks: least(own(WRITE_SAME_BYTES_MAX), long(36)),
        short_commands: capacity.short_commands,
        // DPOFUA in the header's device-specific parameter (SBC-3 6.5.1).
        force_unit_access: caching.get(2).is_some_and(|byte| byte & 0x10 != 0),
    }
}

/// WCE in the caching mode page (SBC-3 6.5.5), behind the header and whatever block descriptors came in spite of
/// DBD.
fn write_cache(data: &[u8]) -> bool {
    let page =
        data.get(3).and_then(|descriptors| data.get(4 + usize::from(*descriptors)..)).unwrap_or_default();
    page.first().is_some_and(|code| code & 0x3f == 0x08) && page.get(2).is_some_and(|byte| byte & 0x04 != 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn disk() -> Capacity {
        capacity_16(&[0, 0, 0, 0, 0, 0x1f, 0xff, 0xff, 0, 0, 2, 0, 0, 3, 0xc0, 0]).unwrap()
    }

    #[test]
    fn a_capacity_is_the_last_block_and_one() {
        let geometry =
            Geometry { block_size: BlockSize::B512, blocks: Blocks(1 << 21), physical_exponent: 3 };
        assert_eq!((disk().geometry, disk().thin), (geometry, true));
    }

    #[test]
    fn a_capacity_beyond_all_bounds_is_refused() {
        assert!(capacity_16(&[0xff; 16]).is_none());
        assert!(
            capacity_16(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 2, 0, 0, 0, 0, 0]).is_none()
        );
        assert!(capacity_16(&[0; 16]).is_none());
    }

    #[test]
    fn a_limit_of_zero_is_none() {
        let own = Limits {
            transfer_blocks: 32_768,
            write_same_blocks: 1 << 21,
            short_commands: false,
            force_unit_access: true,
        };
        assert_eq!(limits(&[0; 64], disk(), &[3, 0, 0x10, 0]), own);
        assert_eq!(limits(&[], disk(), &[3, 0, 0x10, 0]), own);
        let mut page = [0; 64];
        page[11] = 128;
        assert_eq!(limits(&page, disk(), &[]).transfer_blocks, 128);
    }

    #[test]
    fn the_write_cache_is_found_behind_block_descriptors() {
        let mut data = [0u8; 36];
        (data[3], data[12], data[13], data[14]) = (8, 0x88, 18, 4);
        assert!(write_cache(&data));
        assert!(!write_cache(&[0; 3]));
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..96)) {
            write_cache(&bytes);
            capacity_10(&bytes);
            if let Some(capacity) = capacity_16(&bytes) {
                prop_assert!(limits(&bytes, capacity, &bytes).transfer_blocks > 0);
            }
        }
    }
}
