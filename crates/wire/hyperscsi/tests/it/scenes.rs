use std::time::{Duration, Instant};

use hyperscsi::initiator::{Config, EndReason, Event, Times};
use hyperscsi::target::{self, Admission, Directory, SessionEnd};
use hyperscsi::{
    Function, FunctionResult, Header, Initiator, Opcode, Psk, Refusal, Response, Target, discovery,
};

use super::pair::{One, Pair, command, config, key};

const SECOND: Duration = Duration::from_secs(1);

fn with_key() -> Config {
    Config {
        key: key(),
        ..config()
    }
}

/// The opcodes of frames.
fn opcodes(frames: &[Vec<u8>]) -> Vec<Opcode> {
    frames
        .iter()
        .map(|frame| Header::parse(frame).expect("a frame").opcode)
        .collect()
}

#[test]
fn a_command_at_depth_one_costs_a_frame_each_way() {
    let mut pair = Pair::logged_in(with_key());
    pair.pass(SECOND);
    pair.to_target.clear();
    pair.to_initiator.clear();
    for cdb in 0..20 {
        pair.initiator
            .submit(command(cdb, 512, Vec::new()))
            .unwrap();
        pair.settle();
        let Some(Event::Completed { response, .. }) = pair.events.pop() else {
            panic!("{:?}", pair.events)
        };
        assert_eq!(response.data, [cdb; 512]);
    }
    // Arrived frames are acknowledged by the frames in the other direction.
    assert_eq!(opcodes(&pair.to_target), [Opcode::Request; 20]);
    assert_eq!(opcodes(&pair.to_initiator), [Opcode::Reply; 20]);
    pair.pass(SECOND);
    assert_eq!(
        opcodes(&pair.to_target[20..]),
        [Opcode::Ack],
        "and the last one alone"
    );
    assert_eq!(pair.target.holds(), (0, 0, 0));
}

/// Submits twenty commands together that return 512 bytes each; returns the number of frames in each
/// direction, without acknowledgements.
fn frames_of_twenty(config: Config) -> (usize, usize) {
    let mut pair = Pair::logged_in(config);
    pair.pass(SECOND);
    pair.to_target.clear();
    pair.to_initiator.clear();
    for cdb in 0..20 {
        pair.initiator
            .submit(command(cdb, 512, Vec::new()))
            .expect("there is room");
    }
    pair.pass(SECOND);
    assert_eq!(pair.events.len(), 20);
    for event in pair.events {
        assert!(matches!(event, Event::Completed { response, .. } if response.data.len() == 512));
    }
    assert_eq!(pair.target.holds(), (0, 0, 0), "all are acknowledged");
    let messages = |frames: &[Vec<u8>]| {
        opcodes(frames)
            .iter()
            .filter(|opcode| opcode.carries_message())
            .count()
    };
    (messages(&pair.to_target), messages(&pair.to_initiator))
}

#[test]
fn small_messages_that_wait_share_frames() {
    // 40 bytes of a request, and 2 for its length, of 1,200 bytes; two replies of 532 bytes.
    assert_eq!(frames_of_twenty(config()), (1, 10));
    assert_eq!(
        frames_of_twenty(Config {
            frame_bytes: vec![9000],
            ..with_key()
        }),
        (1, 2)
    );
    assert_eq!(
        frames_of_twenty(Config {
            bundles: false,
            ..config()
        }),
        (20, 20),
        "if both sides can do it"
    );
}

#[test]
fn messages_of_a_lost_frame_are_sent_again_together() {
    let mut pair = Pair::logged_in(config());
    pair.pass(SECOND);
    pair.to_target.clear();
    for cdb in 0..20 {
        pair.initiator
            .submit(command(cdb, 0, Vec::new()))
            .expect("there is room");
    }
    pair.passes = |_, _| false;
    pair.settle();
    pair.passes = |_, _| true;
    pair.pass(SECOND);
    assert_eq!(pair.events.len(), 20);
    assert_eq!(
        opcodes(&pair.to_target)
            .iter()
            .filter(|opcode| opcode.carries_message())
            .count(),
        1
    );
}

