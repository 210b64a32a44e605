//! A frame to be sent, in pieces: data of messages stay where they are, until the kernel copies them. What is sealed has to be copied.

use std::iter;

use crc_fast::{CrcAlgorithm, Digest};

use crate::payload::Payload;

/// A piece of data that is shorter costs less to be copied than to be a piece.
const PIECE_BYTES_MIN: usize = 1024;
/// Pieces of data in a frame. Behind each, and in front of all, is a piece of the frame's own bytes.
const DATA_PIECES_MAX: usize = 3;

/// A frame.
#[derive(Debug, Default)]
pub struct Frame {
    /// Header, acknowledgement, heads and short data of messages, trailer, padding.
    pub(crate) bytes: Vec<u8>,
    /// Data of messages, each in front of the byte of `bytes` with this number.
    data: Vec<(usize, Payload)>,
    /// No data may be pieces of their own.
    is_sealed: bool,
}

impl Frame {
    /// The most pieces that a frame has.
    pub const PIECES_MAX: usize = 2 * DATA_PIECES_MAX + 1;

    /// An empty one that uses this memory.
    pub(crate) fn over(bytes: Vec<u8>) -> Frame {
        let mut frame = Frame { bytes, ..Frame::default() };
        frame.clear();
        frame
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.begin(false);
    }

    pub(crate) fn begin(&mut self, is_sealed: bool) {
        self.bytes.clear();
        self.data.clear();
        self.is_sealed = is_sealed;
    }

    /// Its bytes, in order; at most [`Frame::PIECES_MAX`] pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.data.iter().map(|(end, _)| *end).chain([self.bytes.len()]);
        let starts = iter::once(0).chain(self.data.iter().map(|(end, _)| *end));
        let own = starts.zip(ends).map(|(start, end)| &self.bytes[start..end]);
        let data = self.data.iter().map(|(_, data)| Some(&**data)).chain([None]);
        own.zip(data).flat_map(|(own, data)| iter::once(own).chain(data))
    }

    /// Its bytes in one piece.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        if self.data.is_empty() { self.bytes } else { self.pieces().collect::<Vec<&[u8]>>().concat() }
    }

    /// The number of its bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.data.iter().map(|(_, data)| data.len()).sum::<usize>()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes it as long as this at least.
    pub fn pad(&mut self, bytes: usize) {
        let missing = bytes.saturating_sub(self.len());
        self.bytes.resize(self.bytes.len() + missing, 0);
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn put_data(&mut self, all: &Payload, start: usize, end: usize) {
        if end - start < PIECE_BYTES_MIN || self.is_sealed || self.data.len() == DATA_PIECES_MAX {
            self.put(&all[start..end]);
        } else {
            self.data.push((self.bytes.len(), all.part(start..end)));
        }
    }

    pub(crate) fn crc(&self) -> u32 {
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        self.pieces().for_each(|piece| digest.update(piece));
        digest.finalize() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(frame: &Frame) -> Vec<Vec<u8>> {
        frame.pieces().map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn long_data_stay_where_they_are() {
        let data = Payload::from((0..5000).map(|at| at as u8).collect::<Vec<u8>>());
        let mut frame = Frame::default();
        frame.put(b"head");
        frame.put_data(&data, 0, 2000);
        frame.put(b"x");
        frame.put_data(&data, 1990, 2000);
        frame.put_data(&data, 2000, 4000);
        frame.put(b"tail");
        let wanted = [b"head", &data[..2000], b"x", &data[1990..2000], &data[2000..4000], b"tail"].concat();
        assert_eq!(pieces(&frame).concat(), wanted);
        assert_eq!((pieces(&frame).len(), frame.len()), (5, wanted.len()));
        assert!(frame.pieces().any(|piece| piece.as_ptr() == data[2000..].as_ptr()));
        assert_eq!(frame.crc(), crc_fast::crc32_iscsi(&wanted));
        frame.pad(wanted.len() + 2);
        assert_eq!(pieces(&frame).concat(), [&wanted[..], &[0, 0]].concat());
        frame.begin(true);
        frame.put_data(&data, 0, 5000);
        assert_eq!(pieces(&frame), [data.to_vec()], "it will be sealed");
    }

    #[test]
    fn a_frame_has_no_more_pieces_than_it_says() {
        let data = Payload::from(vec![7; 2000]);
        let mut frame = Frame::default();
        for _ in 0..9 {
            frame.put(b"head");
            frame.put_data(&data, 0, 2000);
        }
        assert_eq!((pieces(&frame).len(), frame.len()), (Frame::PIECES_MAX, 9 * 2004));
    }
}
