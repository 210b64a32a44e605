//! A request, as it can be sent more than once, by whichever path.

use std::cell::RefCell;
use std::ops::Range;

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent, PAGE_BYTES, Run, Slice};
use failover::{Content, Kind};

use crate::lun::RemoteLun;

/// A request, as another thread can hand it over.
pub(crate) struct Asked {
    pub(crate) what: What,
    /// Of the device: blocks are counted in bytes where they are claimed.
    pub(crate) block_shift: u32,
    /// The caller's, of a read that is sent for the first time.
    pub(crate) buffer: RefCell<Option<Buffer>>,
}

#[derive(Clone)]
pub(crate) enum What {
    /// Whether the LUN is there.
    Probe,
    Read(Extent),
    Write(Extent, Slice, Durability),
    WriteZeroes(Extent, bool),
    Unmap(Extent),
    Allocation(Extent, usize),
    Flush,
}

/// What a request has returned.
pub(crate) enum Returned {
    Nothing,
    Data(Buffer),
    Runs(Vec<Run>),
}

impl Asked {
    pub(crate) fn new(what: What, block_shift: u32) -> Asked {
        Asked { what, block_shift, buffer: RefCell::default() }
    }

    /// Has it carried out by one session.
    pub(crate) async fn carry_out(&self, lun: &RemoteLun) -> Result<Returned, DeviceError> {
        match self.what.clone() {
            What::Probe => lun.refresh().await.map(|()| Returned::Nothing),
            What::Read(extent) => {
                let own = self.buffer.take();
                let buffer = own.unwrap_or_else(|| Buffer::recycled(self.length(extent)));
                lun.read(extent, buffer).await.map(Returned::Data)
            }
            What::Write(extent, data, durability) => {
                lun.write(extent, data, durability).await.map(|()| Returned::Nothing)
            }
            What::WriteZeroes(extent, may_unmap) => {
                lun.write_zeroes(extent, may_unmap).await.map(|()| Returned::Nothing)
            }
            What::Unmap(extent) => lun.unmap(extent).await.map(|()| Returned::Nothing),
            What::Allocation(extent, runs_max) => lun.allocation(extent, runs_max).await.map(Returned::Runs),
            What::Flush => lun.flush().await.map(|()| Returned::Nothing),
        }
    }

    fn length(&self, extent: Extent) -> usize {
        (extent.blocks.0 << self.block_shift) as usize
    }

    fn bytes_of(&self, extent: Extent) -> Range<u64> {
        let start = extent.lba.0 << self.block_shift;
        start..start + (extent.blocks.0 << self.block_shift)
    }
}

/// Without the caller's buffer, which is only one.
impl Clone for Asked {
    fn clone(&self) -> Asked {
        Asked::new(self.what.clone(), self.block_shift)
    }
}

impl failover::Request for Asked {
    fn kind(&self) -> Kind {
        let change = |extent, is_durable| Kind::Change { range: self.bytes_of(extent), is_durable };
        match self.what {
            What::Probe | What::Read(_) | What::Allocation(..) => Kind::Read,
            What::Write(extent, _, durability) => change(extent, durability == Durability::Stable),
            What::WriteZeroes(extent, _) | What::Unmap(extent) => change(extent, false),
            What::Flush => Kind::Flush,
        }
    }

    fn bytes(&self) -> u64 {
        match self.what {
            What::Read(extent) | What::Write(extent, ..) => extent.blocks.0 << self.block_shift,
            _ => 0,
        }
    }

    fn content(&self) -> Option<Content<&[u8]>> {
        match &self.what {
            What::Write(_, data, _) => Some(Content::Write(data)),
            What::WriteZeroes(_, may_unmap) => Some(Content::Zeroes { may_unmap: *may_unmap }),
            What::Unmap(_) => Some(Content::Unmap),
            What::Probe | What::Read(_) | What::Allocation(..) | What::Flush => None,
        }
    }
}

impl failover::Part for Asked {
    fn part(&self, range: Range<u64>) -> Asked {
        let shift = self.block_shift;
        let part = Extent::new(range.start >> shift, (range.end - range.start) >> shift);
        let what = match &self.what {
            What::Write(extent, data, durability) => {
                let from = (range.start - (extent.lba.0 << shift)) as usize;
                let data = Buffer::from(&data[from..from + (range.end - range.start) as usize]).share();
                What::Write(part, data, *durability)
            }
            What::WriteZeroes(_, may_unmap) => What::WriteZeroes(part, *may_unmap),
            What::Unmap(_) => What::Unmap(part),
            other => other.clone(),
        };
        Asked::new(what, shift)
    }

    fn memory_bytes(&self) -> usize {
        let data = match &self.what {
            What::Write(_, data, _) => data.len().next_multiple_of(PAGE_BYTES),
            _ => 0,
        };
        size_of::<Asked>() + data
    }
}
