//! A target and an initiator with arbitrary parameters and segmentation, while connections are delayed, cut
//! and corrupted and commands are aborted. Written data is on the disk, reads return written data, and every
//! command completes or fails exactly once.
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/wire/iscsi/tests/it/disk.rs"]
mod disk;
#[allow(dead_code)]
#[path = "../../crates/wire/iscsi/tests/it/pair.rs"]
mod pair;
#[allow(dead_code)]
#[path = "../../crates/wire/iscsi/tests/it/wire.rs"]
mod wire;

use std::collections::HashMap;
use std::time::Duration;

use iscsi::initiator::{self, TaskId, TmfId};
use iscsi::negotiate::{DigestKind, Parameters, SessionType};
use iscsi::pdu::{LogoutReason, Lun, Residual, Sn, TaskManagementFunction};
use iscsi::target;
use libfuzzer_sys::fuzz_target;
use pair::{Ended, Pair, Setup, pattern};
use script::Script;

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let mut scene = Scene::new(&mut script);
    for _ in 0..ACTS_MAX {
        if script.is_over() {
            break;
        }
        scene.act(&mut script);
        scene.look();
    }
    scene.end();
});

struct Scene {
    pair: Pair,
    at_target: Parameters,
    places: Vec<Place>,
    commands: HashMap<TaskId, Command>,
    /// Wires with an outstanding text exchange: a well-behaved initiator has one at a time on each.
    asked: Vec<bool>,
    /// Wires that are logging out, which accept no more commands.
    leaving: Vec<bool>,
    functions: u32,
    /// Outstanding resets. Until they complete, a well-behaved initiator starts no command that they could
    /// abort.
    resets: Vec<TmfId>,
    /// Whether a reset may have been executed without its response reaching the initiator. The initiator may
    /// then wait for aborted commands until its timeout.
    reset_unheard: bool,
    writes: u32,
    steps: usize,
    /// Whether digests detect corruption, so that the fuzzer may corrupt data.
    has_digests: bool,
    /// Whether commands that overtake others may find the queue full.
    is_cramped: bool,
    /// Whether a wire was cut or corrupted, or the initiator logged out. Commands may then end without a
    /// status.
    disturbed: bool,
}

/// A part of the disk with either one outstanding write or any number of reads.
#[derive(Default)]
struct Place {
    /// The content; `None` after a write with unknown outcome.
    holds: Option<Vec<u8>>,
    writing: bool,
    reading: u32,
}

struct Command {
    kind: Kind,
    /// The expected transfer length, followed by the length in the CDB.
    edtl: u32,
    length: u32,
    status: u8,
    /// Whether the command was aborted or reset.
    may_fail: bool,
}

enum Kind {
    Write { place: usize, data: Vec<u8> },
    Read { place: usize },
    Other,
}

impl Scene {
    fn new(script: &mut Script<'_>) -> Scene {
        let (choices, sizes) = (script.byte(), script.byte());
        let has_digests = choices & 1 == 1;
        let digest = if has_digests {
            DigestKind::Crc32c
        } else {
            DigestKind::None
        };
        let max_burst_length = one_of(script, &[512, 1000, 1024, 4096, 65_536]);
        let parameters = Parameters {
            header_digest: digest,
            data_digest: digest,
            initial_r2t: choices & 2 == 2,
            immediate_data: choices & 4 == 4,
            protocol_level: 1 + (choices >> 3 & 1),
            max_outstanding_r2t: 1 + u16::from(choices >> 4 & 3),
            max_burst_length,
            first_burst_length: one_of(script, &[512, 700, 2048, 65_536]).min(max_burst_length),
            local_max_recv_data_segment_length: one_of(script, &[64, 512, 513, 1000, 8192]),
            ..Parameters::defaults(SessionType::Normal)
        };
        let initiator_segment_max = one_of(script, &[64, 512, 515, 1000, 8192]);
        let is_cramped = choices & 0xc0 == 0xc0;
        let at_target = Parameters {
            peer_max_recv_data_segment_length: initiator_segment_max,
            ..parameters.clone()
        };
        let setup = Setup {
            parameters,
            connections: 1 + u16::from(sizes & 3),
            window: 1 + u32::from(sizes >> 2 & 31),
            cmd_sn: Sn(u32::MAX - u32::from(script.byte())),
            staged_bytes_max: if is_cramped { 1500 } else { 16 << 20 },
            initiator_segment_max,
            ..Setup::new()
        };
        let mut pair = setup.build();
        pair.targets = pattern(1, one_of(script, &[0, 32, 3000]) as usize);
        let fresh = || Place {
            holds: Some(vec![0; PLACE_BYTES]),
            ..Place::default()
        };
        Scene {
            asked: vec![false; pair.wires.len()],
            leaving: vec![false; pair.wires.len()],
            pair,
            at_target,
            places: (0..PLACES).map(|_| fresh()).collect(),
            commands: HashMap::new(),
            functions: 0,
            resets: Vec::new(),
            reset_unheard: false,
            writes: 0,
            steps: 0,
            has_digests,
            is_cramped,
            disturbed: false,
        }
    }

