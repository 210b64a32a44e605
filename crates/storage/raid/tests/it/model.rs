//! A model of the possible contents of every block of a set, now and after a crash.

use std::collections::BTreeSet;

use crate::disk::BLOCK;
use crate::world::draw;

/// A value written to a block: zeros, or data unique to one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Value {
    /// The number of the write, in the order in which writes started.
    number: u64,
    is_zero: bool,
}

impl Value {
    fn content(self, lba: u64) -> [u8; BLOCK] {
        let mut content = [0; BLOCK];
        if !self.is_zero {
            let word = (self.number << 24 | lba).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for (at, bytes) in content.chunks_exact_mut(8).enumerate() {
                bytes.copy_from_slice(&word.wrapping_add(at as u64).to_le_bytes());
            }
        }
        content
    }
}

struct Block {
    /// Values that a read may return now.
    now: Vec<Value>,
    /// Values that are possible after a crash, in the order of the writes.
    crash: Vec<Value>,
}

pub(crate) struct Model {
    blocks: Vec<Block>,
    next: u64,
    /// Whether acknowledged writes are durable.
    pub(crate) is_durable: bool,
    /// The first error found.
    pub(crate) fault: Option<String>,
    /// Blocks for which a medium error is allowed, because they were in columns with bad sectors.
    pub(crate) may_be_lost: BTreeSet<u64>,
}

impl Model {
    /// Creates a model in which all blocks are zeros.
    pub(crate) fn new(blocks: u64, is_durable: bool) -> Model {
        let zero = Value {
            number: 0,
            is_zero: true,
        };
        let block = |_| Block {
            now: vec![zero],
            crash: vec![zero],
        };
        Model {
            blocks: (0..blocks).map(block).collect(),
            next: 1,
            is_durable,
            fault: None,
            may_be_lost: BTreeSet::new(),
        }
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub(crate) fn complain(&mut self, what: String) {
        self.fault.get_or_insert(what);
    }

    /// Starts a write, and returns its value and its data.
    pub(crate) fn write_begins(
        &mut self,
        lba: u64,
        blocks: u64,
        is_zero: bool,
    ) -> (Value, Vec<u8>) {
        let value = Value {
            number: self.next,
            is_zero,
        };
        self.next += 1;
        let mut data = Vec::new();
        for lba in lba..lba + blocks {
            self.blocks[lba as usize].crash.push(value);
            data.extend(value.content(lba));
        }
        (value, data)
    }

    pub(crate) fn write_ended(&mut self, lba: u64, blocks: u64, value: Value, is_stable: bool) {
        for block in &mut self.blocks[lba as usize..(lba + blocks) as usize] {
            block.now = vec![value];
            if is_stable || self.is_durable {
                block.crash = vec![value];
            }
        }
    }

    /// Records that a write was dropped, so each block may or may not have been written.
    pub(crate) fn write_dropped(&mut self, lba: u64, blocks: u64, value: Value) {
        for block in &mut self.blocks[lba as usize..(lba + blocks) as usize] {
            block.now.push(value);
        }
    }

    /// Whether a crash cannot change a block.
    pub(crate) fn is_stable(&self, lba: u64) -> bool {
        let block = &self.blocks[lba as usize];
        block.crash.len() == 1 && block.now == block.crash
    }

    /// Returns the values that a flush starting now covers.
    pub(crate) fn flush_begins(&self) -> Vec<Option<Value>> {
        let acknowledged = |block: &Block| {
            if let [only] = block.now[..] {
                Some(only)
            } else {
                None
            }
        };
        self.blocks.iter().map(acknowledged).collect()
    }

    pub(crate) fn flush_ended(&mut self, covered: &[Option<Value>]) {
        for (block, covered) in self.blocks.iter_mut().zip(covered) {
            if let Some(value) = covered {
                block.crash.retain(|later| later >= value);
            }
        }
    }

    /// Checks the result of a read.
    pub(crate) fn check(&mut self, lba: u64, data: &[u8], when: &str) {
        for (lba, content) in (lba..).zip(data.chunks_exact(BLOCK)) {
            let block = &self.blocks[lba as usize];
            if !block
                .now
                .iter()
                .any(|value| value.content(lba)[..] == *content)
            {
                let known = (0..self.next).find(|number| {
                    Value {
                        number: *number,
                        is_zero: *number == 0,
                    }
                    .content(lba)[..]
                        == *content
                });
                let found = match known {
                    Some(0) => "zeros".to_owned(),
                    Some(number) => format!("write {number}"),
                    None => "garbage".to_owned(),
                };
                let allowed = format!("{:?}", block.now);
                return self.complain(format!(
                    "{when}: block {lba} has {found} in it, not of {allowed}"
                ));
            }
        }
    }

    pub(crate) fn crashed(&mut self) {
        for block in &mut self.blocks {
            block.now = block.crash.clone();
        }
    }

    /// Makes the data that was read the only possible content, now and after a crash. Unreadable blocks
    /// remain uncertain.
    pub(crate) fn settle(&mut self, data: &[Option<Vec<u8>>]) {
        for ((lba, block), content) in (0..).zip(&mut self.blocks).zip(data) {
            let Some(content) = content else { continue };
            block
                .now
                .retain(|value| value.content(lba)[..] == content[..]);
            block.now.drain(..block.now.len().saturating_sub(1));
            block.crash = block.now.clone();
        }
    }

    /// Draws an extent that does not overlap any in `taken`. It is mostly short, and sometimes longer than a
    /// stripe.
    pub(crate) fn free_extent(
        &self,
        taken: &mut Vec<(u64, u64)>,
        stripe_blocks: u64,
    ) -> Option<(u64, u64)> {
        for _ in 0..8 {
            let longest = match draw(4) {
                0 => 1,
                1 => 8,
                2 => stripe_blocks,
                _ => stripe_blocks * 5 / 2,
            };
            let start = draw(self.blocks());
            let blocks = (1 + draw(longest)).min(self.blocks() - start);
            // Some extents start at a stripe boundary.
            let start = if draw(4) == 0 {
                start / stripe_blocks * stripe_blocks
            } else {
                start
            };
            if taken
                .iter()
                .all(|(other, length)| start + blocks <= *other || other + length <= start)
            {
                taken.push((start, blocks));
                return Some((start, blocks));
            }
        }
        None
    }
}
