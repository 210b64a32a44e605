//! Text that does not fit in one PDU: joined when it arrives, cut when it leaves (RFC 7143 section 6.2).

use super::MalformedText;

/// Pieces a text may come in: a 64 KiB text in the smallest PDUs, of 512 bytes, twice over. A peer may send
/// pieces with C set and nothing in them; they count too, so they end.
const PIECES_MAX: usize = 256;

/// A text on its way in, piece by piece, of bounded size.
#[derive(Clone, Debug)]
pub struct Assembly {
    text: Vec<u8>,
    pieces: usize,
    limit_bytes: usize,
}

impl Assembly {
    /// No text yet; `limit_bytes` is the maximum length.
    pub fn new(limit_bytes: usize) -> Assembly {
        Assembly { text: Vec::new(), pieces: 0, limit_bytes }
    }

    /// Takes a PDU's data segment. If the text ends here (the C bit is clear), gives all of it, and is ready for
    /// the next. A text that grows too long is dropped.
    pub fn add(&mut self, piece: &[u8], continues: bool) -> Result<Option<Vec<u8>>, MalformedText> {
        self.pieces += 1;
        if self.pieces > PIECES_MAX || piece.len() > self.limit_bytes.saturating_sub(self.text.len()) {
            self.clear();
            return Err(MalformedText::TooLong);
        }
        self.text.extend_from_slice(piece);
        if continues {
            return Ok(None);
        }
        self.pieces = 0;
        Ok(Some(std::mem::take(&mut self.text)))
    }

    /// Drops the parts received so far.
    pub fn clear(&mut self) {
        self.text = Vec::new();
        self.pieces = 0;
    }
}

/// A text on its way out, cut into pieces that fit the peer's MaxRecvDataSegmentLength.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    text: Vec<u8>,
    sent: usize,
}

impl Pieces {
    /// All of this text is to be sent. It may wait for its peer, so that it takes no more memory than it needs.
    pub fn new(mut text: Vec<u8>) -> Pieces {
        text.shrink_to_fit();
        Pieces { text, sent: 0 }
    }

    /// The next piece of at most this many bytes (at least one), and whether the text goes on after it. A text
    /// of nothing is one empty piece.
    pub fn next(&mut self, bytes_max: usize) -> (Vec<u8>, bool) {
        let end = self.text.len().min(self.sent.saturating_add(bytes_max.max(1)));
        if (self.sent, end) == (0, self.text.len()) {
            return (std::mem::take(&mut self.text), false); // no copy of the whole
        }
        let piece = self.text[self.sent..end].to_vec();
        self.sent = end;
        (piece, end < self.text.len())
    }

    /// Bytes that remain to be sent.
    pub fn left_bytes(&self) -> usize {
        self.text.len() - self.sent
    }

    /// Whether nothing remains to be sent.
    pub fn is_empty(&self) -> bool {
        self.left_bytes() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_that_never_ends_is_dropped() {
        let mut assembly = Assembly::new(100);
        assert_eq!(assembly.add(&[b'x'; 100], true), Ok(None));
        assert!(assembly.pieces > 0);
        assert_eq!(assembly.add(b"y", true), Err(MalformedText::TooLong));
        assert_eq!(assembly.pieces, 0);
    }

    #[test]
    fn empty_pieces_end_too() {
        let mut assembly = Assembly::new(100);
        let endless = (0..1000).map(|_| assembly.add(&[], true)).find(Result::is_err);
        assert_eq!(endless, Some(Err(MalformedText::TooLong)));
    }

    #[test]
    fn an_empty_text_is_one_empty_piece() {
        assert_eq!(Pieces::new(Vec::new()).next(512), (Vec::new(), false));
    }

    proptest! {
        #[test]
        fn what_is_cut_is_joined(text in proptest::collection::vec(any::<u8>(), 0..200), bytes_max in 1usize..50) {
            let (mut pieces, mut assembly) = (Pieces::new(text.clone()), Assembly::new(200));
            loop {
                let (piece, continues) = pieces.next(bytes_max);
                prop_assert!(piece.len() <= bytes_max);
                if let Some(whole) = assembly.add(&piece, continues).expect("within the limit") {
                    prop_assert_eq!(&whole, &text);
                    prop_assert!(pieces.is_empty() && assembly.pieces == 0);
                    break;
                }
            }
        }
    }
}
