//! The loads. Each verifies the data that it reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Deserialize;
use xtask::process::{self, Ended};
use xtask::serving::Placement;
use xtask::serving::attached::{Attached, Mounted};

use super::record::{FILES, Outcome, RAW_FILES};
use crate::random::Random;
use crate::scene::World;

/// A load that writes, and verifies what it reads.
pub(super) trait Load: Send {
    fn name(&self) -> &str;

    /// Runs for some seconds, or until an error.
    fn round(&mut self) -> Result<Outcome>;

    /// Returns the process that runs from the start to the end, if any.
    fn resident(&self) -> Option<(&'static str, u32)> {
        None
    }

    /// Performs a final check after all faults are repaired.
    fn end(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Returns one load of each kind.
pub(super) fn all(
    rows: &[BenchRow],
    world: &World,
    binary: &Path,
    seed: u64,
) -> Result<Vec<Box<dyn Load>>> {
    let client = world.client(None)?;
    let bench = |row: &BenchRow| {
        let row = BenchRow {
            url: world.resolve(&row.url),
            ..row.clone()
        };
        let log = world.folder().join(format!("{}.log", row.volume));
        let random = Random::new(seed, &row.volume, 0);
        Box::new(Bench {
            row,
            log,
            random,
            client: client.clone(),
            binary: binary.to_owned(),
        }) as Box<dyn Load>
    };
    let mut loads: Vec<Box<dyn Load>> = rows.iter().map(bench).collect();
    let (random, slots) = (Random::new(seed, "qemu", 0), vec![Some(0); 256]);
    loads.push(Box::new(Qemu {
        url: world.resolve("{iscsi}:qemu/0"),
        client: client.clone(),
        random,
        slots,
    }));
    let attached = Attached::to(&world.resolve("{iscsi}:attached/0"), binary, &client)?;
    let pid = Some(attached.pid()?);
    loads.push(Box::new(Files {
        mounted: Mounted::on(attached)?,
        pid,
    }));
    loads.push(Box::new(Files {
        mounted: Mounted::on(Attached::file(512 << 20)?)?,
        pid: None,
    }));
    Ok(loads)
}

/// A round that takes longer than this counts as hung: faults last for seconds, and initiators wait for up to
/// two minutes.
const ROUND_MAX: Duration = Duration::from_secs(400);

/// A row of the table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct BenchRow {
    name: String,
    volume: String,
    url: String,
    unmap_blocks: Option<u64>,
}

/// `linerate bench` with a log of acknowledged writes, followed by `linerate bench verify`.
struct Bench {
    row: BenchRow,
    log: PathBuf,
    random: Random,
    client: Placement,
    binary: PathBuf,
}

#[derive(Deserialize)]
struct Measured {
    mb_per_s: f64,
    latency_us: Latency,
    mismatches: u64,
}

#[derive(Deserialize)]
struct Latency {
    p50: f64,
}

impl Bench {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.client.command(&self.binary);
        command.args(["--log", "error"]).args(words);
        command
    }

    fn load(&mut self) -> Result<Outcome> {
        let seed = self.random.number().to_string();
        let _ = fs::remove_file(&self.log); // does not exist in the first round
        let url = self.row.url.as_str();
        if let Some(blocks) = self.row.unmap_blocks {
            let unmap = self.command(&["scsi", "unmap", url, "0", &blocks.to_string(), "--yes"]);
            let (_, text) = process::within(ROUND_MAX, unmap)?;
            if !text.is_empty() {
                return Ok(Outcome::Disturbed(last_line(&text)));
            }
        }
        let mut command = self.command(&[
            "bench",
            url,
            "--block",
            "4KiB:60,64KiB:40",
            "--seconds",
            "12",
        ]);
        // Use the same options in each round, so that rounds are comparable.
        command.args([
            "--read",
            "40",
            "--depth",
            "8",
            "--seed",
            &seed,
            "--allow-write",
            "--yes",
        ]);
        command
            .arg("--json")
            .arg("--verify")
            .arg("--verify-log")
            .arg(&self.log);
        let (ended, text) = process::within(ROUND_MAX, command)?;
        let measured = text.find('{').and_then(|at| {
            let mut values =
                serde_json::Deserializer::from_str(&text[at..]).into_iter::<Measured>();
            values.next()?.ok()
        });
        Ok(match (exit_code(&ended), measured) {
            (
                Some(0),
                Some(Measured {
                    mb_per_s,
                    latency_us,
                    mismatches: 0,
                }),
            ) => Outcome::Right {
                mb_per_s,
                p50_us: Some(latency_us.p50),
            },
            // A server that is shutting down rejects logins.
            (Some(1 | 3 | 4 | 9 | 11), _) => Outcome::Disturbed(last_line(&text)),
            _ => Outcome::Wrong(format!("bench: {ended:?}: {}", last_line(&text))),
        })
    }
}

impl Load for Bench {
    fn name(&self) -> &str {
        &self.row.name
    }

    /// Runs the load, and then verifies the acknowledged writes in its log, retrying while the server is unreachable.
    fn round(&mut self) -> Result<Outcome> {
        let outcome = self.load()?;
        if matches!(outcome, Outcome::Wrong(_)) || !self.log.exists() {
            return Ok(outcome); // a load that could not log in has no log
        }
        let begun = Instant::now();
        loop {
            let mut command = self.command(&["bench", "verify"]);
            command.arg(&self.log).arg(&self.row.url);
            let (ended, text) = process::within(ROUND_MAX, command)?;
            match exit_code(&ended) {
                Some(0) => return Ok(outcome),
                Some(1 | 3 | 4 | 9) if begun.elapsed() < ROUND_MAX => {
                    thread::sleep(Duration::from_secs(1))
                }
                _ => {
                    return Ok(Outcome::Wrong(format!(
                        "verify-log: {ended:?}: {}",
                        text.trim_end()
                    )));
                }
            }
        }
    }
}

