//! Random requests of 512-byte blocks.

use proptest::prelude::*;

use super::{Task, end, run, with_poll_limit};
use crate::{BlockDevice, Buffer, Durability, Extent, Slice};

#[derive(Clone, Debug)]
pub(crate) enum TestRequest {
    Read,
    Write(u8),
    WriteStable(u8),
    Flush,
    Unmap,
    Zero,
    Allocation,
}

pub(crate) fn requests() -> impl Strategy<Value = (TestRequest, u64, u64)> {
    let request = prop_oneof![
        4 => Just(TestRequest::Read),
        5 => any::<u8>().prop_map(TestRequest::Write),
        1 => any::<u8>().prop_map(TestRequest::WriteStable),
        1 => Just(TestRequest::Flush),
        1 => Just(TestRequest::Unmap),
        1 => Just(TestRequest::Zero),
        1 => Just(TestRequest::Allocation),
    ];
    (request, 0u64..60, 0u64..14)
}

async fn carry_out(device: &impl BlockDevice, (request, lba, blocks): (TestRequest, u64, u64)) {
    // A few of them exceed the end of the device, and fail.
    let extent = Extent::new(lba, blocks);
    let _ = match request {
        TestRequest::Read => device.read(extent, Buffer::zeroed(blocks as usize * 512)).await.map(drop),
        TestRequest::Write(byte) => device.write(extent, filled(byte, blocks), Durability::Cached).await,
        TestRequest::WriteStable(byte) => {
            device.write(extent, filled(byte, blocks), Durability::Stable).await
        }
        TestRequest::Flush => device.flush().await,
        TestRequest::Unmap => device.unmap(extent).await,
        TestRequest::Zero => device.write_zeroes(extent, false).await,
        TestRequest::Allocation => device.allocation(extent, 1).await.map(drop),
    };
}

/// Whether all requests of several concurrent users end; the last user drops its requests after `polls_max`
/// polls.
pub(crate) fn all_end(
    device: &impl BlockDevice,
    users: Vec<Vec<(TestRequest, u64, u64)>>,
    polls_max: Option<u64>,
) -> bool {
    let alone = |requests: Vec<(TestRequest, u64, u64)>| -> Task<'_> {
        Box::pin(async move {
            for request in requests {
                carry_out(device, request).await;
            }
        })
    };
    let mut tasks: Vec<Task<'_>> = users.into_iter().map(alone).collect();
    if let Some(polls) = polls_max {
        let last = tasks.pop().expect("at least one");
        tasks.push(Box::pin(with_poll_limit(polls, last)));
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
