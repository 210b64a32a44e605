//! A verified load during a sequence of events on its links and servers. Measures the throughput of the links and the longest
//! pause in each step, and checks all data that is read.

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use xtask::process::Background;

use crate::cell::Cell;
use crate::figures::Judged;
use crate::scene::World;
use crate::server::{CLIENT_CORE, Server, Site};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Steps {
    /// The client's links to show.
    #[serde(default)]
    links: Vec<usize>,
    /// Maximum pause in seconds while a server is available.
    pause_max: Option<f64>,
    list: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Step {
    what: String,
    /// The step's duration, as a multiple of the table's seconds.
    #[serde(default = "once")]
    times: f64,
    /// `link N MBIT`, `link N nothing`, `link N down`, `link N up`, `start NAME`, `kill NAME`, `drop NAME`.
    #[serde(default)]
    events: Vec<String>,
    /// Whether the limit on pauses does not apply to this step.
    #[serde(default)]
    unbounded: bool,
}

fn once() -> f64 {
    1.0
}

/// The measurements of a step.
struct Passed {
    seconds: f64,
    /// Bytes carried by each link.
    bytes: Vec<u64>,
    /// The longest time in which no link carried a byte of a request.
    silence_s: f64,
}

const LOOK: Duration = Duration::from_millis(20);
/// A request of the load fills at least one packet, which is this many bytes. Smaller amounts are
/// acknowledgements, probes and connection attempts.
const QUIET_BYTES: u64 = 1500;

/// Returns the figures of all servers as text, and the goals: no wrong data, no errors, and no long pause.
pub(crate) fn measure(
    steps: &Steps,
    servers: &[Server],
    cells: &[Cell],
    site: &mut Site,
    step_s: f64,
) -> Result<(String, Vec<Judged>)> {
    let (mut text, mut goals) = (String::new(), Vec::new());
    let mut totals =
        "| | requests | errors | wrong blocks | longest request |\n|---|---:|---:|---:|---:|\n"
            .to_owned();
    for server in servers {
        for cell in cells {
            let (passed, said) = steps.pass(server, cell, site, step_s)?;
            text += &steps.rows(&server.name, &passed);
            let count = |key: &str| {
                said[key]
                    .as_u64()
                    .with_context(|| format!("{key} in {said}"))
            };
            let (requests, errors, wrong) = (count("ios")?, count("errors")?, count("mismatches")?);
            let longest_s = said["latency_us"]["max"]
                .as_f64()
                .context("the longest request")?
                / 1e6;
            writeln!(
                totals,
                "| {} | {requests} | {errors} | {wrong} | {longest_s:.1} s |",
                server.name
            )?;
            goals.push(Judged::at_least(
                format!("{}: requests", server.name),
                requests as f64,
                1.0,
            ));
            goals.push(Judged::at_most(
                format!("{}: errors", server.name),
                errors as f64,
                0.0,
            ));
            goals.push(Judged::at_most(
                format!("{}: wrong blocks", server.name),
                wrong as f64,
                0.0,
            ));
            let bounded = steps
                .list
                .iter()
                .zip(&passed)
                .filter(|(step, _)| !step.unbounded);
            goals.extend(steps.pause_max.iter().flat_map(|limit| {
                let judged = |(step, passed): (&Step, &Passed)| {
                    Judged::at_most(
                        format!("{}: pause in s, {}", server.name, step.what),
                        passed.silence_s,
                        *limit,
                    )
                };
                bounded.clone().map(judged).collect::<Vec<_>>()
            }));
        }
    }
    Ok((text + &totals, goals))
}

impl Steps {
    /// Runs all steps, and returns their measurements and the result of `linerate bench`.
    fn pass(
        &self,
        server: &Server,
        cell: &Cell,
        site: &mut Site,
        step_s: f64,
    ) -> Result<(Vec<Passed>, Value)> {
        let binary = site.binary.clone();
        let world = site.world.as_mut().context("steps need a scene")?;
        let seconds: f64 = self.list.iter().map(|step| step.times * step_s).sum();
        let mut command = world
            .client(server.pinned.then_some(CLIENT_CORE))?
            .command(binary);
        command.args([
            "--log",
            "error",
            "bench",
            &world.resolve(&server.urls[0]),
            "--verify",
        ]);
        command.args(["--allow-write", "--yes", "--json", "--progress", "none"]);
        command
            .args(cell.arguments())
            .args(["--seconds", &seconds.to_string()])
            .stdout(Stdio::piped());
        let mut load = Background::start(&mut command)?;
        let watch = |step| self.watch(step, world, load.pid(), step_s);
        let passed = self.list.iter().map(watch).collect::<Result<Vec<_>>>()?;
        // The result is in the pipe, whose capacity is large enough for it.
        let mut said = String::new();
        load.child
            .stdout
            .take()
            .context("bench's standard output")?
            .read_to_string(&mut said)?;
        Ok((
            passed,
            serde_json::from_str(&said).with_context(|| format!("bench: {said}"))?,
        ))
    }

    fn watch(&self, step: &Step, world: &mut World, load: u32, step_s: f64) -> Result<Passed> {
        step.events
            .iter()
            .try_for_each(|event| happen(event, world))
            .with_context(|| step.what.clone())?;
        let (begun, before) = (
            Instant::now(),
            self.bytes(load).unwrap_or(vec![0; self.links.len()]),
        );
        let (mut last, mut since, mut silence) = (before.clone(), begun, Duration::ZERO);
        while begun.elapsed().as_secs_f64() < step.times * step_s {
            thread::sleep(LOOK);
            // If a server was slow to start, the load completes shortly before the last step.
            let Some(now) = self.bytes(load) else { break };
            if now
                .iter()
                .zip(&last)
                .any(|(now, last)| now - last > QUIET_BYTES)
            {
                since = Instant::now();
            }
            (last, silence) = (now, silence.max(since.elapsed()));
        }
        let bytes = last
            .iter()
            .zip(&before)
            .map(|(last, before)| last - before)
            .collect();
        let silence_s = silence.as_secs_f64();
        Ok(Passed {
            seconds: begun.elapsed().as_secs_f64(),
            bytes,
            silence_s,
        })
    }

    /// Returns the bytes carried by each shown link in both directions, counted on the host of the load, or
    /// `None` once the load has ended.
    fn bytes(&self, load: u32) -> Option<Vec<u64>> {
        let text = fs::read_to_string(format!("/proc/{load}/net/dev")).ok()?;
        Some(
            self.links
                .iter()
                .map(|number| carried(&text, *number))
                .collect(),
        )
    }

    fn rows(&self, server: &str, passed: &[Passed]) -> String {
        if self.links.is_empty() {
            return String::new();
        }
        let links = self.links.iter().fold(String::new(), |text, link| {
            format!("{text} MB/s by link {link} |")
        });
        let columns = "---:|".repeat(self.links.len());
        let mut text =
            format!("| {server} | seconds |{links} longest pause |\n|---|---:|{columns}---:|\n");
        for (
            step,
            Passed {
                seconds,
                bytes,
                silence_s,
            },
        ) in self.list.iter().zip(passed)
        {
            let rate = |text, bytes: &u64| format!("{text} {:.1} |", *bytes as f64 / 1e6 / seconds);
            let rates = bytes.iter().fold(String::new(), rate);
            let _ = writeln!(
                text,
                "| {} | {seconds:.0} |{rates} {silence_s:.2} s |",
                step.what
            );
        }
        text + "\n"
    }
}

/// Returns the bytes that an interface has received and sent (proc(5), `/proc/PID/net/dev`).
fn carried(text: &str, link: usize) -> u64 {
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(&format!("link{link}:")));
    let numbers: Vec<u64> = line
        .unwrap_or("")
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    [0, 8].iter().filter_map(|at| numbers.get(*at)).sum()
}

fn happen(event: &str, world: &mut World) -> Result<()> {
    match event.split(' ').collect::<Vec<_>>()[..] {
        ["link", number, "down"] => world.set_up(number.parse()?, false),
        ["link", number, "up"] => world.set_up(number.parse()?, true),
        ["link", number, "nothing"] => world.set_rate(number.parse()?, None),
        ["link", number, mbit] => world.set_rate(number.parse()?, Some(mbit.parse()?)),
        ["start", name] => world.start_daemon(name),
        ["kill", name] => world.kill_daemon(name),
        ["drop", name] => world.drop_connection(name),
        _ => bail!("`{event}` is not an event"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_of_a_link_count() {
        let text = "Inter-| Receive | Transmit\n    lo: 9 1 0 0 0 0 0 0 9 1\n link1: 100 2 0 0 0 0 0 0 23 1 0 0\n";
        assert_eq!((carried(text, 1), carried(text, 2)), (123, 0));
    }
}
