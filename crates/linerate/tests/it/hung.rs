//! Tests of an unresponsive volume: its commands must end in bounded time, and other volumes must not be
//! affected.
//!
//! The volume is a `fault:` layer over memory, which `linerate server fault` makes hang. Until the fault
//! ends, its device completes nothing, like a disk behind a failed controller: aborted requests are fenced,
//! not finished.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iscsi::pdu::{TaskManagementFunction, TaskManagementResult};

use crate::peer::{BLOCK, Ended, Moves, Peer, initiator, read_10, write_10};
use crate::program::{self, says, until};
use crate::server::Server;

const TWO_VOLUMES: &str = r#"
reactors = 2
[volume.sick]
spec = "fault:[ram:16MiB]"
deadline = "1h"
[volume.well]
spec = "ram:16MiB"
[[target]]
name = "iqn.2026-01.io.linerate:sick"
lun = [{ lun = 0, volume = "sick" }]
[[target]]
name = "iqn.2026-01.io.linerate:well"
lun = [{ lun = 0, volume = "well" }]
"#;

const NOT_READY: u8 = 2;
const CHECK_CONDITION: u8 = 2;

/// A server with a volume that can hang and one that cannot.
struct Ward {
    server: Server,
}

impl Ward {
    fn open(text: &str) -> Option<Ward> {
        Server::configured(text).map(|server| Ward { server })
    }

    fn fault(&self, mode: &str) {
        self.command(&["fault", "sick", mode]).expect_success();
    }

    /// `linerate server …`.
    fn command(&self, words: &[&str]) -> program::Ended {
        self.server.ask(&[&["server"], words].concat())
    }

    fn sick(&self, number: u8) -> Peer {
        Peer::attach(&self.server, "sick", number)
    }

    fn well(&self, number: u8) -> Peer {
        Peer::attach(&self.server, "well", number)
    }
}

/// Waits until a fenced unit is ready; unit attentions are reported in between.
fn await_ready(peer: &mut Peer) {
    until("a unit that is ready, as its device is", || {
        peer.test_ready().is_good()
    });
}

/// Checks a function that ends commands: it aborts a write, the volume is fenced, the device recovers, and
/// the old data is still there.
fn ends_what_hangs(end: impl Fn(&mut Peer, iscsi::initiator::TaskId) -> TaskManagementResult) {
    let ward = or_skip!(Ward::open(TWO_VOLUMES));
    let (mut peer, mut other) = (ward.sick(1), ward.sick(2));
    let (old, new) = (vec![0x11; 8 * BLOCK], vec![0x22; 8 * BLOCK]);
    peer.write(0, &old);
    ward.fault("hang");
    let write = peer.begin(0, &write_10(0, new.len(), false), Moves::Out(new));
    peer.ping(); // the response follows once the write is at the device
    assert_eq!(
        peer.end_within(write, Duration::from_millis(300)),
        None,
        "the write hangs"
    );
    assert_eq!(
        end(&mut peer, write),
        TaskManagementResult::FunctionComplete
    );
    let told = other_than_attention(&mut other);
    assert_eq!(
        (told.status, told.sense_key()),
        (CHECK_CONDITION, NOT_READY),
        "fenced"
    );
    ward.fault("pass");
    await_ready(&mut peer);
    assert_eq!(
        peer.read(0, 8),
        old,
        "what was fenced has not reached the medium"
    );
    await_ready(&mut other);
    other.write(8, &old);
    assert_eq!(peer.read(8, 8), old, "and the volume works again");
}

/// The response to TEST UNIT READY after all pending unit attentions.
fn other_than_attention(peer: &mut Peer) -> crate::peer::Answer {
    const UNIT_ATTENTION: u8 = 6;
    (0..4)
        .map(|_| peer.test_ready())
        .find(|told| told.sense_key() != UNIT_ATTENTION)
        .expect("few attentions")
}

#[test]
fn an_aborted_write_never_reaches_the_medium() {
    ends_what_hangs(|peer, task| peer.abort(task));
}