#[test]
fn a_mebibyte_goes_both_ways_in_fragments() {
    let mut pair = Pair::logged_in(config());
    pair.answers = false;
    let data: Vec<u8> = (0..1 << 20).map(|at: u32| ((at * 31) >> 7) as u8).collect();
    pair.initiator
        .submit(command(9, 1 << 20, data.clone()))
        .unwrap();
    pair.pass(SECOND);
    let event = pair.target_events.pop();
    let Some(target::Event::Command { task, command }) = event else {
        panic!("{event:?}")
    };
    assert!(command.data_out == data, "the data arrived");
    pair.answer(task, &command);
    pair.pass(SECOND);
    let Some(Event::Completed { response, .. }) = pair.events.pop() else {
        panic!("{:?}", pair.events)
    };
    assert!(response.data == [9; 1 << 20]);
}

#[test]
fn who_does_not_know_the_key_is_refused() {
    let wrong = Some((Psk::from_secret(b"another"), hyperscsi::Cipher::Aes256Gcm));
    for (theirs, ours) in [(wrong, key()), (None, key()), (key(), None)] {
        let mut pair = Pair::new(Config {
            key: theirs,
            ..config()
        });
        pair.target.directory_mut().0 = ours.map(|(key, _)| key);
        pair.settle();
        assert_eq!(
            pair.events,
            [Event::Ended(EndReason::Refused(Refusal::Authentication))]
        );
        let refused = target::Event::LoginRefused {
            initiator: "host".to_owned(),
            target: "disk".to_owned(),
            refusal: Refusal::Authentication,
        };
        assert!(
            pair.target_events.contains(&refused),
            "{:?}",
            pair.target_events
        );
        assert_eq!(pair.target.sessions(), 0);
    }
    let mut pair = Pair::new(Config::new("host", "other"));
    pair.settle();
    assert_eq!(
        pair.events,
        [Event::Ended(EndReason::Refused(Refusal::UnknownTarget))]
    );
}

#[test]
fn a_target_that_does_not_know_the_key_is_none() {
    // This target answers and accepts anything, but cannot seal the answer.
    let mut pair = Pair::new(with_key());
    pair.target.directory_mut().0 = Some(Psk::from_secret(b"another"));
    let mut open = Pair::new(config());
    open.settle();
    let mut answer = open.to_initiator[0].clone();
    pair.initiator.handle_frame(pair.now, &mut answer);
    pair.collect();
    assert_eq!(pair.events, [], "an answer to another login, unsealed");
}

/// Admits all initiators to the target "open", and those with the key to "keyed".
struct OpenAndKeyed;

impl Directory<u8> for OpenAndKeyed {
    fn admit(&self, _: &str, target: &str, _: &u8) -> Result<Admission, Refusal> {
        Ok(if target == "open" {
            Admission::Open
        } else {
            Admission::Key(Psk::from_secret(b"a secret"))
        })
    }

    fn targets(&self, _: &u8) -> Vec<String> {
        Vec::new()
    }
}

/// Exchanges frames until neither side has any.
fn exchange(
    now: Instant,
    initiator: &mut Initiator,
    target: &mut Target<u8, OpenAndKeyed>,
) -> Option<Event> {
    let mut frame = Vec::new();
    loop {
        let mut is_over = true;
        while initiator.poll_transmit(now, &mut frame).is_some() {
            target.handle_frame(now, &0, &mut frame);
            is_over = false;
        }
        while target.poll_transmit(now, &mut frame).is_some() {
            initiator.handle_frame(now, &mut frame);
            is_over = false;
        }
        if is_over {
            return initiator.poll_event();
        }
    }
}

#[test]
fn hosts_without_a_key_leave_sessions_to_those_with_one() {
    let now = Instant::now();
    let limits = target::Config {
        sessions_max: 16,
        ..target::Config::default()
    };
    let mut target = Target::new(limits, OpenAndKeyed, [2; 32]);
    let log_in = |target: &mut _, has_key: bool, port: u32| {
        let key = if has_key { key() } else { None };
        let name = if key.is_some() { "keyed" } else { "open" };
        let config = Config {
            key,
            port,
            ..Config::new("host", name)
        };
        exchange(
            now,
            &mut Initiator::new(now, config, [port as u8; 32]),
            target,
        )
    };
    let full = Some(Event::Ended(EndReason::Refused(Refusal::Full)));
    for port in 0..20 {
        let event = log_in(&mut target, false, port);
        assert_eq!(event == full, port >= 14, "{port}: {event:?}");
    }
    for port in 20..30 {
        let event = log_in(&mut target, true, port);
        assert_eq!(event == full, port >= 22, "{port}: {event:?}");
    }
}

