//! Properties of a disk that affect reads and writes.

use std::time::Duration;

use block::{BlockDevice, Buffer, DeviceError, Extent, Profile};
use iscsi_client::Unit;
use iscsi_client::verbs::{BlockLimits, ModeValues, Modes, Provisioning};
use serde::Serialize;

use crate::known;
use backends::{Failure, remote};
use stats::figures::grouped;
use volume::spec::Bytes;

/// The names of the JSON are promised; `null` is what the target does not say.
#[derive(Debug, Serialize)]
pub struct Disk {
    bytes: u64,
    blocks: u64,
    block_bytes: u32,
    physical_block_bytes: u64,
    read_only: Option<bool>,
    solid_state: bool,
    /// WCE: writes are answered before they are on stable storage.
    write_cache: Option<bool>,
    /// RCD the other way round: reads may come from a cache.
    read_cache: Option<bool>,
    /// DPOFUA: writes can be told to be on stable storage before they are answered.
    force_unit_access: Option<bool>,
    provisioning: Ways,
    limits: Limits,
    /// Why its first block could not be read.
    #[serde(skip)]
    pub(crate) problem: Option<String>,
}

/// How space is taken and given back.
#[derive(Debug, Serialize)]
struct Ways {
    /// Blocks that were given back read as zeros.
    thin: bool,
    granularity_bytes: u64,
    unmap: bool,
    write_same_16: bool,
    write_same_10: bool,
    anchor: bool,
}

/// The most that one command may ask for, in blocks; `null` where the target names no limit.
#[derive(Debug, Serialize)]
struct Limits {
    transfer_blocks: Option<u64>,
    unmap_blocks: Option<u64>,
    unmap_descriptors: Option<u64>,
    write_same_blocks: Option<u64>,
    compare_and_write_blocks: Option<u64>,
    atomic_blocks: Option<u64>,
}

/// Of what MODE SENSE would tell.
const NOT_ASKED: &str = "unknown: the target did not answer MODE SENSE";

impl Disk {
    /// Asks a unit; a failure if it cannot be looked at as a disk.
    pub async fn look(unit: &Unit) -> Result<Disk, Failure> {
        let lun = remote::disk(unit).await?;
        let (geometry, profile) = (lun.geometry(), lun.profile());
        let provisioning = known(unit.provisioning().await)?.unwrap_or_default();
        let limits = known(unit.block_limits().await)?.unwrap_or_default();
        let caching = known(unit.mode_sense(0x08, 0, ModeValues::Current).await)?;
        let block_bytes = geometry.block_size.bytes();
        Ok(Disk {
            bytes: geometry.bytes(),
            blocks: geometry.blocks.0,
            block_bytes,
            physical_block_bytes: u64::from(block_bytes) << geometry.physical_exponent,
            // A target that answers MODE SENSE with nothing that is understood has said neither.
            read_only: caching.as_ref().map(|modes| modes.write_protected),
            solid_state: profile.solid_state,
            write_cache: caching.as_ref().map(|_| lun.reports_volatile_cache()),
            read_cache: caching.as_ref().and_then(Modes::caching).map(|caching| !caching.rcd),
            force_unit_access: caching.as_ref().map(|modes| modes.force_unit_access),
            provisioning: Ways::new(
                profile,
                &provisioning,
                u64::from(block_bytes) * u64::from(limits.unmap_granularity_blocks.max(1)),
            ),
            limits: Limits::new(&limits),
            problem: problem(&lun).await,
        })
    }

    /// Names and values for a table.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let writable = match self.read_only {
            Some(read_only) => {
                if read_only {
                    "no"
                } else {
                    "yes"
                }
            }
            None => NOT_ASKED,
        };
        let medium = if self.solid_state { "solid state" } else { "rotational, or not reported" };
        let limits = self.limits.lines().into_iter().enumerate();
        let rows = [
            ("capacity", self.capacity()),
            ("writable", writable.to_owned()),
            ("medium", medium.to_owned()),
            ("cache", self.cache()),
            ("thin", self.provisioning.text()),
        ];
        let limits = limits.map(|(at, line)| (if at == 0 { "limits" } else { "" }, line));
        rows.into_iter().chain(limits).collect()
    }

    fn capacity(&self) -> String {
        let Disk { bytes, blocks, block_bytes, physical_block_bytes, .. } = self;
        let physical = match physical_block_bytes == &u64::from(*block_bytes) {
            true => String::new(),
            false => format!(", physical blocks of {physical_block_bytes}"),
        };
        format!("{}, {} blocks of {block_bytes} bytes{physical}", Bytes(*bytes), grouped(*blocks))
    }

    fn cache(&self) -> String {
        let writes = match self.write_cache {
            Some(on) => {
                if on {
                    "write cache on (WCE)"
                } else {
                    "write cache off"
                }
            }
            None => NOT_ASKED,
        };
        let reads = self.read_cache.map(|on| if on { ", read cache on" } else { ", read cache off (RCD)" });
        let fua = self.force_unit_access.map(|obeyed| if obeyed { ", FUA obeyed" } else { ", no FUA" });
        format!("{writes}{}{}", reads.unwrap_or_default(), fua.unwrap_or_default())
    }
}

