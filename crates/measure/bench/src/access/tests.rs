//! Tests that requests follow Iometer's rules: offsets, mix, and continuation at the start of the span.

use block::{BlockSize, Blocks, Geometry};
use proptest::prelude::*;

use super::*;
use crate::plan::{Access, Align, Span, Workload};

const DEVICE_BYTES: u64 = 1 << 22;

fn layout(workload: &Workload) -> Layout {
    let blocks = Blocks(DEVICE_BYTES / 512);
    let geometry = Geometry {
        block_size: BlockSize::B512,
        blocks,
        physical_exponent: 0,
    };
    Layout::new(workload, geometry, 1).expect("it fits")
}

fn stream(workload: &Workload, index: usize) -> AccessStream {
    AccessStream::new(&layout(workload), workload.seed, index, 4)
}

fn percent(percent: u8) -> Percent {
    Percent::new(percent).expect("a share")
}

fn one(read: u8, random: u8) -> Workload {
    Workload::simple(4096, 4, percent(read), percent(random))
}

#[test]
fn sequential_requests_follow_each_other_and_start_again_at_the_end() {
    let mut stream = stream(&one(100, 0), 0);
    let places = DEVICE_BYTES / 4096;
    assert!((0..2 * places + 1).all(|i| stream.next().offset == i % places * 4096));
}

#[test]
fn a_last_request_that_does_not_fit_goes_to_the_start() {
    let mut workload = one(100, 0);
    workload.span = Span {
        start_bytes: 8192,
        bytes: Some(10_000),
    };
    let mut stream = stream(&workload, 0);
    assert_eq!(
        [0, 1, 2, 3].map(|_| stream.next().offset),
        [0, 4096, 0, 4096]
    );
    assert_eq!(layout(&workload).extent(&stream.next()), Extent::new(16, 8));
}

#[test]
fn sequential_sessions_start_spread_over_the_span() {
    let starts = [0, 1, 2, 3].map(|index| stream(&one(100, 0), index).next().offset);
    assert_eq!(
        starts,
        [0, 1, 2, 3].map(|quarter| quarter * DEVICE_BYTES / 4)
    );
}

#[test]
fn a_sequential_request_follows_a_random_one_too() {
    let mut stream = stream(&one(100, 40), 0);
    let asks: Vec<Ask> = (0..20_000).map(|_| stream.next()).collect();
    let followed = asks
        .windows(2)
        .filter(|two| two[1].offset == (two[0].offset + 4096) % DEVICE_BYTES);
    let followed = followed.count() as f64 / 20_000.0;
    assert!((0.58..0.62).contains(&followed), "{followed}");
}

#[test]
fn a_burst_is_of_one_line_and_has_its_pause_before_it() {
    let mut workload = one(100, 100);
    workload.accesses[0] = Access {
        share: percent(50),
        burst: 3,
        delay_ms: 7,
        ..workload.accesses[0].clone()
    };
    let long = Access {
        block_bytes: 8192,
        burst: 2,
        delay_ms: 9,
        ..workload.accesses[0].clone()
    };
    workload.accesses.push(long);
    let mut stream = stream(&workload, 0);
    for _ in 0..1000 {
        let first = stream.next();
        let (length, pause) = if first.bytes == 4096 { (3, 7) } else { (2, 9) };
        assert_eq!(first.pause, Duration::from_millis(pause));
        let rest = (1..length).map(|_| stream.next());
        assert!({ rest }.all(|ask| ask.bytes == first.bytes && ask.pause.is_zero()));
    }
}

#[test]
fn at_sector_boundaries_most_requests_straddle_pages() {
    let mut workload = one(100, 100);
    workload.accesses[0].align = Align::Block;
    let mut stream = stream(&workload, 0);
    let straddling = (0..10_000)
        .filter(|_| !stream.next().offset.is_multiple_of(4096))
        .count();
    assert!(
        (8_500..9_000).contains(&straddling),
        "{straddling} of 10000, not seven of eight"
    );
}

