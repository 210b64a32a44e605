//! Floods of login requests: an initiator with a key still logs in.

use std::time::{Duration, Instant};

use hyperscsi::initiator::{self, Event};
use hyperscsi::target::{self, Admission, Directory};
use hyperscsi::{Cipher, Header, Initiator, Psk, Refusal, Target};

const STEP: Duration = Duration::from_millis(1);
/// 20,000 frames a second.
const FRAMES_OF_A_STEP: usize = 20;
const HOST: u64 = 1 << 40;

/// The target "keyed" has a key for each initiator, "open" has none.
struct Site;

fn key(initiator: &str) -> Psk {
    Psk::from_secret(format!("the secret of {initiator}").as_bytes())
}

impl Directory<u64> for Site {
    fn admit(&self, initiator: &str, target: &str, _: &u64) -> Result<Admission, Refusal> {
        match target {
            "keyed" => Ok(Admission::Key(key(initiator))),
            "open" => Ok(Admission::Open),
            _ => Err(Refusal::UnknownTarget),
        }
    }

    fn origin(&self, from: &u64) -> u64 {
        *from
    }

    fn targets(&self, _: &u64) -> Vec<String> {
        Vec::new()
    }
}

fn config(initiator: &str, target: &str, psk: Option<Psk>) -> initiator::Config {
    let key = psk.map(|psk| (psk, Cipher::Aes256Gcm));
    initiator::Config {
        key,
        ..initiator::Config::new(initiator, target)
    }
}

/// The first frames of `count` logins.
fn logins(count: u32, config: &initiator::Config) -> Vec<Vec<u8>> {
    let login = |port: u32| {
        let now = Instant::now();
        let mut seed = [9; 32];
        seed[..4].copy_from_slice(&port.to_be_bytes());
        let mut machine = Initiator::new(
            now,
            initiator::Config {
                port,
                ..config.clone()
            },
            seed,
        );
        let mut frame = Vec::new();
        machine
            .poll_transmit(now, &mut frame)
            .expect("a request to log in");
        frame
    };
    (0..count).map(login).collect()
}

fn offer(target: &mut Target<u64, Site>, now: Instant, from: u64, frame: &mut [u8]) {
    let header = Header::parse(frame).expect("a frame");
    if target.has_time_for(now, &from, &header, frame) {
        target.handle_frame(now, &from, frame);
        while target.poll_event().is_some() {}
    }
}

/// Number of requests needed to log in during a flood of these frames from `origins` origins. In each
/// millisecond the flood is sent before the initiator's frame.
fn tries(config: &initiator::Config, flood: &[Vec<u8>], origins: u64) -> usize {
    let mut now = Instant::now();
    let mut target = Target::new(target::Config::default(), Site, [2; 32]);
    let mut initiator: Option<Initiator> = None;
    let (mut sent, mut out, mut tries) = (0, Vec::new(), 0);
    for step in 0..20_000 {
        for _ in 0..FRAMES_OF_A_STEP {
            let mut frame = flood[sent % flood.len()].clone();
            offer(&mut target, now, sent as u64 % origins, &mut frame);
            sent += 1;
            while target.poll_transmit(now, &mut out).is_some() {} // replies to the flood
        }
        if step == 100 {
            initiator = Some(Initiator::new(now, config.clone(), [1; 32]));
        }
        if let Some(initiator) = &mut initiator {
            initiator.handle_timeout(now);
            while initiator.poll_transmit(now, &mut out).is_some() {
                tries += 1;
                offer(&mut target, now, HOST, &mut out);
            }
            while target.poll_transmit(now, &mut out).is_some() {
                initiator.handle_frame(now, &mut out);
            }
            match initiator.poll_event() {
                Some(Event::LoggedIn { .. }) => return tries,
                Some(event) => panic!("{event:?}"),
                None => {}
            }
        }
        now += STEP;
    }
    panic!("it has tried {tries} times")
}

fn ours() -> initiator::Config {
    config("host", "keyed", Some(key("host")))
}

#[test]
fn forged_logins_from_many_addresses_do_not_keep_out_who_has_a_key() {
    let wrong = config("host", "keyed", Some(Psk::from_secret(b"a guess")));
    let damaged = logins(16, &ours()).into_iter().map(|mut frame| {
        frame[40] ^= 1;
        frame
    });
    let short = logins(16, &ours()).into_iter().map(|mut frame| {
        frame.truncate(400);
        frame
    });
    for (what, flood) in [
        ("another key", logins(16, &wrong)),
        ("no key", logins(16, &config("host", "keyed", None))),
        ("an open target", logins(16, &config("host", "open", None))),
        (
            "a target that is not there",
            logins(16, &config("host", "other", None)),
        ),
        ("damaged", damaged.collect()),
        ("shorter than they say", short.collect()),
    ] {
        assert_eq!(tries(&ours(), &flood, 1 << 32), 1, "{what}");
    }
}

/// The sender of the flood replays recorded requests, or has its own key.
#[test]
fn logins_with_the_key_of_one_initiator_do_not_keep_out_another() {
    let flood = logins(40, &config("another", "keyed", Some(key("another"))));
    assert_eq!(tries(&ours(), &flood, 1 << 32), 1);
}

/// Without a key a requester is identified by its origin only: a few hosts do not lock out another one.
#[test]
fn logins_from_some_addresses_do_not_keep_out_others() {
    let flood = logins(16, &config("another", "open", None));
    let tries = tries(&config("host", "open", None), &flood, 16);
    assert!(tries <= 3, "{tries}");
}

/// Only a part of 20,000 requests per second is processed.
#[test]
fn a_flood_is_looked_at_in_part() {
    let now = Instant::now();
    let mut target = Target::new(target::Config::default(), Site, [2; 32]);
    let frames = logins(16, &config("host", "open", None));
    let mut looked_at = 0;
    for count in 0..20_000 {
        let mut frame = frames[count % frames.len()].clone();
        let (header, now) = (
            Header::parse(&frame).expect("a frame"),
            now + STEP * count as u32 / 20,
        );
        looked_at += usize::from(target.has_time_for(now, &(count as u64), &header, &mut frame));
    }
    assert!((1000..=2280).contains(&looked_at), "{looked_at}");
}
