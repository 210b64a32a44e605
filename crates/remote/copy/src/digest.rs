//! SHA-256 over the source, with holes as zeros: what `sha256sum` prints for a file with the same content.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use block::Slice;
use sha2::{Digest as _, Sha256};

/// A digest of pieces that come in any order.
#[derive(Default)]
pub(crate) struct Digest {
    state: Sha256,
    at: u64,
    /// Those behind a gap, by where they begin.
    waiting: BTreeMap<u64, (u64, Option<Slice>)>,
}

impl Digest {
    /// Takes a piece in; without data it is a hole.
    pub(crate) fn add(&mut self, range: Range<u64>, data: Option<Slice>) {
        self.waiting.insert(range.start, (range.end, data));
        while let Some((end, data)) = self.waiting.remove(&self.at) {
            match data {
                Some(data) => self.state.update(&*data),
                None => self.add_zeros(end - self.at),
            }
            self.at = end;
        }
    }

    fn add_zeros(&mut self, mut bytes: u64) {
        const ZEROS: &[u8] = &[0; 64 << 10];
        while bytes > 0 {
            let step = bytes.min(ZEROS.len() as u64);
            self.state.update(&ZEROS[..step as usize]);
            bytes -= step;
        }
    }

    /// Of all that has come.
    pub(crate) fn hex(self) -> String {
        written(&self.state.finalize())
    }
}

/// The digest of these bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    written(&Sha256::digest(bytes))
}

fn written(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // a String takes everything
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Buffer;

    #[test]
    fn pieces_count_in_their_places_whenever_they_come() {
        let mut digest = Digest::default();
        digest.add(5..8, Some(Buffer::from(&b"def"[..]).share()));
        digest.add(0..3, Some(Buffer::from(&b"abc"[..]).share()));
        digest.add(3..5, None);
        assert_eq!(digest.hex(), hex(b"abc\0\0def"));
    }

    #[test]
    fn it_is_the_one_that_everybody_computes() {
        // FIPS 180-4, no data.
        let expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::default().hex(), expected);
    }
}