/// Any access line that a file may contain.
fn any_access() -> impl Strategy<Value = Access> {
    let align = prop_oneof![
        Just(Align::Natural),
        Just(Align::Block),
        (1u32..64).prop_map(|blocks| Align::Bytes(blocks * 512))
    ];
    (1u32..256, 0u8..=100, 0u8..=100, align, 1u32..5).prop_map(
        |(blocks, read, random, align, burst)| Access {
            block_bytes: blocks * 512,
            share: Percent::ALL,
            read: percent(read),
            random: percent(random),
            align,
            burst,
            delay_ms: 0,
        },
    )
}

/// Any workload with two access lines.
fn any_workload() -> impl Strategy<Value = Workload> {
    let span = (0u64..2048, 512u64..4096).prop_map(|(start, blocks)| Span {
        start_bytes: start * 512,
        bytes: Some(blocks * 512),
    });
    (any_access(), any_access(), 0u8..=100, span, any::<u64>()).prop_map(
        |(one, two, share, span, seed)| {
            let one = Access {
                share: percent(share),
                ..one
            };
            let two = Access {
                share: percent(100 - share),
                ..two
            };
            Workload {
                accesses: vec![one, two],
                span,
                seed,
                ..Workload::simple(512, 1, Percent::ALL, Percent::ALL)
            }
        },
    )
}

proptest! {
    /// For any file, each request belongs to an access line, lies in the span, and has the line's alignment.
    #[test]
    fn every_request_obeys_its_line(workload in any_workload()) {
        let (layout, span_bytes) = (layout(&workload), workload.span.bytes.unwrap_or(0));
        let mut stream = AccessStream::new(&layout, workload.seed, 0, 1);
        let mut following = 0u64;
        for _ in 0..500 {
            let ask = stream.next();
            prop_assert!(ask.offset + ask.bytes <= span_bytes);
            prop_assert!(ask.offset.is_multiple_of(ask.align));
            let may = |access: &Access| {
                let kind = match ask.kind {
                    Kind::Read => access.read > Percent::NONE,
                    Kind::Write => access.read < Percent::ALL,
                };
                let aligned = following.next_multiple_of(ask.align);
                let next = if aligned + ask.bytes > span_bytes { 0 } else { aligned };
                let place = access.random > Percent::NONE || ask.offset == next;
                access.share > Percent::NONE && u64::from(access.block_bytes) == ask.bytes && kind && place
            };
            prop_assert!(workload.accesses.iter().any(may), "{:?}", ask);
            following = ask.offset + ask.bytes;
        }
    }

    /// The shares of lines and of directions match the configuration within five standard deviations.
    #[test]
    fn the_mix_is_kept(read in 0u8..=100, share in 1u8..100, seed in any::<u64>()) {
        const DRAWS: f64 = 20_000.0;
        let mut workload = Workload { seed, ..one(read, 100) };
        workload.accesses[0].share = percent(share);
        let rest = Access { block_bytes: 512, share: percent(100 - share), ..workload.accesses[0].clone() };
        workload.accesses.push(rest);
        let mut stream = AccessStream::new(&layout(&workload), seed, 0, 1);
        let asks: Vec<Ask> = (0..DRAWS as u32).map(|_| stream.next()).collect();
        let of = |count: usize| count as f64 / DRAWS;
        let near = |seen: f64, percent: u8| {
            let p = f64::from(percent) / 100.0;
            (seen - p).abs() <= 5.0 * (p * (1.0 - p) / DRAWS).sqrt()
        };
        let reads = of(asks.iter().filter(|ask| ask.kind == Kind::Read).count());
        let long = of(asks.iter().filter(|ask| ask.bytes == 4096).count());
        prop_assert!(near(reads, read), "{} of {}", reads, read);
        prop_assert!(near(long, share), "{} of {}", long, share);
    }

    #[test]
    fn a_seed_gives_the_same_requests_again(workload in any_workload()) {
        let layout = layout(&workload);
        let (mut one, mut two) = [0, 1].map(|_| AccessStream::new(&layout, workload.seed, 0, 1)).into();
        prop_assert!((0..500).all(|_| one.next() == two.next()));
    }
}

proptest! {
    #[test]
    fn every_place_has_one_of_its_own(bound in 1u64..5000) {
        let shuffle = Shuffle::new(bound);
        let mut taken: Vec<u64> = (0..bound).map(|place| shuffle.at(place)).collect();
        taken.sort_unstable();
        prop_assert!(taken.into_iter().eq(0..bound));
    }

    #[test]
    fn the_largest_spans_have_a_shuffle(place in 0..u64::MAX) {
        prop_assert!(Shuffle::new(u64::MAX).at(place) < u64::MAX);
    }
}

