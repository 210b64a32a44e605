//! SEND DIAGNOSTIC and RECEIVE DIAGNOSTIC RESULTS (SPC-4 6.42, 6.28): foreground self-tests, and the list of
//! diagnostic pages, which is the only such page. LOG SENSE (SPC-4 6.7, 7.3; SBC-3 6.4): counters of reads
//! and writes, the space of thin volumes, and a temperature that is marked invalid, since there is no sensor.
//!
//! A self-test reads from the device. Background and extended self-tests are rejected: they would need a log
//! page for their results and a mode page for their duration, which are not supported.
//!
//! All log parameters are lists, so PAGE CONTROL can only select their current values. Nothing can be saved
//! or selected.

use block::{Extent, Space};
use scsi::{Condition, SenseKey, asc};

use super::inquiry::THRESHOLD_SET_BYTES;
use crate::access::DeviceAccess;
use crate::command::call::Call;
use crate::failure::Failure;
use crate::nexus::Traffic;
use crate::plan::{DataIn, Outcome, Plan};

/// Plans SEND DIAGNOSTIC.
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
        (false, PAGE_HEADER_BYTES) => {
            call.receive(PAGE_HEADER_BYTES as u32, 0, |_, list| async move {
                // The only supported page to send is the request for the list of pages.
                let page = list
                    .get(..PAGE_HEADER_BYTES)
                    .ok_or(Condition::parameter_list_length())?;
                match page.iter().position(|&byte| byte != 0) {
                    Some(at) => Err(Condition::invalid_parameter(at as u16).into()),
                    None => Ok(Outcome::default()),
                }
            })
        }
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

/// Returns the blocks that a self-test reads, distributed evenly from the first to the last.
fn samples(blocks: u64) -> impl Iterator<Item = u64> {
    let last = blocks.saturating_sub(1);
    let count = SAMPLES.min(blocks);
    (0..count).map(move |sample| {
        let share = u128::from(last) * u128::from(sample) / u128::from((count - 1).max(1));
        share as u64 // at most `last`
    })
}

/// Plans RECEIVE DIAGNOSTIC RESULTS. Without PCV, the command returns the page that the last SEND DIAGNOSTIC
/// requested, which can only be the list of pages.
pub(crate) fn plan_receive(call: &mut Call<'_>) -> Result<Plan, Failure> {
    if call.cdb.bit(1, PCV) && call.cdb.byte(2) != SUPPORTED_DIAGNOSTIC_PAGES {
        return Err(Condition::invalid_field(2).into());
    }
    call.parameter_data(
        vec![
            SUPPORTED_DIAGNOSTIC_PAGES,
            0,
            0,
            1,
            SUPPORTED_DIAGNOSTIC_PAGES,
        ],
        u32::from(call.cdb.u16(3)),
    )
}

const SELFTEST: u8 = 2;
const PCV: u8 = 0;
/// SELF-TEST CODE.
const FOREGROUND_SHORT: u8 = 0b101;
const SUPPORTED_DIAGNOSTIC_PAGES: u8 = 0x00;
const PAGE_HEADER_BYTES: usize = 4;
/// Number of blocks that a self-test reads: few enough for a spinning disk to read within a second.
const SAMPLES: u64 = 32;

pub(crate) fn plan_log_sense(call: &mut Call<'_>) -> Result<Plan, Failure> {
    // PPC is obsolete. SP is rejected, because no parameters can be saved.
    if let Some(bit) = (0..2).find(|&bit| call.cdb.bit(1, bit)) {
        return Err(Condition::invalid_bit(1, bit).into());
    }
    let (code, subpage, pointer) = (call.cdb.byte(2) & 0x3f, call.cdb.byte(3), call.cdb.u16(5));
    let body = match (code, subpage) {
        (SUPPORTED_PAGES, 0 | ALL_SUBPAGES) if pointer != 0 => {
            return Err(Condition::invalid_field(5).into());
        }
        (SUPPORTED_PAGES, 0) => pages(call).collect(),
        (SUPPORTED_PAGES, ALL_SUBPAGES) => [SUPPORTED_PAGES, 0, SUPPORTED_PAGES, ALL_SUBPAGES]
            .into_iter()
            .chain(pages(call).skip(1).flat_map(|page| [page, 0]))
            .collect(),
        (PROVISIONING, 0) if call.unit.thin() => return plan_provisioning(call, pointer),
        (CACHE, 0) => from(pointer, cache(call.unit.traffic()))?,
        (TEMPERATURE, 0) => from(pointer, temperature())?,
        (STATISTICS, 0) => from(pointer, statistics(call.unit.traffic()))?,
        (SUPPORTED_PAGES | PROVISIONING | TEMPERATURE | STATISTICS | CACHE, 1..) => {
            return Err(Condition::invalid_field(3).into());
        }
        _ => return Err(Condition::invalid_bit(2, 5).into()),
    };
    call.parameter_data(page(code, subpage, &body), u32::from(call.cdb.u16(7)))
}

