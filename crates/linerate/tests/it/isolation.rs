//! Tests of the isolation of initiators: commands that one initiator ends really have ended, and a slow
//! initiator slows down only itself.
//!
//! Each scene is a regression test for a bug that a review found.

use std::time::Duration;

use iscsi::pdu::{Lun, TaskManagementFunction, TaskManagementResult};

use crate::hostile::{ends_earlier, resident_bytes};
use crate::peer::{BLOCK, Ended, Moves, Peer, read_10, write_10};
use crate::program::until;
use crate::server::Server;
use crate::sessions::sessions;

const UNIT_ATTENTION: u8 = 6;
const TASK_ABORTED: u8 = 0x40;
const DESTINATION: Lun = Lun(1 << 48);

/// LUN 0 is a RAM volume; `linerate server fault` controls LUN 1.
const TWO_LUNS: &str = r#"
reactors = 2
[volume.source]
spec = "ram:16MiB"
[volume.sick]
spec = "fault:[ram:16MiB]"
[[target]]
name = "iqn.2026-01.io.linerate:pair"
lun = [{ lun = 0, volume = "source" }, { lun = 1, volume = "sick" }]
"#;

fn fault(server: &Server, mode: &str) {
    server
        .ask(&["server", "fault", "sick", mode])
        .expect_success();
}

/// Runs one command on a LUN, after its pending unit attentions.
fn run_at(peer: &mut Peer, lun: Lun, cdb: &[u8], moves: &Moves) -> crate::peer::Answer {
    loop {
        let task = peer.begin_at(0, lun, cdb, moves.clone());
        let answer = peer.answer(task);
        if answer.sense_key() != UNIT_ATTENTION {
            return answer;
        }
    }
}

/// Waits until a fenced LUN is ready.
fn await_ready(peer: &mut Peer, lun: Lun) {
    until("a LUN that is ready", || {
        run_at(peer, lun, &[0; 6], &Moves::Nothing).is_good()
    });
}

/// The NAA designator of a LUN, from VPD page 83h.
fn naa(peer: &mut Peer, lun: Lun) -> Vec<u8> {
    let page = run_at(peer, lun, &[0x12, 1, 0x83, 0, 255, 0], &Moves::In(255)).expect_good();
    let mut rest = &page[4..];
    loop {
        let (designator, tail) = rest.split_at(4 + usize::from(rest[3]));
        if designator[1] & 0x0f == 3 {
            return designator[4..].to_vec();
        }
        rest = tail;
    }
}

/// EXTENDED COPY of the first `blocks` blocks of LUN 0 to LUN 1 (SPC-4 6.3).
fn extended_copy(peer: &mut Peer, blocks: u16) -> ([u8; 16], Vec<u8>) {
    let mut list = vec![1, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    for lun in [Lun(0), DESTINATION] {
        let designator = naa(peer, lun);
        let mut target = [0; 32];
        (target[0], target[4], target[5], target[7]) = (0xe4, 1, 3, designator.len() as u8);
        target[8..8 + designator.len()].copy_from_slice(&designator);
        target[30] = 2; // blocks of 512
        list.extend(target);
    }
    list.extend([2, 0, 0, 24, 0, 0, 0, 1, 0, 0]);
    list.extend(blocks.to_be_bytes());
    list.extend([0; 16]);
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x83, list.len() as u8);
    (cdb, list)
}

fn reserve_out(peer: &mut Peer, lun: Lun, action: u8, kind: u8, key: u8, second: u8) {
    let mut list = vec![0; 24];
    (list[7], list[15]) = (key, second);
    let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    run_at(peer, lun, &cdb, &Moves::Out(list)).expect_good();
}

/// A copies to a LUN from which B removes A by PREEMPT AND ABORT. Regression: the copy was not a task of the
/// destination, so it continued and overwrote B's later data.
#[test]
fn a_copy_ends_with_a_preemption_at_its_destination() {
    const WRITE_EXCLUSIVE_REGISTRANTS_ONLY: u8 = 5;
    let begin = |a: &mut Peer, b: &mut Peer| {
        for (peer, key) in [(&mut *a, 1), (b, 2)] {
            reserve_out(peer, DESTINATION, 6, 0, 0, key);
        }
        reserve_out(a, DESTINATION, 1, WRITE_EXCLUSIVE_REGISTRANTS_ONLY, 1, 0);
    };
    a_copy_ends(begin, |_, b| {
        reserve_out(b, DESTINATION, 5, WRITE_EXCLUSIVE_REGISTRANTS_ONLY, 2, 1);
    });
}

