//! Scenes with commands of a session whose transport is simulated by the test.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::Buffer;
use front_end_core::{Budget, Config, Limits, Server};
use logical_unit::{
    Data, DataIn, InitiatorPort, LogicalUnit, Receive, Reply, SessionTraits, Status, TargetPort,
};
use reactor::Alone;
use volume::VolumeOptions;

use crate::*;

#[path = "../../logical_unit/tests/it/support/mod.rs"]
#[allow(dead_code, unused_imports, unreachable_pub)]
mod support;

use support::{Disk, DiskOptions, TEST_UNIT_READY, sixteen, unit_options, unit_over};

/// A command: its index, CDB, data and task attribute.
struct Sent {
    index: usize,
    cdb: Vec<u8>,
    data: Vec<u8>,
    turn: Turn,
}

/// A session on LUN 0 and 1, each of which is a separate disk.
struct Scene {
    commands: Commands<Scene>,
    /// The responses so far, with the index of their command.
    answers: Vec<(usize, Status)>,
    /// Whether the initiator does not read its responses, so that they stay outstanding, as over iSCSI.
    is_stuck: bool,
    /// Whether the data of writes arrives only when [`Scene::data_arrives`] is called.
    holds_data: bool,
}

impl ScsiSession for Scene {
    type Id = usize;
    type Command = Sent;
    type Landing = ();
    type Outgoing = usize;

    const UNCHARGED_BYTES: usize = usize::MAX;

    fn commands(&self) -> &Commands<Scene> {
        &self.commands
    }

    fn commands_mut(&mut self) -> &mut Commands<Scene> {
        &mut self.commands
    }

    fn index(id: usize) -> usize {
        id
    }

    fn declared(command: &Sent) -> Declared<'_, usize> {
        Declared {
            id: command.index,
            lun: 0,
            cdb: &command.cdb,
            turn: command.turn,
            data_out_bytes: command.data.len() as u32,
            data_in_bytes: if command.data.is_empty() { 1 << 24 } else { 0 },
            fault: None,
            sends_early: !command.data.is_empty(),
        }
    }

    fn target(&self) -> Option<&str> {
        Some("target")
    }

    fn receive(&mut self, command: &Sent, index: usize, receive: Receive) {
        assert!(
            self.commands.charge(command.index, command.data.len()),
            "there is memory for its data"
        );
        if self.holds_data {
            return self.commands.receive(command.index, receive.job, ());
        }
        self.finish_in_turn(
            command.index,
            index,
            receive.job,
            Data::Buffer(Buffer::from(&command.data[..])),
        );
    }

    fn outgoing(data: DataIn) -> usize {
        data.len()
    }

    fn respond(&mut self, id: usize, answer: Answer<'_>) {
        self.answers.push((id, answer.status));
        if !self.is_stuck {
            self.commands.sent(id, reactor::now());
            self.resume_waiting_for_memory();
        }
    }
}

const DEADLINE: Duration = Duration::from_secs(30);

/// Runs a scene whose session may hold `limit` bytes.
fn play(limit: usize, disk: fn() -> DiskOptions, scene: impl FnOnce(&mut Scene)) {
    reactor::block_on(Alone::virtual_time(), async {
        let config = Config {
            volumes: Vec::new(),
            portals: Vec::new(),
            limits: Limits::default(),
        };
        let (server, _cores) = Server::new(config, 1, Vec::new());
        let disks: Vec<_> = (0..2).map(|_| Arc::new(Disk::new(disk()))).collect();
        let unit = |(lun, disk): (usize, &Arc<Disk>)| Export {
            lun: lun as u16,
            volume: format!("disk{lun}"),
            unit: unit_over(
                Arc::clone(disk) as _,
                VolumeOptions::default(),
                unit_options(),
            )
            .expect("new"),
            initiators: None,
            deadline: DEADLINE,
        };
        let exports: Vec<Export> = disks.iter().enumerate().map(unit).collect();
        let initiator = InitiatorPort {
            name: "initiator".into(),
            qualifier: [0; 6],
        };
        let port = TargetPort {
            name: "target".into(),
            group: 1,
            relative_port: 1,
        };
        let luns = Luns::new(
            &exports,
            SessionTraits::new(initiator, port, reactor::now),
            Rc::default(),
        );
        drop(exports); // only the session refers to the units
        let session = Rc::new_cyclic(|this| {
            let commands = Commands::new(
                this.clone(),
                server,
                Rc::default(),
                luns,
                Budget::new(limit, None),
            );
            RefCell::new(Scene {
                commands,
                answers: Vec::new(),
                is_stuck: false,
                holds_data: false,
            })
        });
        let mut session = session.borrow_mut();
        session.send(0, &TEST_UNIT_READY, &[], Turn::Simple); // takes the unit attention
        session.answers.clear();
        scene(&mut session);
    });
}

