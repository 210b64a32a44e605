//! Arbitrary network input for a benchmark's agent and its coordinator. Without the secret, a peer never
//! obtains keys, however it splits its data. Every accepted order and notification can be serialised and
//! parsed again.
#![no_main]

use agent::wire::Frames;
use agent::wire::handshake::{Greeted, Greeting};
use agent::wire::message::{Notification, Order};
use agent::wire::{STRANGER_BYTES_MAX, Secret};
use libfuzzer_sys::fuzz_target;
use script::Script;

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    match script.byte() % 4 {
        0 => as_stranger(&mut script),
        1 => as_agent(&mut script),
        2 => {
            let greeting = Greeting::new(&secret());
            let (answer, _) = Greeted::by(greeting.message(), &secret());
            let (_, mut keys) = greeting
                .answered(&answer.expect("an answer"))
                .expect("the same secret");
            assert!(keys.theirs.open(script.0).is_err());
        }
        _ => {
            if let Ok(order) = Order::parse(script.0) {
                assert!(Order::parse(&order.text()).is_ok());
            }
            if let Ok(news) = Notification::parse(script.0) {
                assert!(Notification::parse(&news.text()).is_ok());
            }
        }
    }
});

/// Returns the frames in the rest of a script, received in pieces.
fn frames(script: &mut Script<'_>) -> Vec<Vec<u8>> {
    let (mut frames, mut came) = (Frames::new(STRANGER_BYTES_MAX), Vec::new());
    while !script.is_over() {
        let length = usize::from(script.byte()) + 1;
        frames.push(script.bytes(length));
        while let Some(frame) = match frames.take() {
            Ok(frame) => frame,
            Err(_) => return came,
        } {
            assert!(frame.len() <= STRANGER_BYTES_MAX);
            came.push(frame);
        }
    }
    came
}

fn as_stranger(script: &mut Script<'_>) {
    let Some(hello) = frames(script).into_iter().next() else {
        return;
    };
    assert!(Greeted::by(&hello, &secret()).1.is_err());
}

fn as_agent(script: &mut Script<'_>) {
    let Some(answer) = frames(script).into_iter().next() else {
        return;
    };
    assert!(Greeting::new(&secret()).answered(&answer).is_err());
}

fn secret() -> Secret {
    Secret::new(b"correct horse battery").expect("a long one")
}
