//! Tests that acknowledged writes survive: a server under a verified write load is killed (SIGKILL) and
//! restarted, and its data is read back. Writers log in again after each restart of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use iscsi_client::{RemoteLun, Transfer, cdb};

use crate::remote::{
    GOOD, RESERVATION_CONFLICT, attached, in_a_world, read, reserve_in, reserve_out, write,
};
use crate::server::Server;

const FILE: &str = "disk=file:{state}/disk.img?size=64MiB";

/// The size of a slot. Each writer writes its own ring of slots repeatedly.
const SLOT_BYTES: usize = 4096;
const SLOTS: u64 = 1024;

/// The way in which a writer makes its writes durable.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Promise {
    /// FUA on every write.
    Fua,
    /// SYNCHRONIZE CACHE after this number of writes.
    Synchronize(u64),
}

/// A thread that writes numbered slots until its server is killed.
pub(crate) struct Writer {
    ring: u64,
    /// The number of guaranteed writes. These are the first ones.
    kept: Arc<AtomicU64>,
    /// The thread, which returns the number of writes sent.
    thread: JoinHandle<u64>,
}

impl Writer {
    pub(crate) fn start(server: &Server, ring: u64, promise: Promise) -> Writer {
        // The session must not wait for the target to return: the target is restarted only after the writers
        // have ended, and until then another process may use its port.
        let url = format!("{}?reconnect-time=0", server.url("disk"));
        let kept = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&kept);
        let thread =
            thread::spawn(move || in_a_world(write_until_the_end(url, ring, promise, counted)));
        Writer { ring, kept, thread }
    }

    pub(crate) fn kept(&self) -> u64 {
        self.kept.load(Ordering::Acquire)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the writer. Returns its ring, the number of guaranteed writes, and the number of
    /// sent writes.
    pub(crate) fn end(self) -> (u64, u64, u64) {
        let sent = self.thread.join().expect("a writer that saw its server go");
        (self.ring, self.kept.load(Ordering::Acquire), sent)
    }
}

async fn write_until_the_end(
    url: String,
    ring: u64,
    promise: Promise,
    kept: Arc<AtomicU64>,
) -> u64 {
    let lun = attached(&url).await;
    let mut serial = 0;
    loop {
        let sent = write(
            &lun,
            lba(ring, serial),
            &slot(ring, serial),
            matches!(promise, Promise::Fua),
        )
        .await;
        serial += 1;
        let held = matches!(&sent, Ok(answer) if answer.status == GOOD)
            && is_held(&lun, promise, serial).await;
        match (sent, held) {
            (Err(_), _) => return serial,
            (Ok(_), true) => kept.store(serial, Ordering::Release),
            (Ok(_), false) => {}
        }
    }
}

/// Whether all writes so far are guaranteed.
async fn is_held(lun: &RemoteLun, promise: Promise, written: u64) -> bool {
    match promise {
        Promise::Fua => true,
        Promise::Synchronize(every) if written.is_multiple_of(every) => {
            let flushed = lun.command(cdb::synchronize_cache(), Transfer::None).await;
            matches!(flushed, Ok(answer) if answer.status == GOOD)
        }
        Promise::Synchronize(_) => false,
    }
}

fn lba(ring: u64, serial: u64) -> u64 {
    (ring * SLOTS + serial % SLOTS) * (SLOT_BYTES as u64 / 512)
}

/// The content of a slot. Every eight bytes contain its number, so that a torn slot is detected.
fn slot(ring: u64, serial: u64) -> Vec<u8> {
    let word = (ring << 48 | serial) + 1; // never zero, like a slot that was never written
    word.to_be_bytes().repeat(SLOT_BYTES / 8)
}

/// The serial number of a slot, if the slot is intact.
fn serial_of(ring: u64, bytes: &[u8]) -> Option<u64> {
    let word = u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"));
    let serial = word.checked_sub(1)? & 0xffff_ffff_ffff;
    (slot(ring, serial) == bytes).then_some(serial)
}

/// Checks that every slot contains the last guaranteed write to it, or a later one.
pub(crate) async fn check(lun: &RemoteLun, ring: u64, kept: u64, sent: u64) {
    for newest in kept.saturating_sub(SLOTS)..kept {
        let bytes = read(lun, lba(ring, newest), SLOT_BYTES).await;
        let found = serial_of(ring, &bytes);
        let is_later =
            |serial: u64| serial >= newest && serial < sent && serial % SLOTS == newest % SLOTS;
        assert!(
            found.is_some_and(is_later),
            "ring {ring}: write {newest} of {kept} is gone, there is {found:?}"
        );
    }
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    let mut server = Server::serving(&[FILE]);
    needs!(server.is_ours());
    let promises = [
        Promise::Fua,
        Promise::Synchronize(16),
        Promise::Fua,
        Promise::Synchronize(100),
    ];
    for life in 1..=3 {
        let writers: Vec<Writer> = (0..)
            .zip(promises)
            .map(|(ring, promise)| Writer::start(&server, ring, promise))
            .collect();
        while writers.iter().any(|writer| writer.kept() < 300 * life) {
            thread::sleep(Duration::from_millis(5)); // until the load has run for a while
        }
        server.kill();
        let ended: Vec<(u64, u64, u64)> = writers.into_iter().map(Writer::end).collect();
        server.restart();
        in_a_world(async {
            let lun = attached(&server.url("disk")).await;
            for (ring, kept, sent) in ended {
                check(&lun, ring, kept, sent).await;
            }
        });
    }
}

/// The reservation type Write Exclusive (SPC-4 table 62): all initiators may read, but only the holder may
/// write.
const WRITE_EXCLUSIVE: u8 = 1;
const KEY: u64 = 0x6c69_6e65_7261_7465;

#[test]
fn reservations_with_aptpl_survive_a_kill() {
    let mut server = Server::serving(&[FILE]);
    needs!(server.is_ours());
    let url = server.url("disk");
    in_a_world(async {
        let lun = attached(&url).await;
        assert_eq!(reserve_out(&lun, 0, 0, 0, KEY).await, GOOD); // REGISTER
        assert_eq!(reserve_out(&lun, 1, WRITE_EXCLUSIVE, KEY, 0).await, GOOD); // RESERVE
    });
    server.kill();
    server.restart();
    in_a_world(async {
        let stranger = attached(&url).await; // another ISID is another I_T nexus
        let keys = reserve_in(&stranger, 0).await;
        assert_eq!(
            keys[8..16],
            KEY.to_be_bytes(),
            "READ KEYS: {:02x?}",
            &keys[..]
        );
        let reservation = reserve_in(&stranger, 1).await;
        assert_eq!(
            reservation[8..16],
            KEY.to_be_bytes(),
            "READ RESERVATION: {:02x?}",
            &reservation[..]
        );
        assert_eq!(reservation[21] & 0x0f, WRITE_EXCLUSIVE);
        let refused = write(&stranger, 0, &[1; 512], false)
            .await
            .expect("an answer");
        assert_eq!(refused.status, RESERVATION_CONFLICT);
    });
}