/// Creates a disk that queues writes until [`Disk::settle`] executes them.
fn queueing() -> DiskOptions {
    DiskOptions {
        queues: true,
        ..DiskOptions::default()
    }
}

impl Scene {
    fn send(&mut self, index: usize, cdb: &[u8], data: &[u8], turn: Turn) {
        let command = Sent {
            index,
            cdb: cdb.into(),
            data: data.into(),
            turn,
        };
        self.arrive(reactor::now(), command);
    }

    fn write(&mut self, index: usize, turn: Turn) {
        self.send(index, &sixteen(0x8a, 0, 0, 1), &[7; 512], turn);
    }

    fn data_arrives(&mut self, index: usize) {
        let (slot, Receiving { job, .. }) =
            self.commands.received(index).expect("its data is awaited");
        self.finish_in_turn(index, slot, job, Data::Buffer(Buffer::zeroed(512)));
    }

    fn unit(&self) -> Arc<LogicalUnit> {
        self.commands.luns.unit(0)
    }

    /// Runs a tick at this time. Returns the number of units to fence.
    fn tick(&mut self, now: Instant) -> usize {
        self.commands.observe(now);
        self.expire(now).len()
    }
}

/// Regression: HyperSCSI's session lost the first charge.
#[test]
fn a_second_charge_of_a_command_is_added_to_the_first() {
    play(10_000, queueing, |session| {
        session.write(1, Turn::Simple);
        assert!(session.commands.charge(1, 1000) && session.commands.charge(1, 2000));
        assert_eq!(session.commands.budget.used(), 512 + 1000 + 2000);
        session.commands.clear(1, &mut Vec::new());
        assert_eq!(session.commands.budget.used(), 0);
    });
}

/// Regression: the iSCSI session withdrew the response to the second command, and sent another one.
#[test]
fn a_command_that_begins_because_another_has_expired_is_not_expired_with_it() {
    play(10_000, queueing, |session| {
        let begin = reactor::now();
        session.is_stuck = true;
        session.write(1, Turn::Ordered);
        session.send(2, &TEST_UNIT_READY, &[], Turn::Simple);
        assert_eq!((session.tick(begin), session.answers.len()), (0, 0));
        assert_eq!(
            session.tick(begin + DEADLINE + Duration::from_secs(1)),
            1,
            "the disk of the write"
        );
        assert_eq!(
            session.answers,
            [(1, Status::CheckCondition), (2, Status::Good)]
        );
    });
}

#[test]
fn a_command_that_waits_too_long_for_memory_is_busy_and_its_device_is_not_fenced() {
    play(10_000, queueing, |session| {
        let begin = reactor::now();
        let _held = session.commands.budget.take(10_000);
        session.send(1, &sixteen(0x88, 0, 0, 1), &[], Turn::Simple);
        assert_eq!((session.tick(begin), session.answers.len()), (0, 0));
        assert_eq!(session.tick(begin + DEADLINE + Duration::from_secs(1)), 0);
        assert_eq!(session.answers, [(1, Status::Busy)]);
    });
}

/// Regression: iSCSI's session kept the data until the command's turn came, although its charge had been
/// released.
#[test]
fn data_of_a_command_that_is_aborted_before_its_turn_do_not_outlive_their_charge() {
    play(10_000, queueing, |session| {
        session.write(1, Turn::Ordered);
        session.write(2, Turn::Simple);
        assert_eq!(
            (
                session.commands.budget.used(),
                session.commands.luns.slot(0).waiting.len()
            ),
            (1024, 1)
        );
        session.commands.clear(2, &mut Vec::new());
        assert_eq!(
            (
                session.commands.budget.used(),
                session.commands.luns.slot(0).waiting.len()
            ),
            (512, 0)
        );
    });
}

/// Regression: iSCSI's session responded to the second function while the device still had the write.
#[test]
fn a_function_that_aborts_an_aborted_command_again_waits_for_the_same_devices() {
    play(10_000, queueing, |session| {
        session.write(1, Turn::Simple);
        let unit = session.unit();
        for function in ["the first", "the second"] {
            let mut units = Vec::new();
            assert_eq!(session.commands.clear_unit(&unit, None, &mut units), [1]);
            assert!(
                units.len() == 1 && Arc::ptr_eq(&units[0], &unit),
                "{function} waits for the device"
            );
        }
        session.tell_aborted(&[1]);
        assert_eq!(session.answers, [(1, Status::TaskAborted)]);
    });
}

