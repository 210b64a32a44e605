//! Verification: reads all data that is allocated on the source or the destination from both, and compares
//! it.

use std::ops::Range;
use std::rc::Rc;

use backends::{Failure, FailureKind};

use crate::destination::Destination;
use crate::options::{Observer, Options, Position};
use crate::pieces::{Piece, Pieces, Queue};
use crate::source::Source;

/// The source and the destination.
struct Sides {
    source: Rc<Source>,
    destination: Rc<Destination>,
}

/// Compares the destination with the source. Fails at the first byte that differs.
pub(crate) async fn compare(
    options: &Options<'_>,
    source: &Rc<Source>,
    destination: &Rc<Destination>,
    observer: &dyn Observer,
) -> Result<(), Failure> {
    let sides = Rc::new(Sides {
        source: Rc::clone(source),
        destination: Rc::clone(destination),
    });
    let flight = destination.flight(options, source);
    let mut pieces = Pieces::new(
        Rc::clone(source),
        0,
        flight.request_bytes,
        source.block_bytes(),
    );
    let mut queue = Queue::new(usize::from(flight.depth));
    let (mut differences, mut moved_bytes) = (Vec::new(), 0);
    while differences.is_empty() {
        if observer.is_interrupted() {
            return Err(Failure::new(
                FailureKind::Interrupted,
                "interrupted while comparing; the copy itself is complete",
            ));
        }
        let Some(piece) = pieces.next().await else {
            break;
        };
        observer.at(Position {
            byte: piece.range.start,
            moved_bytes,
            hashing: false,
        });
        moved_bytes += if piece.is_hole {
            0
        } else {
            piece.range.end - piece.range.start
        };
        queue.start(difference(Rc::clone(&sides), piece));
        if queue.is_full()
            && let Some(ended) = queue.next().await
        {
            differences.extend(ended?);
        }
    }
    while let Some(ended) = queue.next().await {
        differences.extend(ended?);
    }
    match differences.into_iter().min() {
        None => Ok(()),
        Some(at) => Err(Failure::new(
            FailureKind::Mismatch,
            format_args!(
                "{} differs from {} at byte {at}",
                destination.name, source.name
            ),
        )),
    }
}

/// The position of the first byte of this piece that differs.
async fn difference(sides: Rc<Sides>, piece: Piece) -> Result<Option<u64>, Failure> {
    let Sides {
        source,
        destination,
    } = &*sides;
    if piece.is_hole {
        return not_zero(destination, piece.range).await;
    }
    let at = piece.range.start;
    let expected = source
        .read(piece.range.clone())
        .await
        .map_err(|error| unread(&source.name, at, error))?;
    let found = destination.read(piece.range).await;
    let found = found.map_err(|error| unread(&destination.name, at, error))?;
    reactor::consume_budget(found.len()).await;
    if *expected == *found {
        return Ok(None);
    }
    let equal = expected
        .iter()
        .zip(&*found)
        .take_while(|(expected, found)| expected == found)
        .count();
    Ok(Some(at + equal as u64))
}

/// The position of the first nonzero byte of the destination in a range where the source has a hole. Ranges
/// that the destination reports as zero are not read.
async fn not_zero(destination: &Destination, range: Range<u64>) -> Result<Option<u64>, Failure> {
    /// Maximum length of a read, because a hole may be long.
    const STEP_BYTES: u64 = 1 << 20;
    let mut at = range.start;
    while at < range.end {
        let told = destination.is_zero(at..range.end).await;
        let (mut end, is_zero) = told.map_err(|error| unread(&destination.name, at, error))?;
        if !is_zero {
            end = end.min(at + STEP_BYTES);
            let found = destination.read(at..end).await;
            let found = found.map_err(|error| unread(&destination.name, at, error))?;
            // Reads of storage in memory never wait, and a hole may be very long, so other tasks would not
            // run.
            reactor::consume_budget(found.len()).await;
            if let Some(first) = found.iter().position(|byte| *byte != 0) {
                return Ok(Some(at + first as u64));
            }
        }
        at = end;
    }
    Ok(None)
}

fn unread(name: &str, at: u64, error: block::DeviceError) -> Failure {
    Failure::device(format_args!("cannot read {name} at byte {at}"), error)
}