/// How long the medium may take to answer one read. INQUIRY, READ CAPACITY and mode pages are answered without it, so that a LUN
/// whose medium hangs would look healthy.
const READ_TIME: Duration = Duration::from_secs(5);

async fn problem(lun: &dyn BlockDevice) -> Option<String> {
    let geometry = lun.geometry();
    if geometry.blocks.0 == 0 {
        return None;
    }
    let buffer = Buffer::zeroed(geometry.block_size.bytes() as usize);
    match reactor::timeout(READ_TIME, lun.read(Extent::new(0, 1), buffer)).await {
        // A reservation has a line of its own.
        Ok(Ok(_) | Err(DeviceError::Reserved)) => None,
        Ok(Err(error)) => Some(format!("block 0 cannot be read: {error}")),
        Err(_) => {
            Some(format!("the medium did not answer a read of block 0 within {} s", READ_TIME.as_secs()))
        }
    }
}

impl Ways {
    fn new(profile: Profile, provisioning: &Provisioning, granularity_bytes: u64) -> Ways {
        Ways {
            thin: profile.thin,
            granularity_bytes,
            unmap: provisioning.by_unmap,
            write_same_16: provisioning.by_write_same_16,
            write_same_10: provisioning.by_write_same_10,
            anchor: provisioning.anchors,
        }
    }

    fn text(&self) -> String {
        let ways = [
            (self.unmap, "UNMAP"),
            (self.write_same_16, "WRITE SAME(16)"),
            (self.write_same_10, "WRITE SAME(10)"),
            (self.anchor, "anchors"),
        ];
        let ways: Vec<&str> = ways.iter().filter(|(can, _)| *can).map(|(_, way)| *way).collect();
        match (self.thin, ways.is_empty()) {
            (true, false) => {
                format!("yes, by {}, in pieces of {}", ways.join(", "), Bytes(self.granularity_bytes))
            }
            (true, true) => "yes".to_owned(),
            (false, true) => "no".to_owned(),
            (false, false) => format!("no zeros are promised after {}", ways.join(", ")),
        }
    }
}

impl Limits {
    fn new(limits: &BlockLimits) -> Limits {
        // Zero is "no limit is told" in all of them (SBC-3 6.6.4), except that it is "not there" for the last
        // two.
        let named = |blocks: u64| Some(blocks).filter(|blocks| *blocks != 0);
        let unless_all_ones = |blocks: u32| named(blocks.into()).filter(|_| blocks != u32::MAX);
        Limits {
            transfer_blocks: named(limits.transfer_blocks.into()),
            unmap_blocks: unless_all_ones(limits.unmap_blocks),
            unmap_descriptors: unless_all_ones(limits.unmap_descriptors),
            write_same_blocks: named(limits.write_same_blocks),
            compare_and_write_blocks: named(limits.compare_and_write_blocks.into()),
            atomic_blocks: named(limits.atomic_blocks.into()),
        }
    }

    /// In lines that fit into 80 columns.
    fn lines(&self) -> Vec<String> {
        let all = [
            ("transfer", self.transfer_blocks),
            ("UNMAP", self.unmap_blocks),
            ("WRITE SAME", self.write_same_blocks),
            ("COMPARE AND WRITE", self.compare_and_write_blocks),
            ("WRITE ATOMIC", self.atomic_blocks),
        ];
        let told: Vec<String> =
            all.iter().filter_map(|(what, most)| Some(format!("{what} {}", grouped((*most)?)))).collect();
        match told.is_empty() {
            true => vec!["none told".to_owned()],
            false => told.chunks(3).map(|some| format!("{} blocks", some.join(", "))).collect(),
        }
    }
}
