//! INQUIRY: the standard data (SPC-4 6.6) and the pages of vital product data (SPC-4 7.8, SBC-3 6.6).

use block::Geometry;
use scsi::{
    Association, BlockDeviceCharacteristics, BlockLimits, CacheGeneration, Condition, Designator,
    ExtendedInquiry, Inquiry, Name, Policy, Port, Provisioning, Vpd,
};

use super::read_write;
use crate::cdb::Cdb;
use crate::command::call::Call;
use crate::copy;
use crate::failure::Failure;
use crate::identity::Identity;
use crate::nexus::TargetPort;
use crate::plan::Plan;

pub(crate) fn plan_inquiry(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let page = call.cdb.byte(2);
    let data = match (call.cdb.bit(1, 0), page) {
        (true, page) => vpd_page(call, page).ok_or(Condition::invalid_field(2))?,
        (false, 0) => standard(
            DIRECT_ACCESS,
            call.unit.options().removable,
            call.unit.identity(),
        ),
        // PAGE CODE must be zero without EVPD.
        (false, _) => return Err(Condition::invalid_field(2).into()),
    };
    call.parameter_data(data, u32::from(call.cdb.u16(3)))
}

/// Returns the INQUIRY data of a LUN without a block device. `device` is its first byte. There are no VPD
/// pages.
pub(crate) fn without_device(cdb: Cdb<'_>, device: u8) -> Result<Vec<u8>, Condition> {
    if cdb.bit(1, 0) {
        return Err(Condition::invalid_bit(1, 0));
    }
    if cdb.byte(2) != 0 {
        return Err(Condition::invalid_field(2));
    }
    Ok(standard(device, false, &Identity::new([0; 16])))
}

/// Returns the standard INQUIRY data. `device` is its first byte: PERIPHERAL QUALIFIER and DEVICE TYPE.
fn standard(device: u8, removable: bool, identity: &Identity) -> Vec<u8> {
    let is_disk = device == DIRECT_ACCESS;
    Inquiry {
        qualifier: device >> 5,
        device_type: device & 0x1f,
        removable,
        hierarchical_luns: true,
        version: 6, // SPC-4
        vendor: identity.vendor().to_owned(),
        product: identity.product().to_owned(),
        revision: identity.revision().to_owned(),
        // Asymmetric access is reported (REPORT TARGET PORT GROUPS) but cannot be set.
        target_port_groups: u8::from(is_disk),
        third_party_copy: is_disk,
        several_ports: is_disk,
        protection: false,
        command_queuing: true,
        // SAM-5, iSCSI, SPC-4 and SBC-3; for each, no version is claimed.
        standards: vec![0x00a0, 0x0960, 0x0460, 0x04c0],
    }
    .write()
}

/// PERIPHERAL QUALIFIER 000b, device type 00h: a connected direct-access block device.
const DIRECT_ACCESS: u8 = 0x00;

/// Returns the page with its header; `None` if there is no such page.
fn vpd_page(call: &Call<'_>, code: u8) -> Option<Vec<u8>> {
    let (_, page) = PAGES.iter().find(|(known, _)| *known == code)?;
    page(call)
}

