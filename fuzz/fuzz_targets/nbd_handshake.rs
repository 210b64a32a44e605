//! Arbitrary input for a server's handshake, as almost valid options or as raw bytes. The server reads and sends a bounded
//! number of bytes, and accepts only clients that name an existing export.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nbd::flags::transmission;
use nbd::{BlockSizes, Export, Exports, Handshake, Step, TlsMode};
use script::Script;

struct One;

impl Exports for One {
    fn list<'a>(&'a self, from: usize) -> Box<dyn Iterator<Item = (&'a str, &'a str)> + 'a> {
        Box::new([("disk", "a disk")].into_iter().skip(from))
    }

    fn find(&self, name: &str) -> Option<Export> {
        ["", "disk"].contains(&name).then(|| Export {
            name: "disk".to_owned(),
            description: "a disk".to_owned(),
            bytes: 1 << 30,
            flags: transmission::SEND_FLUSH,
            block_sizes: BlockSizes {
                minimum: 1,
                preferred: 4096,
                maximum: 32 << 20,
            },
        })
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let mut said = vec![0, 0, 0, script.byte() & 3];
    while !script.is_over() {
        option(&mut script, &mut said);
    }
    let tls = script_mode(bytes);
    let (mut machine, mut rest, mut is_encrypted) = (Handshake::new(tls), &said[..], false);
    loop {
        let wanted = machine.wanted();
        assert!((1..=64 << 10).contains(&wanted));
        let Some((now, later)) = rest.split_at_checked(wanted) else {
            return;
        };
        rest = later;
        let mut out = Vec::new();
        let step = machine.take(now, &One, &mut out);
        assert!(out.len() <= 4096, "{} bytes for one option", out.len());
        match step {
            Ok(Step::Continue) => {}
            Ok(Step::StartTls) => {
                assert!(tls != TlsMode::Off && !std::mem::replace(&mut is_encrypted, true))
            }
            Ok(Step::Transmission(session)) => {
                assert!(tls != TlsMode::Required || is_encrypted);
                return assert_eq!(session.export.name, "disk");
            }
            Ok(Step::End) | Err(_) => return,
        }
    }
});

/// Chooses the TLS mode by the last byte, so that the choice does not shift the rest of the input.
fn script_mode(bytes: &[u8]) -> TlsMode {
    match bytes.last().map_or(0, |last| last % 4) {
        0 => TlsMode::Required,
        1 => TlsMode::Allowed,
        _ => TlsMode::Off,
    }
}

fn option(script: &mut Script<'_>, said: &mut Vec<u8>) {
    if script.byte() >= 0xf8 {
        let count = usize::from(script.byte());
        return said.extend_from_slice(script.bytes(count));
    }
    let mut data = Vec::new();
    let option = u32::from(script.byte() % 13);
    match script.byte() {
        0..64 => {}
        64..192 => {
            string(script, &mut data);
            let count = script.byte() % 6;
            data.extend_from_slice(&[0, 0, 0, count][if script.flag() { 2 } else { 0 }..]);
            (0..script.byte() % 6).for_each(|_| string(script, &mut data));
        }
        192..250 => {
            let count = usize::from(script.byte());
            data.extend_from_slice(script.bytes(count));
        }
        250.. => data.resize(65_530 + usize::from(script.byte()) * 100, script.byte()),
    }
    said.extend_from_slice(b"IHAVEOPT");
    said.extend_from_slice(&option.to_be_bytes());
    let length = data.len() as u32 + u32::from(script.byte() >= 0xfc);
    said.extend_from_slice(&length.to_be_bytes());
    said.extend_from_slice(&data);
}

fn string(script: &mut Script<'_>, data: &mut Vec<u8>) {
    let text = script.pick(&["disk", "", "base:allocation", "base:", "x-y:z", "nothing"]);
    let length = text.len() as u32 + u32::from(script.byte() >= 0xf8);
    data.extend_from_slice(&length.to_be_bytes());
    data.extend_from_slice(text.as_bytes());
}
