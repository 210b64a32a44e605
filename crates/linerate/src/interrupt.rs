//! Handling of signals, and the recording that is written on a signal.
//!
//! For commands with an orderly end, the first SIGINT, SIGTERM or SIGHUP requests the end, and the second one
//! ends the process. SIGHUP is ignored in processes on which other programs depend.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::{fs, thread};

use backends::peers;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::failure::Failure;
use crate::output::remark;
use crate::private_file;

/// The signals that request the end of a command.
pub(crate) fn endings() -> Vec<i32> {
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    [SIGINT, SIGTERM].into_iter().chain(hangup).collect()
}

/// Whether the process was started with this signal ignored, as `nohup` does with SIGHUP (proc(5), `SigIgn`).
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Makes SIGHUP only write a log line from now on. Otherwise, a SIGHUP from a closed terminal, or from an
/// administrator who wants a reload, would end a server without a last flush, or leave an unresponsive mount.
pub(crate) fn ignore_hangups() -> Result<(), Failure> {
    let mut signals = Signals::new([SIGHUP]).map_err(Failure::failed)?;
    let log = move || {
        for _ in signals.forever() {
            tracing::warn!("SIGHUP is ignored; to stop this process, send SIGTERM");
        }
    };
    thread::Builder::new()
        .name("hangups".to_owned())
        .spawn(log)
        .map(drop)
        .map_err(Failure::failed)
}

/// Whether the end of the command was requested.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts to listen for signals.
    pub(crate) fn listen() -> Result<Interrupt, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in endings() {
            // This order is necessary: the handler that ends the process must run before the flag is set, so
            // that only the second signal ends it.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))
                .and_then(|_| flag::register(signal, Arc::clone(&asked)))
                .map_err(Failure::failed)?;
        }
        Ok(Interrupt(asked))
    }

    /// Requests the end of the command, like a signal.
    pub(crate) fn ask(&self) {
        self.0.store(true, Relaxed);
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Relaxed)
    }
}

// `--record FILE` and `LINERATE_RECORD_DIR` save the traffic of a command's sessions, for analysis with
// Wireshark.
//
// Every URL has a flight recorder. The recordings of all URLs of a command are written to one file when the
// command ends, even by a signal, and on SIGUSR1.

/// A recording file.
#[derive(Clone)]
pub(crate) struct RecordFile {
    path: PathBuf,
}

impl RecordFile {
    /// Creates the file, so that an unwritable file is detected before the command runs.
    pub(crate) fn create(path: &Path) -> Result<RecordFile, Failure> {
        let created = private_file::create(path);
        created.map_err(|error| {
            Failure::refused(format_args!("--record {}: {error}", path.display()))
        })?;
        Ok(RecordFile {
            path: path.to_owned(),
        })
    }

    /// Writes the recording so far.
    pub(crate) fn write(&self) -> Result<(), Failure> {
        let recorded = peers::recordings();
        let written =
            private_file::create(&self.path).and_then(|mut file| file.write_all(&recorded));
        written.map_err(|error| {
            Failure::unwritten(format_args!("--record {}", self.path.display()), &error)
        })
    }

    /// Writes the recording on SIGUSR1, and on these signals, which then end the program.
    pub(crate) fn write_at_signals(&self, ends: &[i32]) -> Result<(), Failure> {
        let mut signals = Signals::new(ends.iter().chain(&[SIGUSR1])).map_err(Failure::failed)?;
        let file = self.clone();
        std::thread::spawn(move || {
            for signal in signals.forever() {
                if let Err(failure) = file.write() {
                    remark(format_args!("linerate: {failure}"));
                }
                if signal != SIGUSR1 {
                    // End the process as the signal would have. An error here cannot be handled.
                    let _ = emulate_default_handler(signal);
                }
            }
        });
        Ok(())
    }
}
