//! LOG SENSE (SPC-4 6.7, 7.3): counters of reads and writes, and a temperature that nobody measures.
//!
//! All parameters are lists, so PAGE CONTROL asks for nothing else than what they are now. Nothing can be saved or selected.

use super::Call;
use crate::failure::Failure;
use crate::nexus::Traffic;
use crate::plan::Plan;
use crate::sense::Condition;

pub(crate) fn plan(call: &mut Call<'_>) -> Result<Plan, Failure> {
    // PPC, which is obsolete, and SP: nothing is saved.
    if let Some(bit) = (0..2).find(|&bit| call.cdb.bit(1, bit)) {
        return Err(Condition::invalid_bit(1, bit).into());
    }
    let (code, subpage, pointer) = (call.cdb.byte(2) & 0x3f, call.cdb.byte(3), call.cdb.u16(5));
    let body = match (code, subpage) {
        (SUPPORTED_PAGES, 0 | ALL_SUBPAGES) if pointer != 0 => return Err(Condition::invalid_field(5).into()),
        (SUPPORTED_PAGES, 0) => PAGES.to_vec(),
        (SUPPORTED_PAGES, ALL_SUBPAGES) => PAGES_AND_SUBPAGES.concat(),
        (TEMPERATURE, 0) => from(pointer, temperature())?,
        (STATISTICS, 0) => from(pointer, statistics(call.unit.look(|state| state.traffic())))?,
        (SUPPORTED_PAGES | TEMPERATURE | STATISTICS, _) => return Err(Condition::invalid_field(3).into()),
        _ => return Err(Condition::invalid_bit(2, 5).into()),
    };
    let subpage_format = if subpage == 0 { 0 } else { SPF };
    let mut page = vec![subpage_format | code, subpage];
    page.extend((body.len() as u16).to_be_bytes());
    page.extend(body);
    call.parameter_data(page, u32::from(call.cdb.u16(7)))
}

/// The parameters whose codes are not below PARAMETER POINTER. It must not be above the last (SPC-4 6.7).
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

/// Temperature and reference temperature (SPC-4 7.3.21): there is no sensor, and no temperature to stay below.
fn temperature() -> Vec<(u16, Vec<u8>)> {
    vec![(0, vec![0, UNAVAILABLE]), (1, vec![0, UNAVAILABLE])]
}

/// General statistics and performance (SPC-4 7.3.9): counters, idle time, and the interval in which times are counted. No times
/// are taken, so those are zero; sg_logs shows a page only if all three parameters are there.
fn statistics(traffic: Traffic) -> Vec<(u16, Vec<u8>)> {
    let counters = [traffic.reads, traffic.writes, traffic.blocks_received, traffic.blocks_sent, 0, 0, 0, 0];
    let counters = counters.iter().flat_map(|counter| counter.to_be_bytes()).collect();
    vec![(1, counters), (2, vec![0; 8]), (3, vec![0; 8])]
}

const SUPPORTED_PAGES: u8 = 0x00;
const TEMPERATURE: u8 = 0x0d;
const STATISTICS: u8 = 0x19;
const PAGES: [u8; 3] = [SUPPORTED_PAGES, TEMPERATURE, STATISTICS];
const ALL_SUBPAGES: u8 = 0xff;
const PAGES_AND_SUBPAGES: [[u8; 2]; 4] =
    [[SUPPORTED_PAGES, 0], [SUPPORTED_PAGES, ALL_SUBPAGES], [TEMPERATURE, 0], [STATISTICS, 0]];
const SPF: u8 = 0x40;
/// FORMAT AND LINKING: a binary list.
const BINARY_LIST: u8 = 0x03;
const UNAVAILABLE: u8 = 0xff;
