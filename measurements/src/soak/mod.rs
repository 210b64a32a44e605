//! `cargo measure soak`: runs real processes, sockets and files for hours. Several initiators keep a load on one server and
//! check the data that they read. Meanwhile the server is killed, stopped and restarted; its disk hangs, fails, loses writes and
//! fills up; and its network is cut. The server's volumes and the loads are in measurements/tables/soak.toml.
//!
//! ```text
//!   namespace of the clients                          namespace of the server
//!     linerate bench: iSCSI, NBD,   ┐                   ┌── buffered:fault:file, three of them
//!       AoE, HyperSCSI, a RAID 1    │                   ├── raid5 of three files
//!     qemu-io (libiscsi)            ├── veth ── serve ──┼── file in a small tmpfs
//!     linerate attach, ext4, fio ───┘    ▲              └── files
//!                                     trouble
//! ```

mod load;
mod record;

use std::fs::{self, File};
use std::iter;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use xtask::process::{self, Background};
use xtask::tally::Verdict;
use xtask::{packages, workspace};

use crate::random::Random;
use crate::scene::{Scene, World};
use load::BenchRow;
use record::{Kind, Outcome, Record, Round, Usage};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Duration in hours
    #[arg(long, default_value_t = 2.0)]
    hours: f64,
    /// Seed of the order of faults and of all other random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Do not write the page
    #[arg(long)]
    dry: bool,
    /// Use this binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// measurements/tables/soak.toml.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    scene: Scene,
    load: Vec<BenchRow>,
}

pub(crate) fn run(options: &Options) -> Result<Verdict> {
    packages::ensure(packages::ALL)?;
    ensure!(
        rustix::process::geteuid().is_root(),
        "namespaces, mounts and loop devices need root"
    );
    let path = workspace::root().join("measurements/tables/soak.toml");
    let mut table: Table =
        toml::from_str(&fs::read_to_string(&path)?).with_context(|| path.display().to_string())?;
    let small = Small::mount()?;
    table
        .scene
        .names
        .insert("small".to_owned(), small.0.display().to_string());
    // Use a copy of the program, because a build during the run replaces the program in the target directory.
    let binary = small.0.with_extension("linerate");
    fs::copy(
        options
            .binary
            .clone()
            .map_or_else(workspace::release_binary, Ok)?,
        &binary,
    )?;
    let mut world = World::build(&table.scene, &binary)?;
    let time = Duration::from_secs_f64(options.hours * 3600.0);
    let (begun, record, is_over) = (
        Instant::now(),
        Mutex::new(Record::default()),
        AtomicBool::new(false),
    );
    let mut loads = load::all(&table.load, &world, &binary, options.seed)?;
    let residents: Vec<_> = loads.iter().filter_map(|load| load.resident()).collect();
    let troubled = thread::scope(|scope| {
        for load in &mut loads {
            let (record, is_over) = (&record, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let at = begun.elapsed();
                    let outcome = load
                        .round()
                        .unwrap_or_else(|error| Outcome::Wrong(format!("{error:#}")));
                    let is_disturbed = matches!(outcome, Outcome::Disturbed(_));
                    let load = load.name().to_owned();
                    if locked(record).note(Round { load, at, outcome }) == Verdict::Fails {
                        is_over.store(true, Ordering::Relaxed);
                    }
                    if is_disturbed {
                        thread::sleep(Duration::from_millis(500)); // the server can be unavailable for seconds
                    }
                }
            });
        }
        let mut random = Random::new(options.seed, "trouble", 0);
        let mut outcome = Ok(());
        while begun.elapsed() < time && !is_over.load(Ordering::Relaxed) && outcome.is_ok() {
            sleep(&mut random, 1.0, 11.0);
            let all: Vec<Kind> = FREQUENCIES
                .iter()
                .flat_map(|(kind, times)| iter::repeat_n(*kind, *times))
                .collect();
            let what = random.one_of(&all);
            println!("{:7.1} s  {what}", begun.elapsed().as_secs_f64());
            let server = world.process(SERVER).map(|server| ("server", server.pid()));
            let usages = residents
                .iter()
                .copied()
                .chain(server)
                .filter_map(|(process, pid)| {
                    Some((process, Usage::of(pid).ok()?)) // it may have terminated
                });
            let usages: Vec<_> = usages.collect();
            locked(&record).note_trouble(what, begun.elapsed(), usages);
            outcome = trouble(what, &mut world, &binary, &small, &mut random);
        }
        is_over.store(true, Ordering::Relaxed);
        outcome
    });
    let checked = loads.into_iter().try_for_each(|load| load.end());
    let mut record = record.into_inner().unwrap_or_else(PoisonError::into_inner);
    for error in [troubled, checked].into_iter().filter_map(Result::err) {
        record.note_wrong(format!("{error:#}"));
    }
    let verdict = record.verdict();
    print!("{}", record.text(begun.elapsed(), options.seed));
    if verdict == Verdict::Holds && !options.dry {
        record.write(begun.elapsed(), options.seed)?;
    }
    if verdict == Verdict::Fails {
        world.keep = true;
        println!("logs and images are in {}", world.folder().display());
    }
    let _ = fs::remove_file(&binary); // a leftover is harmless
    Ok(verdict)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const SERVER: &str = "server";
