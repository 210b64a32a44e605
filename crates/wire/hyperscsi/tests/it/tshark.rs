//! The only external check: Wireshark's dissector implements the original header.

use std::process::Command;
use std::time::Duration;

use hyperscsi::initiator::Config;
use hyperscsi::{ETHERTYPE, Function, Header, discovery};

use super::pair::{Pair, command, config, key};

/// A capture (pcap, Ethernet) of these frames.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let mut file = words(&[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 1 << 18, 1]);
    for frame in frames {
        let length = frame.len() as u32 + 14;
        file.extend(words(&[0, 0, length, length]));
        file.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        file.extend(ETHERTYPE.to_be_bytes());
        file.extend(frame);
    }
    file
}

#[test]
fn wireshark_reads_the_fields_that_were_written() {
    if Command::new("tshark").arg("--version").output().is_err() {
        return println!("tshark is missing: not compared");
    }
    let mut frames = vec![discovery::question(1)];
    for key in [None, key()] {
        let mut pair = Pair::logged_in(Config {
            key,
            frame_bytes: vec![1500],
            paths: 2,
            ..config()
        });
        for cdb in 0..=255 {
            pair.initiator
                .submit(command(cdb, u32::from(cdb) * 40, vec![1; 6000]))
                .expect("there is room");
            pair.pass(Duration::from_millis(20));
        }
        for cdb in 0..20 {
            pair.initiator
                .submit(command(cdb, 512, Vec::new()))
                .expect("there is room");
        }
        pair.pass(Duration::from_secs(1));
        let is_bundle = |frame: &Vec<u8>| Header::parse(frame).expect("a frame of ours").bundle;
        assert!(pair.to_target.iter().any(is_bundle) && pair.to_initiator.iter().any(is_bundle));
        pair.initiator
            .manage(Function::LogicalUnitReset, [0; 8], None)
            .expect("there is room");
        pair.pass(Duration::from_secs(10));
        pair.initiator.disconnect(pair.now);
        pair.pass(Duration::from_secs(1));
        frames.extend(pair.to_target);
        frames.extend(pair.to_initiator);
    }
    let folder = std::env::temp_dir().join(format!("hyperscsi-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("session.pcap");
    std::fs::write(&path, capture(&frames)).expect("a file");
    let fields = ["tagno", "lastfrag", "fragno", "version", "cmd", "reserved"];
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-r")
        .arg(&path)
        .args(["-T", "fields", "-e", "_ws.malformed"]);
    for field in fields {
        tshark.args(["-e", &format!("hyperscsi.{field}")]);
    }
    let said = tshark.output().expect("it was there");
    std::fs::remove_dir_all(&folder).expect("our folder");
    let said = String::from_utf8(said.stdout).expect("text");
    let number = |text: &str| match text {
        "True" => 1,
        "False" => 0,
        _ => match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).expect("a number"),
            None => text.parse().expect("a number"),
        },
    };
    let mut opcodes = std::collections::BTreeSet::new();
    assert_eq!(said.lines().count(), frames.len());
    for (line, frame) in said.lines().zip(&frames) {
        let header = Header::parse(frame).expect("a frame of ours");
        let (malformed, fields) = line.split_once('\t').expect("fields");
        assert_eq!(malformed, "", "{line}");
        let read: Vec<u32> = fields.split('\t').map(number).collect();
        let (tag, last, fragment) = (
            header.tag().into(),
            header.last.into(),
            header.fragment.into(),
        );
        assert_eq!(
            read,
            [tag, last, fragment, 0x52, header.opcode as u32, 0],
            "{line}"
        );
        opcodes.insert(header.opcode as u8);
    }
    assert_eq!(
        opcodes.into_iter().collect::<Vec<_>>(),
        [0, 1, 0x10, 0x11, 0x12, 0x13, 0x20, 0x21]
    );
}