#[test]
fn logins_without_a_key_displace_none_with_one() {
    let now = Instant::now();
    let mut target = Target::new(target::Config::default(), OpenAndKeyed, [2; 32]);
    let mut initiator = Initiator::new(
        now,
        Config {
            key: key(),
            ..Config::new("host", "keyed")
        },
        [1; 32],
    );
    let mut frame = Vec::new();
    let mut reply = Vec::new();
    initiator.poll_transmit(now, &mut frame).expect("a login");
    target.handle_frame(now, &0, &mut frame);
    target.poll_transmit(now, &mut reply).expect("its reply");
    // Logins that are answered but never completed.
    for port in 0..200 {
        let config = Config {
            port,
            ..Config::new("host", "open")
        };
        Initiator::new(now, config, [port as u8; 32])
            .poll_transmit(now, &mut frame)
            .expect("a login");
        target.handle_frame(now, &0, &mut frame);
        target.poll_transmit(now, &mut frame).expect("its reply");
    }
    initiator.handle_frame(now, &mut reply);
    exchange(now, &mut initiator, &mut target);
    assert_eq!(target.sessions(), 1, "its login is still known");
}

#[test]
fn a_login_that_was_recorded_ends_no_session_and_opens_none() {
    let mut pair = Pair::logged_in(with_key());
    let mut request = pair.to_target[0].clone();
    for _ in 0..200 {
        pair.target.handle_frame(pair.now, &7, &mut request);
        pair.serve();
    }
    pair.initiator.submit(command(1, 16, Vec::new())).unwrap();
    pair.settle();
    assert!(
        matches!(pair.events[..], [Event::Completed { .. }]),
        "{:?}",
        pair.events
    );
    assert_eq!(pair.target.sessions(), 1);
}

#[test]
fn recorded_and_changed_frames_have_no_effect() {
    let mut pair = Pair::logged_in(with_key());
    pair.initiator.submit(command(1, 16, vec![5; 100])).unwrap();
    pair.settle();
    pair.events.clear();
    let before = pair.target.counters();
    for frame in pair.to_target.clone().iter().skip(1) {
        pair.target.handle_frame(pair.now, &0, &mut frame.clone());
        for at in 5..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 0x10;
            pair.target.handle_frame(pair.now, &0, &mut changed);
        }
    }
    pair.serve();
    let after = pair.target.counters();
    assert_eq!(after.frames_received, before.frames_received);
    assert!(
        after.frames_repeated > before.frames_repeated
            && after.frames_damaged > before.frames_damaged
    );
}

#[test]
fn frames_that_the_network_does_not_carry_are_not_used() {
    let mut pair = Pair::new(Config {
        frame_bytes: vec![9000, 1500, 1232],
        ..with_key()
    });
    pair.passes = |_, bytes| bytes <= 1500;
    pair.pass(SECOND * 10);
    let Event::LoggedIn { frame_bytes, .. } = pair.events[0] else {
        panic!("{:?}", pair.events)
    };
    assert_eq!(frame_bytes, 1500);
}

#[test]
fn a_target_answers_with_no_more_bytes_than_it_was_sent() {
    let pair = Pair::logged_in(Config {
        frame_bytes: vec![9000],
        ..with_key()
    });
    let request = &pair.to_target[0];
    assert!(pair.to_initiator[0].len() <= request.len());
    let mut target = Target::new(
        target::Config::default(),
        One(key().map(|(key, _)| key)),
        [3; 32],
    );
    target.handle_frame(pair.now, &0, &mut request[..1500].to_vec());
    assert_eq!(
        target.poll_transmit(pair.now, &mut Vec::new()),
        None,
        "it asks for frames that it does not send"
    );
}

