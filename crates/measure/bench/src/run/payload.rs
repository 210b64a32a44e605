//! What a slot reads into and writes from, kept from one request to the next.

use std::collections::VecDeque;

use block::{Buffer, Random, Slice, mix};

use crate::plan::{Data, Workload};

/// The memory of one slot.
pub(super) struct Payload {
    read: Option<Buffer>,
    write: Option<Slice>,
    /// Earlier ones that the device has kept, the oldest first: it will let go of them, as a journal does behind a flush.
    kept: VecDeque<Slice>,
    longest: usize,
    data: Data,
    /// Where data come from that nothing can compress.
    seed: u64,
    /// The same for a device that keeps what it was given: a copy costs less.
    pattern: Option<Slice>,
    /// How many writes were filled with them.
    written: u64,
}

/// Of what a device keeps, so much is waited for. The rest is the device's alone.
const KEPT_MAX: usize = 64;

/// The smallest unit in which storage usually looks for data that it has already.
const UNIQUE_BYTES: usize = 4096;

impl Payload {
    /// That of slot number `number` of session number `session`.
    pub(super) fn new(workload: &Workload, longest: usize, session: usize, number: u32) -> Payload {
        let seed = mix(workload.seed) ^ mix((session as u64) << 32 | u64::from(number));
        Payload {
            read: None,
            write: None,
            kept: VecDeque::new(),
            longest,
            data: workload.data,
            seed,
            pattern: None,
            written: 0,
        }
    }

    /// A buffer to read into; a failed read has taken the last one with it.
    pub(super) fn reading(&mut self, bytes: usize) -> Buffer {
        let kept = self.read.take().filter(|buffer| buffer.len() == bytes);
        kept.unwrap_or_else(|| Buffer::recycled(bytes))
    }

    /// The buffer is free again.
    pub(super) fn was_read(&mut self, buffer: Buffer) {
        self.read = Some(buffer);
    }

    /// The data of the next write that is not stamped.
    pub(super) fn writing(&mut self, bytes: usize) -> Slice {
        let slice = match self.data {
            Data::Zeros => self.write.take().unwrap_or_else(|| Buffer::zeroed(self.longest).share()),
            Data::Random | Data::Stamped => self.unlike_the_last(bytes).share(),
        };
        self.write = Some(slice.clone());
        slice.part(0..bytes).unwrap_or(slice)
    }

    /// A buffer to make new data in: the last write's, unless the device has kept a share of it.
    pub(super) fn stamping(&mut self, bytes: usize) -> Buffer {
        let kept = self.write.take().and_then(Slice::into_buffer).filter(|buffer| buffer.len() == bytes);
        kept.unwrap_or_else(|| Buffer::recycled(bytes))
    }

    /// The buffer is free again once the device has let go of it.
    pub(super) fn is_written(&mut self, slice: Slice) {
        self.write = Some(slice);
    }

    /// Random data of which no 4 KiB were written before, at the price of one word in each: filling all of it anew
    /// would measure this program.
    fn unlike_the_last(&mut self, bytes: usize) -> Buffer {
        let mut buffer = self.free().unwrap_or_else(|| self.random());
        for chunk in buffer[..bytes].chunks_mut(UNIQUE_BYTES) {
            self.written += 1;
            let word = mix(self.seed ^ self.written).to_le_bytes();
            chunk[..word.len()].copy_from_slice(&word); // a logical block is longer than a word
        }
        buffer
    }

    /// A buffer of random data that the device has let go of.
    fn free(&mut self) -> Option<Buffer> {
        match self.write.take() {
            Some(last) if last.is_shared() => self.kept.push_back(last),
            last => return last.and_then(Slice::into_buffer),
        }
        let is_free = self.kept.front().is_some_and(|oldest| !oldest.is_shared());
        let oldest = (is_free || self.kept.len() > KEPT_MAX).then(|| self.kept.pop_front()).flatten();
        oldest.and_then(Slice::into_buffer)
    }

    fn random(&mut self) -> Buffer {
        if self.written == 0 {
            return random(self.longest, self.seed);
        }
        let pattern = self.pattern.get_or_insert_with(|| random(self.longest, self.seed).share());
        Buffer::from(&**pattern)
    }
}

fn random(bytes: usize, seed: u64) -> Buffer {
    let (mut buffer, mut random) = (Buffer::recycled(bytes), Random::new(seed));
    for word in buffer.chunks_mut(8) {
        word.copy_from_slice(&random.next().to_le_bytes()[..word.len()]);
    }
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Percent;

    fn payload(data: Data) -> Payload {
        let workload = Workload { data, ..Workload::simple(16_384, 1, Percent::NONE, Percent::ALL) };
        Payload::new(&workload, 16_384, 0, 0)
    }

    #[test]
    fn no_4_kib_are_written_twice() {
        let mut payload = payload(Data::Random);
        let mut seen = std::collections::HashSet::new();
        for bytes in [16_384, 8192, 16_384, 4096] {
            let data = payload.writing(bytes);
            assert_eq!(data.len(), bytes);
            assert!(data.chunks(4096).all(|chunk| seen.insert(chunk.to_vec())));
        }
    }

    #[test]
    fn data_that_the_device_keeps_are_left_alone() {
        let mut payload = payload(Data::Random);
        let kept = payload.writing(16_384);
        let before = kept.to_vec();
        drop(payload.writing(16_384));
        assert_eq!(*kept, before);
    }

    #[test]
    fn what_the_device_lets_go_of_is_used_again() {
        let mut payload = payload(Data::Random);
        let mut journal: Vec<_> = (0..3).map(|_| payload.writing(16_384)).collect();
        let first = journal[0].as_ptr();
        journal.clear();
        let next: Vec<_> = (0..3).map(|_| payload.writing(16_384)).collect();
        assert!(next.iter().any(|data| data.as_ptr() == first));
    }

    #[test]
    fn zeros_are_zeros() {
        let mut payload = payload(Data::Zeros);
        assert!(payload.writing(8192).iter().all(|&byte| byte == 0));
        assert!(payload.writing(16_384).iter().all(|&byte| byte == 0));
    }
}
