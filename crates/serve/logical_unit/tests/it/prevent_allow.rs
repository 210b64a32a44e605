//! PREVENT ALLOW MEDIUM REMOVAL.

use crate::support::*;

fn removable() -> Bench {
    Bench::of_unit(|unit| unit.removable = true)
}

#[test]
fn prevented_removal_holds_for_every_nexus_until_it_is_allowed() {
    let mut bench = removable();
    let mut other = bench.second();
    bench.command(&prevent(1)).good();
    bench.command(&start_stop(2)).check(5, 0x5302);
    bench.by(&mut other, &start_stop(2)).check(5, 0x5302);
    bench.by(&mut other, &prevent(0)).good();
    bench.command(&start_stop(2)).check(5, 0x5302);
    bench.command(&prevent(0)).good();
    bench.command(&start_stop(2)).good();
    bench.command(&prevent(0)).good();
}

#[test]
fn the_loss_of_the_nexus_allows() {
    let mut bench = removable();
    let mut other = bench.second();
    bench.by(&mut other, &prevent(1)).good();
    drop(other);
    bench.command(&start_stop(2)).good();
}

#[test]
fn a_logical_unit_reset_allows() {
    let mut bench = removable();
    bench.command(&prevent(1)).good();
    bench.unit.reset();
    bench.hear_attentions();
    bench.command(&start_stop(2)).good();
}

#[test]
fn obsolete_values_are_refused() {
    removable().command(&prevent(2)).invalid_field(4);
    removable().command(&prevent(3)).invalid_field(4);
}

#[test]
fn an_empty_drive_is_locked_too() {
    let mut bench = removable();
    bench.command(&start_stop(2)).good();
    bench.command(&prevent(1)).good();
    bench.command(&start_stop(3)).check(5, 0x5302);
    bench.command(&prevent(0)).good();
    bench.command(&start_stop(3)).good();
    bench.command(&prevent(1)).good();
    bench.command(&start_stop(3)).good();
}
