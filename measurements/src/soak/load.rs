//! The loads, each of which knows what it must read.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::record::Outcome;
use super::world::{Protocol, SMALL, SMALL_BYTES, World};
use crate::lot::Lot;
use xtask::process::{self, Ended};
use xtask::serving::attached::{Attached, Mounted};

/// What is compared with what.
pub(super) const FILES: &str = "fio in ext4 on linerate attach";
pub(super) const RAW_FILES: &str = "fio in ext4 on a file of this machine";

/// Somebody who writes, and checks what he reads.
pub(super) trait Load: Send {
    fn name(&self) -> &'static str;

    /// Works for some seconds, or until an error ends that.
    fn round(&mut self) -> Outcome;

    /// The process that it keeps from the beginning to the end, if any.
    fn resident(&self) -> Option<(&'static str, u32)> {
        None
    }

    /// A last look, when all is whole.
    fn end(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// One of each kind.
pub(super) fn all(world: &World, seed: u64) -> Result<Vec<Box<dyn Load + '_>>> {
    Ok(vec![
        Box::new(Bench::new(world, "layers", world.url("layers", Protocol::Iscsi), seed)),
        Box::new(Bench::new(world, SMALL, world.url(SMALL, Protocol::Iscsi), seed)),
        Box::new(Bench::new(world, "nbd", world.url("nbd", Protocol::Nbd), seed)),
        Box::new(Bench::new(world, "aoe", world.url("aoe", Protocol::Aoe), seed)),
        Box::new(Bench::new(world, "frames", world.url("frames", Protocol::Frames), seed)),
        Box::new(Bench::new(world, "datagrams", world.url("datagrams", Protocol::Datagrams), seed)),
        Box::new(Bench::new(world, "set", world.url("set", Protocol::Iscsi), seed)),
        Box::new(Bench::new(world, "mirror", world.mirror(), seed)),
        Box::new(Qemu::new(world, seed)),
        Box::new(Files::new(world)?),
        Box::new(Files::alone()?),
    ])
}

/// A round that takes longer than this hangs: troubles last for seconds, and an initiator waits for two minutes.
const ROUND_MAX: Duration = Duration::from_secs(400);

/// `linerate bench` with a log of what it was promised, and `linerate bench verify` behind it.
struct Bench<'a> {
    world: &'a World,
    volume: &'static str,
    url: String,
    log: PathBuf,
    lot: Lot,
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

impl Bench<'_> {
    fn new<'a>(world: &'a World, volume: &'static str, url: String, seed: u64) -> Bench<'a> {
        let log = world.folder.join(format!("{volume}.log"));
        Bench { world, volume, url, log, lot: Lot::new(seed, volume, 0) }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.world.client().command(&self.world.binary);
        command.args(["--log", "error"]).args(words);
        command
    }

    fn load(&mut self) -> Result<Outcome> {
        let seed = self.lot.number().to_string();
        let url = self.url.clone();
        let _ = fs::remove_file(&self.log); // there is none in the first round
        if self.volume == SMALL {
            // Or it would be as large as it can be, and nobody could take its space.
            let blocks = (SMALL_BYTES / 512).to_string();
            let (_, text) =
                process::within(ROUND_MAX, self.command(&["scsi", "unmap", &url, "0", &blocks, "--yes"]))?;
            if !text.is_empty() {
                return Ok(Outcome::Disturbed(last_line(&text)));
            }
        }
        let mut command = self.command(&["bench", &url, "--block", "4KiB:60,64KiB:40", "--seconds", "12"]);
        // The same in each round, so that rounds can be compared.
        command.args(["--read", "40", "--depth", "8", "--seed", &seed, "--allow-write", "--yes"]);
        command.arg("--json").arg("--verify").arg("--verify-log").arg(&self.log);
        let (ended, text) = process::within(ROUND_MAX, command)?;
        let measured = text.find('{').and_then(|at| {
            let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Measured>();
            values.next()?.ok()
        });
        Ok(match (exit_code(&ended), measured) {
            (Some(0), Some(Measured { mb_per_s, latency_us, mismatches: 0 })) => {
                Outcome::Right { mb_per_s, p50_us: Some(latency_us.p50) }
            }
            // A server that is about to end lets nobody in.
            (Some(1 | 3 | 4 | 9 | 11), _) => Outcome::Disturbed(last_line(&text)),
            _ => Outcome::Wrong(format!("bench: {ended:?}: {}", last_line(&text))),
        })
    }