#[test]
fn a_session_goes_on_by_the_other_path() {
    let mut pair = Pair::logged_in(Config {
        paths: 2,
        ..with_key()
    });
    pair.pass(SECOND);
    pair.passes = |path, _| path == 1;
    for cdb in 0..50 {
        pair.initiator
            .submit(command(cdb, 3000, vec![1; 3000]))
            .unwrap();
    }
    pair.pass(SECOND * 5);
    let completed = pair
        .events
        .iter()
        .filter(|event| matches!(event, Event::Completed { .. }))
        .count();
    assert_eq!(completed, 50, "{:?}", pair.initiator.paths());
    assert!(
        !pair.initiator.paths()[0].0 && pair.initiator.paths()[1].0,
        "{:?}",
        pair.initiator.paths()
    );
    pair.passes = |_, _| true;
    pair.pass(SECOND * 5);
    assert!(
        pair.initiator.paths()[0].0,
        "it is used again: {:?}",
        pair.initiator.paths()
    );
}

/// Acknowledgements do not arrive for a while, so all fragments are queued for retransmission when one
/// acknowledges them. Afterwards nothing is outstanding.
#[test]
fn a_session_whose_late_acknowledgement_covers_all_is_not_silent() {
    let mut pair = Pair::logged_in(config());
    for cdb in 0..10 {
        pair.initiator
            .submit(command(cdb, 1000, vec![1; 1000]))
            .unwrap();
        pair.pass(SECOND / 100); // round trips are measured
    }
    pair.events.clear();
    // Requests and replies arrive; pure acknowledgements and probes do not.
    pair.passes = |_, bytes| bytes > 100;
    for cdb in 0..8 {
        pair.initiator
            .submit(command(cdb, 1000, vec![1; 1000]))
            .unwrap();
    }
    pair.pass(SECOND / 10);
    pair.passes = |_, _| true;
    pair.pass(SECOND * 120);
    assert_eq!(pair.events.len(), 8, "{:?}", pair.events);
    assert!(
        pair.events
            .iter()
            .all(|event| matches!(event, Event::Completed { .. })),
        "{:?}",
        pair.events
    );
    let has_ended = |event: &target::Event| matches!(event, target::Event::SessionEnded { .. });
    assert!(
        !pair.target_events.iter().any(has_ended),
        "{:?}",
        pair.target_events
    );
}

/// The last frame that required an acknowledgement is a probe that counts as lost and is not retransmitted.
#[test]
fn a_session_is_not_suspect_because_a_question_was_lost() {
    let mut pair = Pair::logged_in(config());
    for cdb in 0..10 {
        pair.initiator
            .submit(command(cdb, 1000, vec![1; 1000]))
            .unwrap();
        pair.pass(SECOND / 100);
    }
    pair.pass(SECOND);
    pair.events.clear();
    pair.passes = |_, bytes| bytes > 100;
    pair.now = pair.initiator.poll_timeout().unwrap();
    pair.initiator.handle_timeout(pair.now); // the keepalive
    pair.settle();
    pair.initiator
        .submit(command(1, 1000, vec![1; 1000]))
        .unwrap();
    pair.settle(); // its reply acknowledges it, but not the probe before
    pair.passes = |_, _| true;
    pair.pass(SECOND * 4);
    assert!(
        matches!(pair.events[..], [Event::Completed { .. }]),
        "{:?}",
        pair.events
    );
}

/// Number of times that a session with two paths, the first of them down, logged in again while `commands`
/// ran for ten seconds each.
fn logins_with_one_path(commands: u8) -> usize {
    let mut pair = Pair::logged_in(Config {
        paths: 2,
        ..with_key()
    });
    pair.pass(SECOND);
    pair.passes = |path, _| path == 1;
    pair.answers = false;
    for cdb in 0..commands {
        pair.initiator
            .submit(command(cdb, 3000, vec![1; 3000]))
            .expect("there is room");
        pair.pass(SECOND * 10);
        let Some(target::Event::Command { task, command }) = pair.target_events.pop() else {
            panic!("{:?}", pair.target_events)
        };
        pair.answer(task, &command);
    }
    pair.pass(SECOND * 60);
    let has_ended = |event: &target::Event| matches!(event, target::Event::SessionEnded { .. });
    assert!(
        !pair.target_events.iter().any(has_ended),
        "{:?}",
        pair.target_events
    );
    let resumed = pair
        .events
        .iter()
        .filter(|event| **event == Event::Resumed)
        .count();
    assert_eq!(
        pair.events.len(),
        resumed + usize::from(commands),
        "{:?}",
        pair.events
    );
    resumed
}

