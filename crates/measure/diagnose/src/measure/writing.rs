//! Which part of the LUN may be overwritten: none, unless it was said, nobody has reserved it, and there is nothing on it
//! or whoever started this agrees to lose it.

use super::Options;
use super::device::Device;
use super::places::{Part, physical_block_bytes};
use super::subject::Subject;
use backends::Failure;
use backends::Overwritten;
use bench::Extent;

/// The part, in whole physical blocks.
pub(super) async fn part(
    device: &Device,
    subject: &Subject,
    options: &Options,
) -> Result<Option<Part>, Failure> {
    let Some(extent) = options.allow_write else { return Ok(None) };
    let bytes = device.geometry().bytes();
    if extent.exceeds(bytes) {
        return Err(Failure::refused(format!(
            "{extent} reaches beyond the end of the storage, which has {bytes} bytes"
        )));
    }
    let part = whole_blocks(extent, bytes, physical_block_bytes(device.geometry()));
    let part = part.ok_or_else(|| Failure::refused(format!("{extent} has no whole physical block in it")))?;
    let overwritten = (extent != Extent::ALL).then(|| extent.to_string());
    Overwritten { device: &**device, name: subject, part: overwritten, lun: device.lun().map(|lun| &**lun) }
        .consent(options.consent)
        .await?;
    Ok(Some(part))
}

fn whole_blocks(extent: Extent, device_bytes: u64, block: u64) -> Option<Part> {
    let span = extent.span();
    let end = span.bytes.map_or(device_bytes, |bytes| span.start_bytes + bytes);
    let (start, end) = (span.start_bytes.next_multiple_of(block), end - end % block);
    (start < end).then(|| Part { start_bytes: start, bytes: end - start })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_physical_blocks_are_written() {
        let part = |text: &str| whole_blocks(text.parse().expect("an extent"), 1 << 20, 4096);
        assert_eq!(part("4097B..8191B"), None);
        assert_eq!(part("5000B..20000B"), Some(Part { start_bytes: 8192, bytes: 8192 }));
        assert_eq!(part(".."), Some(Part { start_bytes: 0, bytes: 1 << 20 }));
    }
}
