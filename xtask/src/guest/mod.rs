//! `cargo xtask guest`: a Linux kernel in an emulated machine, as initiator, client and target. The tests check what the
//! kernel's drivers accept and reject, and the state of file systems afterwards.
//!
//! The guest boots once for all scenes. This needs QEMU and root on this machine, but neither KVM nor an installed kernel.

mod aoe;
mod image;
mod iscsi;
mod lio;
mod machine;
mod nbd;
mod world;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};

use self::image::Image;
use self::world::World;
use xtask::tally::{Tally, Verdict};
use xtask::{process, workspace};

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Run only scenes whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Use this binary instead of that of the tests
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// A test in the guest, with its name.
type Scene = (&'static str, fn(&mut World<'_>) -> Result<()>);

const SCENES: &[&[Scene]] = &[iscsi::SCENES, nbd::SCENES, aoe::SCENES, lio::SCENES];

/// Runs `cargo xtask guest`.
pub(crate) fn run(options: &Options) -> Result<Verdict> {
    let tally = measure(options, &mut String::new())?;
    println!("{tally}");
    Ok(tally.verdict())
}

/// Runs the scenes and counts those that pass. Skipped, with the reason, if no guest can run. Messages of failures are printed
/// and added to `failed`.
pub(crate) fn measure(options: &Options, failed: &mut String) -> Result<Tally> {
    let image = match obstacle().and_then(|()| Image::ready()) {
        Ok(image) => image,
        Err(error) => {
            println!("skipped: {error:#}");
            return Ok(Tally::skipped());
        }
    };
    let binary = options
        .binary
        .clone()
        .map_or_else(workspace::test_binary, Ok)?;
    let folder =
        workspace::target_directory().join(format!("xtask/guest/run-{}", std::process::id()));
    let mut world = World::make(&image, &binary, &folder)?;
    println!(
        "Linux {}: booted in {:.1} s",
        image.version,
        world.guest.boot.as_secs_f64()
    );
    let mut tally = Tally::default();
    let is_chosen =
        |name: &str| options.only.is_empty() || options.only.iter().any(|text| name.contains(text));
    for (name, scene) in SCENES
        .iter()
        .copied()
        .flatten()
        .filter(|(name, _)| is_chosen(name))
    {
        let begun = Instant::now();
        let outcome = scene(&mut world);
        let seconds = begun.elapsed().as_secs_f64();
        tally += Tally::of(Verdict::of(outcome.is_ok()));
        match outcome {
            Ok(()) => println!("test {name} ... ok ({seconds:.1} s)"),
            Err(error) => {
                let message = format!(
                    "test {name} ... FAILED ({seconds:.1} s)\n{error:#}\nconsole:\n{}\n",
                    world.guest.last_words()
                );
                print!("{message}");
                failed.push_str(&message);
                world.ensure_server()?;
                world.reboot()?;
            }
        }
    }
    drop(world);
    if tally.verdict() == Verdict::Fails {
        println!("consoles and the server's log: {}", folder.display());
    } else {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    Ok(tally)
}

/// Fails with the reason if no guest can run here.
fn obstacle() -> Result<()> {
    anyhow::ensure!(
        rustix::process::geteuid().is_root(),
        "the guest's links need root"
    );
    anyhow::ensure!(
        fs::exists("/dev/net/tun")?,
        "the guest's links need /dev/net/tun"
    );
    process::require(&["qemu-system-x86_64", "dpkg-deb", "ldd", "ip", "nsenter"])?;
    process::require(&image::PROGRAMS)
}
