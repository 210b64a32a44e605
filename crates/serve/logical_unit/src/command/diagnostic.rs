//! SEND DIAGNOSTIC and RECEIVE DIAGNOSTIC RESULTS (SPC-4 6.42, 6.28): self-tests in the foreground, and the
//! list of diagnostic pages, of which there is no other.
//!
//! A self-test reads from the device. Those in the background and the extended ones are refused: their
//! results are told by a log page, and their length by a mode page, that are not there.

use block::Extent;
use scsi::{Condition, SenseKey, asc};

use super::Call;
use crate::failure::Failure;
use crate::plan::{Outcome, Plan};
use crate::unit::DeviceAccess;

/// SEND DIAGNOSTIC.
pub(crate) fn plan_send(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let (code, length) = (call.cdb.byte(1) >> 5, call.cdb.u16(3));
    let test = match (call.cdb.bit(1, SELFTEST), code) {
        (true, 0) | (false, FOREGROUND_SHORT) => true,
        (false, 0) => false,
        _ => return Err(Condition::invalid_bit(1, 7).into()),
    };
    match (test, usize::from(length)) {
        (true, 0) => plan_self_test(call),
        (false, 0) => call.good(),
        (false, PAGE_HEADER_BYTES) => call.receive(PAGE_HEADER_BYTES as u32, 0, |_, list| async move {
            // The only page that can be sent is the one that asks for the list of pages.
            let page = list.get(..PAGE_HEADER_BYTES).ok_or(Condition::parameter_list_length())?;
            match page.iter().position(|&byte| byte != 0) {
                Some(at) => Err(Condition::invalid_parameter(at as u16).into()),
                None => Ok(Outcome::default()),
            }
        }),
        _ => Err(Condition::invalid_field(3).into()),
    }
}

fn plan_self_test(call: &Call<'_>) -> Result<Plan, Failure> {
    call.unit.look(|state| state.ready())?;
    let block = Extent::new(0, 1);
    call.run(call.unit.piece_memory_bytes(block), |access| async move {
        for lba in samples(access.device().geometry().blocks.0) {
            if !can_be_read(&access, Extent::new(lba, 1)).await {
                return Err(Condition::new(SenseKey::HardwareError, asc::FAILED_SELF_TEST).into());
            }
        }
        Ok(Outcome::default())
    })
}

async fn can_be_read(access: &DeviceAccess, extent: Extent) -> bool {
    let _shared = access.locks().share(extent).await;
    access.fetch(extent).await.is_ok()
}

/// Blocks from the first to the last, evenly spread.
fn samples(blocks: u64) -> impl Iterator<Item = u64> {
    let last = blocks.saturating_sub(1);
    let count = SAMPLES.min(blocks);
    (0..count).map(move |sample| {
        let share = u128::from(last) * u128::from(sample) / u128::from((count - 1).max(1));
        share as u64 // no more than `last`
    })
}

/// RECEIVE DIAGNOSTIC RESULTS. Without PCV it is about what was sent last, and that can have been this page
/// only.
pub(crate) fn plan_receive(call: &mut Call<'_>) -> Result<Plan, Failure> {
    if call.cdb.bit(1, PCV) && call.cdb.byte(2) != SUPPORTED_PAGES {
        return Err(Condition::invalid_field(2).into());
    }
    call.parameter_data(vec![SUPPORTED_PAGES, 0, 0, 1, SUPPORTED_PAGES], u32::from(call.cdb.u16(3)))
}

const SELFTEST: u8 = 2;
const PCV: u8 = 0;
/// SELF-TEST CODE.
const FOREGROUND_SHORT: u8 = 0b101;
const SUPPORTED_PAGES: u8 = 0x00;
const PAGE_HEADER_BYTES: usize = 4;
/// Few enough for a spinning disk to be done within a second.
const SAMPLES: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_from_the_first_block_to_the_last() {
        assert_eq!(samples(0).count(), 0);
        assert_eq!(samples(1).collect::<Vec<_>>(), [0]);
        assert_eq!(samples(3).collect::<Vec<_>>(), [0, 1, 2]);
        let many: Vec<_> = samples(u64::MAX).collect();
        assert_eq!((many[0], many[31], many.len()), (0, u64::MAX - 1, 32));
    }
}
