//! Executes a number of commands between Linerate's initiator and target, over memory instead of a network.
//! `cargo xtask instructions` runs this program under callgrind, and counts the instructions of each end per
//! command.
//!
//! ```console
//! $ cargo run --release --package linerate-instructions -- read 4096 32 ram plain 3200
//! ```
//!
//! All code of both ends above the kernel is counted: executor, connection, iSCSI, SCSI and volume. `outside`
//! replaces the kernel and its clock, and is not counted.

mod ends;
mod outside;
mod world;

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use crate::outside::Outside;

/// The error type. Any error ends the program.
type Anything = Box<dyn std::error::Error + Send + Sync>;

/// The commands to count.
#[derive(Clone, Copy, Debug)]
struct Work {
    write: bool,
    /// The length of one command's data, in bytes.
    bytes: u32,
    /// The queue depth.
    depth: u32,
    volume: Volume,
    /// Whether headers and data have a CRC32C.
    digests: bool,
    /// The total number of commands, a multiple of `depth`.
    commands: u32,
}

/// The target's volume.
#[derive(Clone, Copy, Debug)]
enum Volume {
    /// Memory. Data is transferred directly to and from it.
    Ram,
    /// A file in the page cache. The reactor copies data to and from it.
    Cached,
    /// A device that uses buffers like a file, but stores nothing.
    Null,
}

/// The size of the volume, in bytes.
const VOLUME_BYTES: u64 = 2 << 20;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = Work::parse(&arguments).and_then(carry_out);
    match outcome {
        // The target's thread is never stopped; it ends with the process.
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the target on the first new thread and the initiator on this thread. callgrind distinguishes the two
/// ends by their threads.
fn carry_out(work: Work) -> Result<(), Anything> {
    let outside = Arc::new(Outside::new());
    let shared = Arc::clone(&outside);
    let server = ends::server(work.volume)?;
    thread::Builder::new()
        .name("target".to_owned())
        .spawn(move || server.run(&shared))?;
    ends::run_initiator(work, &outside)
}

impl Work {
    fn parse(arguments: &[String]) -> Result<Work, Anything> {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let [operation, bytes, depth, volume, digests, commands] = words[..] else {
            return Err(
                "usage: instructions read|write BYTES DEPTH ram|cached|null plain|digests COMMANDS"
                    .into(),
            );
        };
        Ok(Work {
            write: one_of(operation, &[("read", false), ("write", true)])?,
            bytes: bytes.parse()?,
            depth: depth.parse()?,
            volume: one_of(
                volume,
                &[
                    ("ram", Volume::Ram),
                    ("cached", Volume::Cached),
                    ("null", Volume::Null),
                ],
            )?,
            digests: one_of(digests, &[("plain", false), ("digests", true)])?,
            commands: commands.parse()?,
        })
    }
}

fn one_of<T: Copy>(word: &str, choices: &[(&str, T)]) -> Result<T, Anything> {
    let choice = choices.iter().find(|(name, _)| *name == word);
    choice
        .map(|(_, value)| *value)
        .ok_or_else(|| format!("{word} is no choice here").into())
}