#[test]
fn neighbours_are_parted() {
    let shuffle = Shuffle::new(100_000);
    let near =
        (1..1000u64).filter(|&place| shuffle.at(place).abs_diff(shuffle.at(place - 1)) < 100);
    assert!(near.count() < 20);
}

const DRAWS: usize = 200_000;

/// Returns the frequency of each of `count` ranks.
fn ranks(count: u64, mut draw: impl FnMut(&mut Random) -> u64) -> Vec<f64> {
    let (mut random, mut seen) = (Random::new(11), vec![0u32; count as usize]);
    (0..DRAWS).for_each(|_| seen[draw(&mut random) as usize] += 1);
    seen.into_iter()
        .map(|times| f64::from(times) / DRAWS as f64)
        .collect()
}

/// Returns whether a share differs from the expected value by fewer than five standard deviations.
fn is_about(share: f64, expected: f64) -> bool {
    (share - expected).abs() < 5.0 * (expected.max(1e-5) / DRAWS as f64).sqrt()
}

#[test]
fn zipf_draws_each_rank_in_proportion_to_its_power() {
    for (count, theta) in [
        (1, 0.99),
        (2, 1.2),
        (10, 0.5),
        (1000, 0.99),
        (1000, 1.0),
        (1000, 1.2),
        (50, 3.0),
    ] {
        let zipf = Zipf::new(count, theta);
        let sum: f64 = (1..=count).map(|k| (k as f64).powf(-theta)).sum();
        let seen = ranks(count, |random| zipf.draw(random));
        for (k, share) in (1..).zip(seen) {
            let expected = f64::from(k).powf(-theta) / sum;
            assert!(
                is_about(share, expected),
                "theta {theta}, rank {k}: {share}, not {expected}"
            );
        }
    }
}

#[test]
fn pareto_gives_a_share_of_the_places_the_rest_of_the_requests() {
    for h in [0.1, 0.2, 0.4] {
        let places = Places::new(1000, 1);
        let spread = spread(Distribution::Pareto { h }, 1000, 1);
        let at = ranks(1000, |random| spread(random, 1));
        let hot = (h * 1000.0) as u64;
        let share: f64 = (0..hot)
            .map(|rank| at[places.shuffle.at(rank) as usize])
            .sum();
        assert!(is_about(share, 1.0 - h), "h {h}: {share}");
    }
}

#[test]
fn a_hot_part_takes_its_share_and_is_even_in_itself() {
    let spread = spread(
        Distribution::Hot {
            requests: percent(90),
            span: percent(10),
        },
        100,
        1,
    );
    let seen = ranks(100, |random| spread(random, 1));
    assert!(
        seen[..10].iter().all(|&share| is_about(share, 0.09)),
        "{seen:?}"
    );
    assert!(
        seen[10..].iter().all(|&share| is_about(share, 0.1 / 90.0)),
        "{seen:?}"
    );
}

#[test]
fn a_hot_part_of_everything_is_even() {
    let spread = spread(
        Distribution::Hot {
            requests: percent(50),
            span: percent(100),
        },
        100,
        1,
    );
    let seen = ranks(100, |random| spread(random, 1));
    assert!(seen.iter().all(|&share| is_about(share, 0.01)), "{seen:?}");
}

#[test]
fn the_smallest_share_of_pareto_draws_the_first_place() {
    for h in [1e-15, 1e-17, 1e-300] {
        let spread = spread(Distribution::Pareto { h }, 1000, 1);
        let mut random = Random::new(1);
        let first = spread(&mut random, 1);
        assert!((0..100).all(|_| spread(&mut random, 1) == first), "{h}");
        let narrow = super::spread(Distribution::Pareto { h: 1e-12 }, 1000, 1);
        assert_eq!(narrow(&mut random, 1), first, "{h}: as of a larger share");
    }
}

#[test]
fn uniform_places_are_as_likely_as_each_other() {
    let spread = spread(Distribution::Uniform, 100, 1);
    let seen = ranks(100, |random| spread(random, 1));
    assert!(seen.iter().all(|&share| is_about(share, 0.01)), "{seen:?}");
}
