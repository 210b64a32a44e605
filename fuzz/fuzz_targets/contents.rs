//! Arbitrary disk contents: whether they are recognised or not, their description contains no control characters.
#![no_main]

use libfuzzer_sys::fuzz_target;
use script::Script;

/// Parts of signatures, with their offsets.
const MAGICS: &[(usize, &[u8])] = &[
    (512, b"EFI PART"),
    (510, &[0x55, 0xaa]),
    (1080, &[0x53, 0xef]),
    (0, b"XFSB"),
    (4086, b"SWAPSPACE2"),
    (512, b"LABELONE"),
    (536, b"LVM2 001"),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]),
];

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let block_bytes = if script.byte() % 2 == 0 { 512 } else { 4096 };
    let magics = script.byte();
    let mut disk = vec![0; 16 << 10];
    for (index, (at, magic)) in MAGICS.iter().enumerate() {
        if magics >> index & 1 == 1 {
            disk[*at..*at + magic.len()].copy_from_slice(magic);
        }
    }
    while !script.is_over() {
        let at = usize::from(script.byte()) << 8 | usize::from(script.byte());
        let length = usize::from(script.byte());
        let piece = script.bytes(length);
        let at = at % (disk.len() - piece.len());
        disk[at..at + piece.len()].copy_from_slice(piece);
    }
    for disk in [&disk[..], &disk[..disk.len() / 3]] {
        if let Some(contents) = disk_contents::of_bytes(disk, block_bytes) {
            assert!(!contents.to_string().chars().any(char::is_control));
        }
    }
});
