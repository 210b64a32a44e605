//! Tests of one cause at a time, on many synthetic paths, and of many paths without any cause.

use super::world::{World, between};
use crate::{Cause, Diagnosis, LongPackets, Verdict, diagnose};
use block::Random;
use model::{Direction, Load};

/// The seeds of the paths for each cause.
const SEEDS: std::ops::Range<u64> = 0..20;

/// Random values within a range, determined by the seed and evenly distributed on a logarithmic scale.
struct Dice(Random);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(Random::new(seed.wrapping_mul(77) + 5))
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        between(self.0.fraction(), low, high)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.0.fraction() * all.len() as f64) as usize]
    }
}

/// Checks that a planted cause is reported, with the gain of the path without it.
fn is_found(cause: Cause, world_of: impl Fn(u64, &mut Dice) -> (World, World)) {
    let mut wrong = Vec::new();
    for seed in SEEDS {
        let (healthy, planted) = world_of(seed, &mut Dice::new(seed));
        if !binds(&healthy, &planted) {
            continue;
        }
        let diagnosis = diagnose(planted.evidence());
        let first = diagnosis.findings.first();
        let right =
            first.is_some_and(|first| first.cause == cause && priced(first, &healthy, &planted));
        if !right {
            wrong.push((seed, told(&diagnosis, &healthy, &planted)));
        }
    }
    // Nineteen of twenty paths must pass, as in the matrix of planted causes.
    assert!(
        wrong.len() * 20 <= SEEDS.count(),
        "{cause:?}: {} wrong, such as {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(4)]
    );
}

/// Whether a fix has an effect: a full link hides many causes.
fn binds(healthy: &World, planted: &World) -> bool {
    let gains = planted
        .loads()
        .into_iter()
        .map(|load| healthy.bytes_per_s(&load) / planted.bytes_per_s(&load));
    planted.long_packets.is_some() || gains.fold(1.0, f64::max) >= 1.3
}

/// Whether the predicted gain is within a fifth of the true one.
fn priced(finding: &crate::Finding, healthy: &World, planted: &World) -> bool {
    let load = planted.loads()[finding.load];
    let truth = healthy.bytes_per_s(&load) / planted.bytes_per_s(&load);
    finding
        .gain
        .predicted
        .is_none_or(|predicted| (predicted / truth - 1.0).abs() <= 0.2)
}

fn told(diagnosis: &Diagnosis, healthy: &World, planted: &World) -> String {
    let findings = diagnosis.findings.iter().map(|finding| {
        let load = planted.loads()[finding.load];
        let truth = healthy.bytes_per_s(&load) / planted.bytes_per_s(&load);
        format!(
            "{:?} gain {:?} of {truth:.2} ({load:?})",
            finding.cause, finding.gain.predicted
        )
    });
    format!(
        "{:?}; {:?}",
        findings.collect::<Vec<_>>(),
        diagnosis.verdict
    )
}

fn lan(seed: u64, dice: &mut Dice) -> World {
    World::healthy(seed, 1e9, dice.between(0.1e-3, 1e-3))
}

fn far(seed: u64, dice: &mut Dice) -> World {
    World::healthy(
        seed,
        dice.one_of(&[100e6, 200e6, 500e6, 1e9]),
        dice.between(5e-3, 50e-3),
    )
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let mut wrong = Vec::new();
    for seed in 0..120 {
        let dice = &mut Dice::new(seed);
        let world = match seed % 4 {
            0 => World {
                loopback: true,
                built_for: None,
                ..World::healthy(seed, 1e9, 30e-6)
            },
            1 => far(seed, dice),
            2 => World {
                built_for: None,
                ..lan(seed, dice)
            },
            _ => lan(seed, dice),
        };
        let diagnosis = diagnose(world.evidence());
        if !diagnosis.findings.is_empty() || !matches!(diagnosis.verdict, Verdict::Fine { .. }) {
            wrong.push((seed, told(&diagnosis, &world, &world)));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(5)]
    );
}

