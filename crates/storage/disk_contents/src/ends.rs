//! The first and last bytes of a device, in memory: signatures are searched only there.

use block::{BlockDevice, Blocks, Buffer, DeviceError, Extent, Lba};

/// The first bytes and the last ones, with their places. On a small device the two overlap.
pub(super) struct Ends {
    head: Vec<u8>,
    tail: Vec<u8>,
    device_bytes: u64,
    /// What the device itself counts in: partition tables count in it too.
    pub(super) block_bytes: u64,
}

/// VMFS begins 1 MiB into its partition; everything else is nearer to the start.
const HEAD_BYTES: u64 = 2 << 20;
/// The last two labels of ZFS take 512 KiB, everything else less.
const TAIL_BYTES: u64 = 1 << 20;

impl Ends {
    pub(super) async fn read(device: &dyn BlockDevice) -> Result<Ends, DeviceError> {
        let geometry = device.geometry();
        let blocks = |bytes: u64| (bytes >> geometry.block_size.shift()).min(geometry.blocks.0);
        let (head, tail) = (blocks(HEAD_BYTES), blocks(TAIL_BYTES));
        Ok(Ends {
            head: read(device, Extent::new(0, head)).await?,
            tail: read(device, Extent::new(geometry.blocks.0 - tail, tail)).await?,
            device_bytes: geometry.bytes(),
            block_bytes: u64::from(geometry.block_size.bytes()),
        })
    }

    /// Of a device in memory.
    pub(super) fn new(bytes: &[u8], block_bytes: u64) -> Ends {
        let tail = bytes.len().saturating_sub(TAIL_BYTES as usize);
        Ends {
            head: bytes[..bytes.len().min(HEAD_BYTES as usize)].to_vec(),
            tail: bytes[tail..].to_vec(),
            device_bytes: bytes.len() as u64,
            block_bytes,
        }
    }

    /// Length of the whole device.
    pub(super) fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// The `length` bytes that lie `at` so many bytes from the start of the device, if they are of one of its
    /// ends.
    pub(super) fn get(&self, at: u64, length: usize) -> Option<&[u8]> {
        let tail_start = self.device_bytes - self.tail.len() as u64;
        let within = |bytes: &'_ [u8], start: u64| -> Option<std::ops::Range<usize>> {
            let from = usize::try_from(at.checked_sub(start)?).ok()?;
            let range = from..from.checked_add(length)?;
            (range.end <= bytes.len()).then_some(range)
        };
        let head = within(&self.head, 0).map(|range| &self.head[range]);
        head.or_else(|| within(&self.tail, tail_start).map(|range| &self.tail[range]))
    }

    /// Whether `magic` stands there.
    pub(super) fn has(&self, at: u64, magic: &[u8]) -> bool {
        self.get(at, magic.len()) == Some(magic)
    }

    pub(super) fn u16_le(&self, at: u64) -> Option<u16> {
        Some(u16::from_le_bytes(*self.get(at, 2)?.first_chunk()?))
    }

    pub(super) fn u32_le(&self, at: u64) -> Option<u32> {
        Some(u32::from_le_bytes(*self.get(at, 4)?.first_chunk()?))
    }

    pub(super) fn u64_le(&self, at: u64) -> Option<u64> {
        Some(u64::from_le_bytes(*self.get(at, 8)?.first_chunk()?))
    }

    /// Whether nothing is written at either end.
    pub(super) fn are_zero(&self) -> bool {
        [&self.head, &self.tail].iter().all(|end| end.iter().all(|byte| *byte == 0))
    }
}

async fn read(device: &dyn BlockDevice, all: Extent) -> Result<Vec<u8>, DeviceError> {
    let (geometry, mut bytes) = (device.geometry(), Vec::new());
    let step = (STEP_BYTES >> geometry.block_size.shift()).max(1);
    for at in (0..all.blocks.0).step_by(step as usize) {
        let piece = Extent { lba: Lba(all.lba.0 + at), blocks: Blocks(step.min(all.blocks.0 - at)) };
        let buffer = Buffer::recycled(geometry.length(piece) as usize);
        bytes.extend_from_slice(&device.read(piece, buffer).await?);
    }
    Ok(bytes)
}

/// One request: most devices take as much at once.
const STEP_BYTES: u64 = 512 << 10;