    /// Checks what the log says was promised, and says what is wrong. Tries again while the server cannot be reached.
    fn verify(&self) -> Result<Option<String>> {
        let begun = Instant::now();
        loop {
            let mut command = self.command(&["bench", "verify"]);
            command.arg(&self.log).arg(&self.url);
            let (ended, text) = process::within(ROUND_MAX, command)?;
            match exit_code(&ended) {
                Some(0) => return Ok(None),
                Some(1 | 3 | 4 | 9) if begun.elapsed() < ROUND_MAX => {
                    std::thread::sleep(Duration::from_secs(1))
                }
                _ => return Ok(Some(format!("verify-log: {ended:?}: {}", text.trim_end()))),
            }
        }
    }
}

impl Load for Bench<'_> {
    fn name(&self) -> &'static str {
        match self.volume {
            SMALL => "linerate bench, iSCSI, a disk that fills up",
            "nbd" => "linerate bench, NBD, a write-behind volume",
            "aoe" => "linerate bench, AoE",
            "frames" => "linerate bench, HyperSCSI, a write-behind volume",
            "datagrams" => "linerate bench, HyperSCSI over UDP",
            "set" => "linerate bench, iSCSI, a RAID 5 in the server",
            "mirror" => "linerate bench, a RAID 1 of an iSCSI and an NBD member",
            _ => "linerate bench, iSCSI, a write-behind volume",
        }
    }

    fn round(&mut self) -> Outcome {
        let outcome = self.load().unwrap_or_else(|error| Outcome::Wrong(format!("{error:#}")));
        if matches!(outcome, Outcome::Wrong(_)) || !self.log.exists() {
            return outcome; // a load that did not get in has no log
        }
        match self.verify() {
            Ok(None) => outcome,
            Ok(Some(wrong)) => Outcome::Wrong(wrong),
            Err(error) => Outcome::Wrong(format!("{error:#}")),
        }
    }
}

/// `qemu-io` over libiscsi: patterns that were flushed must be there, also for the next process.
struct Qemu<'a> {
    world: &'a World,
    lot: Lot,
    /// The pattern of each slot, if it is known.
    slots: Vec<Option<u8>>,
}

const SLOT_KIB: usize = 256;

