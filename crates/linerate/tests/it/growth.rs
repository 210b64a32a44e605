//! Tests of a file that grows while a server serves it.

use std::path::Path;
use std::time::Duration;

use block::{BlockDevice, Blocks, Buffer, Durability, Extent};
use iscsi_client::{RemoteLun, Transfer, cdb};

use crate::program::PATIENCE;
use crate::remote::{attached, in_a_world};
use crate::server::Server;

const MIB: u64 = 1 << 20;

fn set_length(path: &Path, bytes: u64) {
    let file = std::fs::File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path);
    file.and_then(|file| file.set_len(bytes))
        .expect("a temporary file");
}

/// Waits for a condition that another process causes.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = reactor::now();
    while !is_so().await {
        assert!(reactor::now() - begun < PATIENCE, "never: {what}");
        reactor::sleep(Duration::from_millis(50)).await;
    }
}

/// The sense key and code with which TEST UNIT READY is rejected, if it is.
async fn attention(lun: &RemoteLun) -> Option<(u8, u8, u8)> {
    let answer = lun
        .command(cdb::test_unit_ready(), Transfer::None)
        .await
        .expect("an answer");
    answer
        .sense
        .map(|sense| (sense.key, sense.code, sense.qualifier))
}

#[test]
fn a_file_that_grows_is_a_larger_disk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("disk");
    set_length(&path, 8 * MIB);
    let mut server = Server::serving(&[&format!("disk=file:{}", path.display())]);
    needs!(server.is_ours());
    in_a_world(async {
        let (lun, asking) = (
            attached(&server.url("disk")).await,
            attached(&server.url("disk")).await,
        );
        assert_eq!(lun.geometry().blocks, Blocks(8 * MIB / 512));
        set_length(&path, 12 * MIB);
        until("CAPACITY DATA HAS CHANGED", async || {
            attention(&asking).await == Some((6, 0x2a, 9))
        })
        .await;
        assert_eq!(attention(&asking).await, None, "it is reported once");
        lun.refresh().await.expect("the LUN answers");
        assert_eq!(lun.geometry().blocks, Blocks(12 * MIB / 512));
        let last = Extent::new(12 * MIB / 512 - 8, 8);
        let data = Buffer::zeroed(4096).share();
        lun.write(last, data, Durability::Stable)
            .await
            .expect("the new blocks are there");
        for lun in [lun, asking] {
            lun.close().await;
        }
    });
    server.stop();
}

#[test]
fn a_volume_with_a_size_of_its_own_stays_as_large_as_that() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [grows, stays] = ["grows", "stays"].map(|name| folder.path().join(name));
    set_length(&grows, 8 * MIB);
    let volumes = [
        format!("grows=file:{}", grows.display()),
        format!("stays=file:{}?size=8MiB", stays.display()),
    ];
    let server = Server::serving(&[&volumes[0], &volumes[1]]);
    needs!(server.is_ours());
    in_a_world(async {
        let [grown, same] = [
            attached(&server.url("grows")).await,
            attached(&server.url("stays")).await,
        ];
        set_length(&stays, 12 * MIB);
        set_length(&grows, 12 * MIB);
        until("the other one is larger", async || {
            grown.refresh().await.expect("the LUN answers");
            grown.geometry().blocks == Blocks(12 * MIB / 512)
        })
        .await;
        assert_eq!(attention(&same).await, None);
        same.refresh().await.expect("the LUN answers");
        assert_eq!(same.geometry().blocks, Blocks(8 * MIB / 512));
    });
}