/// The scenario is `--quick` on a machine with other load: three rounds without a useful result.
#[test]
fn rounds_that_differ_too_much_are_no_proof_that_nothing_is_wrong() {
    let mut evidence = lan(2, &mut Dice::new(2)).evidence();
    assert!(matches!(
        diagnose(evidence.clone()).verdict,
        Verdict::Fine { .. }
    ));
    for run in &mut evidence.loads {
        let rate = stats::median(&run.bytes_per_s);
        run.bytes_per_s = vec![0.1 * rate, rate, 2.6 * rate];
    }
    let diagnosis = diagnose(evidence);
    assert!(diagnosis.findings.is_empty(), "{:?}", diagnosis.findings);
    assert!(
        matches!(diagnosis.verdict, Verdict::Uncertain { interval } if interval > 1.0),
        "{:?}",
        diagnosis.verdict
    );
}

#[test]
fn a_small_tcp_window() {
    is_found(Cause::TcpWindow, |seed, dice| {
        let healthy = far(seed, dice);
        let window = Some(dice.between(30e3, 120e3));
        let windows = dice.one_of(&[(window, window), (window, None), (None, window)]);
        (healthy.clone(), World { windows, ..healthy })
    });
}

#[test]
fn data_that_wait_to_be_asked_for() {
    is_found(Cause::Solicitation, |seed, dice| {
        let healthy = far(seed, dice);
        let mut got = healthy.got;
        got.initial_r2t = true;
        got.immediate_data = false;
        (healthy.clone(), World { got, ..healthy })
    });
}

#[test]
fn small_bursts() {
    is_found(Cause::SmallBursts, |seed, dice| {
        let healthy = far(seed, dice);
        let mut got = healthy.got;
        got.max_burst_bytes = 8192;
        got.first_burst_bytes = 8192;
        got.outstanding_r2ts = 1;
        (healthy.clone(), World { got, ..healthy })
    });
}

#[test]
fn a_command_window_of_one() {
    is_found(Cause::CommandWindow, |seed, dice| {
        let healthy = far(seed, dice);
        let commands_at_once = Some(dice.one_of(&[1.0, 2.0, 4.0]));
        (
            healthy.clone(),
            World {
                commands_at_once,
                ..healthy
            },
        )
    });
}

/// The initiator counts a full window even if it does not count the time for which each request waits.
#[test]
fn a_command_window_that_is_full_without_a_time_of_waiting() {
    let dice = &mut Dice::new(3);
    let world = World {
        commands_at_once: Some(2.0),
        ..far(3, dice)
    };
    let mut evidence = world.evidence();
    evidence
        .loads
        .iter_mut()
        .for_each(|run| run.parts.waiting_us = 0.0);
    let first = diagnose(evidence).findings.into_iter().next();
    assert_eq!(first.map(|first| first.cause), Some(Cause::CommandWindow));
}

#[test]
fn a_load_that_asks_one_at_a_time() {
    for seed in SEEDS {
        let dice = &mut Dice::new(seed);
        let block_bytes = dice.one_of(&[4096, 16_384]);
        let named = Load {
            direction: Direction::Read,
            block_bytes,
            depth: 1,
            sessions: 1,
            random: true,
            durable: false,
        };
        let world = World {
            named: Some(named),
            ..far(seed, dice)
        };
        let diagnosis = diagnose(world.evidence());
        let first = diagnosis.findings.first().expect("something is found");
        let depth = first
            .trial
            .as_ref()
            .and_then(|trial| trial.depth)
            .expect("another depth is to be tried");
        let truth = world.bytes_per_s(&Load { depth, ..named }) / world.bytes_per_s(&named);
        assert_eq!((first.cause, first.load), (Cause::Depth, 0));
        assert!(
            (first.gain.predicted.unwrap() / truth - 1.0).abs() < 0.2,
            "{seed}: {:?} of {truth}",
            first.gain
        );
    }
}

