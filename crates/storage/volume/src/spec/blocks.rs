//! Block lengths: the options `block` and `physical` of a volume.

use block::{BlockSize, Blocks, Geometry};

use super::error::Problem;
use super::size::Bytes;
use super::syntax::Token;
use super::written::{Written, parsed};

/// The lengths of blocks in bytes, as initiators are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    /// What addresses count: 512 or 4,096.
    pub logical: BlockSize,
    /// What the store writes at once: a multiple of the logical block. 512 over 4,096 is "512e".
    pub physical: BlockSize,
}

impl BlockShape {
    /// 512e: every initiator takes 512-byte addresses (ESXi no others), and the page cache and RAM volumes
    /// work in 4 KiB pages, which initiators should align to.
    pub const USUAL: BlockShape = BlockShape { logical: BlockSize::B512, physical: BlockSize::B4096 };

    /// Reads the options `block` and `physical`.
    ///
    /// # Errors
    /// A length that no block has.
    pub fn read(written: &Written<'_>) -> Result<BlockShape, Problem> {
        let logical = match written.value("block")? {
            None => BlockShape::USUAL.logical,
            Some(word) => logical_block(word)?,
        };
        let physical = match written.value("physical")? {
            None => BlockShape::USUAL.physical.max(logical),
            Some(word) => physical_block(word, logical)?,
        };
        Ok(BlockShape { logical, physical })
    }

    /// The options that differ from the defaults.
    pub fn options(self) -> Vec<String> {
        let usual = BlockShape::USUAL;
        let logical = (self.logical != usual.logical).then(|| format!("block={}", self.logical.bytes()));
        let physical =
            (self.physical != usual.physical).then(|| format!("physical={}", self.physical.bytes()));
        logical.into_iter().chain(physical).collect()
    }

    /// A capacity of whole blocks.
    ///
    /// # Errors
    /// No size, none of whole blocks, or one that no volume has.
    pub fn capacity(self, word: &Token) -> Result<Bytes, Problem> {
        let size: Bytes = parsed(word)?;
        let wrong = |sentence: String| Err(Problem::new(word.at.clone(), sentence));
        if size.0 == 0 {
            return wrong("a volume needs at least one block; write a size such as 1GiB".to_owned());
        }
        if size.0 > i64::MAX as u64 {
            return wrong("a volume has less than 8 EiB, as file offsets end there".to_owned());
        }
        let block = u64::from(self.logical.bytes());
        if size.0.is_multiple_of(block) {
            return Ok(size);
        }
        let below = Bytes(size.0 - size.0 % block);
        wrong(format!("{size} is not a whole number of {block}-byte blocks; {below} is"))
    }

    /// A device of so many whole blocks.
    pub fn geometry(self, size: Bytes) -> Geometry {
        let blocks = Blocks(size.0 >> self.logical.shift());
        Geometry { block_size: self.logical, blocks, physical_exponent: self.physical_exponent() }
    }

    /// log2 of the logical blocks in a physical one.
    pub fn physical_exponent(self) -> u8 {
        self.physical.shift().saturating_sub(self.logical.shift()) as u8
    }
}

fn logical_block(word: &Token) -> Result<BlockSize, Problem> {
    let size = parsed(word).ok().and_then(|bytes: Bytes| block_size(bytes));
    size.filter(|size| [BlockSize::B512, BlockSize::B4096].contains(size))
        .ok_or_else(|| Problem::new(word.at.clone(), "a logical block has 512 or 4096 bytes"))
}

fn physical_block(word: &Token, logical: BlockSize) -> Result<BlockSize, Problem> {
    let size = parsed(word).ok().and_then(|bytes: Bytes| block_size(bytes));
    size.filter(|size| *size >= logical).ok_or_else(|| {
        let least = logical.bytes();
        let sentence =
            format!("a physical block has a power of two of bytes, {least} (a logical block) to 65536");
        Problem::new(word.at.clone(), sentence)
    })
}

fn block_size(bytes: Bytes) -> Option<BlockSize> {
    u32::try_from(bytes.0).ok().and_then(BlockSize::new)
}
