//! INQUIRY (SPC-4 6.6): the standard data. The VPD pages are in `vpd`.

use scsi::{Condition, Inquiry};

use super::{Call, vpd};
use crate::cdb::Cdb;
use crate::failure::Failure;
use crate::identity::Identity;
use crate::plan::Plan;

pub(crate) fn plan(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let page = call.cdb.byte(2);
    let data = match (call.cdb.bit(1, 0), page) {
        (true, page) => vpd::page(call, page).ok_or(Condition::invalid_field(2))?,
        (false, 0) => standard(DIRECT_ACCESS, call.unit.options().removable, call.unit.identity()),
        // PAGE CODE must be zero without EVPD.
        (false, _) => return Err(Condition::invalid_field(2).into()),
    };
    call.parameter_data(data, u32::from(call.cdb.u16(3)))
}

/// INQUIRY where there is no block device: `device` is the first byte. There are no VPD pages.
pub(crate) fn without_device(cdb: Cdb<'_>, device: u8) -> Result<Vec<u8>, Condition> {
    if cdb.bit(1, 0) {
        return Err(Condition::invalid_bit(1, 0));
    }
    if cdb.byte(2) != 0 {
        return Err(Condition::invalid_field(2));
    }
    Ok(standard(device, false, &Identity::new([0; 16])))
}

/// `device` is PERIPHERAL QUALIFIER and DEVICE TYPE.
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
        // SAM-5, iSCSI, SPC-4 and SBC-3, each without a version claimed.
        standards: vec![0x00a0, 0x0960, 0x0460, 0x04c0],
    }
    .write()
}

/// PERIPHERAL QUALIFIER 000b, device type 00h: a direct access block device is here.
const DIRECT_ACCESS: u8 = 0x00;
