//! Programs that copy whole exports: `linerate copy` beside libnbd's `nbdcopy`. A request is one of a cell's size, and each
//! copy is another process, begun again until the time is over.

use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use super::client::{Measurement, Program, Report, of_rate};
use super::server::VOLUME_BYTES;
use xtask::serving::image::Image;
use xtask::{process, workspace};

/// What is written: less than an export, so that a copy into one is about as short as one out of it.
const WRITTEN_BYTES: u64 = 256 << 20;

/// Reads go to nowhere, and what is written comes from a file in memory.
pub(super) fn copied(program: Program, options: &[String], asked: Measurement<'_>) -> Result<Report> {
    let Measurement { cell, target, seconds, .. } = asked;
    let (bytes, image) = match cell.is_read {
        true => (VOLUME_BYTES, None),
        false => (WRITTEN_BYTES, Some(Image::in_memory("copied").written(WRITTEN_BYTES)?)),
    };
    let nowhere =
        if program == Program::Nbdcopy { "null:".to_owned() } else { format!("null:{VOLUME_BYTES}") };
    let (from, to) = match &image {
        None => (target.place.clone(), nowhere),
        Some(image) => (image.path().display().to_string(), target.place.clone()),
    };
    let (block, depth) = (cell.block_bytes.to_string(), cell.depth.to_string());
    let (mut ios, begin) = (0, Instant::now());
    while ios == 0 || begin.elapsed().as_secs_f64() < seconds {
        let mut command: Command;
        if program == Program::Nbdcopy {
            command = target.placement.command("nbdcopy");
            command.args(["--destination-is-zero", "--flush", "--threads=1"]);
            command.args([&format!("--connections={}", cell.sessions), &format!("--requests={depth}")]);
            command.arg(format!("--request-size={block}"));
        } else {
            command = target.placement.command(&asked.site.binary);
            command.args(["copy", "--yes", "--quiet", "--restart", "--depth", &depth, "--request", &block]);
            command.arg("--journal").arg(workspace::target_directory().join("xtask/copies"));
        }
        command.args(options).args([&from, &to]);
        process::capture(command)?;
        ios += bytes / cell.block_bytes;
    }
    Ok(of_rate(ios as f64 / begin.elapsed().as_secs_f64(), ios))
}