/// Regression: after `reload --force` or `remove --force`, a volume was unavailable to all hosts until such a
/// session ended.
#[test]
fn a_removed_unit_is_closed_although_a_session_lives_whose_commands_were_aborted() {
    play(10_000, queueing, |session| {
        let begin = reactor::now();
        session.write(1, Turn::Simple);
        session.write(2, Turn::Simple);
        let (unit, mut units) = (session.unit(), Vec::new());
        session.commands.clear(1, &mut units);
        session.tell_aborted(&[1]);
        session.tick(begin);
        session.tick(begin + DEADLINE + Duration::from_secs(1)); // ends the other one
        assert_eq!(
            session.answers,
            [(1, Status::TaskAborted), (2, Status::CheckCondition)]
        );
        let closed = Arc::downgrade(&unit);
        drop((unit, units, session.commands.adapt_luns(&[])));
        session.commands.sweep_luns();
        assert_eq!(closed.strong_count(), 0);
    });
}

/// Regression: each command started the next one before the call that answered it had returned.
#[test]
fn commands_that_waited_for_an_ordered_one_begin_one_after_the_other() {
    play(10_000, queueing, |session| {
        session.write(1, Turn::Ordered);
        (2..20_000).for_each(|index| session.send(index, &TEST_UNIT_READY, &[], Turn::Simple));
        assert_eq!(session.answers, []);
        session.answer(1, Reply::status(Status::Good));
        let good: Vec<_> = (1..20_000).map(|index| (index, Status::Good)).collect();
        assert_eq!(session.answers, good);
    });
}

/// Regression: later commands overtook a write whose data was arriving.
#[test]
fn an_ordered_write_whose_data_arrives_holds_back_later_commands() {
    play(10_000, queueing, |session| {
        session.write(1, Turn::Simple);
        session.holds_data = true;
        session.write(2, Turn::Ordered);
        session.send(3, &TEST_UNIT_READY, &[], Turn::Simple);
        assert_eq!(
            session.answers,
            [],
            "the ORDERED write waits, and the later command for it"
        );
        session.answer(1, Reply::status(Status::Good));
        assert_eq!(
            session.answers,
            [(1, Status::Good)],
            "its turn has come, its data has not"
        );
        session.data_arrives(2);
        assert_eq!(session.answers.len(), 1, "the disk has the write");
        session.answer(2, Reply::status(Status::Good));
        assert_eq!(session.answers[1..], [(2, Status::Good), (3, Status::Good)]);
    });
}

/// The data of the write is lost before its turn comes.
#[test]
fn a_write_that_fails_before_its_turn_waits_no_longer() {
    play(10_000, queueing, |session| {
        session.write(1, Turn::Simple);
        session.holds_data = true;
        session.write(2, Turn::Ordered);
        session.answer(2, Reply::status(Status::Busy));
        assert_eq!(session.commands.luns.slot(0).waiting.len(), 0);
    });
}

/// SYNCHRONIZE CACHE (16) with data that it does not use. Regression: the command started before its turn.
#[test]
fn a_command_with_data_that_it_does_not_need_waits_for_its_turn() {
    play(10_000, queueing, |session| {
        session.write(1, Turn::Ordered);
        session.send(2, &sixteen(0x91, 0, 0, 1), &[7; 512], Turn::Simple);
        assert_eq!(session.commands.luns.slot(0).waiting.len(), 1);
        session.answer(1, Reply::status(Status::Good));
        assert_eq!(session.commands.luns.slot(0).waiting.len(), 0);
    });
}

/// Each command completes immediately and frees its memory. Regression: the iSCSI session did not allow for
/// the fact that this resumes the next command.
#[test]
fn commands_that_waited_for_memory_resume_each_other_in_order_and_one_after_the_other() {
    let in_cache = || DiskOptions {
        cached: true,
        ..DiskOptions::default()
    };
    play(10_000, in_cache, |session| {
        let held = session.commands.budget.take(10_000);
        (1..2000).for_each(|index| session.send(index, &sixteen(0x88, 0, 0, 1), &[], Turn::Simple));
        assert_eq!(session.answers, []);
        drop(held);
        session.resume_waiting_for_memory();
        let good: Vec<_> = (1..2000).map(|index| (index, Status::Good)).collect();
        assert_eq!(session.answers, good);
        assert_eq!(session.commands.budget.used(), 0);
    });
}