#[test]
fn a_session_does_not_log_in_again_because_one_path_is_down() {
    assert!(
        logins_with_one_path(0) <= 1,
        "{} times",
        logins_with_one_path(0)
    );
    assert!(
        logins_with_one_path(10) <= 1,
        "{} times",
        logins_with_one_path(10)
    );
}

#[test]
fn a_path_that_never_answers_costs_no_logins() {
    let mut pair = Pair::new(Config {
        paths: 2,
        ..with_key()
    });
    pair.passes = |path, _| path == 1;
    pair.pass(SECOND * 120);
    assert!(
        matches!(pair.events[..], [Event::LoggedIn { .. }]),
        "{:?}",
        pair.events
    );
    assert_eq!(pair.target.sessions(), 1);
}

#[test]
fn a_session_survives_an_interruption_and_runs_nothing_twice() {
    let mut pair = Pair::logged_in(with_key());
    pair.answers = false;
    for cdb in 0..5 {
        pair.initiator.submit(command(cdb, 16, vec![cdb])).unwrap();
    }
    pair.settle();
    pair.passes = |_, _| false;
    for event in std::mem::take(&mut pair.target_events) {
        if let target::Event::Command { task, command } = event {
            pair.answer(task, &command);
        }
    }
    pair.pass(SECOND * 20);
    assert!(pair.events.is_empty());
    pair.passes = |_, _| true;
    pair.pass(SECOND * 5);
    let completed = pair
        .events
        .iter()
        .filter(|event| matches!(event, Event::Completed { .. }))
        .count();
    assert_eq!(completed, 5, "{:?}", pair.events);
    assert!(
        !pair
            .target_events
            .iter()
            .any(|event| matches!(event, target::Event::Command { .. })),
        "not again"
    );
}

#[test]
fn a_target_that_restarted_loses_requests_and_says_so() {
    let mut pair = Pair::logged_in(with_key());
    pair.answers = false;
    let id = pair.initiator.submit(command(1, 0, vec![1])).unwrap();
    pair.settle();
    pair.target = Target::new(
        target::Config::default(),
        One(key().map(|(key, _)| key)),
        [9; 32],
    );
    // Its acknowledgement arrived, so nothing is missing until the next probe.
    pair.pass(SECOND * 20);
    assert!(
        matches!(&pair.events[..], [Event::Lost { id: lost }, Event::NexusLost, Event::LoggedIn { .. }] if *lost == id),
        "{:?}",
        pair.events
    );
}

#[test]
fn a_receipt_comes_when_the_initiator_has_the_response() {
    let mut pair = Pair::logged_in(with_key());
    pair.answers = false;
    pair.initiator.submit(command(1, 0, vec![1])).unwrap();
    pair.settle();
    let Some(target::Event::Command { task, .. }) = pair.target_events.pop() else {
        panic!("a command")
    };
    pair.passes = |_, _| false;
    assert!(pair.target.respond_with_receipt(task, Response::default()));
    pair.pass(SECOND / 10);
    assert!(
        !pair
            .target_events
            .contains(&target::Event::Received { task }),
        "it was lost"
    );
    pair.passes = |_, _| true;
    pair.pass(SECOND * 5);
    let receipts = pair
        .target_events
        .iter()
        .filter(|event| **event == target::Event::Received { task });
    assert_eq!(receipts.count(), 1);
}