impl Qemu<'_> {
    fn new(world: &World, seed: u64) -> Qemu<'_> {
        Qemu { world, lot: Lot::new(seed, "qemu", 0), slots: vec![Some(0); 256] }
    }

    fn play(&mut self) -> Result<Outcome> {
        let at = |slot: usize| format!("{}k {SLOT_KIB}k", slot * SLOT_KIB);
        let drawn: Vec<usize> = (0..64).map(|_| self.draw()).collect();
        let old: Vec<(usize, u8)> =
            drawn.into_iter().filter_map(|slot| Some((slot, self.slots[slot]?))).collect();
        let pattern = (self.lot.number() % 255) as u8 + 1;
        let new: Vec<usize> = (0..64).map(|_| self.draw()).collect();
        let mut command = self.world.client().command("qemu-io");
        command.args(["--image-opts", "-t", "writeback"]);
        let url = self.world.url("qemu", Protocol::Iscsi);
        let (portal, path) = url.trim_start_matches("iscsi://").split_once('/').context("a URL")?;
        let target = path.trim_end_matches("/0");
        for (slot, pattern) in &old {
            command.arg("-c").arg(format!("read -P {pattern} {}", at(*slot)));
        }
        for slot in &new {
            command.arg("-c").arg(format!("write -P {pattern} {}", at(*slot)));
        }
        command.args(["-c", "flush"]);
        for slot in &new {
            command.arg("-c").arg(format!("read -P {pattern} {}", at(*slot)));
        }
        command.arg(format!("driver=iscsi,transport=tcp,portal={portal},target={target},lun=0"));
        let begun = Instant::now();
        let (ended, text) = process::within(ROUND_MAX, command)?;
        let is_whole = exit_code(&ended) == Some(0);
        new.iter().for_each(|slot| self.slots[*slot] = is_whole.then_some(pattern));
        // What was flushed before is read first. What a write that failed has left may be anything.
        let is_mismatch = |line: &&str| line.contains("Pattern verification failed");
        let writes = ["wrote ", "write failed"];
        let mut before = text.lines().take_while(|line| !writes.iter().any(|word| line.starts_with(word)));
        let mismatch = match text.lines().any(|line| line.contains("failed:")) {
            true => before.find(is_mismatch),
            false => text.lines().find(is_mismatch),
        };
        let megabytes = ((old.len() + 2 * new.len()) * SLOT_KIB * 1024) as f64 / 1e6;
        Ok(match (mismatch, &ended) {
            (Some(line), _) => Outcome::Wrong(line.to_owned()),
            (None, Ended::Exited(_)) if is_whole => {
                Outcome::Right { mb_per_s: megabytes / begun.elapsed().as_secs_f64(), p50_us: None }
            }
            (None, Ended::Exited(_)) => Outcome::Disturbed(last_line(&text)),
            (None, _) => Outcome::Wrong(format!("qemu-io: {ended:?}: {}", last_line(&text))),
        })
    }

    fn draw(&mut self) -> usize {
        (self.lot.number() % self.slots.len() as u64) as usize
    }
}

impl Load for Qemu<'_> {
    fn name(&self) -> &'static str {
        "qemu-io (libiscsi)"
    }

    fn round(&mut self) -> Outcome {
        self.play().unwrap_or_else(|error| Outcome::Wrong(format!("{error:#}")))
    }
}

/// fio in an ext4 on `linerate attach`, which bears everything that befalls its server; or on a file, for what the machine
/// itself can do meanwhile.
struct Files {
    mounted: Mounted,
    /// That of `linerate attach`.
    pid: Option<u32>,
}

impl Files {
    fn new(world: &World) -> Result<Files> {
        let attached = Attached::to(&world.url("attached", Protocol::Iscsi), &world.binary, &world.client())?;
        let pid = Some(attached.pid()?);
        Ok(Files { mounted: Mounted::on(attached)?, pid })
    }

    fn alone() -> Result<Files> {
        Ok(Files { mounted: Mounted::on(Attached::file(512 << 20)?)?, pid: None })
    }

    fn play(&self) -> Result<Outcome> {
        let mut command = Command::new("fio");
        command.args(["--name=soak", "--rw=randrw", "--bs=4k-64k", "--size=64m", "--ioengine=psync"]);
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
        Ok(match exit_code(&ended) {
            Some(0) => {
                let rate = 64.0 * 1.048_576 / begun.elapsed().as_secs_f64();
                Outcome::Right { mb_per_s: rate, p50_us: None }
            }
            _ => Outcome::Wrong(format!("fio: {ended:?}: {}", text.trim_end())),
        })
    }
}

impl Load for Files {
    fn name(&self) -> &'static str {
        match self.pid {
            Some(_) => FILES,
            None => RAW_FILES,
        }
    }

    fn resident(&self) -> Option<(&'static str, u32)> {
        Some(("linerate attach", self.pid?))
    }

    fn round(&mut self) -> Outcome {
        let outcome = self.play().unwrap_or_else(|error| Outcome::Wrong(format!("{error:#}")));
        if self.pid.is_none() {
            std::thread::sleep(Duration::from_secs(20)); // it is to be compared with, and not to be a load
        }
        outcome
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
    let mut lines = text.trim_end().lines().filter(|line| !line.contains(" ERROR "));
    lines.next_back().unwrap_or_default().to_owned()
}
