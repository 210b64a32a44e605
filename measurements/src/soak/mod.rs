//! `cargo measure soak`: real processes, sockets and files for hours. Several initiators keep a load on one server and check
//! what they read, while the server is killed, stopped and started again, its disk hangs, fails, loses writes and is full, and
//! its network is cut.
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
mod trouble;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use record::{Outcome, Record, Round};
use trouble::Trouble;
use world::{Usage, World};
use xtask::packages;
use xtask::tally::Verdict;
use xtask::workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long
    #[arg(long, default_value_t = 2.0)]
    hours: f64,
    /// What the order of troubles, and everything else that is drawn, comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave the page as it is
    #[arg(long)]
    dry: bool,
}

pub(crate) fn run(options: &Options) -> Result<Verdict> {
    packages::ensure(packages::ALL)?;
    let binary = workspace::release_binary()?;
    let world = World::make(&binary)?;
    let time = Duration::from_secs_f64(options.hours * 3600.0);
    let (begun, record, is_over) = (Instant::now(), Mutex::new(Record::default()), AtomicBool::new(false));
    let mut loads = load::all(&world, options.seed)?;
    let residents: Vec<_> = loads.iter().filter_map(|load| load.resident()).collect();
    let troubled = thread::scope(|scope| {
        for load in &mut loads {
            let (record, is_over) = (&record, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let at = begun.elapsed();
                    let outcome = load.round();
                    let is_disturbed = matches!(outcome, Outcome::Disturbed(_));
                    if locked(record).note(Round { load: load.name(), at, outcome }) == Verdict::Fails {
                        is_over.store(true, Ordering::Relaxed);
                    }
                    if is_disturbed {
                        thread::sleep(Duration::from_millis(500)); // the server may be away for seconds
                    }
                }
            });
        }
        let mut trouble = Trouble::new(&world, options.seed);
        let mut outcome = Ok(());
        while begun.elapsed() < time && !is_over.load(Ordering::Relaxed) && outcome.is_ok() {
            outcome = trouble.next(|what| {
                println!("{:7.1} s  {what}", begun.elapsed().as_secs_f64());
                locked(&record).note_trouble(what);
                if let Ok(Some(usage)) = world.usage() {
                    locked(&record).note_usage("server", begun.elapsed(), usage);
                }
                for (process, pid) in &residents {
                    if let Ok(usage) = Usage::of(*pid) {
                        locked(&record).note_usage(process, begun.elapsed(), usage);
                    }
                }
            });
        }
        is_over.store(true, Ordering::Relaxed);
        outcome
    });
    let checked = loads.into_iter().try_for_each(|load| load.end());
    let mut record = record.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    for error in [troubled, checked].into_iter().filter_map(Result::err) {
        record.note_wrong(format!("{error:#}"));
    }
    let verdict = record.verdict();
    print!("{}", record.text(begun.elapsed(), options.seed));
    if verdict == Verdict::Holds && !options.dry {
        record.write(begun.elapsed(), options.seed)?;
    }
    world.end(verdict);
    Ok(verdict)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