/// Like the previous test, with a reset of the destination.
#[test]
fn a_copy_ends_with_a_reset_of_its_destination() {
    a_copy_ends(|_, _| (), |_, b| reset(b));
}

/// A reset of the destination by the copying initiator itself does not end commands at the source, so the
/// initiator waits for the copy's response.
#[test]
fn a_copy_that_ends_with_a_reset_of_its_destination_is_answered_whoever_asked_for_that() {
    a_copy_ends(|_, _| (), |a, _| reset(a));
}

fn reset(peer: &mut Peer) {
    let result = peer.manage_at(TaskManagementFunction::LogicalUnitReset, DESTINATION);
    assert_eq!(result, TaskManagementResult::FunctionComplete);
}

/// A's copy hangs at its destination until `end` ends it. Its data must not arrive.
fn a_copy_ends(begin: impl FnOnce(&mut Peer, &mut Peer), end: impl FnOnce(&mut Peer, &mut Peer)) {
    let server = or_skip!(Server::configured(TWO_LUNS));
    let [mut a, mut b] = [1, 2].map(|number| Peer::attach(&server, "pair", number));
    a.write(0, &[0xaa; 64 * BLOCK]);
    begin(&mut a, &mut b);
    let (cdb, list) = extended_copy(&mut a, 4096);
    fault(&server, "hang");
    let before = commands(&server, &a);
    let copy = a.begin(0, &cdb, Moves::Out(list));
    await_commands(&server, &a, before, 1);
    a.ping(); // all runnable tasks have run
    assert_eq!(
        a.end_within(copy, Duration::from_millis(300)),
        None,
        "it hangs at its destination"
    );
    end(&mut a, &mut b);
    fault(&server, "pass");
    await_ready(&mut b, DESTINATION);
    let Ended::With(answer) = a.end(copy) else {
        panic!("A keeps its session")
    };
    assert!(!answer.is_good(), "{answer:02x?}");
    let blocks = run_at(
        &mut b,
        DESTINATION,
        &read_10(0, 64),
        &Moves::In(64 * BLOCK as u32),
    )
    .expect_good();
    assert!(blocks.iter().all(|byte| *byte == 0), "A's data is there");
}

/// Waits until the server has accepted this number of further commands of this session.
pub(crate) fn await_commands(server: &Server, peer: &Peer, before: u64, more: u64) {
    until("the commands", || commands(server, peer) >= before + more);
}

pub(crate) fn commands(server: &Server, peer: &Peer) -> u64 {
    let sessions = sessions(server);
    let own = sessions
        .iter()
        .find(|session| session["tsih"] == peer.attached.tsih.0)
        .expect("its session");
    own["commands"].as_u64().expect("a number")
}

const FILE: &str = r#"
reactors = 1
[limits]
staging = "16MiB"
session-staging = "16MiB"
[volume.file]
spec = "file:{state}/disk?size=64MiB"
[[target]]
name = "iqn.2026-01.io.linerate:file"
lun = [{ lun = 0, volume = "file" }]
"#;

