//! A ring buffer of byte strings in bounded memory.
//!
//! Every string is contiguous; one that does not fit before the end of the memory is stored at its start,
//! over the oldest strings. A string is found by its [`RingRange`] until it is overwritten.

/// The capacity of a ring in bytes.
pub(super) const RING_BYTES: usize = 64 << 10;

/// See the module.
#[derive(Clone, Default)]
pub(super) struct ByteRing {
    /// Grows to [`RING_BYTES`] as it is first filled.
    bytes: Vec<u8>,
    /// Bytes written since the beginning, those passed over at the end of the memory included.
    written: u64,
}

/// The position of a string in the ring.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct RingRange {
    start: u64,
    length: usize,
}

impl ByteRing {
    /// Keeps a piece; of one longer than the ring, its beginning.
    pub(super) fn put(&mut self, piece: &[u8]) -> RingRange {
        let piece = &piece[..piece.len().min(RING_BYTES)];
        let mut at = index(self.written);
        if at + piece.len() > RING_BYTES {
            self.written += (RING_BYTES - at) as u64;
            at = 0;
        }
        let (start, end) = (self.written, at + piece.len());
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[at..end].copy_from_slice(piece);
        self.written += piece.len() as u64;
        RingRange { start, length: piece.len() }
    }

    /// A string, unless it was overwritten.
    pub(super) fn get(&self, place: RingRange) -> Option<&[u8]> {
        if self.written - place.start > RING_BYTES as u64 {
            return None;
        }
        let at = index(place.start);
        self.bytes.get(at..at + place.length)
    }
}

fn index(position: u64) -> usize {
    (position % RING_BYTES as u64) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_piece_is_there_until_the_ring_has_come_round() {
        let mut ring = ByteRing::default();
        let first = ring.put(b"first");
        ring.put(&vec![1; RING_BYTES - 5]);
        assert_eq!(ring.get(first), Some(&b"first"[..]));
        ring.put(b"x");
        assert_eq!(ring.get(first), None);
    }

    #[test]
    fn a_piece_longer_than_the_ring_keeps_its_beginning() {
        let mut ring = ByteRing::default();
        let place = ring.put(&vec![7; RING_BYTES + 1]);
        assert_eq!(ring.get(place).map(<[u8]>::len), Some(RING_BYTES));
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_was_put(lengths in prop::collection::vec(0usize..20_000, 1..40)) {
            let mut ring = ByteRing::default();
            let mut put = Vec::new();
            for (number, length) in lengths.into_iter().enumerate() {
                let piece = vec![number as u8; length];
                put.push((ring.put(&piece), piece));
                let (last, piece) = &put[number];
                prop_assert_eq!(ring.get(*last), Some(&piece[..]));
            }
            for (place, piece) in put {
                prop_assert!(ring.get(place).is_none_or(|found| found == piece));
            }
            prop_assert!(ring.bytes.len() <= RING_BYTES);
        }
    }
}