#[test]
fn the_next_session_waits_for_the_commands_of_the_last_one() {
    let mut pair = Pair::logged_in(with_key());
    pair.answers = false;
    pair.initiator.submit(command(1, 0, vec![1])).unwrap();
    pair.settle();
    let began = |event: &target::Event| match event {
        target::Event::SessionBegan { session, .. } => Some(*session),
        _ => None,
    };
    let first = pair.target_events.iter().find_map(began).unwrap();
    pair.target_events.clear();
    pair.initiator = Initiator::new(pair.now, with_key(), [77; 32]);
    pair.settle();
    pair.initiator.submit(command(2, 0, vec![2])).unwrap();
    pair.settle();
    let replaced = target::Event::SessionEnded {
        session: first,
        reason: SessionEnd::Replaced,
    };
    assert!(
        pair.target_events.contains(&replaced),
        "{:?}",
        pair.target_events
    );
    let is_command = |event: &target::Event| matches!(event, target::Event::Command { .. });
    assert!(
        !pair.target_events.iter().any(is_command),
        "the first command may still be written"
    );
    pair.target.quiesced(first);
    pair.serve();
    assert!(pair.target_events.iter().any(is_command));
}

#[test]
fn an_aborted_command_that_arrives_later_is_not_executed() {
    let mut pair = Pair::logged_in(config());
    pair.answers = false;
    // Long enough to need many frames; the function overtakes it.
    let id = pair
        .initiator
        .submit(command(1, 0, vec![1; 500_000]))
        .unwrap();
    let abort = pair
        .initiator
        .manage(Function::AbortTask, [0; 8], Some(id))
        .unwrap();
    pair.pass(SECOND * 2);
    let done = Event::FunctionDone {
        id: abort,
        result: FunctionResult::Complete,
    };
    assert!(pair.events.contains(&done), "{:?}", pair.events);
    let aborted = |event: &Event| matches!(event, Event::Completed { id: of, response } if *of == id && response.status == 0x40);
    assert!(pair.events.iter().any(aborted));
    assert!(
        !pair
            .target_events
            .iter()
            .any(|event| matches!(event, target::Event::Command { .. }))
    );
    assert_eq!(pair.target.holds(), (0, 0, 0));
}

#[test]
fn a_command_that_a_reset_overtakes_is_not_executed() {
    let mut pair = Pair::logged_in(config());
    pair.answers = false;
    pair.initiator
        .submit(command(1, 0, vec![1; 500_000]))
        .unwrap();
    pair.initiator
        .manage(Function::LogicalUnitReset, [0; 8], None)
        .unwrap();
    pair.pass(SECOND * 2);
    let aborted = |event: &Event| matches!(event, Event::Completed { response, .. } if response.status == 0x40);
    assert!(pair.events.iter().any(aborted), "{:?}", pair.events);
    assert!(
        !pair
            .target_events
            .iter()
            .any(|event| matches!(event, target::Event::Command { .. }))
    );
}

#[test]
fn both_sides_can_end_a_session() {
    let mut pair = Pair::logged_in(with_key());
    pair.initiator.disconnect(pair.now);
    pair.pass(SECOND);
    assert_eq!(pair.events, [Event::Ended(EndReason::Disconnected)]);
    let ended = |reason| move |event: &target::Event| matches!(event, target::Event::SessionEnded { reason: of, .. } if *of == reason);
    assert!(
        pair.target_events
            .iter()
            .any(ended(SessionEnd::Disconnected))
    );
    pair.pass(SECOND * 10);
    assert_eq!(pair.target.sessions(), 0);

    let mut pair = Pair::logged_in(with_key());
    let Some(target::Event::SessionBegan { session, .. }) = pair.target_events.pop() else {
        panic!("it began")
    };
    pair.target.disconnect(pair.now, session);
    pair.pass(SECOND);
    assert_eq!(pair.events, [Event::Ended(EndReason::ByTarget)]);
}

#[test]
fn silence_ends_both_sides() {
    for paths in [1, 2] {
        let mut pair = Pair::logged_in(Config {
            paths,
            ..with_key()
        });
        pair.pass(SECOND);
        pair.passes = |_, _| false;
        pair.pass(SECOND * 120);
        assert_eq!(pair.events, [Event::Ended(EndReason::Unreachable)]);
        assert!(matches!(
            pair.target_events.last(),
            Some(target::Event::SessionEnded {
                reason: SessionEnd::Silent,
                ..
            })
        ));
        assert_eq!(
            (pair.target.sessions(), pair.initiator.poll_timeout()),
            (0, None)
        );
    }
}

