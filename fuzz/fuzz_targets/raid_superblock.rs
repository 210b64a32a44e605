//! Arbitrary content in the two superblock slots of members: a slot has no superblock, or one that is unchanged when written
//! again. With any combination of disks, a found set has one disk per member, and enough members.
#![no_main]

use iscsi::framing::RunningDigest;
use libfuzzer_sys::fuzz_target;
use raid::choose::{Candidate, Trust, find};
use raid::superblock::{NoSuperblock, Superblock, newer};
use script::Script;

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let mut pile: Vec<Candidate> = Vec::new();
    while !script.is_over() && pile.len() < 16 {
        let base = pile
            .iter()
            .rev()
            .find_map(|candidate| candidate.superblock.clone().ok());
        let superblock = superblock(&mut script, base);
        if let Ok(read) = &superblock {
            assert_eq!(
                newer(&read.emit(), &[]).map(|(read, _)| read),
                Ok(read.clone())
            );
        }
        let bytes = u64::from(script.byte()) << 20;
        let block_bytes = if script.flag() { 512 } else { 4096 };
        pile.push(Candidate {
            name: format!("disk{}", pile.len()),
            bytes,
            block_bytes,
            superblock,
        });
    }
    for trust in [Trust::CertainOnly, Trust::MembersFound] {
        for set in find(&pile, trust).sets {
            let text = set.refusal.as_ref().map(ToString::to_string);
            assert!(text.is_none_or(|text| !text.chars().any(char::is_control)));
            if set.refusal.is_none() {
                let layout = set.record.layout().expect("a record that was checked");
                assert!(layout.survives(&set.states().lacking()));
            }
        }
    }
});

/// Generates a changed record of the last set, or arbitrary bytes. Both usually have a correct checksum.
fn superblock(
    script: &mut Script<'_>,
    base: Option<Superblock>,
) -> Result<Superblock, NoSuperblock> {
    let mut slot = match base.filter(|_| script.flag()) {
        Some(base) => base.emit(),
        None => {
            let mut slot = b"LNRTRAID\x01\0\0\0".to_vec();
            let length = usize::from(script.byte()) * 4;
            slot.extend_from_slice(script.bytes(length));
            slot
        }
    };
    for _ in 0..script.byte() % 8 {
        let at = usize::from(script.byte()) << 8 | usize::from(script.byte());
        let at = at % slot.len();
        slot[at] = script.byte();
    }
    let length = slot.len() as u32;
    if slot.len() >= 20 && script.byte() < 0xf0 {
        slot[16..20].copy_from_slice(&length.to_le_bytes());
        slot[12..16].fill(0);
        let mut sum = RunningDigest::new();
        sum.update(&slot);
        slot[12..16].copy_from_slice(&sum.finish());
    }
    newer(&slot, &[]).map(|(superblock, _)| superblock)
}
