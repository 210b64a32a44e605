//! Random requests over several connections and over iSCSI, compared with an array in memory.

use testkit::Random;

use super::Both;
use super::client::{Client, FLUSH, TRIM, WRITE_ZEROES};
use crate::peer::{BLOCK, Moves, Peer, read_10, write_10};

const SIZE: u64 = 8 << 20;
const SEED: u64 = 0x6e62_6420;

/// A random range: of blocks or parts of blocks, short or long.
fn random_range(random: &mut Random) -> (u64, u64) {
    let unit = *random.pick(&[1, 1, 512, 4096]);
    let most = *random.pick(&[16, 700, 9000, 300_000]);
    let offset = random.below(SIZE / unit) * unit;
    let length = (1 + random.below(most))
        .next_multiple_of(unit)
        .min(SIZE - offset);
    (offset, length)
}

#[test]
fn every_byte_is_what_was_written_last() {
    for (volume, block) in [
        ("disk=ram:8MiB", 512),
        ("disk=ram:8MiB?block=4096", 4096),
        ("disk=file:{state}/disk.img?size=8MiB", 512),
        ("disk=file:{state}/disk.img?size=8MiB&block=4096", 4096),
    ] {
        println!("{volume}, seed {SEED:#x}");
        play(volume, block);
    }
}

fn play(volume: &str, block: usize) {
    let both = or_skip!(Both::serving(&[volume], ""));
    let mut random = Random::new(SEED);
    let mut clients: Vec<Client> = (0..2).map(|_| Client::attach(both.port, "disk")).collect();
    clients.push(Client::extended(both.port, "disk"));
    let mut peer = Peer::attach(&both.server, "disk", 1);
    let mut model = vec![0; SIZE as usize];
    for step in 0..2000 {
        let (offset, length) = random_range(&mut random);
        let at = offset as usize..(offset + length) as usize;
        let client = &mut clients[step % 3];
        match random.below(10) {
            0..3 => {
                let seed = random.below(256) as u8;
                let data: Vec<u8> = (0..length)
                    .map(|index| (index as u8).wrapping_mul(31) ^ seed)
                    .collect();
                client.write(offset, &data).expect("written");
                model[at].copy_from_slice(&data);
            }
            3..6 => {
                assert_eq!(
                    client.read(offset, length as usize).as_deref(),
                    Ok(&model[at]),
                    "step {step}"
                )
            }
            6 => {
                client
                    .ask(WRITE_ZEROES, offset, length, &[])
                    .expect("zeroed");
                model[at].fill(0);
            }
            7 => {
                client.ask(TRIM, offset, length, &[]).expect("trimmed");
                // The content was undefined. From now on, it must not change.
                model[at.clone()]
                    .copy_from_slice(&client.read(offset, length as usize).expect("read"));
            }
            8 => drop(client.ask(FLUSH, 0, 0, &[]).expect("flushed")),
            _ => {
                let (lba, blocks) = (offset as usize / block, 1 + random.below(16) as usize);
                let blocks = blocks.min(SIZE as usize / block - lba);
                let at = lba * block..(lba + blocks) * block;
                if random.below(2) == 0 {
                    let read = peer
                        .run(&read_10(lba as u32, blocks), Moves::In(at.len() as u32))
                        .expect_good();
                    assert_eq!(read, model[at], "step {step}, by iSCSI");
                } else {
                    model[at.clone()].fill(step as u8);
                    let write = write_10(lba as u32, blocks * BLOCK, false);
                    peer.run(&write, Moves::Out(model[at].to_vec()))
                        .expect_good();
                }
            }
        }
    }
    let whole = clients[0].read(0, SIZE as usize).expect("read");
    let differs = whole
        .iter()
        .zip(&model)
        .position(|(read, wanted)| read != wanted);
    assert_eq!(differs, None);
}
