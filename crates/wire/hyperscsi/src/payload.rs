//! The data of a command or of a response: bytes that are shared and never moved, wherever they came from.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes of a shared buffer. A copy of it is the same bytes.
#[derive(Clone, Default)]
pub struct Payload {
    /// `None`: no bytes.
    buffer: Option<Arc<dyn AsRef<[u8]> + Send + Sync>>,
    range: Range<usize>,
}

impl Payload {
    /// All bytes of a buffer, which must be the same ones as long as this is there.
    pub fn new(buffer: impl AsRef<[u8]> + Send + Sync + 'static) -> Payload {
        let range = 0..buffer.as_ref().len();
        if range.is_empty() { Payload::default() } else { Payload { buffer: Some(Arc::new(buffer)), range } }
    }

    /// A part of it, as far as it reaches.
    pub fn part(&self, part: Range<usize>) -> Payload {
        let end = (self.range.start + part.end).min(self.range.end);
        let start = (self.range.start + part.start).min(end);
        Payload { buffer: self.buffer.clone(), range: start..end }
    }

    /// Cuts off what is beyond so many bytes.
    pub fn truncate(&mut self, bytes: usize) {
        self.range.end = self.range.end.min(self.range.start + bytes);
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self.buffer.as_ref().map_or(&[][..], |buffer| (**buffer).as_ref());
        bytes.get(self.range.clone()).unwrap_or_default()
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Payload {
        Payload::new(bytes)
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Payload {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Eq for Payload {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_same_bytes_and_reach_no_further_than_the_whole() {
        let mut all = Payload::from(b"0123456789".to_vec());
        assert_eq!(all.part(2..5), *b"234");
        assert_eq!(all.part(2..5).part(1..9), *b"34", "of the part");
        assert_eq!(all.part(20..30), *b"");
        assert_eq!(all.part(2..5).as_ptr(), all[2..].as_ptr());
        all.truncate(4);
        assert_eq!(all, *b"0123");
        all.truncate(9);
        assert_eq!(all.len(), 4);
        assert_eq!(Payload::from(Vec::new()), Payload::default());
    }
}
