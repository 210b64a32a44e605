//! Reading a journal at assembly.

use std::sync::Arc;

use block::{BlockDevice, Buffer, DeviceError, Extent};

use super::record::{Change, HEADERS, Header};

/// The records of one copy of a journal, in order.
pub(crate) struct Log {
    device: Arc<dyn BlockDevice>,
    ring: u64,
    header: Header,
    /// Where the next record is looked for.
    at: u64,
    sequence: u64,
    /// Blocks of the records so far: not more than there are in the ring.
    seen: u64,
}

impl Log {
    /// The log of the copy that has most: of those with the newest key the one with the last record. `None` if no
    /// copy has a header.
    pub(crate) async fn newest(devices: &[Arc<dyn BlockDevice>]) -> Result<Option<Log>, DeviceError> {
        let mut logs = Vec::new();
        let mut failure = None;
        for device in devices {
            match Log::open(Arc::clone(device)).await {
                Ok(log) => logs.extend(log),
                Err(error) => failure = Some(error),
            }
        }
        let Some(newest) = logs.iter().map(|log| log.header).max_by_key(|header| header.generation) else {
            return failure.map_or(Ok(None), Err);
        };
        let mut best: Option<(u64, Log)> = None;
        for mut log in logs.into_iter().filter(|log| log.header.key == newest.key) {
            let end = loop {
                match log.next().await {
                    Ok(Some(_)) => {}
                    end => break end,
                }
            };
            match end {
                // Another copy has the records that this one cannot show.
                Err(error) => failure = Some(error),
                Ok(_) if best.as_ref().is_none_or(|(most, _)| log.sequence > *most) => {
                    let last = log.sequence;
                    log.rewind();
                    best = Some((last, log));
                }
                Ok(_) => {}
            }
        }
        match (best, failure) {
            (Some((_, log)), _) => Ok(Some(log)),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    /// The version of a journal that a newer program has written to one of the copies that can be read.
    pub(crate) async fn newer_version(devices: &[Arc<dyn BlockDevice>]) -> Option<u32> {
        let mut newest = None;
        for device in devices.iter().filter(|device| device.geometry().blocks.0 >= HEADERS) {
            for block in 0..HEADERS {
                let header = read(&**device, block, 1).await.ok();
                newest = newest.max(header.and_then(|header| Header::newer_version(&header)));
            }
        }
        newest
    }

    async fn open(device: Arc<dyn BlockDevice>) -> Result<Option<Log>, DeviceError> {
        let blocks = device.geometry().blocks.0;
        let Some(ring) = blocks.checked_sub(HEADERS) else { return Ok(None) };
        let mut newest: Option<Header> = None;
        for block in 0..HEADERS {
            let header = Header::decode(&read(&*device, block, 1).await?);
            newest = newest.into_iter().chain(header).max_by_key(|header| header.generation);
        }
        let Some(header) = newest.filter(|header| header.start <= ring) else { return Ok(None) };
        let mut log = Log { device, ring, header, at: 0, sequence: 0, seen: 0 };
        log.rewind();
        Ok(Some(log))
    }

    fn rewind(&mut self) {
        (self.at, self.sequence, self.seen) = (self.header.start, self.header.sequence, 0);
    }

    /// The generation of the newest header.
    pub(crate) fn generation(&self) -> u64 {
        self.header.generation
    }

    /// The key of the records.
    pub(crate) fn key(&self) -> u64 {
        self.header.key
    }

    /// The next record; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Change>, DeviceError> {
        let mut places = vec![self.at];
        if self.at != 0 {
            places.push(0);
        }
        for place in places {
            let Some((change, blocks)) = self.record_at(place).await? else { continue };
            (self.at, self.seen) = (place + blocks, self.seen + blocks);
            self.sequence += 1;
            return Ok(Some(change));
        }
        Ok(None)
    }

    async fn record_at(&self, place: u64) -> Result<Option<(Change, u64)>, DeviceError> {
        if place >= self.ring {
            return Ok(None);
        }
        let first = read(&*self.device, HEADERS + place, 1).await?;
        let Some(blocks) = Change::length(&first, self.header.key, self.sequence) else { return Ok(None) };
        let room = (self.ring - place).min(self.ring - self.seen);
        if blocks == 0 || blocks > room {
            return Ok(None);
        }
        let record = read(&*self.device, HEADERS + place, blocks).await?.share();
        let block_bytes = self.device.geometry().block_size.bytes() as usize;
        Ok(Change::decode(&record, block_bytes).map(|change| (change, blocks)))
    }
}

async fn read(device: &dyn BlockDevice, lba: u64, blocks: u64) -> Result<Buffer, DeviceError> {
    let length = (blocks << device.geometry().block_size.shift()) as usize;
    device.read(Extent::new(lba, blocks), Buffer::recycled(length)).await
}
