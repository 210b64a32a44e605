//! What a network may say to a benchmark's agent or its coordinator: whoever does not know the secret gets no keys,
//! however he cuts it up; and whatever is taken for an order or for news can be said again.
#![no_main]

// The program is no library: its machines are taken as they are.
#[allow(dead_code, missing_docs)]
#[path = "../../crates/linerate/src/agent/wire/mod.rs"]
mod wire;

use libfuzzer_sys::fuzz_target;
use script::Script;
use wire::frame::Frames;
use wire::handshake::{Greeted, Greeting};
use wire::message::{News, Order};
use wire::seal::Seal;
use wire::{STRANGER_BYTES_MAX, Secret};

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    match script.byte() % 4 {
        0 => as_stranger(&mut script),
        1 => as_agent(&mut script),
        2 => {
            let mut seal = Seal::new(&[7; 32]);
            assert!(seal.open(script.0).is_err());
        }
        _ => {
            if let Ok(order) = Order::parse(script.0) {
                assert!(Order::parse(&order.text()).is_ok());
            }
            if let Ok(news) = News::parse(script.0) {
                assert!(News::parse(&news.text()).is_ok());
            }
        }
    }
});

/// The frames in what is left of a script, which comes in pieces.
fn frames(script: &mut Script<'_>) -> Vec<Vec<u8>> {
    let (mut frames, mut came) = (Frames::new(STRANGER_BYTES_MAX), Vec::new());
    while !script.is_over() {
        let length = usize::from(script.byte()) + 1;
        frames.push(script.bytes(length));
        while let Some(frame) = match frames.next() {
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
    let mut frames = frames(script).into_iter();
    let (Some(hello), Some(proof)) = (frames.next(), frames.next()) else { return };
    let (_, greeted) = Greeted::by(&hello, &[2; 32], &secret());
    let Ok(greeted) = greeted else { return };
    assert!(greeted.answered(&proof).1.is_err());
}

fn as_agent(script: &mut Script<'_>) {
    let mut frames = frames(script).into_iter();
    let (Some(hello), Some(proof)) = (frames.next(), frames.next()) else { return };
    let Ok((_, proved)) = Greeting::new(&[1; 32]).answered(&hello, &secret()) else { return };
    assert!(proved.answered(&proof).is_err());
}

fn secret() -> Secret {
    Secret::new(b"correct horse battery").expect("a long one")
}
