//! READ CAPACITY(10) and (16) (SBC-3 5.15 and 5.16).

use scsi::Capacity;

use super::Call;
use crate::failure::Failure;
use crate::plan::Plan;

pub(crate) fn plan_10(call: &mut Call<'_>) -> Result<Plan, Failure> {
    call.parameter_data(capacity(call).write_10().to_vec(), 8)
}

pub(crate) fn plan_16(call: &mut Call<'_>) -> Result<Plan, Failure> {
    call.parameter_data(capacity(call).write_16().to_vec(), call.cdb.u32(10))
}

fn capacity(call: &Call<'_>) -> Capacity {
    let (geometry, thin) = (call.geometry(), call.unit.thin());
    Capacity {
        blocks: geometry.blocks.0,
        block_bytes: geometry.block_size.bytes(),
        physical_exponent: geometry.physical_exponent,
        lowest_aligned: 0,
        protection_type: None,
        thin,
        read_zeros: thin,
        long_commands: true,
    }
}
