//! What can be asked of a copy on the command line.

use std::path::PathBuf;
use std::time::Duration;

use copy::{JournalPlace, Options};

use crate::progress::ProgressKind;
use crate::spec::Bytes;
use crate::terminal;
use manage::state;

/// Copies a LUN, volume, file or block device to another; holes stay holes, and what was interrupted can be gone on
/// with
#[derive(Debug, clap::Args)]
pub(crate) struct CopyArguments {
    /// From where: iscsi://[user@]host[:port]/target/lun[?key=value&...], a volume such as file:/data/vm1.img, or the
    /// path of a file or block device
    #[arg(value_name = "SRC")]
    pub(super) source: String,
    /// To where: the same; a file that does not exist is created, and has holes where the source has
    #[arg(value_name = "DST")]
    pub(super) destination: String,
    /// Overwrite what is at the destination without asking
    #[arg(long)]
    yes: bool,
    /// Read the destination back when all is written, and compare
    #[arg(long)]
    verify: bool,
    /// Print the SHA-256 of the data that were read
    #[arg(long)]
    checksum: bool,
    /// Requests under way at once [default: 16, and 2 between local places]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: Option<u16>,
    /// Length of a request [default: 256KiB, and 1MiB between local places]
    #[arg(long, value_name = "SIZE", value_parser = request)]
    request: Option<Bytes>,
    /// Write zeros that the source holds as data, instead of leaving them out
    #[arg(long)]
    no_zero_detect: bool,
    /// Do not ask a target that has both ends to copy by itself
    #[arg(long)]
    no_xcopy: bool,
    /// Go on after data that cannot be read: zeros are written in their place, and the exit code is 1
    #[arg(long)]
    skip_errors: bool,
    /// Copy a disk image in a container (QCOW2, VMDK, VHDX, VDI) to a device as the bytes that it is
    #[arg(long)]
    raw: bool,
    /// The directory for what is needed to go on after an interruption [default: within the state directory]
    #[arg(long, value_name = "DIRECTORY")]
    journal: Option<PathBuf>,
    /// Begin at the start, whatever an earlier copy has done
    #[arg(long)]
    restart: bool,
    /// Seconds between two notes of how far the copy is for sure, each behind a flush of the destination
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=3600))]
    checkpoint: u16,
    /// How to show the progress [default: a bar on a terminal, else a line every five seconds]
    #[arg(long, value_name = "HOW")]
    pub(super) progress: Option<ProgressKind>,
    /// Say nothing but errors
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
            checkpoint: Duration::from_secs(self.checkpoint.into()),
        }
    }
}

fn request(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error: crate::spec::NotASize| error.to_string())?;
    let fits = bytes.0.is_power_of_two() && (64 << 10..=64 << 20).contains(&bytes.0);
    if fits { Ok(bytes) } else { Err("a request has 64KiB to 64MiB, a power of two".to_owned()) }
}
