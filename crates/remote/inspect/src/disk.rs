//! Describes a logical unit: its properties as a disk, its names, its reservations and its ports.

use std::sync::Arc;
use std::time::Duration;

use backends::{Failure, FailureKind, remote};
use block::{BlockDevice, Buffer, DeviceError, Extent, Profile};
use iscsi_client::verbs::{
    Association, BlockLimits, Inquiry, LunAddress, LunSelection, ModeValues, Modes, PortGroup,
    Provisioning, Registration, VpdContent, device_type,
};
use iscsi_client::{RemoteTarget, Unit};
use readable::figures::grouped;
use readable::table::pairs;
use serde::Serialize;
use volume::spec::Bytes;

use crate::commands::registered;
use crate::pages::{self, known};

/// The properties of a disk. The JSON names are stable. `null` means that the target does not report the
/// value. If the MODE SENSE response has no Caching page, `write_cache` is `false`.
#[derive(Debug, Serialize)]
pub struct Disk {
    bytes: u64,
    blocks: u64,
    block_bytes: u32,
    physical_block_bytes: u64,
    read_only: Option<bool>,
    solid_state: bool,
    /// WCE: writes are acknowledged before they are on stable storage.
    write_cache: Option<bool>,
    /// RCD, inverted: reads may be served from a cache.
    read_cache: Option<bool>,
    /// DPOFUA: writes can be forced to stable storage before they are acknowledged.
    force_unit_access: Option<bool>,
    provisioning: Ways,
    limits: Limits,
    /// Why the first block could not be read.
    #[serde(skip)]
    pub(crate) problem: Option<String>,
}

/// How the disk provisions and deallocates space.
#[derive(Debug, Serialize)]
struct Ways {
    /// Whether blocks that WRITE SAME(16) with UNMAP has deallocated read as zeros.
    thin: bool,
    granularity_bytes: u64,
    unmap: bool,
    write_same_16: bool,
    write_same_10: bool,
    anchor: bool,
}

/// The limits of one command, in blocks; `unmap_descriptors` in descriptors. `null` if the target reports no
/// limit, or does not support the command.
#[derive(Debug, Serialize)]
struct Limits {
    transfer_blocks: Option<u64>,
    unmap_blocks: Option<u64>,
    unmap_descriptors: Option<u64>,
    write_same_blocks: Option<u64>,
    compare_and_write_blocks: Option<u64>,
    atomic_blocks: Option<u64>,
}

/// Text for a property that MODE SENSE reports, if the command was rejected or its response is invalid.
const NOT_ASKED: &str = "unknown: the target did not respond to MODE SENSE";

impl Disk {
    /// Queries a unit. Fails if the unit is not a readable disk.
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
            // These are `None` without a valid response to MODE SENSE. If the response has no Caching page,
            // the write cache is reported as off.
            read_only: caching.as_ref().map(|modes| modes.write_protected),
            solid_state: profile.solid_state,
            write_cache: caching.as_ref().map(|_| lun.reports_volatile_cache()),
            read_cache: caching
                .as_ref()
                .and_then(Modes::caching)
                .map(|caching| !caching.rcd),
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

    /// The names and values of the properties, for a table.
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
        let medium = if self.solid_state {
            "solid state"
        } else {
            "rotational, or not reported"
        };
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
        let Disk {
            bytes,
            blocks,
            block_bytes,
            physical_block_bytes,
            ..
        } = self;
        let physical = match physical_block_bytes == &u64::from(*block_bytes) {
            true => String::new(),
            false => format!(", physical blocks of {physical_block_bytes}"),
        };
        format!(
            "{}, {} blocks of {block_bytes} bytes{physical}",
            Bytes(*bytes),
            grouped(*blocks)
        )
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
        let reads = self.read_cache.map(|on| {
            if on {
                ", read cache on"
            } else {
                ", read cache off (RCD)"
            }
        });
        let fua = self
            .force_unit_access
            .map(|obeyed| if obeyed { ", FUA obeyed" } else { ", no FUA" });
        format!(
            "{writes}{}{}",
            reads.unwrap_or_default(),
            fua.unwrap_or_default()
        )
    }
}

/// Time limit of one read from the medium. The read is necessary because INQUIRY, READ CAPACITY and mode
/// pages do not access the medium, so a LUN with an unresponsive medium would look healthy.
const READ_TIME: Duration = Duration::from_secs(5);