    fn act(&mut self, script: &mut Script<'_>) {
        let wire = usize::from(script.byte()) % self.pair.wires.len();
        match script.byte() {
            0..70 => self.write(wire, script),
            70..110 => self.read(wire, script),
            110..120 => self.hang(wire, script),
            120..126 => self.refused(wire, script),
            126..160 => {
                self.pair.cut = one_of(script, &[u32::MAX, 1000, 300, 61, 48, 17, 5]) as usize
            }
            160..190 => drop(self.steps(usize::from(script.byte()))),
            190..205 => self.rest(),
            205..215 => self.pair.wires[wire].held ^= true,
            215..220 => self.finish_hung(),
            220..226 => self.abort(script),
            226..229 => self.reset(wire, script),
            229..232 => self.ask(wire),
            232..235 => drop(
                self.pair
                    .initiator
                    .ping(self.pair.wires[wire].initiator, script.bytes(9)),
            ),
            235..239 => self.pass(Duration::from_secs(script.byte().into())),
            239..246 => self.damage(wire, script),
            246..250 => self.cut(wire),
            250..253 => self.connect(),
            253.. => self.log_out(wire, script),
        }
    }

    // --- actions of the initiator's user

    fn write(&mut self, wire: usize, script: &mut Script<'_>) {
        let (place, edtl, length) = (self.place(script), self.length(script), self.length(script));
        let is_free = !self.places[place].writing && self.places[place].reading == 0;
        if !is_free || !self.has_room(wire) || edtl == 0 {
            return;
        }
        self.writes += 1;
        let data = pattern(self.writes * 7919, edtl as usize);
        let cdb = disk::cdb(disk::WRITE, (place * PLACE_BYTES) as u32, length);
        let task = self.pair.submit(wire, &cdb, 0, &data);
        self.places[place].writing = true;
        self.begin(task, Kind::Write { place, data }, edtl, length);
    }

    fn read(&mut self, wire: usize, script: &mut Script<'_>) {
        let (place, edtl, length) = (self.place(script), self.length(script), self.length(script));
        if self.places[place].writing || !self.has_room(wire) {
            return;
        }
        let cdb = disk::cdb(disk::READ, (place * PLACE_BYTES) as u32, length);
        let task = self.pair.submit(wire, &cdb, edtl, &[]);
        self.places[place].reading += 1;
        self.begin(task, Kind::Read { place }, edtl, length);
    }

    fn hang(&mut self, wire: usize, script: &mut Script<'_>) {
        if self.has_room(wire) {
            let task = self
                .pair
                .hang(wire, Lun(u64::from(script.byte() & 1) << 48));
            self.begin(task, Kind::Other, 0, 0);
        }
    }

    /// Sends a write that the logical unit completes without receiving its data.
    fn refused(&mut self, wire: usize, script: &mut Script<'_>) {
        let edtl = self.length(script);
        if self.has_room(wire) {
            let data = pattern(0, edtl as usize);
            let task = self
                .pair
                .submit(wire, &disk::cdb(disk::FAIL, 0, 0), 0, &data);
            self.begin(task, Kind::Other, edtl, 0);
            self.commands
                .get_mut(&task)
                .expect("it has just started")
                .status = CHECK_CONDITION;
        }
    }

