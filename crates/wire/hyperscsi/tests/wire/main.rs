//! Both state machines over a simulated wire: every command takes effect exactly once, no write is stale,
//! nothing leaks, memory is bounded, and a seed is reproducible.
//!
//! `HYPERSCSI_SEEDS=1..2000 HYPERSCSI_COMMANDS=1000 cargo test --release -p linerate-hyperscsi --test wire` runs more.

mod client;
mod ledger;
mod server;
mod world;

use world::{Met, World};

/// Parses a number or a range from an environment variable.
fn given(name: &str) -> Option<(u64, u64)> {
    let text = std::env::var(name).ok()?;
    let (from, to) = text.split_once("..").unwrap_or(("0", &text));
    Some((
        from.parse().expect("a number"),
        to.parse().expect("a number"),
    ))
}

#[test]
fn commands_take_effect_exactly_once_whatever_the_wire_does() {
    let (from, to) = given("HYPERSCSI_SEEDS").unwrap_or((0, 40));
    let (_, commands) = given("HYPERSCSI_COMMANDS").unwrap_or((0, 300));
    let mut sum = Met::default();
    for seed in from..to {
        println!("seed {seed}");
        let met = World::new(seed, commands).run();
        sum.completed += met.completed;
        sum.lost += met.lost;
        sum.aborted += met.aborted;
        sum.resumed += met.resumed;
        sum.nexus_losses += met.nexus_losses;
        sum.server_restarts += met.server_restarts;
        sum.client_restarts += met.client_restarts;
        sum.partitions += met.partitions;
        sum.frames += met.frames;
        sum.bundles += met.bundles;
        sum.repeated += met.repeated;
        sum.held_bytes_max = sum.held_bytes_max.max(met.held_bytes_max);
    }
    println!("{sum:?}");
    if given("HYPERSCSI_SEEDS").is_none() {
        let outcomes = [sum.completed, sum.lost, sum.aborted, sum.resumed];
        let kinds = [&outcomes[..], &[sum.repeated, sum.partitions, sum.bundles]].concat();
        assert!(
            kinds.iter().all(|count| *count > 0),
            "the seeds meet everything: {sum:?}"
        );
    }
}

#[test]
fn a_seed_does_the_same_again() {
    for seed in [3, 4] {
        assert_eq!(World::new(seed, 200).run(), World::new(seed, 200).run());
    }
}