/// `qemu-io` over libiscsi: flushed patterns must be readable, including by the next process.
struct Qemu {
    url: String,
    client: Placement,
    random: Random,
    /// The pattern of each slot, if known.
    slots: Vec<Option<u8>>,
}

const SLOT_KIB: usize = 256;

impl Qemu {
    fn draw(&mut self) -> usize {
        (self.random.number() % self.slots.len() as u64) as usize
    }
}

impl Load for Qemu {
    fn name(&self) -> &str {
        "qemu-io (libiscsi)"
    }

    fn round(&mut self) -> Result<Outcome> {
        let at = |slot: usize| format!("{}k {SLOT_KIB}k", slot * SLOT_KIB);
        let drawn: Vec<usize> = (0..64).map(|_| self.draw()).collect();
        let old: Vec<(usize, u8)> = drawn
            .into_iter()
            .filter_map(|slot| Some((slot, self.slots[slot]?)))
            .collect();
        let pattern = (self.random.number() % 255) as u8 + 1;
        let new: Vec<usize> = (0..64).map(|_| self.draw()).collect();
        let mut command = self.client.command("qemu-io");
        command.args(["--image-opts", "-t", "writeback"]);
        let (portal, path) = self
            .url
            .trim_start_matches("iscsi://")
            .split_once('/')
            .context("a URL")?;
        let target = path.trim_end_matches("/0");
        for (slot, pattern) in &old {
            command
                .arg("-c")
                .arg(format!("read -P {pattern} {}", at(*slot)));
        }
        for slot in &new {
            command
                .arg("-c")
                .arg(format!("write -P {pattern} {}", at(*slot)));
        }
        command.args(["-c", "flush"]);
        for slot in &new {
            command
                .arg("-c")
                .arg(format!("read -P {pattern} {}", at(*slot)));
        }
        command.arg(format!(
            "driver=iscsi,transport=tcp,portal={portal},target={target},lun=0"
        ));
        let begun = Instant::now();
        let (ended, text) = process::within(ROUND_MAX, command)?;
        let is_whole = exit_code(&ended) == Some(0);
        new.iter()
            .for_each(|slot| self.slots[*slot] = is_whole.then_some(pattern));
        // Earlier flushed patterns are read first. After a failed write, the content of its slots is undefined.
        let is_mismatch = |line: &&str| line.contains("Pattern verification failed");
        let writes = ["wrote ", "write failed"];
        let mut before = text
            .lines()
            .take_while(|line| !writes.iter().any(|word| line.starts_with(word)));
        let mismatch = match text.lines().any(|line| line.contains("failed:")) {
            true => before.find(is_mismatch),
            false => text.lines().find(is_mismatch),
        };
        let megabytes = ((old.len() + 2 * new.len()) * SLOT_KIB * 1024) as f64 / 1e6;
        Ok(match (mismatch, &ended) {
            (Some(line), _) => Outcome::Wrong(line.to_owned()),
            (None, Ended::Exited(_)) if is_whole => Outcome::Right {
                mb_per_s: megabytes / begun.elapsed().as_secs_f64(),
                p50_us: None,
            },
            (None, Ended::Exited(_)) => Outcome::Disturbed(last_line(&text)),
            (None, _) => Outcome::Wrong(format!("qemu-io: {ended:?}: {}", last_line(&text))),
        })
    }
}

/// fio in an ext4 file system: on `linerate attach`, which must survive all faults of its server, or on a local file to measure
/// what the machine itself can do at the same time.
struct Files {
    mounted: Mounted,
    /// The process ID of `linerate attach`.
    pid: Option<u32>,
}

impl Load for Files {
    fn name(&self) -> &str {
        match self.pid {
            Some(_) => FILES,
            None => RAW_FILES,
        }
    }

    fn resident(&self) -> Option<(&'static str, u32)> {
        Some(("linerate attach", self.pid?))
    }

    fn round(&mut self) -> Result<Outcome> {
        let mut command = Command::new("fio");
        command.args([
            "--name=soak",
            "--rw=randrw",
            "--bs=4k-64k",
            "--size=64m",
            "--ioengine=psync",
        ]);
        command.args([
            "--verify=crc32c",
            "--verify_fatal=1",
            "--fsync=16",
            "--verify_state_save=0",
            "--output-format=terse",
        ]);
        command.arg(format!("--directory={}", self.mounted.folder().display()));
        let begun = Instant::now();
        let (ended, text) = process::within(ROUND_MAX, command)?;
        let rate = 64.0 * 1.048_576 / begun.elapsed().as_secs_f64();
        if self.pid.is_none() {
            thread::sleep(Duration::from_secs(20)); // it is only for comparison, not a load
        }
        Ok(match exit_code(&ended) {
            Some(0) => Outcome::Right {
                mb_per_s: rate,
                p50_us: None,
            },
            _ => Outcome::Wrong(format!("fio: {ended:?}: {}", text.trim_end())),
        })
    }

    fn end(self: Box<Self>) -> Result<()> {
        self.mounted.check()
    }
}

fn exit_code(ended: &Ended) -> Option<i32> {
    match ended {
        Ended::Exited(status) => status.code(),
        Ended::Crashed(_) | Ended::OutOfTime => None,
    }
}

fn last_line(text: &str) -> String {
    let mut lines = text
        .trim_end()
        .lines()
        .filter(|line| !line.contains(" ERROR "));
    lines.next_back().unwrap_or_default().to_owned()
}
