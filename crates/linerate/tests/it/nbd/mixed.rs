//! Tests in which clients of both protocols write and read back data on one volume, while a host takes,
//! preempts and releases reservations. Every read must return the last acknowledged write, and excluded
//! clients must get no access.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

use super::Both;
use super::client::{Client, EPERM, FLUSH};
use super::together::{WRITE_EXCLUSIVE, persistent_reserve};
use crate::changes::dialogue::Dialogue;
use crate::peer::{BLOCK, Moves, Peer, write_10};
use crate::program::{installed, until};

/// Each client has a separate region.
const REGION: usize = 64 << 10;
/// The unit of atomicity: after a write that was ended while outstanding, each page of this size has either
/// completely changed or not changed.
const PAGE: usize = 4096;
const RESERVATION_CONFLICT: u8 = 0x18;
const ROUNDS: u64 = 20;

/// A client for a load. Each client uses its own region.
trait Writer {
    /// Writes the value. Returns false if the client had no access.
    fn write(&mut self, offset: usize, value: u8) -> bool;
    /// Whether these bytes have this value.
    fn has(&mut self, offset: usize, length: usize, value: u8) -> bool;
}

impl Writer for Client {
    fn write(&mut self, offset: usize, value: u8) -> bool {
        match Client::write(self, offset as u64, &[value; REGION]) {
            Ok(()) => {
                self.ask(FLUSH, 0, 0, &[]).expect("flushed");
                true
            }
            Err(EPERM) => false,
            Err(error) => panic!("error {error}"),
        }
    }

    fn has(&mut self, offset: usize, length: usize, value: u8) -> bool {
        self.read(offset as u64, length) == Ok(vec![value; length])
    }
}

impl Writer for Peer {
    fn write(&mut self, offset: usize, value: u8) -> bool {
        let cdb = write_10((offset / BLOCK) as u32, REGION, false);
        let answer = self.run(&cdb, Moves::Out(vec![value; REGION]));
        match answer.status {
            RESERVATION_CONFLICT => false,
            _ => {
                answer.expect_good();
                true
            }
        }
    }

    fn has(&mut self, offset: usize, length: usize, value: u8) -> bool {
        self.read((offset / BLOCK) as u32, length / BLOCK) == vec![value; length]
    }
}

/// QEMU's clients, by `qemu-io`.
impl Writer for Dialogue {
    fn write(&mut self, offset: usize, value: u8) -> bool {
        let said = self.ask(&format!("write -P {value} {offset} {REGION}"));
        assert!(said.contains("wrote") || said.contains("failed"), "{said}");
        said.contains("wrote")
    }

    fn has(&mut self, offset: usize, length: usize, value: u8) -> bool {
        let said = self.ask(&format!("read -P {value} {offset} {length}"));
        said.contains("read") && !said.contains("failed")
    }
}

/// The observations of a load.
#[derive(Default)]
struct Seen {
    written: AtomicU64,
    refused: AtomicU64,
}

struct Load {
    name: &'static str,
    seen: Arc<Seen>,
    thread: JoinHandle<()>,
}

fn load(
    name: &'static str,
    region: usize,
    over: &Arc<AtomicBool>,
    mut writer: impl Writer + Send + 'static,
) -> Load {
    let (seen, over) = (Arc::new(Seen::default()), Arc::clone(over));
    let thread = {
        let seen = Arc::clone(&seen);
        std::thread::spawn(move || {
            let (offset, mut next, mut was_refused) = (region * REGION, 1, false);
            // The current value; `None` after a write that was ended halfway.
            let mut is = Some(0);
            while !over.load(Relaxed) {
                let written = writer.write(offset, next);
                if written {
                    is = Some(next);
                } else if let Some(before) = is.filter(|_| !was_refused) {
                    // A preemption also ends outstanding writes. Later writes have no effect.
                    is = [before, next]
                        .into_iter()
                        .find(|value| writer.has(offset, REGION, *value));
                    let mut either =
                        |at| writer.has(at, PAGE, before) || writer.has(at, PAGE, next);
                    let is_legal =
                        is.is_some() || (offset..offset + REGION).step_by(PAGE).all(&mut either);
                    assert!(is_legal, "{name} reads neither {before} nor {next}");
                }
                (was_refused, next) = (!written, next % 250 + 1);
                let has = is.is_none_or(|is| writer.has(offset, REGION, is));
                assert!(
                    has,
                    "{name} does not read {is:?}, which it has written last"
                );
                let count = if written {
                    &seen.written
                } else {
                    &seen.refused
                };
                count.fetch_add(1, Relaxed);
            }
        })
    };
    Load { name, seen, thread }
}

