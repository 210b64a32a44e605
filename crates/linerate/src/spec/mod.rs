//! Volume specifications: `ram:1GiB?block=4096`, `file:/data/vm1.img?size=50GiB`, `limit:1000iops:[ram:1GiB]`.
//!
//! One grammar for the command line, the configuration file and tests. A [`Spec`] is what a volume is made of,
//! checked as far as that goes without touching it; `serve` opens it. Printing a `Spec` gives a text that
//! reads back as the same value.

mod error;
mod layers;
mod meaning;
mod rate;
mod share;
mod size;
mod syntax;
mod time;

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

use block::{BlockSize, Blocks, Geometry, ServiceTime};

use share::PerMillion;

pub(crate) use error::SpecError;
pub(crate) use rate::AtMost;
pub(crate) use size::{Bytes, NotASize};
pub(crate) use time::{NotATime, Time};

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
    /// Initiators are told that no space can be given back, whatever the store could do. Of a whole volume only.
    pub(crate) thick: bool,
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
        /// In pages of 4 KiB alone: slower, and takes no more memory than is written.
        small_pages: bool,
    },
    /// Nothing: keeps no data and takes no time.
    Null {
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
        /// How much, and how much more some take.
        times: ServiceTime,
        /// The volume that is slowed.
        inner: Box<Spec>,
    },
    /// So much a second and no more.
    Limit {
        /// How much.
        rate: AtMost,
        /// The volume that is slowed.
        inner: Box<Spec>,
    },
    /// Read ahead of, and written behind.
    Buffered {
        /// How far.
        window: Bytes,
        /// The volume that has no page cache of its own.
        inner: Box<Spec>,
    },
    /// Requests hang, fail, are slow or lose what was written when the control socket says so (`linerate fault`).
    Fault {
        /// The volume that is to fail.
        inner: Box<Spec>,
    },
    /// 512-byte blocks over longer ones.
    Emulated512 {
        /// The volume of longer blocks.
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

    /// A device of so many whole blocks.
    pub(crate) fn geometry(self, size: Bytes) -> Geometry {
        let blocks = Blocks(size.0 >> self.logical.shift());
        Geometry { block_size: self.logical, blocks, physical_exponent: self.physical_exponent() }
    }

    /// log2 of the logical blocks in a physical one.
    pub(crate) fn physical_exponent(self) -> u8 {
        self.physical.shift().saturating_sub(self.logical.shift()) as u8
    }
}

impl Spec {
    /// The volume that this layer lies over; `None` for a store.
    pub(crate) fn inner(&self) -> Option<&Spec> {
        match &self.layer {
            Layer::Ram { .. } | Layer::Null { .. } | Layer::File { .. } => None,
            Layer::Delay { inner, .. }
            | Layer::Limit { inner, .. }
            | Layer::Buffered { inner, .. }
            | Layer::Fault { inner }
            | Layer::Emulated512 { inner } => Some(inner),
        }
    }

    /// What keeps its data, below all layers.
    pub(crate) fn store(&self) -> &Layer {
        self.inner().map_or(&self.layer, Spec::store)
    }

    /// What its addresses count.
    pub(crate) fn logical_block(&self) -> BlockSize {
        match &self.layer {
            Layer::Ram { blocks, .. } | Layer::Null { blocks, .. } | Layer::File { blocks, .. } => {
                blocks.logical
            }
            Layer::Delay { inner, .. }
            | Layer::Limit { inner, .. }
            | Layer::Buffered { inner, .. }
            | Layer::Fault { inner } => inner.logical_block(),
            Layer::Emulated512 { .. } => BlockSize::B512,
        }
    }

    /// Whether no write can get through, be it for an option of this or of an inner volume.
    pub(crate) fn is_readonly(&self) -> bool {
        self.readonly || self.inner().is_some_and(Spec::is_readonly)
    }

    /// Whether a `fault:` layer is in it.
    pub(crate) fn has_fault_layer(&self) -> bool {
        matches!(self.layer, Layer::Fault { .. }) || self.inner().is_some_and(Spec::has_fault_layer)
    }

    /// Whether what it has acknowledged and not flushed outlives this process: it is with the kernel, or with a disk.
    pub(crate) fn cache_outlives_process(&self) -> bool {
        match (&self.layer, self.inner()) {
            (Layer::Buffered { .. }, _) => false,
            (_, Some(inner)) => inner.cache_outlives_process(),
            (layer, None) => matches!(layer, Layer::File { .. }),
        }
    }

    /// Whether a text is meant as a volume specification, rather than as a path or a URL.
    pub(crate) fn is_meant(text: &str) -> bool {
        let kind = text.split_once(':').map(|(kind, _)| kind);
        kind.is_some_and(|kind| syntax::kinds().any(|known| known == kind))
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
            Layer::Ram { size, blocks, small_pages } => {
                write!(f, "ram:{size}")?;
                options.extend(blocks.options());
                options.extend(small_pages.then(|| "small-pages".to_owned()));
            }
            Layer::Null { size, blocks } => {
                write!(f, "null:{size}")?;
                options.extend(blocks.options());
            }
            Layer::File { path, size, blocks, direct } => {
                write!(f, "file:{}", syntax::encode(path.as_os_str().as_bytes()))?;
                options.extend(size.map(|size| format!("size={size}")));
                options.extend(blocks.options());
                options.extend(direct.then(|| "direct".to_owned()));
            }
            Layer::Delay { times, inner } => {
                write!(f, "delay:{}:[{inner}]", Time(times.usual))?;
                options.extend(delay_options(times));
            }
            Layer::Limit { rate, inner } => write!(f, "limit:{rate}:[{inner}]")?,
            Layer::Buffered { window, inner } => write!(f, "buffered:{window}:[{inner}]")?,
            Layer::Fault { inner } => write!(f, "fault:[{inner}]")?,
            Layer::Emulated512 { inner } => write!(f, "512e:[{inner}]")?,
        }
        options.extend(self.readonly.then(|| "readonly".to_owned()));
        options.extend(self.removable.then(|| "removable".to_owned()));
        options.extend(self.thick.then(|| "thick".to_owned()));
        let mark = if options.is_empty() { "" } else { "?" };
        write!(f, "{mark}{}", options.join("&"))
    }
}

fn delay_options(times: &ServiceTime) -> impl Iterator<Item = String> {
    let tail = times
        .tail
        .map(|tail| format!("tail={}&tail-share={}", Time(tail.time), PerMillion(tail.per_million)));
    let stalls = times
        .stalls
        .map(|stalls| format!("stall={}&stall-every={}", Time(stalls.length()), Time(stalls.every())));
    let flush = times.flush.map(|time| format!("flush={}", Time(time)));
    let seed = (times.seed != 0).then(|| format!("seed={}", times.seed));
    tail.into_iter().chain(flush).chain(stalls).chain(seed)
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
