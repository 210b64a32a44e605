//! Takes new space of the disks into use while the set is in use.
//!
//! ```text
//!   without checksums   | … | data      |   new    |   zero the new space, then record the longer data area
//!
//!   with checksums      | … | sums | data | new          |
//!   1  copied           | … | sums | data |       | sums' |   changes are written to both areas
//!   2  recorded         | … |      | data |       | sums' |   from here on, sums' is valid
//!   3  zeroed           | … |      | data   0 0 0 | sums' |   the checksums of zeroed blocks are 0
//!   4  recorded         | … |      | data         | sums' |
//! ```
//!
//! After a crash at any point, the recorded areas match the content of the disks. If the crash occurs after
//! step 2, running the growth again extends the space for data. When such a set grows again, its checksums
//! move to the new end, and data extends over their old location.

use std::collections::VecDeque;
use std::sync::Arc;

use block::{BlockDevice, DeviceError, Extent};

use super::{Records, part};
use crate::device::RaidDevice;
use crate::layout::Layout;
use crate::repair::Progress;
use crate::sums::Summed;
use crate::superblock::{Area, Areas, SLOT_BYTES, SetRecord};

/// Number of bytes of new space that one step zeroes.
const ZEROED_BYTES: u64 = 8 << 20;

/// Returns the areas of a set whose smallest disk has `disk_bytes` bytes; `None` if its data area cannot
/// grow.
pub(super) fn areas(set: &SetRecord, disk_bytes: u64) -> Option<Areas> {
    let Areas {
        data,
        journal,
        bitmap,
        checksums,
    } = set.areas;
    // A journal or bitmap after the data stays in place, so the data cannot grow.
    let is_in_front =
        |area: &Area| area.bytes == 0 || area.end().is_some_and(|end| end <= data.offset);
    if !is_in_front(&journal) || !is_in_front(&bitmap) {
        return None;
    }
    let room = disk_bytes.checked_sub(data.offset)? & !(SLOT_BYTES - 1);
    if checksums.bytes == 0 {
        return Some(Areas {
            data: Area {
                bytes: room,
                ..data
            },
            ..set.areas
        });
    }
    let block_bytes = u64::from(set.block_size.bytes());
    let sums_bytes = |data_bytes: u64| Summed::area_bytes(data_bytes >> set.block_size.shift());
    // Each block needs 4 bytes for its checksum, and areas are whole slots.
    let most = room / (block_bytes + 4) * block_bytes;
    let fits = |bytes: &u64| bytes + sums_bytes(*bytes) <= room;
    let mut lengths =
        (0..4).map(|less| (most.next_multiple_of(SLOT_BYTES)).saturating_sub(less * SLOT_BYTES));
    let bytes = lengths.find(fits)?;
    let (grown, moved) = (
        Area { bytes, ..data },
        Area {
            offset: data.offset + bytes,
            bytes: sums_bytes(bytes),
        },
    );
    // The two checksum areas must not overlap, because both are needed until the new one is recorded.
    let is_free = moved == checksums || moved.offset >= data.end()?.max(checksums.end()?);
    is_free.then_some(Areas {
        data: grown,
        checksums: moved,
        ..set.areas
    })
}

/// The growth of a set, one step at a time.
pub struct Growth {
    areas: Areas,
    layout: Layout,
    /// The data area of each member, at its final length.
    devices: Vec<Arc<dyn BlockDevice>>,
    steps: VecDeque<Step>,
    total: u64,
}

enum Step {
    Zero(Arc<dyn BlockDevice>, Extent),
    /// Copies the checksums of a member, starting at this chunk.
    Copy {
        member: usize,
        chunk: u64,
    },
    /// Switches to the copies of the checksums. The data area keeps its length.
    UseCopies,
}