/// A's WRITE SAME waits for memory that a READ occupies, and B resets the LUN. Regression: the reset
/// completed, and when memory became available, the WRITE SAME ran and overwrote B's data.
#[test]
fn a_command_that_waits_for_memory_ends_with_a_reset_of_another_initiator() {
    let text = FILE.replace("\nstaging = \"16MiB\"", "\nstaging = \"32MiB\"");
    let server = or_skip!(Server::configured(&text));
    let [mut a, mut b] = [1, 2].map(|number| Peer::attach(&server, "file", number));
    let before = commands(&server, &a);
    let blocks = 32_767;
    let mut zeroes = [0; 16];
    (zeroes[0], zeroes[1], zeroes[13]) = (0x93, 1, 8); // WRITE SAME(16), NDOB
    // Send both commands in one piece, because the server does not read from a peer that does not read. The
    // first read occupies all memory until its data is sent.
    a.hold(0);
    let first = a.begin(0, &read_10(0, blocks), Moves::In((blocks * BLOCK) as u32));
    let second = a.begin(0, &read_10(0, 128), Moves::In(128 * BLOCK as u32));
    let write_same = a.begin(0, &zeroes, Moves::Nothing);
    a.release(0);
    await_commands(&server, &a, before, 3);
    let result = b.manage(TaskManagementFunction::LogicalUnitReset);
    assert_eq!(result, TaskManagementResult::FunctionComplete);
    run_at(
        &mut b,
        Lun(0),
        &write_10(0, 8 * BLOCK, false),
        &Moves::Out(vec![0xbb; 8 * BLOCK]),
    )
    .expect_good();
    for task in [second, write_same] {
        let answer = a.answer(task);
        assert_eq!((answer.status, answer.data.len()), (TASK_ABORTED, 0));
    }
    drop(a.end(first));
    // Memory is granted in the order of the requests, so this request is granted after the other two.
    run_at(
        &mut a,
        Lun(0),
        &read_10(512, 128),
        &Moves::In(128 * BLOCK as u32),
    )
    .expect_good();
    assert_eq!(b.read(0, 8), [0xbb; 8 * BLOCK]);
}

const MEMORY: &str = r#"
reactors = 2
[volume.memory]
spec = "ram:64MiB"
[[target]]
name = "iqn.2026-01.io.linerate:memory"
lun = [{ lun = 0, volume = "memory" }]
"#;

/// A server with memory for one command of half a megabyte.
const MEMORY_AND_FILE: &str = r#"
reactors = 1
[limits]
staging = "512KiB"
session-staging = "512KiB"
[volume.memory]
spec = "ram:64MiB"
[volume.file]
spec = "file:{state}/disk?size=64MiB"
deadline = "15s"
[[target]]
name = "iqn.2026-01.io.linerate:memory"
lun = [{ lun = 0, volume = "memory" }]
[[target]]
name = "iqn.2026-01.io.linerate:file"
lun = [{ lun = 0, volume = "file" }]
"#;

fn compare_and_write(lba: u32, before: u8, after: u8) -> ([u8; 16], Vec<u8>) {
    let mut cdb = [0; 16];
    cdb[0] = 0x89;
    cdb[6..10].copy_from_slice(&lba.to_be_bytes());
    cdb[13] = 1;
    (cdb, [[before; BLOCK], [after; BLOCK]].concat())
}

/// A requests much data reads none of the data. Regression: the blocks stayed locked while A's connection
/// lived, so B's COMPARE AND WRITE failed after 30 s, and briefly made the unit unavailable to all
/// initiators.
#[test]
fn a_reader_that_does_not_read_keeps_no_blocks_from_others() {
    let server = or_skip!(Server::configured(MEMORY));
    let [mut a, mut b] = [1, 2].map(|number| Peer::attach(&server, "memory", number));
    let before = commands(&server, &a);
    let blocks = 65_535; // 32 MiB: more than a socket can buffer
    let read = a.begin(0, &read_10(0, blocks), Moves::In((blocks * BLOCK) as u32));
    await_commands(&server, &a, before, 1);
    for lba in [0, 65_534] {
        let (cdb, data) = compare_and_write(lba, 0, 0xbb);
        b.run(&cdb, Moves::Out(data)).expect_good();
    }
    b.test_ready().expect_good();
    let data = a.answer(read).expect_good();
    assert!(
        data.iter().all(|byte| *byte == 0),
        "A reads the blocks as they were"
    );
}

/// A announces a write to a RAM volume and sends none of its data. A may lose its connection, but B must not
/// lose access to the unit.
#[test]
fn a_writer_that_does_not_write_keeps_no_blocks_from_others() {
    let server = or_skip!(Server::configured(MEMORY));
    let [mut a, mut b] = [1, 2].map(|number| Peer::attach(&server, "memory", number));
    let before = commands(&server, &a);
    a.begin(
        0,
        &write_10(0, 2048 * BLOCK, false),
        Moves::Out(vec![0xaa; 2048 * BLOCK]),
    ); // ignores the R2T
    await_commands(&server, &a, before, 1);
    let (cdb, data) = compare_and_write(2047, 0, 0xbb);
    b.run(&cdb, Moves::Out(data)).expect_good();
    b.test_ready().expect_good();
}

