//! READ CAPACITY(10) and (16) (SBC-3 5.15 and 5.16).

use super::Call;
use crate::failure::Failure;
use crate::plan::Plan;

/// LBAs of 32 bits: FFFFFFFFh sends the initiator to READ CAPACITY(16).
pub(crate) fn plan_10(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let geometry = call.geometry();
    let last = u32::try_from(geometry.blocks.0.saturating_sub(1)).unwrap_or(u32::MAX);
    let data = [last.to_be_bytes(), geometry.block_size.bytes().to_be_bytes()].concat();
    call.parameter_data(data, 8)
}

pub(crate) fn plan_16(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let geometry = call.geometry();
    let mut data = vec![0; 32];
    data[..8].copy_from_slice(&geometry.blocks.0.saturating_sub(1).to_be_bytes());
    data[8..12].copy_from_slice(&geometry.block_size.bytes().to_be_bytes());
    data[13] = geometry.physical_exponent & 0x0f;
    if call.unit.thin() {
        data[14] = LBPME | LBPRZ;
    }
    call.parameter_data(data, call.cdb.u32(10))
}

/// Logical block provisioning management enabled.
const LBPME: u8 = 0x80;
/// Unmapped blocks read as zeros.
const LBPRZ: u8 = 0x40;