impl Growth {
    /// Starts to grow the set to `grown` ([`Records::grown`]). This does not record anything yet.
    ///
    /// # Errors
    /// A disk is missing or too short.
    pub fn begin(
        records: &Records,
        set: &RaidDevice,
        grown: &SetRecord,
    ) -> Result<Growth, DeviceError> {
        let (now, areas) = (records.set(), grown.areas);
        let layout = grown.layout().map_err(|_| DeviceError::OutOfRange)?;
        let disks = now
            .members
            .iter()
            .map(|member| records.disk(member.uuid).ok_or(DeviceError::NotReady));
        let disks = disks.collect::<Result<Vec<_>, _>>()?;
        let devices = disks
            .iter()
            .map(|disk| part(disk, areas.data))
            .collect::<Result<Vec<_>, _>>()?;
        let at_once = (ZEROED_BYTES >> layout.block_size().shift()).max(1);
        let mut steps = VecDeque::new();
        if areas.checksums != now.areas.checksums {
            for (member, disk) in disks.iter().enumerate() {
                let (summed, copy) = (set.summed(member)?, part(disk, areas.checksums)?);
                let behind = summed.area_behind(copy.geometry().blocks.0);
                steps.extend(
                    behind
                        .chunks(at_once)
                        .map(|part| Step::Zero(Arc::clone(&copy), part)),
                );
                steps.push_back(Step::Copy { member, chunk: 0 });
            }
            // From here on, before the first checksum is copied, changed checksums are written to both areas.
            for (member, disk) in disks.iter().enumerate() {
                let begun = part(disk, areas.checksums).and_then(|copy| {
                    set.summed(member)
                        .and_then(|summed| summed.begin_copy(copy))
                });
                if let Err(error) = begun {
                    drop_copies(set);
                    return Err(error);
                }
            }
            steps.push_back(Step::UseCopies);
        }
        for (member, device) in devices.iter().enumerate() {
            let from = set.layout().free_from(member);
            let new = Extent::new(from, layout.member_blocks().0.saturating_sub(from));
            steps.extend(
                new.chunks(at_once)
                    .map(|part| Step::Zero(Arc::clone(device), part)),
            );
        }
        let total = steps.len() as u64;
        Ok(Growth {
            areas,
            layout,
            devices,
            steps,
            total,
        })
    }

    /// Returns the layout that the set will have.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Executes the next step. Returns `None` when the set has grown.
    ///
    /// # Errors
    /// The set is unchanged and does not grow. The caller must call [`Growth::cancel`].
    pub async fn step(
        &mut self,
        records: &Records,
        set: &RaidDevice,
    ) -> Result<Option<Progress>, DeviceError> {
        let Some(step) = self.steps.pop_front() else {
            self.flush().await?;
            records.grow(self.areas).await?;
            set.grow_to(self.layout, self.devices.clone()).await?;
            return Ok(None);
        };
        let mut moved_bytes = 0;
        match step {
            Step::Zero(device, extent) => {
                device.write_zeroes(extent, true).await?;
                moved_bytes = device.geometry().length(extent);
            }
            Step::Copy { member, chunk } => {
                let summed = set.summed(member)?;
                let next = summed.copy_chunks(chunk).await?;
                if next < summed.chunks() {
                    self.steps.push_front(Step::Copy {
                        member,
                        chunk: next,
                    });
                }
                moved_bytes = 2 * summed.chunk_bytes() * (next - chunk);
            }
            Step::UseCopies => self.use_copies(records, set).await?,
        }
        let done = self.total.saturating_sub(self.steps.len() as u64);
        Ok(Some(Progress {
            done,
            total: self.total,
            moved_bytes,
        }))
    }

    async fn use_copies(&self, records: &Records, set: &RaidDevice) -> Result<(), DeviceError> {
        self.flush().await?;
        let now = records.set().areas;
        records
            .grow(Areas {
                data: now.data,
                ..self.areas
            })
            .await?;
        for member in 0..self.devices.len() {
            // Skip a member that has failed in the meantime.
            if let Ok(summed) = set.summed(member) {
                summed.use_copy().await;
            }
        }
        Ok(())
    }

    /// Flushes the copied checksums and the zeroed space to stable storage. This flushes the disks, because a
    /// flush of a set with a journal does not.
    async fn flush(&self) -> Result<(), DeviceError> {
        for device in &self.devices {
            device.flush().await?;
        }
        Ok(())
    }

    /// Cancels the growth, so that the set keeps its recorded size. If recording the new areas has failed,
    /// some disks may have the new record. So checksums are also written to the copies until a newer record
    /// has been written.
    pub async fn cancel(self, records: &Records, set: &RaidDevice) {
        if records.repeat().await.is_ok() {
            drop_copies(set);
        }
    }
}

fn drop_copies(set: &RaidDevice) {
    for summed in (0..set.layout().members()).filter_map(|member| set.summed(member).ok()) {
        summed.drop_copy();
    }
}