async fn problem(lun: &dyn BlockDevice) -> Option<String> {
    let geometry = lun.geometry();
    if geometry.blocks.0 == 0 {
        return None;
    }
    let buffer = Buffer::zeroed(geometry.block_size.bytes() as usize);
    match reactor::timeout(READ_TIME, lun.read(Extent::new(0, 1), buffer)).await {
        // A persistent reservation is shown in the `reservation` row. A RESERVE(6) of another host is not
        // shown.
        Ok(Ok(_) | Err(DeviceError::Reserved)) => None,
        Ok(Err(error)) => Some(format!("block 0 cannot be read: {error}")),
        Err(_) => Some(format!(
            "a read of block 0 did not complete within {} s",
            READ_TIME.as_secs()
        )),
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
        let ways: Vec<&str> = ways
            .iter()
            .filter(|(can, _)| *can)
            .map(|(_, way)| *way)
            .collect();
        match (self.thin, ways.is_empty()) {
            (true, false) => {
                format!(
                    "yes, by {}, in pieces of {}",
                    ways.join(", "),
                    Bytes(self.granularity_bytes)
                )
            }
            (true, true) => "yes".to_owned(),
            (false, true) => "no".to_owned(),
            (false, false) => format!("blocks may not read as zeros after {}", ways.join(", ")),
        }
    }
}

impl Limits {
    fn new(limits: &BlockLimits) -> Limits {
        // By SBC-3 6.6.4, zero means that the target reports no limit (transfer, WRITE SAME, WRITE ATOMIC),
        // or does not support the command (UNMAP, COMPARE AND WRITE). All ones mean that UNMAP has no limit.
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

    /// The limits as lines of at most 80 columns.
    fn lines(&self) -> Vec<String> {
        let all = [
            ("transfer", self.transfer_blocks),
            ("UNMAP", self.unmap_blocks),
            ("WRITE SAME", self.write_same_blocks),
            ("COMPARE AND WRITE", self.compare_and_write_blocks),
            ("WRITE ATOMIC", self.atomic_blocks),
        ];
        let told: Vec<String> = all
            .iter()
            .filter_map(|(what, most)| Some(format!("{what} {}", grouped((*most)?))))
            .collect();
        match told.is_empty() {
            true => vec!["none reported".to_owned()],
            false => told
                .chunks(3)
                .map(|some| format!("{} blocks", some.join(", ")))
                .collect(),
        }
    }
}

// Describes a logical unit: its vendor, type, reservations and preferred ports.

/// The description of a logical unit. The JSON names are stable. `null` means that the target does not report
/// the value.
#[derive(Debug, Serialize)]
pub(crate) struct UnitInfo {
    /// The LUN in the usual notation.
    lun: String,
    device_type: &'static str,
    vendor: String,
    product: String,
    revision: String,
    standard: &'static str,
    removable: bool,
    serial_number: Option<String>,
    /// The unit's names, such as `naa.…` and `t10.…`.
    names: Vec<String>,
    disk: Option<Disk>,
    /// Why the unit could not be queried as a disk, or why its first block could not be read.
    problem: Option<String>,
    reservation: Option<Held>,
    registrations: Option<Vec<Registered>>,
    /// The preferred groups of ports (ALUA).
    port_groups: Option<Vec<String>>,
    vpd_pages: Vec<String>,
    /// The content of the pages that were requested in full.
    vpd: Vec<serde_json::Value>,
    #[serde(skip)]
    vpd_text: String,
    /// The number of supported commands.
    commands: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Held {
    r#type: String,
    key: String,
}

#[derive(Debug, Serialize)]
struct Registered {
    key: String,
    initiator: Option<String>,
}

/// Queries all logical units that the target presents to this initiator. A failed query does not affect the
/// other fields.
pub(crate) async fn look_at_all(
    target: &Arc<RemoteTarget>,
    vpd: &[u8],
) -> Result<Vec<UnitInfo>, Failure> {
    let luns = target.unit(0).report_luns(LunSelection::Ordinary).await?;
    let mut units = Vec::new();
    for lun in luns {
        units.push(UnitInfo::look(&Unit::new(Arc::clone(target), lun), vpd).await?);
    }
    Ok(units)
}

impl UnitInfo {
    pub(crate) async fn look(unit: &Unit, vpd: &[u8]) -> Result<UnitInfo, Failure> {
        let inquiry = unit.inquiry().await?;
        if !inquiry.is_there() {
            let lun = LunAddress::parse(unit.lun().0);
            return Err(Failure::new(
                FailureKind::NotFound,
                format_args!("the target has no LUN {lun}"),
            ));
        }
        let vpd_pages = known(unit.vpd_pages().await)?.unwrap_or_default();
        let (disk, problem) = match inquiry.is_disk() {
            true => Disk::look(unit).await.map_or_else(
                |failure| (None, Some(failure.to_string())),
                |mut disk| {
                    let problem = disk.problem.take();
                    (Some(disk), problem)
                },
            ),
            false => (None, None),
        };
        let mut whole = Vec::new();
        for page in vpd {
            whole.push(unit.vpd(*page).await?);
        }
        let reservation = known(unit.reservation().await)?.flatten();
        let commands = known(unit.supported_commands().await)?.map(|commands| commands.len());
        Ok(UnitInfo {
            lun: LunAddress::parse(unit.lun().0).to_string(),
            standard: inquiry.version_name(),
            device_type: device_type(inquiry.device_type),
            serial_number: serial_number(unit, &vpd_pages).await?,
            names: names(unit, &vpd_pages).await?,
            port_groups: port_groups(unit, &inquiry).await?,
            registrations: known(registered(unit).await)?
                .map(|all| all.iter().map(Registered::new).collect()),
            reservation: reservation.map(|held| Held {
                r#type: held.kind.to_string(),
                key: format!("{:x}", held.key),
            }),
            disk,
            problem,
            vpd_pages: vpd_pages.iter().map(|code| format!("{code:02x}")).collect(),
            vpd: whole.iter().map(pages::to_json).collect(),
            vpd_text: whole
                .iter()
                .map(|page| format!("\n{}{}", pages::text(page), pages::dump(&page.bytes)))
                .collect(),
            commands,
            vendor: inquiry.vendor,
            product: inquiry.product,
            revision: inquiry.revision,
            removable: inquiry.removable,
        })
    }