/// A sends the data of a write late, and the device is slow. Regression: the deadline counted from the
/// command's arrival, so the initiator's delay was attributed to the device, and the unit was fenced.
#[test]
fn a_device_has_its_whole_time_however_late_the_data_come() {
    let text = FILE.replace(
        "file:{state}/disk?size=64MiB\"",
        "delay:500ms:[ram:16MiB]\"\ndeadline = \"2s\"",
    );
    let server = or_skip!(Server::configured(&text));
    let mut a = Peer::attach(&server, "file", 1);
    let before = commands(&server, &a);
    let write = a.begin(
        0,
        &write_10(0, 2048 * BLOCK, false),
        Moves::Out(vec![0xaa; 2048 * BLOCK]),
    );
    await_commands(&server, &a, before, 1);
    std::thread::sleep(Duration::from_millis(2200)); // longer than the deadline
    a.answer(write).expect_good();
    a.test_ready().expect_good();
}

/// A occupies all memory and reads its data slowly.
#[test]
fn memory_that_a_slow_reader_holds_is_taken_back_when_others_need_it() {
    let server = or_skip!(Server::configured(FILE));
    let [mut a, mut b] = [1, 2].map(|number| Peer::attach(&server, "file", number));
    let before = commands(&server, &a);
    let blocks = 32_767;
    a.begin(0, &read_10(0, blocks), Moves::In((blocks * BLOCK) as u32));
    await_commands(&server, &a, before, 1);
    assert_eq!(b.read(4096, 1024), [0; 1024 * BLOCK]);
}

/// Like the previous test, with data to write.
#[test]
fn memory_that_a_slow_writer_holds_is_taken_back_when_others_need_it() {
    let server = or_skip!(Server::configured(FILE));
    let [mut a, mut b] = [1, 2].map(|number| Peer::attach(&server, "file", number));
    let before = commands(&server, &a);
    let blocks = 32_767;
    a.begin(
        0,
        &write_10(0, blocks * BLOCK, false),
        Moves::Out(vec![0xaa; blocks * BLOCK]),
    ); // ignores the R2T
    await_commands(&server, &a, before, 1);
    assert_eq!(b.read(40_000, 1024), [0; 1024 * BLOCK]);
}

/// A reads from a RAM volume, and B writes to the same blocks. The server therefore copies the data that A
/// has not read yet. The copies occupy all the memory that C needs.
#[test]
fn memory_for_copies_that_a_slow_reader_holds_is_taken_back_when_others_need_it() {
    let server = or_skip!(Server::configured(MEMORY_AND_FILE));
    let [mut a, mut b] = [1, 2].map(|number| Peer::attach(&server, "memory", number));
    let mut c = Peer::attach(&server, "file", 3);
    let piece = 512;
    for lba in (0..131_072).step_by(piece) {
        let before = commands(&server, &a);
        a.begin(0, &read_10(lba, piece), Moves::In((piece * BLOCK) as u32)); // and reads none of it
        await_commands(&server, &a, before, 1);
        let (cdb, data) = compare_and_write(lba, 0, 0xbb);
        b.run(&cdb, Moves::Out(data)).expect_good();
        assert_eq!(c.read(0, 1024), [0; 1024 * BLOCK]);
        if !sessions(&server)
            .iter()
            .any(|session| session["tsih"] == a.attached.tsih.0)
        {
            return;
        }
    }
    panic!("A's socket takes 64 MiB");
}

/// Starts a session with out-of-order data: this number of earlier commands, on another connection, is
/// missing.
fn data_before_their_turn(server: &Server, missing: usize) -> Peer {
    let mut peer = Peer::attach(server, "file", 1);
    peer.join(server, 1).expect("a connection");
    let before = resident_bytes(server);
    peer.hold(0);
    for _ in 0..missing {
        peer.begin(0, &[0; 6], Moves::Nothing);
    }
    for _ in 0..80 {
        peer.begin(
            1,
            &write_10(0, 512 * BLOCK, false),
            Moves::Out(vec![0xaa; 512 * BLOCK]),
        );
    }
    until("the data", || resident_bytes(server) >= before + (14 << 20));
    peer
}