#[test]
fn a_reset_ends_what_hangs() {
    ends_what_hangs(|peer, _| peer.manage(TaskManagementFunction::LogicalUnitReset));
}

/// Regression: if a command of a session was aborted, the session kept the command's volume open until the
/// session ended. A forced change then removed the volume from every host.
#[test]
fn a_volume_is_replaced_while_a_session_lives_whose_command_was_aborted() {
    for end in [
        |peer: &mut Peer, task| peer.abort(task),
        |peer: &mut Peer, _| peer.manage(TaskManagementFunction::LogicalUnitReset),
    ] {
        let mut ward = or_skip!(Ward::open(TWO_VOLUMES));
        let mut peer = ward.sick(1);
        ward.fault("hang");
        let write = peer.begin(0, &write_10(0, BLOCK, false), Moves::Out(vec![0x22; BLOCK]));
        peer.ping(); // the response follows once the write is at the device
        assert_eq!(
            end(&mut peer, write),
            TaskManagementResult::FunctionComplete
        );
        ward.fault("pass");
        await_ready(&mut peer);
        ward.server
            .reconfigure(&TWO_VOLUMES.replacen("16MiB", "32MiB", 1));
        let said = ward.command(&["reload", "--force"]).expect_success();
        assert!(!said.contains("not closed"), "{said}");
        await_ready(&mut peer);
        assert_eq!(
            peer.read(1 << 15, 1),
            [0; BLOCK],
            "the same session uses the larger volume"
        );
    }
}

/// Without a status, the command's initiator would wait until a timeout. Regression: the status was not sent,
/// and a session whose commands had all been ended stalled for 30 s.
#[test]
fn a_command_that_another_initiators_reset_ends_is_told_so() {
    const TASK_ABORTED: u8 = 0x40;
    let ward = or_skip!(Ward::open(TWO_VOLUMES));
    for function in [
        TaskManagementFunction::LogicalUnitReset,
        TaskManagementFunction::ClearTaskSet,
    ] {
        let (mut peer, mut other) = (ward.sick(1), ward.sick(2));
        let (old, new) = (vec![0x11; 8 * BLOCK], vec![0x22; 8 * BLOCK]);
        peer.write(0, &old);
        ward.fault("hang");
        let write = peer.begin(0, &write_10(0, new.len(), false), Moves::Out(new));
        peer.ping(); // the response follows once the write is at the device
        assert_eq!(
            peer.end_within(write, Duration::from_millis(300)),
            None,
            "the write hangs"
        );
        assert_eq!(
            other.manage(function),
            TaskManagementResult::FunctionComplete
        );
        assert_eq!(peer.answer(write).status, TASK_ABORTED);
        ward.fault("pass");
        await_ready(&mut peer);
        assert_eq!(peer.read(0, 8), old, "it has had no effect");
    }
}

#[test]
fn pings_and_logins_do_not_wait_for_a_hung_volume() {
    let ward = or_skip!(Ward::open(TWO_VOLUMES));
    let mut peer = ward.sick(1);
    ward.fault("hang");
    let hanging: Vec<_> = (0..64)
        .map(|lba| peer.begin(0, &read_10(lba, 8), Moves::In(8 * BLOCK as u32)))
        .collect();
    (0..200).for_each(|_| peer.ping());
    for volume in ["sick", "well"] {
        let login = Peer::log_in(
            &ward.server,
            initiator(Some(&ward.server.target_name(volume)), 9),
        );
        login.expect("a session");
    }
    for task in hanging {
        assert_eq!(
            peer.end_within(task, Duration::ZERO),
            None,
            "it hangs all the time"
        );
    }
}

#[test]
fn a_command_past_its_deadline_is_answered_and_fences_its_volume() {
    let text = TWO_VOLUMES.replace("1h", "1s");
    let ward = or_skip!(Ward::open(&text));
    let mut peer = ward.sick(1);
    ward.fault("hang");
    let begin = Instant::now();
    let read = peer.begin(0, &read_10(0, 1), Moves::In(BLOCK as u32));
    let answer = peer.answer(read);
    assert!(!answer.is_good(), "{answer:02x?}");
    assert!(
        begin.elapsed() > Duration::from_millis(900),
        "given up before its deadline"
    );
    assert_eq!(other_than_attention(&mut peer).sense_key(), NOT_READY);
    ward.fault("pass");
    await_ready(&mut peer);
}

