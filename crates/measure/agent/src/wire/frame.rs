//! Frames: a big-endian length of four bytes, and that many bytes.

use derive_more::Display;

/// What has come of a stream of frames.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    limit: usize,
}

/// A frame says that it is longer than any that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("a message of {bytes} bytes is longer than any that is expected")]
pub struct TooLong {
    /// As it says.
    pub bytes: usize,
}

const LENGTH: usize = 4;

impl Frames {
    /// Nothing yet, and nothing longer than `limit` bytes.
    pub fn new(limit: usize) -> Frames {
        Frames { bytes: Vec::new(), limit }
    }

    /// From the next frame on.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Adds received bytes. A caller that takes out complete frames before adding more never holds more than
    /// one frame and what came with its end: the length that a frame claims is not believed, but waited for.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame, once all of it is there.
    ///
    /// # Errors
    /// It says that it is longer than any that is expected.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let Some(length) = self.bytes.first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > self.limit {
            return Err(TooLong { bytes: length });
        }
        if self.bytes.len() < LENGTH + length {
            return Ok(None);
        }
        let rest = self.bytes.split_off(LENGTH + length);
        let mut frame = std::mem::replace(&mut self.bytes, rest);
        frame.drain(..LENGTH);
        Ok(Some(frame))
    }
}

/// The message as one frame.
///
/// # Errors
/// It is too long for one.
pub fn framed(message: &[u8]) -> Result<Vec<u8>, TooLong> {
    let length = u32::try_from(message.len()).map_err(|_| TooLong { bytes: message.len() })?;
    Ok([&length.to_be_bytes(), message].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_claims_too_much_is_refused_before_it_comes() {
        let mut frames = Frames::new(8);
        frames.push(&[0, 0, 0, 9]);
        assert_eq!(frames.take(), Err(TooLong { bytes: 9 }));
        let mut frames = Frames::new(usize::MAX);
        frames.push(&[0xff; 4]);
        assert_eq!(frames.take(), Ok(None), "it is waited for, and no memory taken");
        assert!(frames.bytes.capacity() < 1024);
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_the_bytes_arrive() {
        let sent: Vec<u8> =
            [&b"one"[..], b"", b"three"].iter().flat_map(|frame| framed(frame).expect("a frame")).collect();
        for piece in 1..sent.len() {
            let (mut frames, mut came) = (Frames::new(8), Vec::new());
            for bytes in sent.chunks(piece) {
                frames.push(bytes);
                while let Some(frame) = frames.take().expect("short frames") {
                    came.push(frame);
                }
            }
            assert_eq!(came, [&b"one"[..], b"", b"three"]);
            assert!(frames.bytes.is_empty());
        }
    }
}
