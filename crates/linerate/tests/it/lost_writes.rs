//! Tests of acknowledged writes that a volume could not write to its device: the next flush of each initiator
//! must fail, once.

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent};

use crate::peer::{BLOCK, Moves, Peer};
use crate::remote::{attached, in_a_world};
use crate::server::Server;

const VOLUME: &str = r#"
reactors = 2
[volume.disk]
spec = "buffered:1MiB:[fault:[ram:16MiB]]"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
"#;

const SYNCHRONIZE_CACHE: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn fault(server: &Server, mode: &str) {
    server
        .ask(&["server", "fault", "disk", mode])
        .expect_success();
}

/// The sense key and additional sense code of a flush; `None` if it is GOOD.
fn flush(peer: &mut Peer) -> Option<(u8, u8, u8)> {
    let answer = peer.run(&SYNCHRONIZE_CACHE, Moves::Nothing);
    (!answer.is_good()).then(|| (answer.sense_key(), answer.sense[12], answer.sense[13]))
}

const MEDIUM_ERROR_WRITE_ERROR: Option<(u8, u8, u8)> = Some((3, 0x0c, 0));

#[test]
fn what_a_cache_has_lost_is_told_to_every_initiator_and_once() {
    let server = or_skip!(Server::configured(VOLUME));
    let mut writers = [1, 2].map(|number| Peer::attach(&server, "disk", number));
    for (lba, writer) in writers.iter_mut().enumerate() {
        writer.write(lba as u32, &[7; BLOCK]);
    }
    fault(&server, "fail");
    assert_eq!(
        flush(&mut writers[0]),
        MEDIUM_ERROR_WRITE_ERROR,
        "the cache could not pass them on"
    );
    fault(&server, "pass");
    assert_eq!(flush(&mut writers[0]), None);
    assert_eq!(flush(&mut writers[1]), MEDIUM_ERROR_WRITE_ERROR);
    assert_eq!(flush(&mut writers[1]), None);
    // It may have used the volume of an earlier server process.
    let mut later = Peer::attach(&server, "disk", 3);
    assert_eq!(flush(&mut later), MEDIUM_ERROR_WRITE_ERROR);
    assert_eq!(flush(&mut later), None);
}

/// The connection breaks with the response that reports the loss. The initiator logs in again, and repeats
/// the flush.
#[test]
fn an_initiator_hears_of_lost_writes_although_its_connection_broke_with_the_answer() {
    let server = or_skip!(Server::configured(VOLUME));
    let mut writer = Peer::attach(&server, "disk", 1);
    writer.write(0, &[7; BLOCK]);
    fault(&server, "fail");
    assert_eq!(flush(&mut writer), MEDIUM_ERROR_WRITE_ERROR);
    drop(writer); // it has not acknowledged the response
    fault(&server, "pass");
    let mut again = Peer::attach(&server, "disk", 1);
    assert_eq!(flush(&mut again), MEDIUM_ERROR_WRITE_ERROR);
    assert_eq!(flush(&mut again), None);
}

/// Another initiator's flush has received the error, or would have received it when the server was killed.
/// The kernel does not report the error again.
#[test]
fn an_initiator_hears_of_lost_writes_although_the_server_started_again() {
    let volume = VOLUME.replace(
        "buffered:1MiB:[fault:[ram:16MiB]]",
        "fault:[file:{state}/disk.img?size=16MiB]",
    );
    let mut server = or_skip!(Server::configured(&volume));
    in_a_world(async {
        let lun = attached(&server.url("disk")).await;
        let write = || {
            lun.write(
                Extent::new(0, 8),
                Buffer::from(&[7; 4096][..]).share(),
                Durability::Cached,
            )
        };
        write().await.expect("written");
        server.kill();
        server.restart();
        assert_eq!(
            lun.flush().await,
            Ok(()),
            "the kernel has what the server had acknowledged"
        );
        write().await.expect("written");
        fault(&server, "lose");
        assert_eq!(
            flush(&mut Peer::attach(&server, "disk", 1)),
            MEDIUM_ERROR_WRITE_ERROR
        );
        server.kill();
        server.restart();
        assert_eq!(lun.flush().await, Err(DeviceError::WritesLost));
        assert_eq!(lun.flush().await, Ok(()));
        lun.close().await;
    });
}

/// One user of a session writes, and another writes with FUA. If the write with FUA reported the loss, the
/// flush of the first user would succeed.
#[test]
fn a_write_with_fua_leaves_lost_writes_to_the_next_flush() {
    let server = or_skip!(Server::configured(VOLUME));
    in_a_world(async {
        let lun = attached(&server.url("disk")).await;
        let write = |lba, durability| {
            lun.write(
                Extent::new(lba, 8),
                Buffer::from(&[7; 4096][..]).share(),
                durability,
            )
        };
        write(0, Durability::Cached).await.expect("written");
        fault(&server, "fail");
        let mut other = Peer::attach(&server, "disk", 1);
        assert!(flush(&mut other).is_some(), "what was cached is lost");
        fault(&server, "pass");
        write(8, Durability::Stable)
            .await
            .expect("its own data is durable");
        assert_eq!(lun.flush().await, Err(DeviceError::WritesLost));
        assert_eq!(lun.flush().await, Ok(()));
        lun.close().await;
    });
}