#[test]
fn a_session_is_reinstated_while_its_commands_hang() {
    let ward = or_skip!(Ward::open(TWO_VOLUMES));
    let mut old = ward.sick(1);
    old.write(0, &[0x11; BLOCK]);
    ward.fault("hang");
    let write = old.begin(0, &write_10(0, BLOCK, false), Moves::Out(vec![0x22; BLOCK]));
    old.ping(); // the response follows once the write is at the device
    assert_eq!(old.end_within(write, Duration::from_millis(200)), None);
    let mut new = Peer::log_in(
        &ward.server,
        initiator(Some(&ward.server.target_name("sick")), 1),
    )
    .expect("a session");
    assert!(
        matches!(old.end(write), Ended::Without(_)),
        "the old session is gone"
    );
    assert_eq!(other_than_attention(&mut new).sense_key(), NOT_READY);
    ward.fault("pass");
    await_ready(&mut new);
    assert_eq!(
        new.read(0, 1),
        [0x11; BLOCK],
        "the old session's write never reached the medium"
    );
}

#[test]
fn a_server_ends_in_time_while_a_volume_hangs() {
    let mut ward = or_skip!(Ward::open(TWO_VOLUMES));
    let mut peer = ward.sick(1);
    ward.fault("hang");
    peer.begin(0, &write_10(0, BLOCK, false), Moves::Out(vec![0x22; BLOCK]));
    peer.ping(); // the response follows once the write is at the device
    let status = ward.server.end();
    // Writes that the volume has acknowledged may not be on its disk, so the exit code must not be 0.
    assert_eq!(status.code(), Some(1));
}

#[test]
fn removing_a_hung_volume_says_what_it_waits_for() {
    let ward = or_skip!(Ward::open(TWO_VOLUMES));
    ward.fault("hang");
    let said = ward
        .command(&["remove", "sick", "--force"])
        .expect_failure();
    says(&said, &["the server is still waiting for volumes"]);
    says(
        &said,
        &["volume sick could not be flushed: the device has been unresponsive for 10.0 s"],
    );
}

#[test]
fn other_volumes_go_on() {
    let ward = or_skip!(Ward::open(TWO_VOLUMES));
    let healthy: Vec<_> = (3..7).map(|number| Load::on(ward.well(number))).collect(); // on both cores
    for round in 0..5 {
        let mut peer = ward.sick(10 + round);
        ward.fault("hang");
        let stuck: Vec<_> = (0..32)
            .map(|_| peer.begin(0, &read_10(0, 8), Moves::In(4096)))
            .collect();
        healthy.iter().for_each(Load::goes_on);
        for task in &stuck {
            assert_eq!(
                peer.end_within(*task, Duration::ZERO),
                None,
                "it hangs all the time"
            );
        }
        ward.fault("pass");
        stuck
            .into_iter()
            .for_each(|task| drop(peer.answer(task).expect_good()));
    }
    healthy.into_iter().for_each(Load::stop);
}

/// Reads of 4 KiB with a queue depth of eight, from a separate thread.
struct Load {
    done: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Load {
    fn on(mut peer: Peer) -> Load {
        let (done, over) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (count, stop) = (Arc::clone(&done), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let tasks: Vec<_> = (0..8)
                    .map(|at| peer.begin(0, &read_10(at * 8, 8), Moves::In(4096)))
                    .collect();
                tasks
                    .into_iter()
                    .for_each(|task| drop(peer.answer(task).expect_good()));
                count.fetch_add(8, Ordering::Relaxed);
            }
        });
        Load { done, over, thread }
    }

    /// Waits until many more requests have completed.
    fn goes_on(&self) {
        let before = self.done.load(Ordering::Relaxed);
        until("a thousand reads", || {
            self.done.load(Ordering::Relaxed) > before + 1000
        });
    }

    fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("a load without a failure");
    }
}