/// A page with its header; `None` if this logical unit does not have it.
type Page = fn(&Call<'_>) -> Option<Vec<u8>>;

/// All pages by code, in the ascending order of page 00h (SPC-4 7.8).
const PAGES: &[(u8, Page)] = &[
    (0x00, |call| Some(Vpd::write(0x00, &supported_pages(call)))),
    (0x80, |call| {
        Some(Vpd::write(0x80, call.unit.identity().serial().as_bytes()))
    }),
    (0x83, |call| {
        Some(Vpd::write(0x83, &written(&device_identification(call))))
    }),
    // Software interface identification is empty: there is no interface with an identifier assigned by the
    // IEEE.
    (0x84, |_| Some(Vpd::write(0x84, &[]))),
    (0x86, |call| Some(extended_inquiry(call).write().to_vec())),
    (0x87, |_| {
        Some(Vpd::write(0x87, &ONE_SET_OF_MODE_PAGES.write()))
    }),
    (0x88, |call| Some(Vpd::write(0x88, &scsi_ports(call)))),
    (0x8f, |_| Some(copy::limits().write_page())),
    (0xb0, |call| Some(block_limits(call).write().to_vec())),
    (0xb1, |call| {
        Some(block_characteristics(call).write().to_vec())
    }),
    (0xb2, |call| Some(provisioning(call).write().to_vec())),
    (CACHE_GENERATION, |call| {
        Some(cache_generation(call)?.write())
    }),
];

/// The first vendor-specific page code.
const CACHE_GENERATION: u8 = 0xc0;

fn supported_pages(call: &Call<'_>) -> Vec<u8> {
    let is_there = |code: &u8| *code != CACHE_GENERATION || cache_generation(call).is_some();
    PAGES
        .iter()
        .map(|(code, _)| *code)
        .filter(is_there)
        .collect()
}

/// Extended INQUIRY data (SPC-4 7.8.7). Only the SIMPLE task attribute is advertised: a target that
/// advertises ORDERED must keep the order.
fn extended_inquiry(call: &Call<'_>) -> ExtendedInquiry {
    ExtendedInquiry {
        simpsup: true,
        v_sup: call.view.volatile_cache,
        ..Default::default()
    }
}

/// One set of mode pages for all nexuses (SPC-4 7.8.10).
const ONE_SET_OF_MODE_PAGES: Policy = Policy {
    page: 0x3f,
    subpage: 0xff,
    several_units: false,
    policy: 0,
};

/// Linerate's own VPD page. Its content changes if unflushed writes may have been lost since an initiator
/// last read it, in this server or in an earlier one.
fn cache_generation(call: &Call<'_>) -> Option<CacheGeneration> {
    call.unit
        .volume()
        .cache_generation()
        .filter(|_| call.view.volatile_cache)
        .map(CacheGeneration)
}

fn written(designators: &[Designator]) -> Vec<u8> {
    designators.iter().flat_map(Designator::write).collect()
}

/// Device identification (SPC-4 7.8.6). The names of the logical unit come first, so that an initiator with a
/// short allocation length receives them: they are the same on every path.
fn device_identification(call: &Call<'_>) -> Vec<Designator> {
    let of_unit = |name| Designator {
        association: Association::LogicalUnit,
        protocol: None,
        name,
    };
    let mut designators: Vec<Designator> = call.unit.identity().names().map(of_unit).into();
    let port = &call.nexus.session.ports.service;
    let of_port = |name| Designator {
        association: Association::TargetPort,
        protocol: ISCSI,
        name,
    };
    let target = Name::ScsiName(port.name.clone());
    designators.extend([
        of_port(Name::RelativeTargetPort(port.relative_port)),
        of_port(Name::TargetPortGroup(TARGET_PORT_GROUP_ID)),
        of_port(Name::iscsi_target_port(&port.name, port.group)),
        Designator {
            association: Association::Target,
            protocol: ISCSI,
            name: target,
        },
    ]);
    designators
}

/// SCSI ports (SPC-4 7.8.14): the ports of the caller's own target through which the logical unit is in use.
/// The ports of other targets are not listed, because another target is another SCSI device.
fn scsi_ports(call: &Call<'_>) -> Vec<u8> {
    let target = &call.nexus.session.ports.service.name;
    let mut ports: Vec<TargetPort> = call.unit.look(|state| {
        let all = state.nexuses.iter().map(|nexus| &nexus.name.service);
        all.filter(|port| port.name == *target).cloned().collect()
    });
    ports.sort_unstable_by_key(|port| port.relative_port);
    ports.dedup_by_key(|port| port.relative_port);
    ports.truncate(PORTS_MAX);
    let port = |port: &TargetPort| {
        let name = Name::iscsi_target_port(&port.name, port.group);
        let name = Designator {
            association: Association::TargetPort,
            protocol: ISCSI,
            name,
        };
        Port {
            relative: port.relative_port,
            initiator: None,
            designators: vec![name],
        }
        .write()
    };
    ports.iter().flat_map(port).collect()
}

/// Block limits (SBC-4 6.6.4).
fn block_limits(call: &Call<'_>) -> BlockLimits {
    let geometry = call.geometry();
    let transfer_blocks = read_write::transfer_blocks_max(geometry) as u32;
    let optimal = call.unit.device().profile().optimal_transfer;
    let optimal = optimal.and_then(|optimal| {
        let granularity = u16::try_from(optimal.granularity.0).ok()?;
        let length = u32::try_from(optimal.length.0)
            .ok()
            .filter(|length| *length <= transfer_blocks);
        Some((granularity, length.unwrap_or(0)))
    });
    // OPTIMAL TRANSFER LENGTH is 0 if all lengths are equally good: Linux before 6.9 treats it as the maximum
    // request size.
    let (optimal_granularity, optimal_transfer) =
        optimal.unwrap_or((1 << geometry.physical_exponent.min(15), 0));
    let limits = BlockLimits {
        wsnz: read_write::refuses_zero_blocks(call),
        compare_and_write_blocks: read_write::COMPARE_AND_WRITE_BLOCKS_MAX,
        optimal_granularity,
        transfer_blocks,
        optimal_transfer,
        write_same_blocks: read_write::WRITE_SAME_BLOCKS_MAX,
        // ATOMIC ALIGNMENT and GRANULARITY are 0: any value is allowed. There are no atomic boundaries.
        atomic_blocks: read_write::atomic_blocks_max(geometry) as u32,
        ..BlockLimits::default()
    };
    if !call.unit.thin() {
        return limits;
    }
    let granularity = call.unit.device().profile().granularity.0.max(1);
    BlockLimits {
        unmap_blocks: read_write::UNMAP_BLOCKS_MAX,
        unmap_descriptors: read_write::UNMAP_DESCRIPTORS_MAX,
        unmap_granularity_blocks: u32::try_from(granularity).unwrap_or(u32::MAX),
        ugavalid: true,
        ..limits
    }
}

/// Block device characteristics (SBC-4 6.6.2).
fn block_characteristics(call: &Call<'_>) -> BlockDeviceCharacteristics {
    let traits = call.unit.traits();
    BlockDeviceCharacteristics {
        medium_rotation_rate: u16::from(call.unit.device().profile().solid_state),
        // The value is 01b for each supported kind of SANITIZE, after which reads succeed, and otherwise 00b.
        wabereq: u8::from(traits.thin),
        wacereq: u8::from(traits.volatile),
        ..Default::default()
    }
}

/// Logical block provisioning (SBC-4 6.6.7).
fn provisioning(call: &Call<'_>) -> Provisioning {
    if !call.unit.thin() {
        return Provisioning::default();
    }
    Provisioning {
        threshold_exponent: threshold_exponent(call.geometry()),
        by_unmap: true,
        by_write_same_16: true,
        by_write_same_10: true,
        lbprz: 1,
        provisioning_type: 2, // thin
        ..Default::default()
    }
}

/// THRESHOLD EXPONENT: the Logical Block Provisioning log page counts threshold sets of 2^exponent blocks
/// each. A set is 1 MiB. No volume has 2^32 sets, so the counts fit in 32 bits.
fn threshold_exponent(geometry: Geometry) -> u8 {
    THRESHOLD_SET_BYTES.ilog2() as u8 - geometry.block_size.shift() as u8
}

/// The size of a threshold set, which is larger than any block.
pub(crate) const THRESHOLD_SET_BYTES: u64 = 1 << 20;

/// The only target port group.
pub(crate) const TARGET_PORT_GROUP_ID: u16 = 1;

/// Maximum number of ports in the page, which keeps it far below 64 KiB.
const PORTS_MAX: usize = 128;
/// PROTOCOL IDENTIFIER (SPC-4 7.6.1) of names that belong to the target.
const ISCSI: Option<u8> = Some(5);
