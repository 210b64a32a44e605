//! Both state machines, with a wire that the fuzzer controls: frames are delivered, delayed, repeated, and changed (with a
//! correct checksum), while commands are sent and time advances. Nothing panics, memory is bounded, and each command starts
//! once.
#![no_main]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use hyperscsi::target::{Admission, Directory, Event};
use hyperscsi::{
    Command, Function, FunctionResult, HEADER_BYTES, Initiator, Refusal, Response, Target,
};
use libfuzzer_sys::fuzz_target;
use script::Script;

struct Everybody;

impl Directory<u8> for Everybody {
    fn admit(&self, _: &str, _: &str, _: &u8) -> Result<Admission, Refusal> {
        Ok(Admission::Open)
    }

    fn targets(&self, _: &u8) -> Vec<String> {
        vec!["disk".to_owned()]
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let mut now = Instant::now();
    let config = hyperscsi::initiator::Config {
        paths: 2,
        ..hyperscsi::initiator::Config::new("host", "disk")
    };
    let mut initiator = Initiator::new(now, config, [1; 32]);
    let mut target = Target::new(hyperscsi::target::Config::default(), Everybody, [2; 32]);
    let (mut there, mut back): (Vec<Vec<u8>>, Vec<Vec<u8>>) = Default::default();
    let mut begun = BTreeSet::new();
    while !script.is_over() {
        match script.byte() % 8 {
            0..3 => deliver(&mut script, &mut there, |frame| {
                target.handle_frame(now, &0, frame)
            }),
            3..6 => deliver(&mut script, &mut back, |frame| {
                initiator.handle_frame(now, frame)
            }),
            6 => {
                let data_out =
                    vec![7; usize::from(script.byte()) * usize::from(script.byte())].into();
                let cdb = script.bytes(16).to_vec();
                let data_in_bytes = u32::from(script.byte()) << 8;
                match script.flag() {
                    true => {
                        _ = initiator.submit(Command {
                            cdb,
                            data_in_bytes,
                            data_out,
                            ..Command::default()
                        })
                    }
                    false => _ = initiator.manage(Function::from(script.byte() % 12), [0; 8], None),
                }
            }
            _ => {
                now += Duration::from_micros(1 << (script.byte() % 28));
                initiator.handle_timeout(now);
                target.handle_timeout(now);
            }
        }
        while let Some(event) = target.poll_event() {
            match event {
                Event::Command { task, command } => {
                    assert!(begun.insert(task), "a command starts once");
                    let data = vec![0; command.data_in_bytes as usize].into();
                    assert!(target.respond(
                        task,
                        Response {
                            data,
                            ..Response::default()
                        }
                    ));
                }
                Event::Function { task, .. } => {
                    assert!(target.function_done(task, FunctionResult::Complete))
                }
                Event::SessionEnded { session, .. } => target.quiesced(session),
                Event::SessionBegan { .. }
                | Event::LoginRefused { .. }
                | Event::Received { .. } => {}
            }
        }
        while initiator.poll_event().is_some() {}
        let mut frame = Vec::new();
        // Frames beyond these limits are lost.
        for _ in 0..600 {
            let Some(_) = initiator.poll_transmit(now, &mut frame) else {
                break;
            };
            there.push(frame.clone());
        }
        for _ in 0..600 {
            let Some(_) = target.poll_transmit(now, &mut frame) else {
                break;
            };
            back.push(frame.clone());
        }
        there.truncate(64);
        back.truncate(64);
        let (live, unacknowledged, bytes) = target.holds();
        let sessions = target.sessions().max(1);
        assert!(
            live <= 128 * sessions
                && unacknowledged <= 300 * sessions
                && bytes <= (17 << 20) * sessions
        );
        assert!(initiator.held_bytes() <= 4 << 20);
    }
});

/// Delivers one of the frames in transit: unchanged or changed, and possibly again later.
fn deliver(script: &mut Script<'_>, frames: &mut Vec<Vec<u8>>, to: impl FnOnce(&mut [u8])) {
    if frames.is_empty() {
        return;
    }
    let index = usize::from(script.byte()) % frames.len();
    let mut frame = frames[index].clone();
    let choice = script.byte();
    if choice & 3 != 0 {
        frames.remove(index);
    }
    if choice >= 0xc0 && frame.len() > HEADER_BYTES + 4 {
        for _ in 0..1 + choice % 4 {
            let at = usize::from(script.byte()) % 96 % frame.len();
            frame[at] = script.byte();
        }
        let length = usize::from(u16::from_be_bytes([frame[5], frame[6]]));
        let end = HEADER_BYTES + length;
        if end + 4 <= frame.len() {
            let crc = crc_fast::crc32_iscsi(&frame[..end]);
            frame[end..end + 4].copy_from_slice(&crc.to_be_bytes());
        }
    }
    to(&mut frame);
}