    fn begin(&mut self, task: TaskId, kind: Kind, edtl: u32, length: u32) {
        let command = Command {
            kind,
            edtl,
            length,
            status: GOOD,
            may_fail: false,
        };
        assert!(
            self.commands.insert(task, command).is_none(),
            "two commands with the same ID"
        );
    }

    fn place(&self, script: &mut Script<'_>) -> usize {
        usize::from(script.byte()) % PLACES
    }

    /// Draws a length that is usually small, and sometimes the length of the whole place.
    fn length(&self, script: &mut Script<'_>) -> u32 {
        let byte = u32::from(script.byte());
        if byte < 128 {
            byte * 4
        } else {
            (byte - 127) * 32 - u32::from(script.byte() & 7)
        }
    }

    fn has_room(&self, wire: usize) -> bool {
        let takes_more = self.resets.is_empty() && self.pair.initiator.can_submit();
        takes_more && self.pair.wires[wire].is_up && !self.leaving[wire]
    }

    fn abort(&mut self, script: &mut Script<'_>) {
        let place = usize::from(script.byte() & 31);
        let task = self
            .commands
            .keys()
            .copied()
            .find(|task| task.index() == place);
        if let Some(task) = task.filter(|_| self.may_manage()) {
            self.commands.get_mut(&task).expect("found").may_fail = true;
            let _ = self.pair.initiator.abort_task(self.pair.now, task);
        }
    }

    fn reset(&mut self, wire: usize, script: &mut Script<'_>) {
        if !self.may_manage() {
            return;
        }
        let function = match script.byte() {
            0..128 => TaskManagementFunction::LogicalUnitReset,
            128..200 => TaskManagementFunction::AbortTaskSet,
            200.. => TaskManagementFunction::TargetWarmReset,
        };
        self.steps(1); // sends the submitted command
        let id = self.pair.wires[wire].initiator;
        if let Some(reset) = self
            .pair
            .initiator
            .manage(self.pair.now, id, function, Lun(0))
        {
            self.resets.push(reset);
            self.commands
                .values_mut()
                .for_each(|command| command.may_fail = true);
        }
    }

    /// Counts a task management request, and returns whether it may be sent. The total is limited to the
    /// number that a target accepts at a time, so that none is rejected.
    fn may_manage(&mut self) -> bool {
        self.functions += 1;
        self.functions <= 32
    }

    fn ask(&mut self, wire: usize) {
        if !self.asked[wire] {
            self.asked[wire] = self
                .pair
                .initiator
                .send_targets(self.pair.wires[wire].initiator, "");
        }
    }

    fn log_out(&mut self, wire: usize, script: &mut Script<'_>) {
        let closes_all = script.flag();
        let reason = if closes_all {
            LogoutReason::CloseSession
        } else {
            LogoutReason::CloseConnection
        };
        let id = self.pair.wires[wire].initiator;
        if self.pair.initiator.log_out(self.pair.now, id, reason) {
            self.disturbed = true;
            self.leaving[wire] = true;
            self.leaving
                .iter_mut()
                .for_each(|leaving| *leaving |= closes_all);
        }
    }

    // --- events on the wires

    fn damage(&mut self, wire: usize, script: &mut Script<'_>) {
        let wire = &mut self.pair.wires[wire];
        let pipe = if script.flag() {
            &mut wire.to_target
        } else {
            &mut wire.to_initiator
        };
        let (pdu, byte, bits) = (script.byte(), script.byte(), script.byte() | 1);
        let count = pipe.pdus.len().max(1);
        if let Some(bytes) = pipe
            .pdus
            .get_mut(usize::from(pdu) % count)
            .filter(|_| self.has_digests)
        {
            let at = usize::from(byte) * 7 % bytes.len();
            bytes[at] ^= bits;
            self.disturbed = true;
        }
    }

