//! What can be asked of a copy on the command line.

use std::path::PathBuf;
use std::time::Duration;

use copy::{JournalPlace, Options};

use crate::progress::ProgressKind;
use crate::spec::{Bytes, Time};
use crate::terminal;
use daemon::state;

#[derive(Debug, clap::Args)]
pub(crate) struct CopyArguments {
    /// Storage to copy from (see `linerate help targets`)
    #[arg(value_name = "SOURCE", value_hint = clap::ValueHint::AnyPath)]
    pub(super) source: String,
    /// Storage to copy to; a path that does not exist is created, with holes where the source has them (as a volume it needs
    /// its size: file:PATH?size=1GiB)
    #[arg(value_name = "DESTINATION", value_hint = clap::ValueHint::AnyPath)]
    pub(super) destination: String,
    /// Overwrite the destination without asking
    #[arg(long)]
    yes: bool,
    /// Read the destination back and compare
    #[arg(long)]
    verify: bool,
    /// Print the SHA-256 of the data
    #[arg(long)]
    checksum: bool,
    /// Queue depth: outstanding requests [default: 16, and 2 between local files]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: Option<u16>,
    /// Block size of requests [default: 256KiB, and 1MiB between local files]
    #[arg(long, value_name = "SIZE", value_parser = request)]
    request: Option<Bytes>,
    /// Write zeros that the source holds as data, instead of skipping them
    #[arg(long)]
    no_zero_detect: bool,
    /// Do not let a target that has both ends copy by itself (EXTENDED COPY)
    #[arg(long)]
    no_xcopy: bool,
    /// Continue after read errors: zeros are written in place of the data, and the exit code is 1
    #[arg(long)]
    skip_errors: bool,
    /// Copy a disk image in a container format (QCOW2, VMDK, VHDX, VDI) to a device byte by byte
    #[arg(long)]
    raw: bool,
    /// Directory for what is needed to resume [default: within the state directory]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    journal: Option<PathBuf>,
    /// Start again instead of resuming an earlier copy
    #[arg(long)]
    restart: bool,
    /// Time between two durable checkpoints, each after a flush of the destination
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = checkpoint)]
    checkpoint: Time,
    /// Form of the progress [default: a bar on a terminal, else a line every five seconds]
    #[arg(long, value_name = "FORM")]
    pub(super) progress: Option<ProgressKind>,
    /// Print nothing but errors
    #[arg(long, short)]
    pub(super) quiet: bool,
    /// Print the result as one line of JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl CopyArguments {
    /// The same for the library.
    pub(super) fn options(&self) -> Options<'_> {
        Options {
            consent: terminal::consent(self.yes),
            verify: self.verify,
            checksum: self.checksum,
            depth: self.depth,
            request_bytes: self.request.map(|request| request.0),
            detect_zeros: !self.no_zero_detect,
            offload: !self.no_xcopy,
            skip_errors: self.skip_errors,
            journal: match (&self.journal, state::usual_directory()) {
                (Some(named), _) => JournalPlace::Directory(named.clone()),
                (None, Ok(state)) => JournalPlace::Below(state.join("copies")),
                (None, Err(_)) => JournalPlace::Nowhere,
            },
            restart: self.restart,
            raw: self.raw,
            checkpoint: self.checkpoint.0,
        }
    }
}

fn checkpoint(text: &str) -> Result<Time, String> {
    let time: Time = text.parse().map_err(|error: crate::spec::NotATime| error.to_string())?;
    let fits = (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&time.0);
    if fits { Ok(time) } else { Err("a checkpoint comes every 1s to 1h".to_owned()) }
}

fn request(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error: crate::spec::NotASize| error.to_string())?;
    let fits = bytes.0.is_power_of_two() && (64 << 10..=64 << 20).contains(&bytes.0);
    if fits { Ok(bytes) } else { Err("a request has 64KiB to 64MiB, a power of two".to_owned()) }
}
