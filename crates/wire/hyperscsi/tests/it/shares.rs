//! Several state machines on one port: frames reach the right one, and each nexus belongs to one of them.

use std::time::Instant;

use hyperscsi::initiator::{self, Event};
use hyperscsi::target::{self, SessionEnd, Share, TaskId};
use hyperscsi::{FRAME_BYTES_MIN, Header, Initiator, Opcode, Response, Target, discovery};

use super::pair::{One, command, config, key};

const COUNT: u32 = 3;

/// State machines on one port, like the cores of a server.
struct Place {
    now: Instant,
    machines: Vec<Target<u8, One>>,
    /// The state machines that received session frames, in order.
    used: Vec<u32>,
    began: Vec<u32>,
    ended: Vec<(u32, SessionEnd)>,
}

impl Place {
    fn new(one: impl Fn() -> One) -> Place {
        let machine = |index| {
            let share = Share {
                index,
                count: COUNT,
            };
            Target::new(
                target::Config {
                    share,
                    ..target::Config::default()
                },
                one(),
                [index as u8 + 7; 32],
            )
        };
        let machines = (0..COUNT).map(machine).collect();
        Place {
            now: Instant::now(),
            machines,
            used: Vec::new(),
            began: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// The owner of a frame, on which all state machines must agree.
    fn owner(&self, frame: &[u8]) -> Option<u32> {
        let header = Header::parse(frame).expect("a frame");
        let say = |index| {
            Share {
                index,
                count: COUNT,
            }
            .owner(&header, &mut frame.to_vec())
        };
        let said: Vec<Option<u32>> = (0..COUNT).map(say).collect();
        assert!(said.iter().all(|owner| *owner == said[0]), "{said:?}");
        said[0]
    }

    /// Exchanges frames until neither side has any.
    fn settle(&mut self, path: u8, initiator: &mut Initiator) {
        let mut frame = Vec::new();
        loop {
            let mut is_quiet = true;
            while initiator.poll_transmit(self.now, &mut frame).is_some() {
                is_quiet = false;
                let owner = self.owner(&frame).expect("a frame of ours has an owner");
                if !Header::parse(&frame)
                    .expect("a frame")
                    .opcode
                    .is_outside_sessions()
                {
                    self.used.push(owner);
                }
                self.machines[owner as usize].handle_frame(self.now, &path, &mut frame);
                self.serve(owner);
            }
            for machine in &mut self.machines {
                while machine.poll_transmit(self.now, &mut frame).is_some() {
                    is_quiet = false;
                    initiator.handle_frame(self.now, &mut frame);
                }
            }
            if is_quiet {
                return;
            }
        }
    }

    fn serve(&mut self, index: u32) {
        let machine = &mut self.machines[index as usize];
        while let Some(event) = machine.poll_event() {
            match event {
                target::Event::SessionBegan { .. } => self.began.push(index),
                target::Event::SessionEnded { session, reason } => {
                    machine.quiesced(session);
                    self.ended.push((index, reason));
                }
                target::Event::Command { task, command } => {
                    answer(machine, task, command.data_in_bytes)
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

fn answer(machine: &mut Target<u8, One>, task: TaskId, bytes: u32) {
    let data = vec![5; bytes as usize].into();
    assert!(machine.respond(
        task,
        Response {
            data,
            ..Response::default()
        }
    ));
}

fn log_in(place: &mut Place, config: initiator::Config) -> Initiator {
    let seed = [place.began.len() as u8 + 1; 32];
    let mut initiator = Initiator::new(place.now, config, seed);
    place.settle(0, &mut initiator);
    assert!(matches!(
        initiator.poll_event(),
        Some(Event::LoggedIn { .. })
    ));
    initiator
}

fn run_a_command(place: &mut Place, initiator: &mut Initiator) {
    initiator
        .submit(command(1, 4096, Vec::new()))
        .expect("room");
    place.settle(0, initiator);
    let done = initiator.poll_event();
    assert!(matches!(done, Some(Event::Completed { response, .. }) if response.data == [5; 4096]));
}

#[test]
fn consecutive_ports_of_a_host_are_spread_and_their_frames_say_whose_they_are() {
    for key in [None, key()] {
        let mut place = Place::new(|| One(key.clone().map(|(key, _)| key)));
        for port in 0..12 {
            let mut initiator = log_in(
                &mut place,
                initiator::Config {
                    port,
                    key: key.clone(),
                    ..config()
                },
            );
            let machine = *place.began.last().expect("a session");
            assert_eq!(initiator.session().expect("logged in") % COUNT, machine);
            place.used.clear();
            run_a_command(&mut place, &mut initiator);
            assert!(!place.used.is_empty() && place.used.iter().all(|used| *used == machine));
        }
        let sessions: Vec<usize> = place.machines.iter().map(Target::sessions).collect();
        assert_eq!(sessions, [4; COUNT as usize]);
        assert!(
            place
                .began
                .windows(2)
                .all(|pair| pair[1] == (pair[0] + 1) % COUNT),
            "{:?}",
            place.began
        );
    }
}

#[test]
fn all_sessions_of_a_nexus_meet_in_one_machine() {
    let mut place = Place::new(|| One(None));
    for _ in 0..5 {
        let mut initiator = log_in(
            &mut place,
            initiator::Config {
                port: 9,
                ..config()
            },
        );
        run_a_command(&mut place, &mut initiator);
    }
    let machine = place.began[0];
    assert_eq!(place.began, [machine; 5]);
    assert_eq!(place.ended, [(machine, SessionEnd::Replaced); 4]);
    assert_eq!(
        place.machines.iter().map(Target::sessions).sum::<usize>(),
        1
    );
}

#[test]
fn a_login_that_nobody_understands_is_for_nobody() {
    let place = Place::new(|| One(None));
    let mut initiator = Initiator::new(place.now, config(), [1; 32]);
    let mut login = Vec::new();
    initiator
        .poll_transmit(place.now, &mut login)
        .expect("a login");
    assert_eq!(
        Header::parse(&login).map(|header| header.opcode),
        Ok(Opcode::LoginRequest)
    );
    assert!(place.owner(&login).is_some());
    // Only bytes covered by the checksum; the rest is padding.
    let length = usize::from(Header::parse(&login).expect("a frame").length);
    for at in hyperscsi::HEADER_BYTES..hyperscsi::HEADER_BYTES + length {
        let mut other = login.clone();
        other[at] ^= 1;
        assert_eq!(place.owner(&other), None, "byte {at}");
    }
    // Any state machine answers discovery.
    let question = discovery::question(7);
    assert!(question.len() >= FRAME_BYTES_MIN);
    let header = Header::parse(&question).expect("a frame");
    for index in 0..COUNT {
        assert_eq!(
            Share {
                index,
                count: COUNT
            }
            .owner(&header, &mut question.clone()),
            Some(index)
        );
    }
}