fn page(code: u8, subpage: u8, body: &[u8]) -> Vec<u8> {
    let subpage_format = if subpage == 0 { 0 } else { SPF };
    [
        &[subpage_format | code, subpage],
        &(body.len() as u16).to_be_bytes()[..],
        body,
    ]
    .concat()
}

/// Returns the supported pages, without their subpages.
fn pages(call: &Call<'_>) -> impl Iterator<Item = u8> + use<> {
    let is_thin = call.unit.thin();
    PAGES
        .into_iter()
        .filter(move |page| *page != PROVISIONING || is_thin)
}

/// Logical block provisioning (SBC-3 6.4.4): the device's report of its space, in threshold sets of LBAs.
fn plan_provisioning(call: &Call<'_>, pointer: u16) -> Result<Plan, Failure> {
    call.command.returns_data()?;
    let allocation_length = usize::from(call.cdb.u16(7));
    call.run(0, move |access| async move {
        // A device that does not report its space does not have the page.
        let Some(space) = access.space().await? else {
            return Err(Condition::invalid_bit(2, 5).into());
        };
        let mut data = page(PROVISIONING, 0, &from(pointer, provisioning(space))?);
        data.truncate(allocation_length);
        Ok(DataIn::Bytes(data).into())
    })
}

/// Available and used LBA mapping resource counts. The available space may be shared with other users.
fn provisioning(space: Space) -> Vec<(u16, Vec<u8>)> {
    let parameter = |code, sets: u64, scope| {
        let count = u32::try_from(sets).unwrap_or(u32::MAX);
        (code, [&count.to_be_bytes()[..], &[scope, 0, 0, 0]].concat())
    };
    let available = space
        .available_bytes
        .map(|bytes| parameter(1, bytes / THRESHOLD_SET_BYTES, SHARED));
    let used = parameter(2, space.used_bytes.div_ceil(THRESHOLD_SET_BYTES), DEDICATED);
    available.into_iter().chain([used]).collect()
}

/// Returns the first parameters of page 37h, a vendor-specific page of disks: blocks sent to initiators, and
/// blocks received from them.
fn cache(traffic: Traffic) -> Vec<(u16, Vec<u8>)> {
    let counters = [traffic.blocks_sent, traffic.blocks_received];
    (0..)
        .zip(counters.map(|counter| counter.to_be_bytes().to_vec()))
        .collect()
}

/// Returns the parameters whose codes are not below PARAMETER POINTER. A pointer above the last code is an
/// error (SPC-4 6.7).
fn from(pointer: u16, parameters: Vec<(u16, Vec<u8>)>) -> Result<Vec<u8>, Condition> {
    if parameters.last().is_none_or(|(last, _)| pointer > *last) {
        return Err(Condition::invalid_field(5));
    }
    let wanted = parameters.into_iter().filter(|(code, _)| *code >= pointer);
    Ok(wanted
        .flat_map(|(code, value)| {
            let [high, low] = code.to_be_bytes();
            [vec![high, low, BINARY_LIST, value.len() as u8], value].concat()
        })
        .collect())
}

/// Temperature and reference temperature (SPC-4 7.3.21): there is no sensor and no temperature limit.
fn temperature() -> Vec<(u16, Vec<u8>)> {
    vec![(0, vec![0, UNAVAILABLE]), (1, vec![0, UNAVAILABLE])]
}

/// General statistics and performance (SPC-4 7.3.9): counters, idle time, and the time interval. Times are
/// not measured, so they are zero; sg_logs shows a page only if all three parameters are present.
fn statistics(traffic: Traffic) -> Vec<(u16, Vec<u8>)> {
    let counters = [
        traffic.reads,
        traffic.writes,
        traffic.blocks_received,
        traffic.blocks_sent,
        0,
        0,
        0,
        0,
    ];
    let counters = counters
        .iter()
        .flat_map(|counter| counter.to_be_bytes())
        .collect();
    vec![(1, counters), (2, vec![0; 8]), (3, vec![0; 8])]
}

const SUPPORTED_PAGES: u8 = 0x00;
const PROVISIONING: u8 = 0x0c;
const TEMPERATURE: u8 = 0x0d;
const STATISTICS: u8 = 0x19;
const CACHE: u8 = 0x37;
const PAGES: [u8; 5] = [
    SUPPORTED_PAGES,
    PROVISIONING,
    TEMPERATURE,
    STATISTICS,
    CACHE,
];
const ALL_SUBPAGES: u8 = 0xff;
const SPF: u8 = 0x40;
/// FORMAT AND LINKING: a binary list.
const BINARY_LIST: u8 = 0x03;
const UNAVAILABLE: u8 = 0xff;
/// SCOPE: only for this logical unit, or shared with others.
const DEDICATED: u8 = 1;
const SHARED: u8 = 2;

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
