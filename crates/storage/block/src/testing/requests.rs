//! Requests drawn by lot, of 512-byte blocks.

use proptest::prelude::*;

use super::{Task, at_most, end, run};
use crate::{BlockDevice, Buffer, Durability, Extent, Slice};

#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Read,
    Write(u8),
    WriteStable(u8),
    Flush,
    Unmap,
    Zero,
    Allocation,
}

pub(crate) fn asks() -> impl Strategy<Value = (Ask, u64, u64)> {
    let ask = prop_oneof![
        4 => Just(Ask::Read),
        5 => any::<u8>().prop_map(Ask::Write),
        1 => any::<u8>().prop_map(Ask::WriteStable),
        1 => Just(Ask::Flush),
        1 => Just(Ask::Unmap),
        1 => Just(Ask::Zero),
        1 => Just(Ask::Allocation),
    ];
    (ask, 0u64..60, 0u64..14)
}

async fn carry_out(device: &impl BlockDevice, (ask, lba, blocks): (Ask, u64, u64)) {
    // A few of them pass the end, and are refused.
    let extent = Extent::new(lba, blocks);
    let _ = match ask {
        Ask::Read => device.read(extent, Buffer::zeroed(blocks as usize * 512)).await.map(drop),
        Ask::Write(byte) => device.write(extent, filled(byte, blocks), Durability::Cached).await,
        Ask::WriteStable(byte) => device.write(extent, filled(byte, blocks), Durability::Stable).await,
        Ask::Flush => device.flush().await,
        Ask::Unmap => device.unmap(extent).await,
        Ask::Zero => device.write_zeroes(extent, false).await,
        Ask::Allocation => device.allocation(extent, 1).await.map(drop),
    };
}

/// Whether several users of a device all come to their ends, each asking one thing after the other at the same time as the
/// others; the last of them gives up what it asks after so many polls.
pub(crate) fn all_end(
    device: &impl BlockDevice,
    users: Vec<Vec<(Ask, u64, u64)>>,
    patience: Option<u64>,
) -> bool {
    let alone = |asks: Vec<(Ask, u64, u64)>| -> Task<'_> {
        Box::pin(async move {
            for ask in asks {
                carry_out(device, ask).await;
            }
        })
    };
    let mut tasks: Vec<Task<'_>> = users.into_iter().map(alone).collect();
    if let Some(polls) = patience {
        let last = tasks.pop().expect("at least one");
        tasks.push(Box::pin(at_most(polls, last)));
    }
    run(tasks).is_empty()
}

pub(crate) fn filled(byte: u8, blocks: u64) -> Slice {
    Buffer::from(&vec![byte; blocks as usize * 512][..]).share()
}

pub(crate) fn read<D: BlockDevice>(device: &D, lba: u64, blocks: u64) -> Buffer {
    let buffer = Buffer::zeroed(blocks as usize * 512);
    end(device.read(Extent::new(lba, blocks), buffer)).expect("readable")
}
