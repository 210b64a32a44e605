//! An arbitrary reservation file: it is detected as damaged, or its logical unit starts, and a saved copy is read back
//! unchanged.
#![no_main]

#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../crates/serve/logical_unit/tests/it/support/mod.rs"]
mod support;

use std::sync::Arc;

use iscsi::framing::RunningDigest;
use libfuzzer_sys::fuzz_target;
use logical_unit::{DataIn, LogicalUnit, Nexus, Plan, Status};
use script::Script;
use support::{Disk, DiskOptions, Paper, TwoLuns, attach, kept_on, sized, unit_options, unit_over};

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let text = text(&mut script);
    let paper = Arc::new(Paper::with(text.clone()));
    let Some(unit) = power_on(&paper) else { return };
    let before = full_status(&unit);
    // A save rewrites the whole file, so that the contents can be compared.
    let mut nexus = attach(&unit, 200);
    register(&unit, &mut nexus, 0, 77);
    register(&unit, &mut nexus, 77, 0);
    drop(nexus);
    let saved = paper.text().expect("the file exists");
    let unit = power_on(&Arc::new(Paper::with(saved))).expect("a valid saved file");
    assert_eq!(full_status(&unit), before, "saved {text:02x?}");
});

/// Generates raw bytes, or arbitrary parts in a valid frame.
fn text(script: &mut Script<'_>) -> Vec<u8> {
    if script.byte() < 16 {
        return script.0.to_vec();
    }
    let pages = usize::from(script.byte() & 0x3f);
    let pages = script.bytes(pages).to_vec();
    let reservations = match script.byte() {
        0..64 => script.0.to_vec(),
        _ => registrations(script),
    };
    let mut text = b"LINERATE\x00\x01".to_vec();
    for part in [reservations, pages] {
        text.extend((part.len() as u32).to_be_bytes());
        text.extend(part);
    }
    let mut crc = RunningDigest::new();
    crc.update(&text);
    // The file contains the checksum as a big-endian number. `finish` returns the bytes as sent on the wire,
    // lowest first (RFC 7143 section 13.1).
    let [a, b, c, d] = crc.finish();
    text.extend([d, c, b, a]);
    text
}

/// Registrations and a reservation, in an almost valid form.
fn registrations(script: &mut Script<'_>) -> Vec<u8> {
    let count = script.byte() % 5;
    let mut bytes = u32::from(count).to_be_bytes().to_vec();
    for _ in 0..count {
        initiator(&mut bytes, script);
        bytes.extend(u64::from(script.byte()).to_be_bytes());
        match script.byte() % 4 {
            0 => {
                let others = script.byte() % 3;
                bytes.extend([1, 0, others]);
                (0..others).for_each(|_| port(&mut bytes, script));
            }
            kind => {
                bytes.push(kind / 3 * 2);
                port(&mut bytes, script);
            }
        }
    }
    match script.byte() % 10 {
        0 => bytes.push(0),
        kind => {
            bytes.push(kind);
            initiator(&mut bytes, script);
            port(&mut bytes, script);
        }
    }
    let surplus = usize::from(script.byte() >= 0xf0);
    bytes.extend(script.bytes(surplus));
    bytes
}

fn initiator(bytes: &mut Vec<u8>, script: &mut Script<'_>) {
    name(bytes, script);
    bytes.extend([0x80, 0, 0, 0, 0, script.byte() & 1]);
}

fn port(bytes: &mut Vec<u8>, script: &mut Script<'_>) {
    name(bytes, script);
    bytes.extend([0, 1, 0, script.byte() & 3]);
}

/// Appends one of a few names, so that reservation holders are usually registered, or arbitrary bytes of any
/// length.
fn name(bytes: &mut Vec<u8>, script: &mut Script<'_>) {
    let long = [b'n'; 300];
    let name: &[u8] = match script.byte() {
        0..100 => b"iqn.2026-11.test:a",
        100..180 => b"iqn.2026-11.test:b",
        180..200 => b"",
        200..220 => &long,
        220.. => {
            let length = usize::from(script.byte() & 31);
            script.bytes(length)
        }
    };
    bytes.extend((name.len() as u16).to_be_bytes());
    bytes.extend(name);
}

fn power_on(paper: &Arc<Paper>) -> Option<Arc<LogicalUnit>> {
    let disk = Arc::new(Disk::new(DiskOptions {
        blocks: 1,
        ..DiskOptions::default()
    }));
    unit_over(disk, kept_on(paper), unit_options()).ok()
}

/// Returns the registrations and the reservation holder, from PERSISTENT RESERVE IN, READ FULL STATUS.
/// Excludes PRGENERATION, which is not persistent.
fn full_status(unit: &Arc<LogicalUnit>) -> Vec<u8> {
    let mut nexus = attach(unit, 100);
    let mut read_full_status = sized(0x5e, 3, 0, 0);
    read_full_status[7..9].fill(0xff);
    loop {
        let Plan::Reply(reply) = begin(unit, &mut nexus, &read_full_status, 0) else {
            panic!("it needs no device");
        };
        match (reply.status, reply.data) {
            (Status::Good, DataIn::Bytes(bytes)) => return bytes[4..].to_vec(),
            (Status::CheckCondition, _) if reply.sense.is_some_and(|sense| sense.key() == 6) => {}
            (status, _) => panic!("{status:?}"),
        }
    }
}

/// Uses REGISTER rather than REGISTER AND IGNORE EXISTING KEY, so that keys can mismatch.
fn register(unit: &Arc<LogicalUnit>, nexus: &mut Nexus, existing: u64, key: u64) {
    let mut list = [existing.to_be_bytes(), key.to_be_bytes(), [0; 8]].concat();
    list[20] = 1; // APTPL
    let mut cdb = sized(0x5f, 0, 0, 0);
    cdb[8] = 24;
    loop {
        match begin(unit, nexus, &cdb, 24) {
            Plan::Receive(receive) => {
                let data = logical_unit::Data::Buffer(block::Buffer::from(&list[..]));
                match unit.finish(receive.job, data) {
                    logical_unit::Step::Later(running) => drop(support::finish(running.reply)),
                    logical_unit::Step::Now(_) | logical_unit::Step::Lasting { .. } => {}
                }
                return;
            }
            Plan::Reply(reply) => assert_eq!(reply.sense.map(|sense| sense.key()), Some(6)),
            Plan::Run(_) => panic!("it has a parameter list"),
        }
    }
}

fn begin(unit: &Arc<LogicalUnit>, nexus: &mut Nexus, cdb: &[u8], offered: u32) -> Plan {
    let luns: Arc<dyn logical_unit::SiblingUnits> = Arc::new(TwoLuns);
    let room = if offered == 0 { 1 << 20 } else { 0 };
    let command = logical_unit::CommandIn {
        cdb,
        data_out_bytes: offered,
        data_in_bytes: room,
        luns: &luns,
        stage: false,
    };
    unit.begin(nexus, &command)
}