/// Volumes with a fault layer.
const FAULTY: [&str; 3] = ["layers", "frames", "nbd"];

/// Relative frequency of each fault, in twentieths.
const FREQUENCIES: [(Kind, usize); 9] = [
    (Kind::Killed, 11),
    (Kind::Ended, 1),
    (Kind::Stopped, 1),
    (Kind::Cut, 2),
    (Kind::Disk("hang"), 1),
    (Kind::Disk("fail"), 1),
    (Kind::Disk("lose"), 1),
    (Kind::Disk("slow=20ms"), 1),
    (Kind::Full, 1),
];

/// Causes one fault, and returns after it is repaired.
fn trouble(
    kind: Kind,
    world: &mut World,
    binary: &PathBuf,
    small: &Small,
    random: &mut Random,
) -> Result<()> {
    match kind {
        Kind::Killed => {
            world.kill_daemon(SERVER)?;
            sleep(random, 0.0, 3.0);
            world.start_daemon(SERVER)
        }
        Kind::Ended => world.start_daemon(SERVER), // which terminates the running one
        Kind::Stopped => {
            world.process(SERVER).map(Background::pause);
            sleep(random, 1.0, 8.0);
            world.process(SERVER).map(Background::resume);
            Ok(())
        }
        Kind::Cut => {
            world.set_up(0, false)?;
            sleep(random, 0.2, 8.0);
            world.set_up(0, true)
        }
        Kind::Disk(mode) => {
            let control = world.control(SERVER)?.display().to_string();
            let set = |mode: &str| {
                FAULTY.into_iter().try_for_each(|volume| {
                    process::run(
                        binary,
                        &["server", "fault", volume, mode, "--control", &control],
                    )
                    .map(drop)
                })
            };
            set(mode)?;
            sleep(random, 0.2, 8.0);
            set("pass")
        }
        Kind::Full => {
            let path = small.0.join("filler");
            // The copy fails because there is no space.
            let _ = std::io::copy(&mut std::io::repeat(0), &mut File::create(&path)?);
            sleep(random, 1.0, 8.0);
            fs::remove_file(&path).context("freeing space again")
        }
    }
}

fn sleep(random: &mut Random, least: f64, most: f64) {
    thread::sleep(Duration::from_secs_f64(random.between(least, most)));
}

/// A tmpfs with space for a volume of 64 MiB and a little more, unmounted when dropped.
struct Small(PathBuf);

impl Small {
    fn mount() -> Result<Small> {
        let path =
            workspace::target_directory().join(format!("xtask/soak-{}-small", std::process::id()));
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        process::run(
            "mount",
            &[
                "-t",
                "tmpfs",
                "-o",
                "size=72m",
                "tmpfs",
                &path.display().to_string(),
            ],
        )?;
        Ok(Small(path))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = process::run("umount", &["--lazy", &self.0.display().to_string()]);
        let _ = fs::remove_dir(&self.0); // an empty leftover directory is harmless
    }
}