    fn cut(&mut self, wire: usize) {
        if self.pair.wires[wire].is_up {
            self.disturbed = true;
            self.pair.disconnect(wire);
        }
    }

    fn connect(&mut self) {
        let lives = self
            .pair
            .wires
            .iter()
            .zip(&self.leaving)
            .any(|(wire, leaving)| wire.is_up && !leaving);
        if lives && self.pair.wires.len() < 8 {
            let cid = self.pair.wires.len() as u16;
            self.pair.connect(cid, &self.at_target);
            self.asked.push(false);
            self.leaving.push(false);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.pair.tick(time);
        self.rest();
    }

    fn finish_hung(&mut self) {
        let hangs = |task: &target::TaskId| self.pair.commands[task].command.cdb()[0] == disk::HANG;
        let hung: Vec<_> = self.pair.under_way().into_iter().filter(hangs).collect();
        hung.into_iter().for_each(|task| self.pair.finish(task));
    }

    fn steps(&mut self, most: usize) -> bool {
        let moved = (0..most).all(|_| self.pair.step());
        self.steps += most;
        moved
    }

    fn rest(&mut self) {
        while self.steps(1) {
            assert!(self.steps < STEPS_MAX, "the exchange never ends");
        }
    }

    // --- checks

    fn look(&mut self) {
        for (task, ended) in std::mem::take(&mut self.pair.ended) {
            let command = self.commands.remove(&task).expect("a command ends once");
            self.check(command, ended);
        }
        for event in std::mem::take(&mut self.pair.initiator_events) {
            match event {
                initiator::Event::LoggedOut { connection, .. }
                | initiator::Event::Close { connection, .. } => {
                    self.close(|wire| wire.initiator == connection);
                }
                initiator::Event::Managed { tmf, result } => {
                    self.reset_unheard |= result.is_none() && self.resets.contains(&tmf);
                    self.resets.retain(|&reset| reset != tmf);
                }
                initiator::Event::Text { connection, text } => self.told(connection, &text),
                _ => {}
            }
        }
        for event in std::mem::take(&mut self.pair.target_events) {
            if let target::Event::Close { connection, .. } = event {
                self.close(|wire| wire.target == connection);
            }
        }
        self.disturbed |= self.pair.wires.iter().any(|wire| !wire.is_up);
    }

    fn close(&mut self, which: impl Fn(&pair::Wire) -> bool) {
        if let Some(wire) = self.pair.wires.iter().position(which) {
            self.cut(wire);
        }
    }

    fn told(&mut self, connection: initiator::ConnectionId, text: &[u8]) {
        assert!(self.disturbed || text == self.pair.targets, "another text");
        let wire = self
            .pair
            .wires
            .iter()
            .position(|wire| wire.initiator == connection);
        self.asked[wire.expect("an event of an existing connection")] = false;
    }

    fn check(&mut self, command: Command, ended: Ended) {
        let Command {
            kind,
            edtl,
            length,
            status: expected,
            may_fail,
        } = command;
        let was_good = match &ended {
            Ended::Failed(why) => {
                assert!(may_fail || self.disturbed, "failed for no reason: {why:?}");
                None
            }
            Ended::Done {
                status, residual, ..
            } => {
                let found_no_room = self.is_cramped && *status == TASK_SET_FULL;
                assert!(
                    self.disturbed || found_no_room || *status == expected,
                    "status {status:#x}"
                );
                if *status == GOOD {
                    assert_eq!(*residual, residual_of(length, edtl));
                }
                // A command that was rejected because the queue was full was never started.
                (!self.disturbed || *status == GOOD).then_some(*status == GOOD)
            }
        };
        match kind {
            Kind::Other => {}
            Kind::Read { place } => self.check_read(place, edtl.min(length), ended),
            Kind::Write { place, mut data } => {
                data.truncate(length as usize);
                self.check_write(place, &data, was_good);
            }
        }
    }

    fn check_read(&mut self, place: usize, length: u32, ended: Ended) {
        self.places[place].reading -= 1;
        if let (
            Ended::Done {
                status: GOOD,
                data_in,
                ..
            },
            Some(holds),
        ) = (ended, &self.places[place].holds)
        {
            assert_eq!(data_in.len(), length as usize);
            assert!(
                data_in == holds[..data_in.len()],
                "data that differs from the written data"
            );
        }
    }

    /// Checks a completed write. `was_good` is `None` if the outcome of the write is unknown.
    fn check_write(&mut self, place: usize, data: &[u8], was_good: Option<bool>) {
        self.places[place].writing = false;
        match was_good {
            Some(false) => {}
            None => self.places[place].holds = None,
            Some(true) => {
                // After a write with unknown outcome, the content beyond this write's data is still unknown.
                let there = self.pair.disk.read(place * PLACE_BYTES, PLACE_BYTES);
                let holds = self.places[place]
                    .holds
                    .get_or_insert_with(|| there.clone());
                holds[..data.len()].copy_from_slice(data);
                assert!(*holds == there, "the data of a GOOD write is missing");
            }
        }
    }

    // --- the end

    /// Checks that every command ends if it is given enough time.
    fn end(mut self) {
        for wire in 0..self.pair.wires.len() {
            self.pair.wires[wire].held = false;
        }
        self.pair.cut = self.pair.cut.max(48);
        for _ in 0..ROUNDS_MAX {
            self.rest();
            self.finish_hung();
            self.rest();
            self.look();
            if self.commands.is_empty() {
                break;
            }
            if self.reset_unheard {
                self.abort_all();
            }
            self.pass(Duration::from_secs(30));
            self.look();
        }
        assert!(self.commands.is_empty(), "commands that never end");
        if !self.disturbed {
            assert!(
                self.is_cramped || self.pair.rejects().is_empty(),
                "a well-behaved initiator was rejected"
            );
            assert_eq!(
                self.pair.initiator.in_flight() + self.pair.target.commands_in_flight(),
                0
            );
            assert_eq!(self.pair.target.exp_cmd_sn(), self.pair.initiator.cmd_sn());
        }
        (0..self.pair.wires.len()).for_each(|wire| self.cut(wire));
        self.rest();
        assert_eq!(
            self.pair.initiator.in_flight() + self.pair.target.commands_in_flight(),
            0
        );
        assert!(
            self.pair.commands.is_empty(),
            "tasks whose end was never reported to the target's driver"
        );
        self.check_disk();
    }

    fn abort_all(&mut self) {
        for (&task, command) in &mut self.commands {
            command.may_fail = true;
            let _ = self.pair.initiator.abort_task(self.pair.now, task);
        }
    }

    fn check_disk(&self) {
        for (at, place) in (0..).step_by(PLACE_BYTES).zip(&self.places) {
            if let Some(holds) = &place.holds {
                assert!(
                    *holds == self.pair.disk.read(at, PLACE_BYTES),
                    "the disk has changed behind our back"
                );
            }
        }
    }
}

fn residual_of(length: u32, edtl: u32) -> Residual {
    match length.cmp(&edtl) {
        std::cmp::Ordering::Equal => Residual::None,
        std::cmp::Ordering::Less => Residual::Underflow(edtl - length),
        std::cmp::Ordering::Greater => Residual::Overflow(length - edtl),
    }
}

fn one_of(script: &mut Script<'_>, choices: &[u32]) -> u32 {
    choices[usize::from(script.byte()) % choices.len()]
}

const PLACES: usize = 32;
/// The maximum length that a script can choose.
const PLACE_BYTES: usize = 4096;
/// Number of actions: enough for a window to wrap, and quick to execute.
const ACTS_MAX: usize = 200;
/// Maximum number of steps: enough to transfer all data of a scene in the smallest pieces several times.
const STEPS_MAX: usize = 1_000_000;
/// Maximum number of rounds of half a minute: enough for both sides' NOP timeouts and grace periods, followed
/// by a fence of two ticks for each reset.
const ROUNDS_MAX: usize = 200;

const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;
const TASK_SET_FULL: u8 = 0x28;
