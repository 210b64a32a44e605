//! GET LBA STATUS (SBC-3 5.4): which blocks are allocated.

use block::{Allocation, Extent, Run};
use scsi::{LbaStatus, LbaStatusDescriptor};

use super::{Call, transfer};
use crate::failure::Failure;
use crate::plan::{DataIn, Plan};
use crate::unit::DeviceAccess;

pub(crate) fn plan(call: &mut Call<'_>) -> Result<Plan, Failure> {
    call.command.returns_data()?;
    let geometry = call.geometry();
    let from = call.cdb.u64(2);
    transfer::within(Extent::new(from, 0), geometry)?;
    let rest = Extent::new(from, geometry.blocks.0 - from);
    let allocation_length = call.cdb.u32(10) as usize;
    // At least one, if only to be cut off: the length field tells of it.
    let room = allocation_length.saturating_sub(HEADER_BYTES) / DESCRIPTOR_BYTES;
    let room = room.clamp(1, DESCRIPTORS_MAX);
    // The runs of one question and those of the answer; descriptors, and the answer made of them.
    let working_bytes = (RUNS_MAX + room) * size_of::<Run>() + 2 * room * DESCRIPTOR_BYTES;
    call.run(working_bytes, move |access| async move {
        let runs = if access.thin() { runs(&access, rest, room).await? } else { vec![mapped(rest)] };
        let mut data = parameter_data(&runs, room);
        data.truncate(allocation_length);
        Ok(DataIn::Bytes(data).into())
    })
}

/// The runs from the start of `rest` on, neighbours of one kind made one.
async fn runs(access: &DeviceAccess, rest: Extent, room: usize) -> Result<Vec<Run>, Failure> {
    let mut runs: Vec<Run> = Vec::new();
    let mut rest = rest;
    for _ in 0..QUESTIONS_MAX {
        // One run more than there is room for shows that the last is complete.
        if rest.is_empty() || runs.len() > room {
            break;
        }
        for run in access.allocation(rest, RUNS_MAX).await? {
            let blocks = run.extent.blocks.0.min(rest.blocks.0);
            let run = Run { extent: Extent::new(rest.lba.0, blocks), ..run };
            rest = Extent::new(rest.lba.0 + blocks, rest.blocks.0 - blocks);
            append(&mut runs, run);
        }
    }
    Ok(runs)
}

fn append(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.allocation == run.allocation => last.extent.blocks.0 += run.extent.blocks.0,
        _ => runs.push(run),
    }
}

fn mapped(extent: Extent) -> Run {
    Run { extent, allocation: Allocation::Mapped }
}

/// A descriptor counts blocks in 32 bits: longer runs take several.
fn parameter_data(runs: &[Run], room: usize) -> Vec<u8> {
    LbaStatusDescriptor::write_list(runs.iter().flat_map(descriptors).take(room))
}

fn descriptors(run: &Run) -> impl Iterator<Item = LbaStatusDescriptor> + use<> {
    let status = match run.allocation {
        Allocation::Mapped => LbaStatus::Mapped,
        Allocation::Deallocated => LbaStatus::Deallocated,
    };
    let chunks = run.extent.chunks(u64::from(u32::MAX));
    chunks.map(move |chunk| LbaStatusDescriptor { lba: chunk.lba.0, blocks: chunk.blocks.0 as u32, status })
}

const HEADER_BYTES: usize = LbaStatusDescriptor::HEADER_BYTES;
const DESCRIPTOR_BYTES: usize = LbaStatusDescriptor::BYTES;
/// 16 KiB of them; an initiator that wants more asks on from where these end.
const DESCRIPTORS_MAX: usize = 1024;
/// What the device is asked for at once; neighbours of one kind may make few of many.
const RUNS_MAX: usize = 1024;
/// How often the device is asked for one command. QEMU waits for the answer while it starts a guest.
const QUESTIONS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_kind_are_one_run() {
        let mut runs = vec![mapped(Extent::new(0, 8))];
        append(&mut runs, mapped(Extent::new(8, 8)));
        append(&mut runs, Run { extent: Extent::new(16, 8), allocation: Allocation::Deallocated });
        assert_eq!(runs.len(), 2);
        assert_eq!(runs[0].extent, Extent::new(0, 16));
    }

    #[test]
    fn a_run_longer_than_its_field_takes_two_descriptors() {
        let data = parameter_data(&[mapped(Extent::new(5, (1 << 32) + 1))], 8);
        assert_eq!(data[..4], 36u32.to_be_bytes());
        assert_eq!(data[16..20], u32::MAX.to_be_bytes());
        assert_eq!(data[24..32], (5 + u64::from(u32::MAX)).to_be_bytes());
        assert_eq!(data[32..36], 2u32.to_be_bytes());
    }
}
