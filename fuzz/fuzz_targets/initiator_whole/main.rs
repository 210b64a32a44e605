//! The complete initiator with a hostile target: URL, login, inspection of the LUN, reads, writes, verbs and logout, over streams
//! in memory and with a virtual clock.
//!
//! Whatever the target does, nothing panics, no more data is returned than requested, and everything
//! completes with bounded time and work. Memory is proportional to the session's size (checked by libFuzzer's
//! limit).
#![no_main]

mod target;
mod world;

use std::sync::Arc;

use block::{BlockDevice, Blocks, Buffer, Durability, Extent, Lba};
use iscsi_client::verbs::{LunSelection, ModeValues};
use iscsi_client::{Management, RemoteLun, Transfer, Unit, Url, cdb, open};
use libfuzzer_sys::fuzz_target;
use script::Script;

use crate::target::Target;
use crate::world::InMemory;

fuzz_target!(|bytes: &[u8]| {
    let (choices, bytes) = bytes.split_at(bytes.len().min(CHOICES));
    let mut choices = Script(choices);
    let url = Url::parse(&url(&mut choices)).expect("built from documented keys");
    let world = InMemory::shared(Target::new(bytes));
    reactor::block_on(world, async move {
        // A rejected login only has to complete in bounded time.
        let Ok(lun) = open(&url, random).await else {
            return;
        };
        use_lun(Arc::new(lun), choices.byte()).await;
    });
});

/// Number of bytes that control the initiator. The other bytes control the target.
const CHOICES: usize = 5;

/// Returns a URL with short timeouts, so that an unresponsive target costs few turns.
fn url(choices: &mut Script<'_>) -> String {
    let connections = 1 + choices.byte() % 4;
    let yes_no = ["yes", "no"];
    let (immediate, r2t) = (choices.pick(&yes_no), choices.pick(&yes_no));
    let reconnect = choices.pick(&["0", "30"]);
    format!(
        "iscsi://192.0.2.1/iqn.2026-11.org.example:disk/0?connections={connections}&immediate-data={immediate}\
         &initial-r2t={r2t}&reconnect-time={reconnect}&login-time=5&command-time=5&command-tries=2&abort-time=2\
         &reset-time=2&nop-interval=3600&first-burst=4096&max-burst=8192&max-segment=8192"
    )
}

async fn use_lun(lun: Arc<RemoteLun>, what: u8) {
    let tasks: Vec<_> = (0..8)
        .map(|number| reactor::spawn(requests(Arc::clone(&lun), number, what.rotate_left(number))))
        .collect();
    for task in tasks {
        task.await;
    }
    if what & 0x80 != 0 {
        let _ = lun
            .target()
            .manage(Management::LogicalUnitReset(iscsi_client::Lun(0)))
            .await;
    }
    // Ignore errors, which the target may cause.
    let _ = lun.refresh().await;
    if let Some(lun) = Arc::into_inner(lun) {
        lun.close().await;
    }
}

async fn requests(lun: Arc<RemoteLun>, number: u32, what: u8) {
    let extent = Extent {
        lba: Lba(u64::from(number) * 16),
        blocks: Blocks(16),
    };
    let bytes = lun.geometry().length(extent) as usize;
    if bytes > BYTES_MAX {
        return; // the target chooses the block size, but must not exhaust our memory
    }
    match what % 8 {
        0 | 1 => drop(lun.read(extent, Buffer::zeroed(bytes)).await),
        2 => drop(
            lun.write(extent, Buffer::zeroed(bytes).share(), Durability::Stable)
                .await,
        ),
        3 => drop(lun.unmap(extent).await),
        4 => drop(lun.allocation(extent, 4).await),
        5 => read_raw(&lun.unit(), bytes).await,
        6 => cut_short(&lun, extent, bytes).await,
        _ => verbs(&lun.unit()).await,
    }
}

const BYTES_MAX: usize = 1 << 20;

/// Sends a raw command, and checks that no more data is returned than requested.
async fn read_raw(unit: &Unit, bytes: usize) {
    let Some(cdb) = cdb::read_10(0, 16) else {
        return;
    };
    let Ok(answer) = unit
        .command(cdb, Transfer::into_all_of(Buffer::zeroed(bytes)))
        .await
    else {
        return;
    };
    assert!(answer.data.len() <= bytes);
}

/// Abandons a read while it is outstanding. Late data must be discarded.
async fn cut_short(lun: &RemoteLun, extent: Extent, bytes: usize) {
    let soon = std::time::Duration::from_micros(3);
    let _ = reactor::timeout(soon, lun.read(extent, Buffer::zeroed(bytes))).await;
    let _ = lun.quiesced().await;
}

/// Calls all verbs that decode a response.
async fn verbs(unit: &Unit) {
    let _ = unit.inquiry().await;
    let _ = unit.identity().await;
    let _ = unit.report_luns(LunSelection::All).await;
    let _ = unit.modes(ModeValues::Current).await;
    let _ = unit
        .lba_status(
            Extent {
                lba: Lba(0),
                blocks: Blocks(64),
            },
            8,
        )
        .await;
    let _ = unit.request_sense().await;
    let _ = unit.target_port_groups().await;
    let _ = unit.registered_keys().await;
    let _ = unit.registrations().await;
    let _ = unit.reservation().await;
    let _ = unit.reservation_capabilities().await;
    let _ = unit.supported_commands().await;
    for page in [0x80, 0x83, 0x85, 0x86, 0xb2] {
        let _ = unit.vpd(page).await;
    }
}

fn random(bytes: &mut [u8]) {
    bytes.fill(7);
}
