//! `linerate read` copies storage, or a part of it, to standard output or a file. `linerate write` copies
//! standard input to storage. The library `copy` transfers the data.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use backends::location::{Location, Opened};
use copy::stream::{self, Output};

use crate::failure::{Failure, FailureKind};
use crate::interrupt::Interrupt;
use crate::private_file;
use crate::remote;
use crate::spec::Bytes;
use crate::terminal::Overwritten;

#[derive(Debug, clap::Args)]
pub(crate) struct ReadArguments {
    /// Storage to read (see `linerate help targets`)
    #[arg(value_name = "TARGET", value_hint = clap::ValueHint::AnyPath)]
    place: String,
    #[command(flatten)]
    how: How,
    /// Length to read [default: to the end]
    #[arg(long, value_name = "SIZE")]
    length: Option<Bytes>,
    /// Output: a new file, or an existing pipe or character device [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WriteArguments {
    /// Storage to write (see `linerate help targets`)
    #[arg(value_name = "TARGET", value_hint = clap::ValueHint::AnyPath)]
    place: String,
    #[command(flatten)]
    how: How,
    /// Length to write; shorter input is an error, and further input is not read [default: all of the input]
    #[arg(long, value_name = "SIZE")]
    length: Option<Bytes>,
    /// Overwrite the data without asking
    #[arg(long)]
    yes: bool,
}

/// The common arguments of both directions.
#[derive(Debug, clap::Args)]
struct How {
    /// Offset to start at
    #[arg(long, value_name = "SIZE", default_value = "0")]
    offset: Bytes,
    /// Queue depth: outstanding requests
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
}

/// Runs `linerate read`.
pub(crate) fn read(arguments: &ReadArguments) -> Result<(), Failure> {
    // Open the output before the login: opening a pipe waits for a reader, and during that time a session
    // could not respond to its target.
    let (output, name) = match &arguments.output {
        None => (
            Output::Pipe(Box::new(io::stdout())),
            "standard output".to_owned(),
        ),
        Some(path) => {
            let name = path.display().to_string();
            let made = private_file::create_new_or_open_pipe(path);
            let made =
                made.map_err(|error| Failure::refused(format!("cannot create {name}: {error}")))?;
            let is_file = made.metadata().is_ok_and(|metadata| metadata.is_file());
            (
                if is_file {
                    Output::NewFile(made)
                } else {
                    Output::Pipe(Box::new(made))
                },
                name,
            )
        }
    };
    let done = with(
        &arguments.place,
        true,
        &arguments.how,
        arguments.length,
        async |_, part| stream::read(part, output, &name).await,
    );
    done.map_err(|failure| match &arguments.output {
        None => failure,
        Some(path) => with_partial_file(failure, path),
    })
}

/// Removes the output file of a failed command if it is empty; otherwise reports that the incomplete file
/// remains.
fn with_partial_file(failure: Failure, path: &Path) -> Failure {
    let _ = private_file::remove_if_empty(path);
    match path.metadata() {
        Ok(left) if left.is_file() => failure.and(format_args!(
            "{} is incomplete, with {}",
            path.display(),
            Bytes(left.len())
        )),
        _ => failure,
    }
}

/// Runs `linerate write`.
pub(crate) fn write(arguments: &WriteArguments) -> Result<(), Failure> {
    with(
        &arguments.place,
        false,
        &arguments.how,
        arguments.length,
        async |opened, part| {
            let (device, place) = (&*opened.device, part.name);
            Overwritten {
                device,
                name: &place,
                part: None,
                lun: None,
            }
            .consent(crate::terminal::consent(arguments.yes))
            .await?;
            let written = stream::write(
                part,
                Box::new(io::stdin()),
                "standard input",
                arguments.length.is_some(),
            )
            .await;
            let flushed = device.flush().await;
            let end = written?;
            flushed
                .map_err(|error| Failure::device(format_args!("cannot flush {place}"), error))?;
            let Range { start, end: wanted } = part.range;
            match arguments.length {
                _ if (part.is_interrupted)() => Err(Failure::new(
                    FailureKind::Interrupted,
                    format_args!("interrupted; {place} was written up to {}", Bytes(end)),
                )),
                Some(Bytes(length)) if end < wanted => {
                    let came = end - start;
                    Err(Failure::failed(format_args!(
                        "the input ended after {came} bytes of {length}"
                    )))
                }
                _ => Ok(()),
            }
        },
    )
}

/// Opens the storage, and does the work on the specified part of it.
fn with(
    place: &str,
    read_only: bool,
    how: &How,
    length: Option<Bytes>,
    work: impl AsyncFnOnce(&Opened, &stream::DeviceRange<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let place = Location::parse(place)?;
    let (name, interrupt) = (place.to_string(), Interrupt::listen()?);
    remote::run(async {
        let opened = place.open_by_bytes(read_only).await?;
        let bytes = opened.device.length_bytes();
        let done = match stream::range(how.offset.0, length.map(|length| length.0), bytes) {
            None => Err(Failure::refused(format!("{name} ends at byte {bytes}"))),
            Some(range) => {
                let part = stream::DeviceRange {
                    device: &opened.device,
                    name: &name,
                    range,
                    depth: how.depth,
                    is_interrupted: &|| interrupt.is_asked(),
                };
                work(&opened, &part).await
            }
        };
        let done = opened.explained(done).await;
        opened.close().await;
        done
    })
}
