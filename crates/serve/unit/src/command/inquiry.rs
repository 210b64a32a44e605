//! INQUIRY (SPC-4 6.6): the standard data. The VPD pages are next door.

use scsi::Condition;

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

fn standard(device: u8, removable: bool, identity: &Identity) -> Vec<u8> {
    let mut data = vec![0; STANDARD_BYTES];
    data[0] = device;
    data[1] = if removable { RMB } else { 0 };
    data[2] = SPC_4;
    data[3] = HISUP | RESPONSE_DATA_FORMAT;
    data[4] = (STANDARD_BYTES - 5) as u8;
    if device == DIRECT_ACCESS {
        data[5] = TPGS_IMPLICIT | THIRD_PARTY_COPY;
        data[6] = MULTIP;
    }
    data[7] = CMDQUE;
    data[8..16].copy_from_slice(&identity.vendor);
    data[16..32].copy_from_slice(&identity.product);
    data[32..36].copy_from_slice(&identity.revision);
    for (place, version) in data[58..74].chunks_exact_mut(2).zip(VERSION_DESCRIPTORS) {
        place.copy_from_slice(&version.to_be_bytes());
    }
    data
}

const STANDARD_BYTES: usize = 96;
/// PERIPHERAL QUALIFIER 000b, device type 00h: a direct access block device is here.
const DIRECT_ACCESS: u8 = 0x00;
const RMB: u8 = 0x80;
/// VERSION: conforms to SPC-4.
const SPC_4: u8 = 0x06;
/// LUNs are built as SAM-5 4.7 says.
const HISUP: u8 = 0x10;
const RESPONSE_DATA_FORMAT: u8 = 0x02;
/// Asymmetric access is reported (REPORT TARGET PORT GROUPS) but cannot be set.
const TPGS_IMPLICIT: u8 = 0x10;
/// 3PC: EXTENDED COPY is there.
const THIRD_PARTY_COPY: u8 = 0x08;
/// Several target ports may lead here.
const MULTIP: u8 = 0x10;
/// Commands queue.
const CMDQUE: u8 = 0x02;
/// SAM-5, iSCSI, SPC-4 and SBC-3, each without a version claimed.
const VERSION_DESCRIPTORS: [u16; 4] = [0x00a0, 0x0960, 0x0460, 0x04c0];