#[test]
fn a_link_that_fell_back() {
    is_found(Cause::LinkRate, |seed, dice| {
        let healthy = lan(seed, dice);
        (
            healthy.clone(),
            World {
                link_bits_per_s: 100e6,
                ..healthy
            },
        )
    });
}

#[test]
fn long_packets_that_vanish() {
    is_found(Cause::PathMtu, |seed, dice| {
        let healthy = lan(seed, dice);
        let lost = "a READ of 65,536 bytes had no response in 3 s".to_owned();
        let long_packets = Some(LongPackets {
            lost,
            segment_bytes: 8948,
            works_bytes: Some(1388),
        });
        (
            healthy.clone(),
            World {
                long_packets,
                ..healthy
            },
        )
    });
}

#[test]
fn packets_that_are_lost() {
    is_found(Cause::Loss, |seed, dice| {
        let healthy = far(seed, dice);
        (
            healthy.clone(),
            World {
                loss: dice.between(0.005, 0.02),
                ..healthy
            },
        )
    });
}

#[test]
fn a_slow_medium() {
    is_found(Cause::Medium, |seed, dice| {
        let healthy = lan(seed, dice);
        (
            healthy.clone(),
            World {
                access_s: dice.between(4e-3, 20e-3),
                ..healthy
            },
        )
    });
}

#[test]
fn a_medium_that_takes_so_many_a_second() {
    is_found(Cause::Medium, |seed, dice| {
        let healthy = lan(seed, dice);
        (
            healthy.clone(),
            World {
                accesses_per_s: dice.between(300.0, 1000.0),
                ..healthy
            },
        )
    });
}

#[test]
fn a_slow_flush() {
    is_found(Cause::Flush, |seed, dice| {
        let healthy = lan(seed, dice);
        (
            healthy.clone(),
            World {
                flush_s: dice.between(10e-3, 40e-3),
                ..healthy
            },
        )
    });
}

#[test]
fn writes_shorter_than_a_block() {
    is_found(Cause::Misalignment, |seed, dice| {
        let named = Load {
            direction: Direction::Write,
            block_bytes: 512,
            depth: 1,
            sessions: 1,
            random: true,
            durable: false,
        };
        let healthy = World {
            named: Some(named),
            ..lan(seed, dice)
        };
        (
            healthy.clone(),
            World {
                short_s: dice.between(0.5e-3, 5e-3),
                ..healthy
            },
        )
    });
}

#[test]
fn a_target_that_has_no_cpu() {
    is_found(Cause::TargetCpu, |seed, dice| {
        let healthy = lan(seed, dice);
        (
            healthy.clone(),
            World {
                target_away: dice.between(0.5, 0.8),
                ..healthy
            },
        )
    });
}

#[test]
fn a_client_that_has_no_cpu() {
    is_found(Cause::ClientCpu, |seed, dice| {
        let healthy = lan(seed, dice);
        (
            healthy.clone(),
            World {
                client_starved: dice.between(0.4, 0.8),
                ..healthy
            },
        )
    });
}

#[test]
fn acknowledgements_that_are_held_back() {
    is_found(Cause::DelayedAck, |seed, dice| {
        let healthy = lan(seed, dice);
        (
            healthy.clone(),
            World {
                held_back: dice.between(0.2, 0.9),
                ..healthy
            },
        )
    });
}

#[test]
fn a_slow_second_path() {
    is_found(Cause::SlowPath, |seed, dice| {
        let near = dice.between(0.2e-3, 1e-3);
        let healthy = World {
            round_trips_s: vec![near, near],
            ..lan(seed, dice)
        };
        (
            healthy.clone(),
            World {
                round_trips_s: vec![near, near * dice.between(5.0, 20.0)],
                ..healthy
            },
        )
    });
}