fn qemu(arguments: &[&str]) -> Option<Dialogue> {
    if !installed(&["qemu-io"]) {
        return None;
    }
    let mut command = Command::new("qemu-io");
    command
        .args(["-t", "none"])
        .args(arguments)
        .stderr(Stdio::null());
    Some(Dialogue::begin(&mut command, "qemu-io> ").expect("QEMU opens the volume"))
}

#[test]
fn both_protocols_write_one_volume_while_it_is_reserved_and_released() {
    let both = or_skip!(Both::serving(
        &["disk=file:{state}/disk.img?size=16MiB"],
        ""
    ));
    let over = Arc::new(AtomicBool::new(false));
    let attach = || Client::attach(both.port, "disk");
    let peer = |number| Peer::attach(&both.server, "disk", number);
    let mut loads = vec![
        load("an NBD client", 0, &over, attach()),
        load(
            "another NBD client",
            1,
            &over,
            Client::extended(both.port, "disk"),
        ),
        load("an initiator", 2, &over, peer(1)),
    ];
    let iscsi = format!(
        "iscsi://{}/{}/0",
        both.server.portal(),
        both.server.target_name("disk")
    );
    let qemu_nbd =
        qemu(&["-f", "raw", &both.url("disk")]).map(|qemu| load("QEMU by NBD", 3, &over, qemu));
    let libiscsi = qemu(&["-f", "raw", &iscsi]).map(|qemu| load("libiscsi", 4, &over, qemu));
    loads.extend(qemu_nbd.into_iter().chain(libiscsi));

    let (mut host, mut victim, mut observer) = (peer(8), peer(9), attach());
    let beyond = (8 * REGION) as u64;
    persistent_reserve(&mut host, 0, 0, 0, 8);
    let go_on = |count: fn(&Seen) -> &AtomicU64| {
        for Load { name, seen, thread } in &loads {
            let before = count(seen).load(Relaxed);
            until(name, || {
                count(seen).load(Relaxed) > before + 1 || thread.is_finished()
            });
        }
    };
    for round in 0..ROUNDS {
        observer
            .write(beyond, &[1; 4096])
            .expect("it is not reserved");
        go_on(|seen| &seen.written);
        persistent_reserve(&mut host, 1, WRITE_EXCLUSIVE, 8, 0);
        if round % 2 == 0 {
            // PREEMPT AND ABORT, of a registered key.
            persistent_reserve(&mut victim, 6, 0, 0, 9);
            persistent_reserve(&mut host, 5, WRITE_EXCLUSIVE, 8, 9);
            victim = victim.ready();
        }
        assert_eq!(observer.write(beyond, &[2; 4096]), Err(EPERM));
        assert_eq!(observer.read(beyond, 4096), Ok(vec![1; 4096]));
        go_on(|seen| &seen.refused);
        persistent_reserve(&mut host, 2, WRITE_EXCLUSIVE, 8, 0);
    }
    over.store(true, Relaxed);
    for Load { name, seen, thread } in loads {
        thread.join().expect("a load that ends well");
        println!(
            "{name}: {:?} written, {:?} refused",
            seen.written, seen.refused
        );
    }
}
