//! Access to a server's volume with Linerate's initiator, for actions that no other program supports on its
//! command line.

use std::future::Future;

use block::Buffer;
use host::{Epoll, EpollOptions};
use iscsi_client::{CommandError, CommandResult, RemoteLun, Transfer, Url, cdb};

use crate::recorder;

/// SCSI status codes (SAM-5 table 45).
pub(crate) const GOOD: u8 = 0x00;
pub(crate) const RESERVATION_CONFLICT: u8 = 0x18;

/// Runs a future to completion in its own runtime environment. tshark must be able to decode the traffic of
/// its sessions.
pub(crate) fn in_a_world<T>(what: impl Future<Output = T>) -> T {
    let world = Epoll::shared(EpollOptions::default()).expect("an epoll instance");
    let outcome = reactor::block_on(world, what);
    recorder::look_at_all();
    outcome
}

/// Logs in.
pub(crate) async fn attached(url: &str) -> RemoteLun {
    let url = Url::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    recorder::keep(&url.settings);
    iscsi_client::open(&url, random)
        .await
        .unwrap_or_else(|error| panic!("login: {error}"))
}

pub(crate) fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system has random numbers once it has started");
}

/// Writes blocks of 512 bytes, optionally to stable storage before the acknowledgement.
pub(crate) async fn write(
    lun: &RemoteLun,
    lba: u64,
    data: &[u8],
    fua: bool,
) -> Result<CommandResult, CommandError> {
    let mut buffer = Buffer::zeroed(data.len());
    buffer.copy_from_slice(data);
    let blocks = u32::try_from(data.len() / 512).expect("a short write");
    lun.command(
        cdb::write_16(lba, blocks, fua),
        Transfer::Out(buffer.share()),
    )
    .await
}

/// Reads blocks of 512 bytes.
pub(crate) async fn read(lun: &RemoteLun, lba: u64, bytes: usize) -> Buffer {
    let blocks = u32::try_from(bytes / 512).expect("a short read");
    let answer = lun
        .command(
            cdb::read_16(lba, blocks),
            Transfer::into_all_of(Buffer::zeroed(bytes)),
        )
        .await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, GOOD, "{:?}", answer.sense);
    answer.data
}

/// PERSISTENT RESERVE OUT (SPC-4 6.16) with the keys of its basic parameter list; APTPL is set.
pub(crate) async fn reserve_out(
    lun: &RemoteLun,
    action: u8,
    kind: u8,
    key: u64,
    new_key: u64,
) -> u8 {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5f, action, kind, 24);
    let mut list = Buffer::zeroed(24);
    list[..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&new_key.to_be_bytes());
    list[20] = 1; // APTPL
    lun.command(cdb, Transfer::Out(list.share()))
        .await
        .expect("an answer")
        .status
}

/// PERSISTENT RESERVE IN (SPC-4 6.15).
pub(crate) async fn reserve_in(lun: &RemoteLun, action: u8) -> Buffer {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[8]) = (0x5e, action, 64);
    let answer = lun
        .command(cdb, Transfer::into_all_of(Buffer::zeroed(64)))
        .await
        .expect("an answer");
    assert_eq!(answer.status, GOOD, "{:?}", answer.sense);
    answer.data
}