    /// The description as text: a heading, and a line for each known property.
    pub(crate) fn text(&self) -> String {
        let UnitInfo {
            lun,
            device_type,
            vendor,
            product,
            revision,
            standard,
            ..
        } = self;
        let removable = if self.removable { "removable " } else { "" };
        let head = format!(
            "LUN {lun}: {vendor} {product} {revision}, {removable}{device_type}, {standard}\n"
        );
        let disk = self.disk.iter().flat_map(Disk::rows);
        let rows = disk
            .chain(self.rows())
            .filter(|(_, value)| !value.is_empty());
        head + &pairs("  ", rows) + &self.vpd_text
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        vec![
            ("problem", self.problem.clone().unwrap_or_default()),
            ("reservation", self.reservations()),
            (
                "ports",
                self.port_groups
                    .iter()
                    .flatten()
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join("; "),
            ),
            ("names", self.names.join(", ")),
            ("serial", self.serial_number.clone().unwrap_or_default()),
            ("VPD pages", self.vpd_pages.join(" ")),
            (
                "commands",
                self.commands
                    .map_or_else(String::new, |count| count.to_string()),
            ),
        ]
    }

    fn reservations(&self) -> String {
        let Some(registrations) = &self.registrations else {
            return String::new();
        };
        let held = self
            .reservation
            .as_ref()
            .map(|held| format!("{} by key {}", held.r#type, held.key));
        let held = held.unwrap_or_else(|| "none".to_owned());
        let who: Vec<String> = registrations.iter().map(Registered::text).collect();
        let who = if who.is_empty() {
            "no registrations".to_owned()
        } else {
            format!("registered: {}", who.join(", "))
        };
        format!("{held}, {who}")
    }
}

impl Registered {
    fn new(registration: &Registration) -> Registered {
        Registered {
            key: format!("{:x}", registration.key),
            initiator: registration.initiator.as_ref().map(ToString::to_string),
        }
    }

    fn text(&self) -> String {
        let of = self
            .initiator
            .as_ref()
            .map_or_else(String::new, |initiator| format!(" of {initiator}"));
        format!("{}{of}", self.key)
    }
}

/// The names of the unit itself. The names of its ports and its target do not identify the unit.
async fn names(unit: &Unit, pages: &[u8]) -> Result<Vec<String>, Failure> {
    const DEVICE_IDENTIFICATION: u8 = 0x83;
    if !pages.contains(&DEVICE_IDENTIFICATION) {
        return Ok(Vec::new());
    }
    let page = known(unit.vpd(DEVICE_IDENTIFICATION).await)?;
    let Some(VpdContent::Designators(all)) = page.map(|page| page.content) else {
        return Ok(Vec::new());
    };
    let own = all
        .iter()
        .filter(|one| one.association == Association::LogicalUnit);
    Ok(own.map(|one| one.name.to_string()).collect())
}

async fn serial_number(unit: &Unit, pages: &[u8]) -> Result<Option<String>, Failure> {
    const UNIT_SERIAL_NUMBER: u8 = 0x80;
    if !pages.contains(&UNIT_SERIAL_NUMBER) {
        return Ok(None);
    }
    let page = known(unit.vpd(UNIT_SERIAL_NUMBER).await)?;
    Ok(match page.map(|page| page.content) {
        Some(VpdContent::SerialNumber(serial)) => Some(serial),
        _ => None,
    })
}

/// The preferred port groups. They are queried only for units that report groups in INQUIRY (TPGS).
async fn port_groups(unit: &Unit, inquiry: &Inquiry) -> Result<Option<Vec<String>>, Failure> {
    if inquiry.target_port_groups == 0 {
        return Ok(None);
    }
    let groups = known(unit.target_port_groups().await)?;
    Ok(groups.map(|groups| groups.iter().map(PortGroup::to_string).collect()))
}
