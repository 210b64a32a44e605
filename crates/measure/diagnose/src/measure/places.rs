//! Chooses offsets on the LUN for probes and loads.

use std::collections::HashSet;

use backends::{Failure, Overwritten};
use block::Random;
use block::{Blocks, Extent, Geometry, Lba};

use crate::measure::device::Device;
use crate::measure::{Options, Subject};

/// A part of a LUN that consists of whole physical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) start_bytes: u64,
    pub(super) bytes: u64,
}

/// The unread places of a part, drawn in random order.
pub(super) struct Untouched {
    part: Part,
    random: Random,
    touched: HashSet<u64>,
}

/// The length of the data that a cache may load together with a requested block: the usual read-ahead of
/// disks and file systems.
const NEIGHBOURHOOD_BYTES: u64 = 256 << 10;
/// The minimum number of such neighbourhoods. A smaller part would soon be in the cache completely.
const LEAST: u64 = 64;

impl Part {
    /// Returns the part that covers a whole device.
    pub(super) fn whole(geometry: Geometry) -> Part {
        Part {
            start_bytes: 0,
            bytes: geometry.bytes(),
        }
    }

    /// Returns the first blocks of this length, or the first logical block if that is longer. Returns `None`
    /// if the part is shorter.
    pub(super) fn first(self, bytes: u32, geometry: Geometry) -> Option<Extent> {
        self.at(0, bytes, geometry)
    }

    /// As `first`, at a random offset: a multiple of the length and of the physical block.
    pub(super) fn somewhere(
        self,
        bytes: u32,
        geometry: Geometry,
        random: &mut Random,
    ) -> Option<Extent> {
        let step = u64::from(bytes).max(physical_block_bytes(geometry));
        self.at(random.below(self.bytes / step) * step, bytes, geometry)
    }

    fn at(self, offset: u64, bytes: u32, geometry: Geometry) -> Option<Extent> {
        let block = geometry.block_size.bytes();
        let bytes = u64::from(bytes.max(block));
        if !bytes.is_multiple_of(u64::from(block)) || offset.checked_add(bytes)? > self.bytes {
            return None;
        }
        let shift = geometry.block_size.shift();
        Some(Extent {
            lba: Lba((self.start_bytes + offset) >> shift),
            blocks: Blocks(bytes >> shift),
        })
    }
}

/// Returns the length of the device's physical block, as reported.
pub(super) fn physical_block_bytes(geometry: Geometry) -> u64 {
    u64::from(geometry.block_size.bytes()) << geometry.physical_exponent.min(16)
}

impl Untouched {
    /// Marks the start of the part as read, since the repeated reads are there.
    pub(super) fn new(part: Part, seed: u64) -> Untouched {
        let touched = (0..LEAST / 16).collect();
        Untouched {
            part,
            random: Random::new(seed),
            touched,
        }
    }

    /// Returns a place of this length that has not been read before. Returns `None` if half of the places
    /// have been read, or if the part is too small for a meaningful result.
    pub(super) fn next(&mut self, bytes: u32, geometry: Geometry) -> Option<Extent> {
        let places = self.part.bytes / NEIGHBOURHOOD_BYTES;
        if places < LEAST || self.touched.len() as u64 > places / 2 {
            return None;
        }
        // At least half of the places are unread, so this ends soon.
        let place = std::iter::repeat_with(|| self.random.below(places))
            .find(|place| !self.touched.contains(place))?;
        self.touched.insert(place);
        self.part.at(place * NEIGHBOURHOOD_BYTES, bytes, geometry)
    }
}

// The part of the LUN that may be overwritten. There is none unless writing is allowed and the LUN is not
// reserved. In addition, the LUN must be empty, or the user must consent to the loss of its content.

/// Returns the writable part, in whole physical blocks.
pub(super) async fn part(
    device: &Device,
    subject: &Subject,
    options: &Options,
) -> Result<Option<Part>, Failure> {
    let Some(extent) = options.allow_write else {
        return Ok(None);
    };
    let bytes = device.geometry().bytes();
    if extent.exceeds(bytes) {
        return Err(Failure::refused(format!(
            "{extent} extends beyond the end of the storage, which has {bytes} bytes"
        )));
    }
    let part = whole_blocks(extent, bytes, physical_block_bytes(device.geometry()));
    let part = part.ok_or_else(|| {
        Failure::refused(format!("{extent} does not contain a whole physical block"))
    })?;
    let overwritten = (extent != bench::Extent::ALL).then(|| extent.to_string());
    Overwritten {
        device: &**device,
        name: subject,
        part: overwritten,
        lun: device.lun().map(|lun| &**lun),
    }
    .consent(options.consent)
    .await?;
    Ok(Some(part))
}

fn whole_blocks(extent: bench::Extent, device_bytes: u64, block: u64) -> Option<Part> {
    let span = extent.span();
    let end = span
        .bytes
        .map_or(device_bytes, |bytes| span.start_bytes + bytes);
    let (start, end) = (span.start_bytes.next_multiple_of(block), end - end % block);
    (start < end).then(|| Part {
        start_bytes: start,
        bytes: end - start,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::BlockSize;

    fn geometry(mib: u64) -> Geometry {
        Geometry {
            block_size: BlockSize::B512,
            blocks: Blocks(mib << 11),
            physical_exponent: 3,
        }
    }

    #[test]
    fn a_lun_without_room_has_no_places() {
        let none = geometry(0);
        assert_eq!(Part::whole(none).first(512, none), None);
        assert_eq!(
            Part::whole(none).somewhere(512, none, &mut Random::new(1)),
            None
        );
        assert_eq!(Untouched::new(Part::whole(none), 1).next(512, none), None);
        let small = geometry(15);
        assert_eq!(
            Untouched::new(Part::whole(small), 1).next(512, small),
            None,
            "it fits into any cache"
        );
    }

    #[test]
    fn no_place_is_touched_twice_and_in_the_end_there_are_none() {
        let large = geometry(64);
        let mut places = Untouched::new(Part::whole(large), 7);
        let found: Vec<Extent> = std::iter::from_fn(|| places.next(4096, large)).collect();
        let distinct: HashSet<u64> = found.iter().map(|extent| extent.lba.0).collect();
        assert_eq!(distinct.len(), found.len());
        assert!(found.len() > 100 && found.iter().all(|extent| large.contains(*extent)));
    }

    #[test]
    fn what_is_written_stays_within_its_part() {
        let part = Part {
            start_bytes: 1 << 20,
            bytes: 1 << 20,
        };
        let mut random = Random::new(3);
        for _ in 0..1000 {
            let extent = part
                .somewhere(512, geometry(64), &mut random)
                .expect("room");
            assert!(
                (2048..4096).contains(&extent.lba.0) && extent.lba.0.is_multiple_of(8),
                "{extent:?}"
            );
        }
        assert_eq!(part.first(2 << 20, geometry(64)), None);
    }

    #[test]
    fn only_whole_physical_blocks_are_written() {
        let part = |text: &str| whole_blocks(text.parse().expect("an extent"), 1 << 20, 4096);
        assert_eq!(part("4097B..8191B"), None);
        assert_eq!(
            part("5000B..20000B"),
            Some(Part {
                start_bytes: 8192,
                bytes: 8192
            })
        );
        assert_eq!(
            part(".."),
            Some(Part {
                start_bytes: 0,
                bytes: 1 << 20
            })
        );
    }
}