#[test]
fn keys_are_made_new_after_so_many_frames() {
    let times = Times {
        rekey_frames: 100,
        ..Times::default()
    };
    let mut pair = Pair::logged_in(Config {
        times,
        ..with_key()
    });
    for cdb in 0..=255 {
        pair.initiator.submit(command(cdb, 16, Vec::new())).unwrap();
        pair.settle();
    }
    let resumed = pair
        .events
        .iter()
        .filter(|event| **event == Event::Resumed)
        .count();
    assert!((2..=4).contains(&resumed), "{resumed} times");
    assert_eq!(pair.events.len() - resumed, 256, "and no command was lost");
}

/// The target's keys were changed. The next login is refused, but a working session continues without new
/// keys.
#[test]
fn a_session_outlives_a_login_for_new_keys_that_is_refused() {
    let times = Times {
        rekey_frames: 100,
        ..Times::default()
    };
    let give_up = times.give_up;
    let mut pair = Pair::logged_in(Config {
        times,
        ..with_key()
    });
    pair.target.directory_mut().0 = Some(Psk::from_secret(b"another secret"));
    for cdb in 0..=255 {
        pair.initiator.submit(command(cdb, 16, Vec::new())).unwrap();
        pair.pass(give_up / 64);
    }
    assert_eq!(
        pair.events.len(),
        256,
        "each was answered, in four times the time: {:?}",
        pair.events.last()
    );
    assert!(
        pair.events
            .iter()
            .all(|event| matches!(event, Event::Completed { .. }))
    );
}

/// The initiator sends every second, but never acknowledges its reply. The memory of the reply would
/// otherwise be occupied forever.
#[test]
fn an_initiator_that_acknowledges_nothing_loses_its_session() {
    let mut pair = Pair::logged_in(config());
    pair.initiator.submit(command(1, 16, Vec::new())).unwrap();
    let end = pair.now + target::Config::default().session_timeout + Duration::from_secs(3);
    let mut frame = Vec::new();
    let mut heard = pair.now;
    while pair.now < end {
        pair.now += Duration::from_millis(250);
        pair.initiator.handle_timeout(pair.now);
        pair.target.handle_timeout(pair.now);
        while let Some(path) = pair.initiator.poll_transmit(pair.now, &mut frame) {
            heard = pair.now;
            pair.target.handle_frame(pair.now, &path, &mut frame);
        }
        pair.serve();
        while pair.target.poll_transmit(pair.now, &mut frame).is_some() {}
    }
    assert!(heard + Duration::from_secs(10) > pair.now, "it was silent");
    let has_ended = |event: &target::Event| {
        matches!(
            event,
            target::Event::SessionEnded {
                reason: target::SessionEnd::Silent,
                ..
            }
        )
    };
    assert!(
        pair.target_events.iter().any(has_ended),
        "{:?}",
        pair.target_events
    );
}

/// The initiator's host was suspended. When it resumes, the initiator is notified immediately that the
/// session has ended, so it does not send commands that would be acknowledged but never executed.
#[test]
fn an_initiator_that_was_silent_is_told_that_its_session_has_ended() {
    let mut pair = Pair::logged_in(with_key());
    pair.pass(SECOND);
    pair.now += SECOND * 61;
    pair.target.handle_timeout(pair.now);
    pair.serve();
    let has_ended = |event: &target::Event| {
        matches!(
            event,
            target::Event::SessionEnded {
                reason: SessionEnd::Silent,
                ..
            }
        )
    };
    assert!(
        pair.target_events.iter().any(has_ended),
        "{:?}",
        pair.target_events
    );
    let id = pair.initiator.submit(command(1, 16, Vec::new())).unwrap();
    pair.pass(SECOND);
    assert_eq!(
        pair.events,
        [Event::Lost { id }, Event::Ended(EndReason::ByTarget)]
    );
    pair.pass(SECOND * 10);
    assert_eq!(pair.target.sessions(), 0);
}

#[test]
fn who_asks_is_told_the_targets() {
    let mut pair = Pair::new(config());
    let mut question = discovery::question(5);
    pair.target.handle_frame(pair.now, &3, &mut question);
    let mut answer = Vec::new();
    assert_eq!(pair.target.poll_transmit(pair.now, &mut answer), Some(3));
    assert_eq!(
        discovery::answered(5, &mut answer),
        Some(vec!["disk".to_owned()])
    );
}