/// Like the previous test, with out-of-order data: an earlier command, on another connection, never arrives.
#[test]
fn memory_for_data_that_came_too_early_is_taken_back_when_others_need_it() {
    let server = or_skip!(Server::configured(FILE));
    let mut b = Peer::attach(&server, "file", 2);
    let _a = data_before_their_turn(&server, 1);
    assert_eq!(b.read(40_000, 1024), [0; 1024 * BLOCK]);
}

/// Like the previous test, while missing commands arrive one by one. Regression: each of them restarted the
/// timeout of the data, which was therefore kept as long as any command was missing.
#[test]
fn memory_for_data_that_came_too_early_is_taken_back_even_if_other_commands_have_their_turn() {
    let server = or_skip!(Server::configured(FILE));
    let mut b = Peer::attach(&server, "file", 2);
    let mut a = data_before_their_turn(&server, 100);
    let read = b.begin(0, &read_10(40_000, 1024), Moves::In(1024 * BLOCK as u32));
    let ended = loop {
        if let Some(ended) = b.end_within(read, Duration::from_secs(1)) {
            break ended;
        }
        assert!(
            a.release_one(0),
            "B waits until all commands of A have come"
        );
    };
    let Ended::With(answer) = ended else {
        panic!("B keeps its session")
    };
    assert_eq!(answer.expect_good(), [0; 1024 * BLOCK]);
}

/// A peer that is alive, but never sends solicited data, must not keep its command or its connection forever.
#[test]
fn a_writer_that_owes_data_for_too_long_loses_its_connection() {
    let usual = FILE.replace("[limits]", "[limits]\nnop-interval = \"1h\"");
    let limited = usual.replace("[limits]", "[limits]\nsend-stall = \"1s\"");
    let limited = or_skip!(Server::configured(&limited));
    let usual = or_skip!(Server::configured(&usual));
    let owes = |server: &Server| {
        let mut a = Peer::attach(server, "file", 1);
        a.begin(
            0,
            &write_10(0, 2048 * BLOCK, false),
            Moves::Out(vec![0xaa; 2048 * BLOCK]),
        );
        a.hold(0); // ignores the R2T
        a
    };
    ends_earlier(&[limited, usual], owes, |_, a| {
        a.hear_the_end(Duration::from_millis(1))
    });
}

/// Regression: working buffers of commands such as VERIFY and WRITE SAME were not counted. 1,000 commands
/// took 1 GiB with a budget of 32 MiB.
#[test]
fn commands_take_no_more_memory_than_the_budget_allows() {
    let text = r#"
reactors = 2
[limits]
staging = "32MiB"
[volume.sick]
spec = "fault:[ram:64MiB]"
[[target]]
name = "iqn.2026-01.io.linerate:sick"
lun = [{ lun = 0, volume = "sick" }]
"#;
    let server = or_skip!(Server::configured(text));
    let mut peers: Vec<Peer> = (1..=4)
        .map(|number| Peer::attach(&server, "sick", number))
        .collect();
    let before = resident_bytes(&server);
    let commands_before: Vec<u64> = peers.iter().map(|peer| commands(&server, peer)).collect();
    fault(&server, "hang");
    let mut verify = [0; 16];
    verify[0] = 0x8f;
    verify[10..14].copy_from_slice(&4096_u32.to_be_bytes());
    let tasks: Vec<Vec<_>> = peers
        .iter_mut()
        .map(|peer| {
            (0..250)
                .map(|_| peer.begin(0, &verify, Moves::Nothing))
                .collect()
        })
        .collect();
    for (peer, before) in peers.iter().zip(commands_before) {
        await_commands(&server, peer, before, 250);
    }
    let grown = resident_bytes(&server) - before;
    println!("{} MiB more", grown >> 20);
    assert!(grown < 64 << 20, "{} MiB more", grown >> 20);
    fault(&server, "pass");
    for (peer, tasks) in peers.iter_mut().zip(tasks) {
        for task in tasks {
            peer.answer(task).expect_good();
        }
    }
}
