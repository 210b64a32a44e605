//! Deallocating the blocks of a span before a measurement (SNIA's purge).

use bench::Go;
use bench::plan::Span;
use block::{BlockDevice, Blocks, Extent, Lba};

use super::crew::Purged;
use backends::Failure;

/// So much at once: soon enough for who watches, and for who wants it to end.
const PIECE_BYTES: u64 = 64 << 20;

/// Sees to it that all whole blocks of the span read as zeros, without space where the device can give it
/// back (UNMAP), else by writing zeros (WRITE SAME, or as the device likes).
pub(crate) async fn purge(
    device: &dyn BlockDevice,
    span: Span,
    progress: &mut dyn FnMut(Purged) -> Go,
) -> Result<(), Failure> {
    let geometry = device.geometry();
    let block_bytes = u64::from(geometry.block_size.bytes());
    let end = span.bytes.map_or(geometry.bytes(), |bytes| span.start_bytes.saturating_add(bytes));
    let (first, end) = (span.start_bytes.div_ceil(block_bytes), end.min(geometry.bytes()) / block_bytes);
    let piece = PIECE_BYTES / block_bytes;
    let mut at = first;
    while at < end {
        let blocks = piece.min(end - at);
        let zeroed = device.write_zeroes(Extent { lba: Lba(at), blocks: Blocks(blocks) }, true).await;
        zeroed.map_err(|error| Failure::device(format_args!("cannot purge block {at}"), error))?;
        at += blocks;
        let purged = Purged { done_bytes: (at - first) * block_bytes, of_bytes: (end - first) * block_bytes };
        if let Go::Stop = progress(purged) {
            break;
        }
    }
    device.flush().await.map_err(|error| Failure::device("cannot flush what was purged", error))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use block::{Buffer, Durability};
    use host::{RamDevice, RamOptions};

    use super::*;
    use backends::remote;

    #[test]
    fn only_the_span_is_purged() {
        let device = Arc::new(RamDevice::new(RamOptions::new(1 << 20)).expect("memory"));
        let read = remote::run(async {
            let mut ones = Buffer::zeroed(1 << 20);
            ones.fill(1);
            let all = Extent::new(0, 2048);
            device.write(all, ones.share(), Durability::Cached).await.expect("a write");
            let mut heard = Vec::new();
            let span = Span { start_bytes: 4096, bytes: Some(8192) };
            purge(&*device, span, &mut |purged| {
                heard.push((purged.done_bytes, purged.of_bytes));
                Go::On
            })
            .await?;
            assert_eq!(heard, [(8192, 8192)]);
            Ok(device.read(all, Buffer::zeroed(1 << 20)).await.expect("a read"))
        });
        let read = read.unwrap_or_else(|failure| panic!("{failure}"));
        let zeros: Vec<usize> = (0..read.len()).filter(|at| read[*at] == 0).collect();
        assert_eq!((zeros.first(), zeros.len()), (Some(&4096), 8192));
    }
}
