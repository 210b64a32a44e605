//! Volume specifications: `ram:1GiB?block=4096`, `file:/data/vm1.img?size=50GiB`, `delay:5ms:[ram:1GiB]`.
//!
//! One grammar for the command line, the configuration file and tests. A [`Spec`] is what a volume is made of,
//! checked as far as that goes without touching it; `serve` opens it. Printing a `Spec` gives a text that
//! reads back as the same value.

mod error;
mod meaning;
mod size;
mod syntax;
mod time;

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

use block::BlockSize;

pub(crate) use error::SpecError;
pub(crate) use size::{Bytes, NotASize};
pub(crate) use time::Time;

/// What a volume is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    /// The store, or the layer over one.
    pub(crate) layer: Layer,
    /// No initiator may write.
    pub(crate) readonly: bool,
    /// Initiators are told that the medium can be taken out (`START STOP UNIT` ejects it). Of a whole volume
    /// only, never of what is inside brackets.
    pub(crate) removable: bool,
}

/// A store, or a layer over one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// Memory, taken as it is written.
    Ram {
        /// Its capacity.
        size: Bytes,
        /// Its blocks.
        blocks: BlockShape,
    },
    /// A regular file or a block device.
    File {
        /// Where it is.
        path: PathBuf,
        /// Its capacity; `None` for all there is.
        size: Option<Bytes>,
        /// Its blocks.
        blocks: BlockShape,
        /// Around the page cache (O_DIRECT).
        direct: bool,
    },
    /// Every request takes so much longer.
    Delay {
        /// How much.
        time: Time,
        /// The volume that is slowed.
        inner: Box<Spec>,
    },
    /// Requests hang, fail or are slow when the control socket says so (`linerate fault`).
    Fault {
        /// The volume that is to fail.
        inner: Box<Spec>,
    },
}

/// The lengths of blocks in bytes, as initiators are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockShape {
    /// What addresses count: 512 or 4,096.
    pub(crate) logical: BlockSize,
    /// What the store writes at once: a multiple of the logical block. 512 over 4,096 is "512e".
    pub(crate) physical: BlockSize,
}

impl BlockShape {
    /// 512e: every initiator takes 512-byte addresses (ESXi no others), and the page cache and RAM volumes
    /// work in 4 KiB pages, which initiators should align to.
    pub(crate) const USUAL: BlockShape = BlockShape { logical: BlockSize::B512, physical: BlockSize::B4096 };

    /// log2 of the logical blocks in a physical one.
    pub(crate) fn physical_exponent(self) -> u8 {
        self.physical.shift().saturating_sub(self.logical.shift()) as u8
    }
}

impl Spec {
    /// Whether no write can get through, be it for an option of this or of an inner volume.
    pub(crate) fn is_readonly(&self) -> bool {
        match &self.layer {
            Layer::Ram { .. } | Layer::File { .. } => self.readonly,
            Layer::Delay { inner, .. } | Layer::Fault { inner } => self.readonly || inner.is_readonly(),
        }
    }

    /// Whether a `fault:` layer is in it.
    pub(crate) fn has_fault_layer(&self) -> bool {
        match &self.layer {
            Layer::Ram { .. } | Layer::File { .. } => false,
            Layer::Delay { inner, .. } => inner.has_fault_layer(),
            Layer::Fault { .. } => true,
        }
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Spec, SpecError> {
        let spec = syntax::parse(text).and_then(|node| meaning::of(&node));
        spec.map_err(|problem| SpecError::new(text, problem))
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = Vec::new();
        match &self.layer {
            Layer::Ram { size, blocks } => {
                write!(f, "ram:{size}")?;
                options.extend(blocks.options());
            }
            Layer::File { path, size, blocks, direct } => {
                write!(f, "file:{}", syntax::encode(path.as_os_str().as_bytes()))?;
                options.extend(size.map(|size| format!("size={size}")));
                options.extend(blocks.options());
                options.extend(direct.then(|| "direct".to_owned()));
            }
            Layer::Delay { time, inner } => write!(f, "delay:{time}:[{inner}]")?,
            Layer::Fault { inner } => write!(f, "fault:[{inner}]")?,
        }
        options.extend(self.readonly.then(|| "readonly".to_owned()));
        options.extend(self.removable.then(|| "removable".to_owned()));
        let mark = if options.is_empty() { "" } else { "?" };
        write!(f, "{mark}{}", options.join("&"))
    }
}

impl BlockShape {
    /// The options that differ from what goes without saying.
    fn options(self) -> impl Iterator<Item = String> {
        let usual = BlockShape::USUAL;
        let logical = (self.logical != usual.logical).then(|| format!("block={}", self.logical.bytes()));
        let physical =
            (self.physical != usual.physical).then(|| format!("physical={}", self.physical.bytes()));
        logical.into_iter().chain(physical)
    }
}

#[cfg(test)]
mod tests;
