//! Tests of long writes to a RAM volume, which are split arbitrarily, with any events in between.

use std::thread::sleep;
use std::time::Duration;

use testkit::Random;

use super::Both;
use super::client::{Client, EPERM, FLUSH, READ, WRITE};
use super::together::persistent_reserve;
use crate::peer::Peer;

const LENGTH: usize = 256 << 10;
const AREA: u64 = 5 << 19;
const VOLUME: &str = "disk=ram:16MiB";

/// A pause in which the server usually reads the data. The result must not depend on it.
const MOMENT: Duration = Duration::from_millis(1);

fn data(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..length).map(|_| random.next() as u8).collect()
}

/// Sends `bytes` in pieces that end at `cuts`.
fn say_cut(client: &mut Client, bytes: &[u8], cuts: &[usize]) {
    let mut at = 0;
    for &cut in cuts.iter().filter(|cut| **cut < bytes.len()) {
        client.say(&bytes[at..cut]);
        sleep(MOMENT);
        at = cut;
    }
    client.say(&bytes[at..]);
}

#[test]
fn what_was_written_is_read_wherever_it_was_cut() {
    let both = or_skip!(Both::serving(&[VOLUME], ""));
    for attach in [Client::attach, Client::extended] {
        let (mut client, mut other) = (attach(both.port, "disk"), attach(both.port, "disk"));
        let header = client.header(WRITE, 0, 0).len();
        let around = [
            header,
            header + LENGTH,
            2 * header + LENGTH,
            2 * (header + LENGTH),
        ];
        let near = |at: usize| (at - header..=at + header).step_by(3);
        for (turn, cut) in (1..header)
            .chain(around.into_iter().flat_map(near))
            .enumerate()
        {
            // One of the writes spans two huge pages.
            let offsets = [(2 << 20) - 512 * (1 + turn), (4 << 20) + 512 * turn];
            let written: Vec<_> = offsets
                .iter()
                .map(|at| data((turn + at) as u64, LENGTH))
                .collect();
            let mut said = Vec::new();
            for (offset, data) in offsets.iter().zip(&written) {
                said.extend(client.header(WRITE, *offset as u64, LENGTH as u64));
                said.extend(data);
            }
            said.extend(client.header(FLUSH, 0, 0)); // replies may arrive in any order
            say_cut(
                &mut client,
                &said,
                &[cut, cut + header + 1, cut + LENGTH / 2],
            );
            for _ in 0..3 {
                assert_eq!(
                    client.answer(0).expect("an answer").error,
                    0,
                    "cut at {cut}"
                );
            }
            for (offset, data) in offsets.iter().zip(&written) {
                assert!(
                    other.read(*offset as u64, LENGTH) == Ok(data.clone()),
                    "cut at {cut}"
                );
            }
        }
    }
}

#[test]
fn requests_of_all_lengths_in_one_stream_stay_apart() {
    let both = or_skip!(Both::serving(&[VOLUME], ""));
    let mut client = Client::extended(both.port, "disk");
    let (mut random, mut model) = (Random::new(20_261_126), vec![0; 16 << 20]);
    for _ in 0..60 {
        let mut said = Vec::new();
        // Concurrent requests use separate areas, because their order is undefined.
        let areas = 1 + random.below(6);
        for area in 0..areas {
            let unit = [1, 512, 4096][random.below(3) as usize];
            let longest = [4096, LENGTH as u64, 1 << 20, 2 << 20][random.below(4) as usize];
            let length = ((1 + random.below(longest / unit)) * unit) as usize;
            let at = ((1 << 20) + area * AREA + random.below((AREA - length as u64) / unit) * unit)
                as usize;
            if random.below(3) == 0 {
                said.extend(client.header(READ, at as u64, length as u64));
            } else {
                said.extend(client.header(WRITE, at as u64, length as u64));
                let data = data(random.next(), length);
                model[at..at + length].copy_from_slice(&data);
                said.extend(data);
            }
        }
        let mut cuts: Vec<usize> = (0..4)
            .map(|_| random.below(said.len() as u64) as usize)
            .collect();
        cuts.sort_unstable();
        let mut hears = client.listener();
        std::thread::scope(|scope| {
            scope.spawn(|| say_cut(&mut client, &said, &cuts));
            for _ in 0..areas {
                assert_eq!(hears.answer(0).expect("an answer").error, 0);
            }
        });
        let mut whole = Client::attach(both.port, "disk");
        assert!(
            whole.read(0, 16 << 20) == Ok(model.clone()),
            "the volume is not what was written"
        );
    }
}

#[test]
fn nothing_of_a_write_lands_whose_end_does_not_come() {
    let both = or_skip!(Both::serving(&[VOLUME], ""));
    let before = data(1, LENGTH);
    for come in [0, 1, 511, 4096, 65_536, LENGTH - 512, LENGTH - 1] {
        let mut client = Client::attach(both.port, "disk");
        client.write(0, &before).expect("written");
        let mut half = client.header(WRITE, 0, LENGTH as u64);
        half.extend(&data(2, LENGTH)[..come]);
        say_cut(&mut client, &half, &[28]);
        sleep(MOMENT);
        drop(client);
        let mut other = Client::attach(both.port, "disk");
        assert!(
            other.read(0, LENGTH) == Ok(before.clone()),
            "{come} bytes had come"
        );
    }
}

#[test]
fn a_slow_write_is_received_as_it_comes() {
    let both = or_skip!(Both::serving(&[VOLUME], ""));
    let (mut client, written) = (Client::attach(both.port, "disk"), data(3, LENGTH));
    client.write(1 << 20, &written).expect("written");
    let header = client.header(WRITE, 0, LENGTH as u64);
    client.say(&header);
    for piece in written.chunks(LENGTH / 4) {
        sleep(Duration::from_millis(300));
        client.say(piece);
    }
    assert_eq!(client.answer(0).expect("an answer").error, 0);
    assert!(client.read(0, LENGTH) == Ok(written));
}

#[test]
fn a_reservation_that_comes_with_the_data_keeps_them_out() {
    let both = or_skip!(Both::serving(&[VOLUME], ""));
    let (mut client, before) = (Client::attach(both.port, "disk"), data(4, LENGTH));
    client.write(0, &before).expect("written");
    let mut peer = Peer::attach(&both.server, "disk", 1);
    persistent_reserve(&mut peer, 0, 0, 0, 7);
    let header = client.header(WRITE, 0, LENGTH as u64);
    client.say(&header);
    let after = data(5, LENGTH);
    client.say(&after[..LENGTH / 2]);
    sleep(MOMENT);
    persistent_reserve(&mut peer, 1, 1, 7, 0);
    client.say(&after[LENGTH / 2..]);
    assert_eq!(client.answer(0).expect("an answer").error, EPERM);
    assert!(client.read(0, LENGTH) == Ok(before));
}
