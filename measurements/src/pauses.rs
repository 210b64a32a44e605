//! Detects times at which the machine withdraws a core: a thread polls the clock, and records when it did not
//! run. Neither a server nor a client can respond during a pause, so pauses limit the latencies that a
//! machine can reach.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::figures::{Figure, Figures};
use xtask::serving::Placement;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[arg(long)]
    seconds: f64,
}

/// Minimum pause to record, in microseconds: longer than any interrupt should take.
const SHORTEST_US: f64 = 15.0;

/// A period in which a runnable thread did not run, in microseconds since the start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Pause {
    begin_us: f64,
    end_us: f64,
}

/// Polls the clock, and prints the pauses as JSON.
pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "{}",
        serde_json::to_string(&watch(Duration::from_secs_f64(options.seconds)))?
    );
    Ok(())
}

fn watch(time: Duration) -> Vec<Pause> {
    let begin = Instant::now();
    let since = || begin.elapsed().as_secs_f64() * 1e6;
    let end_us = time.as_secs_f64() * 1e6;
    let (mut last, mut pauses) = (since(), Vec::new());
    while last < end_us {
        let now = since();
        if now - last >= SHORTEST_US {
            pauses.push(Pause {
                begin_us: last,
                end_us: now,
            });
        }
        last = now;
    }
    pauses
}

/// Returns the latencies that the pauses of these cores alone would cause. Requests arrive at equal intervals,
/// `rate` per second, at a server that needs 1/`capacity` seconds for each.
pub(crate) fn alone(cores: &[usize], rate: f64, capacity: f64, seconds: f64) -> Result<Figures> {
    let pauses = of_cores(cores, seconds)?;
    let waits = waits_us(&pauses, rate, capacity, seconds);
    let at = |share: f64| {
        waits
            .get((waits.len() as f64 * share) as usize)
            .copied()
            .unwrap_or(0.0)
    };
    let away_us: f64 = pauses
        .iter()
        .map(|pause| pause.end_us - pause.begin_us)
        .sum();
    Ok(Figures::from([
        (Figure::P50Us, at(0.5)),
        (Figure::P99Us, at(0.99)),
        (Figure::P999Us, at(0.999)),
        (
            Figure::Away,
            away_us * 100.0 / (seconds * 1e6) / cores.len() as f64,
        ),
    ]))
}

/// Records the pauses of several cores at the same time, and returns them in order. A pause of any core
/// counts, because a request needs both ends.
fn of_cores(cores: &[usize], seconds: f64) -> Result<Vec<Pause>> {
    let program = std::env::current_exe().context("the path of this program")?;
    let begin = |core: &usize| -> Result<Child> {
        let mut command: Command = Placement {
            core: Some(*core),
            ..Placement::default()
        }
        .command(&program);
        command
            .args(["pauses", "--seconds", &seconds.to_string()])
            .stdout(Stdio::piped());
        command.spawn().context("measure pauses")
    };
    let watchers = cores.iter().map(begin).collect::<Result<Vec<_>>>()?;
    let mut pauses: Vec<Pause> = Vec::new();
    for watcher in watchers {
        let output = watcher.wait_with_output()?;
        ensure!(output.status.success(), "measure pauses: {}", output.status);
        pauses.extend(serde_json::from_slice::<Vec<Pause>>(&output.stdout)?);
    }
    pauses.sort_by(|one, other| one.begin_us.total_cmp(&other.begin_us));
    Ok(pauses)
}

/// Returns the waiting times in microseconds, sorted, that requests would have if pauses of the machine were
/// the only delays. Requests arrive at equal intervals, `rate` per second for `seconds`, and each takes
/// 1/`capacity` seconds.
fn waits_us(pauses: &[Pause], rate: f64, capacity: f64, seconds: f64) -> Vec<f64> {
    let (between_us, service_us) = (1e6 / rate, 1e6 / capacity);
    let mut coming = pauses.iter().peekable();
    let (mut free_us, mut waits) = (0.0_f64, Vec::new());
    for number in 0..(rate * seconds) as u64 {
        let arrival_us = number as f64 * between_us;
        let mut done_us = free_us.max(arrival_us) + service_us;
        while let Some(pause) = coming.next_if(|pause| pause.begin_us < done_us) {
            // A pause that ended while the server was idle delays no request.
            let begin_us = pause.begin_us.max(done_us - service_us);
            done_us += (pause.end_us - begin_us).max(0.0);
        }
        free_us = done_us;
        waits.push(done_us - service_us - arrival_us);
    }
    waits.sort_by(f64::total_cmp);
    waits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(pauses: &[Pause]) -> f64 {
        waits_us(pauses, 1000.0, 2000.0, 0.1)
            .last()
            .copied()
            .expect("a hundred requests")
    }

    #[test]
    fn without_pauses_nobody_waits() {
        assert!(longest(&[]).abs() < 1e-6);
    }

    #[test]
    fn who_comes_as_a_pause_begins_waits_for_its_end() {
        let pause = Pause {
            begin_us: 10_000.0,
            end_us: 15_000.0,
        };
        assert!((longest(&[pause]) - 5000.0).abs() < 1.0);
    }

    #[test]
    fn a_pause_while_the_server_has_nothing_to_do_delays_nobody() {
        // Requests come every 1000 µs and take 500.
        assert!(
            longest(&[Pause {
                begin_us: 10_600.0,
                end_us: 10_900.0
            }])
            .abs()
                < 1e-6
        );
    }

    #[test]
    fn those_behind_a_pause_wait_until_the_backlog_is_gone() {
        let waits = waits_us(
            &[Pause {
                begin_us: 10_000.0,
                end_us: 15_000.0,
            }],
            1000.0,
            2000.0,
            0.1,
        );
        let waiting = waits.iter().filter(|wait| **wait > 1.0).count();
        assert!(
            (9..=11).contains(&waiting),
            "a backlog of 5000 µs shrinks by 500 a request: {waiting}"
        );
    }
}
