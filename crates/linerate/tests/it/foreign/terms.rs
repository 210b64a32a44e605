//! Every way to transfer data: bursts, R2Ts, segments, digests, connections.

use std::sync::Arc;

use block::BlockDevice;
use iscsi_client::RemoteLun;

use super::san::BYTES;
use super::{Disk, Make, Needs, open, round_trip, with_each};

/// The offers of a login.
#[derive(Clone, Copy, Debug)]
struct Terms {
    immediate_data: bool,
    initial_r2t: bool,
    first_burst_bytes: u64,
    max_burst_bytes: u64,
    max_outstanding_r2t: u8,
    max_segment_bytes: u64,
}

impl Terms {
    /// All valid combinations: a first burst must not be longer than any burst (RFC 7143 section 13.14).
    fn all() -> impl Iterator<Item = Terms> {
        (0..96u8).filter_map(|number| {
            let bit = |at: u8| number >> at & 1 == 1;
            let terms = Terms {
                immediate_data: bit(0),
                initial_r2t: bit(1),
                max_outstanding_r2t: if bit(2) { 8 } else { 1 },
                max_segment_bytes: if bit(3) { 65_536 } else { 512 },
                max_burst_bytes: if bit(4) { 262_144 } else { 4096 },
                first_burst_bytes: [512, 4096, 65_536][usize::from(number / 32)],
            };
            (terms.first_burst_bytes <= terms.max_burst_bytes).then_some(terms)
        })
    }

    fn query(&self) -> String {
        let yes_no = |yes| if yes { "yes" } else { "no" };
        format!(
            "?immediate-data={}&initial-r2t={}&first-burst={}&max-burst={}&max-outstanding-r2t={}&max-segment={}\
             &congestion=cubic",
            yes_no(self.immediate_data),
            yes_no(self.initial_r2t),
            self.first_burst_bytes,
            self.max_burst_bytes,
            self.max_outstanding_r2t,
            self.max_segment_bytes,
        )
    }

    /// Numbers of blocks around every limit, and across several bursts.
    fn lengths(&self) -> Vec<u64> {
        let limits = [
            self.first_burst_bytes,
            self.max_burst_bytes,
            self.max_segment_bytes,
            8192,
        ];
        let mut lengths: Vec<u64> = limits
            .iter()
            .flat_map(|bytes| [bytes / 512 - 1, bytes / 512, bytes / 512 + 1])
            .chain([2 * self.max_burst_bytes / 512 + 3])
            .filter(|blocks| *blocks > 0)
            .collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }
}

/// Writes and reads pieces of all these lengths concurrently, in adjacent extents that start at block `lba`.
async fn pieces_at_once(lun: &Arc<RemoteLun>, mut lba: u64, lengths: &[u64], generation: u64) {
    let mut pieces = Vec::new();
    for blocks in lengths.iter().copied() {
        let lun = Arc::clone(lun);
        pieces.push(reactor::spawn(async move {
            round_trip(&lun, lba, blocks, generation).await
        }));
        lba += blocks;
    }
    for piece in pieces {
        piece.await;
    }
}

/// Logs in and transfers data of these lengths.
async fn moved(url: &str, lba: u64, lengths: &[u64], generation: u64) {
    eprintln!("{url}");
    let lun = Arc::new(open(url).await);
    pieces_at_once(&lun, lba, lengths, generation).await;
    lun.target().close().await;
}

/// Concurrent sessions.
const SESSIONS: usize = 8;

/// The step through the combinations. istgt accepts only one session per second, so every third combination
/// is tested with it. Three is coprime to the powers of two in the numbering, so all combinations of any two
/// settings are still tested.
fn step(make: Make) -> usize {
    if make == Make::Istgt { 3 } else { 1 }
}

#[test]
fn data_come_back_on_all_terms_of_bursts_and_r2ts() {
    with_each(Needs::Nothing, async |san| {
        let all: Vec<Terms> = Terms::all().step_by(step(san.make())).collect();
        let blocks_each = BYTES / 512 / SESSIONS as u64;
        for (generation, terms) in (1..).zip(all.chunks(SESSIONS)) {
            let sessions = (0..).zip(terms).map(|(number, terms)| {
                let (url, lengths) = (san.url(Disk::Plain, &terms.query()), terms.lengths());
                assert!(lengths.iter().sum::<u64>() <= blocks_each, "{lengths:?}");
                reactor::spawn(async move {
                    moved(&url, number * blocks_each, &lengths, generation).await
                })
            });
            for session in sessions.collect::<Vec<_>>() {
                session.await;
            }
        }
    });
}

#[test]
fn a_target_gets_segments_no_longer_than_it_takes() {
    with_each(Needs::Nothing, async |san| {
        for (generation, query) in
            (1..).zip(["?", "?immediate-data=no", "?initial-r2t=yes&max-burst=4096"])
        {
            moved(
                &san.url(Disk::Narrow, query),
                0,
                &[1, 2, 8, 9, 129, 1025],
                generation,
            )
            .await;
        }
    });
}

#[test]
fn unsolicited_data_may_fill_the_first_burst() {
    with_each(Needs::UnsolicitedData, async |san| {
        let lun = open(&san.url(
            Disk::Plain,
            "?immediate-data=no&initial-r2t=no&first-burst=65536",
        ))
        .await;
        assert!(!lun.target().parameters().initial_r2t);
        for blocks in [127, 128, 129] {
            round_trip(&lun, 0, blocks, blocks).await;
        }
        lun.close().await;
    });
}

#[test]
fn digests_go_with_all_terms() {
    with_each(Needs::Nothing, async |san| {
        let mut generation = 0;
        for (header, data) in [
            ("None", "None"),
            ("CRC32C", "None"),
            ("None", "CRC32C"),
            ("CRC32C", "CRC32C"),
        ] {
            san.allow_digests(header, data);
            for more in [
                "",
                "&immediate-data=no",
                "&max-segment=512&initial-r2t=yes&max-burst=4096",
            ] {
                generation += 1;
                let query = format!("?header-digest={header}&data-digest={data}{more}");
                moved(
                    &san.url(Disk::Plain, &query),
                    0,
                    &[1, 8, 129, 1025],
                    generation,
                )
                .await;
            }
        }
    });
}

#[test]
fn blocks_of_4096_bytes_go_with_digests_and_small_bursts() {
    with_each(Needs::Nothing, async |san| {
        san.allow_digests("CRC32C", "CRC32C");
        let query = "?header-digest=crc32c&data-digest=crc32c&max-burst=4096&first-burst=4096&max-segment=512";
        moved(&san.url(Disk::FourKi, query), 0, &[1, 2, 17, 65], 1).await;
    });
}

#[test]
fn a_session_has_as_many_connections_as_both_want() {
    with_each(Needs::Connections, async |san| {
        for (connections, generation) in (1..=4).zip(1..) {
            let query = format!("?connections={connections}&congestion=cubic");
            let lun = Arc::new(open(&san.url(Disk::Plain, &query)).await);
            assert_eq!(lun.target().parameters().max_connections, connections);
            pieces_at_once(
                &lun,
                0,
                &[1, 8, 64, 129, 512, 1025, 2048, 3, 5, 7, 9],
                generation,
            )
            .await;
            lun.target().close().await;
        }
    });
}

#[test]
fn a_request_longer_than_any_burst_is_one_request() {
    with_each(Needs::Nothing, async |san| {
        let lun = open(&san.url(Disk::Plain, "?congestion=cubic")).await;
        let all = lun.geometry().blocks.0;
        round_trip(&lun, 0, all, 1).await;
        lun.close().await;
    });
}
