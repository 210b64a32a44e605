//! `--record FILE` and `LINERATE_RECORD_DIR`: what the sessions of a command said and heard, for Wireshark.
//!
//! Every URL brings a flight recorder, and those of all URLs of a command end in one file. It is written when the
//! command ends, also when a signal ends it, and at SIGUSR1 in between.

use std::io::Write;
use std::path::{Path, PathBuf};

use backends::peers;
use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::failure::Failure;
use crate::output::remark;
use crate::private_file;

/// A file to be written.
#[derive(Clone)]
pub(crate) struct RecordFile {
    path: PathBuf,
}

impl RecordFile {
    /// Creates the file, so that one that cannot be written is known before anything is done.
    pub(crate) fn create(path: &Path) -> Result<RecordFile, Failure> {
        let created = private_file::create(path);
        created.map_err(|error| Failure::refused(format_args!("--record {}: {error}", path.display())))?;
        Ok(RecordFile { path: path.to_owned() })
    }

    /// Writes what has been recorded until now.
    pub(crate) fn write(&self) -> Result<(), Failure> {
        let recorded = peers::recordings();
        let written = private_file::create(&self.path).and_then(|mut file| file.write_all(&recorded));
        written.map_err(|error| Failure::unwritten(format_args!("--record {}", self.path.display()), &error))
    }

    /// Writes it at SIGUSR1, and at these signals, which end the program.
    pub(crate) fn write_at_signals(&self, ends: &[i32]) -> Result<(), Failure> {
        let mut signals = Signals::new(ends.iter().chain(&[SIGUSR1])).map_err(Failure::failed)?;
        let file = self.clone();
        std::thread::spawn(move || {
            for signal in signals.forever() {
                if let Err(failure) = file.write() {
                    remark(format_args!("linerate: {failure}"));
                }
                if signal != SIGUSR1 {
                    // Ends the process as the signal would have; nothing is left to do if that fails.
                    let _ = emulate_default_handler(signal);
                }
            }
        });
        Ok(())
    }
}
