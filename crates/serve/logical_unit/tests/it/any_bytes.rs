//! The logical unit responds to any input from an initiator.

use crate::support::feed;
use proptest::prelude::*;

/// All supported operation codes, and a few unsupported ones.
const OPCODES: [u8; 64] = [
    0x00, 0x03, 0x08, 0x0a, 0x12, 0x15, 0x16, 0x17, 0x1a, 0x1b, 0x1e, 0x25, 0x28, 0x2a, 0x2e, 0x2f,
    0x34, 0x35, 0x37, 0x41, 0x42, 0x48, 0x55, 0x56, 0x57, 0x5a, 0x5e, 0x5f, 0x7f, 0x83, 0x84, 0x88,
    0x89, 0x8a, 0x8b, 0x8e, 0x8f, 0x90, 0x91, 0x93, 0x9c, 0x9e, 0xa0, 0xa3, 0xa8, 0xaa, 0xae, 0xaf,
    0xb7, 0xff, 0x42, 0x93, 0x93, 0x9e, 0x9e, 0xa3, 0xa3, 0x89, 0x55, 0x15, 0x5f, 0x5f, 0x83, 0x83,
];

prop_compose! {
    /// A command whose LBA and length are often small, so that many pass the first check.
    fn command()(
        opcode in prop::sample::select(&OPCODES[..]),
        cdb in any::<[u8; 15]>(),
        small in any::<bool>(),
        data in prop::collection::vec(any::<u8>(), 0..2048),
        room in any::<u16>(),
    ) -> Vec<u8> {
        let mut bytes = vec![opcode];
        bytes.extend(cdb.iter().enumerate().map(|(at, byte)| match at {
            1..=7 | 9..=11 if small => 0,
            8 | 12 if small => byte % 80,
            _ => *byte,
        }));
        bytes.extend((data.len() as u16).to_be_bytes());
        bytes.extend(room.to_be_bytes());
        bytes.extend(data);
        bytes
    }
}

proptest! {
    #[test]
    fn no_series_of_commands_panics(commands in prop::collection::vec(command(), 1..20)) {
        feed(&commands.concat());
    }

    #[test]
    fn no_bytes_at_all_panic(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        feed(&bytes);
    }
}
