//! The blocks of a journal or a bitmap, with copies on several members, or on a separate device.

use std::sync::Arc;

use block::{BlockDevice, Blocks, DeviceError, Durability, Extent, Geometry, Lock, Slice};

use crate::concurrency::try_all;
use crate::member::MemberState;
use crate::members::{Member, Members, certain_losses};

/// A copy of the area of a journal or a bitmap.
#[derive(Clone)]
pub struct AreaCopy {
    /// A device that consists of the blocks of the area.
    pub device: Arc<dyn BlockDevice>,
    /// The member that contains the area, and fails if the area does. `None` for a separate device.
    pub member: Option<usize>,
}

/// The copies that are in use. A write is durable once all of them have it. If a copy misses a write, its
/// member has failed, so the copy is not used again.
pub(crate) struct Area {
    geometry: Geometry,
    members: Arc<Members>,
    copies: Lock<Copies>,
}

struct Copies {
    in_use: Vec<Copy>,
    /// The members' copies, if the area is on a separate device. They stay empty until that device fails.
    reserve: Vec<Copy>,
}

#[derive(Clone)]
struct Copy {
    device: Arc<dyn BlockDevice>,
    member: Option<Member>,
}

impl Copy {
    /// Returns `None` if the member of the copy has failed.
    fn new(copy: &AreaCopy, members: &Members) -> Option<Copy> {
        let member = match copy.member {
            Some(index) => Some(members.present(index)?),
            None => None,
        };
        Some(Copy {
            device: Arc::clone(&copy.device),
            member,
        })
    }
}

impl Area {
    /// Creates an area from the copies of members that have not failed. It is as long as the shortest copy.
    /// If one copy is on a separate device, the members' copies are in reserve. Returns `None` if there is no
    /// copy, or if the block sizes differ.
    pub(crate) fn new(copies: &[AreaCopy], members: Arc<Members>) -> Option<Area> {
        let in_use = |copy| Copy::new(copy, &members);
        let copies: Vec<Copy> = copies.iter().filter_map(in_use).collect();
        let mut geometry = copies.first()?.device.geometry();
        for copy in &copies {
            let other = copy.device.geometry();
            if other.block_size != geometry.block_size {
                return None;
            }
            geometry.blocks = Blocks(geometry.blocks.0.min(other.blocks.0));
        }
        let (on_device, on_members): (Vec<Copy>, Vec<Copy>) =
            copies.into_iter().partition(|copy| copy.member.is_none());
        let copies = match on_device.is_empty() {
            true => Copies {
                in_use: on_members,
                reserve: Vec::new(),
            },
            false => Copies {
                in_use: on_device,
                reserve: on_members,
            },
        };
        Some(Area {
            geometry,
            members,
            copies: Lock::new(copies),
        })
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.geometry.block_size.bytes() as usize
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.geometry.blocks.0
    }

    /// Adds a copy whose content does not match the other copies yet. Its device must fit ([`Area::fits`]).
    pub(crate) fn add(&self, copy: &AreaCopy) {
        debug_assert!(self.fits(&*copy.device), "a copy is as long as the others");
        let mut copies = self.copies.lock();
        let is_on_device = copies.in_use.iter().any(|copy| copy.member.is_none());
        let place = if is_on_device {
            &mut copies.reserve
        } else {
            &mut copies.in_use
        };
        place.extend(Copy::new(copy, &self.members));
    }

    /// Whether the area is on a separate device.
    pub(crate) fn is_on_device(&self) -> bool {
        self.copies
            .lock()
            .in_use
            .iter()
            .any(|copy| copy.member.is_none())
    }

    /// Switches from the separate device to the members' copies, which are still empty. Returns false if
    /// there are none.
    pub(crate) fn use_reserve(&self) -> bool {
        self.current();
        let mut copies = self.copies.lock();
        if copies.reserve.is_empty() {
            return false;
        }
        copies.in_use = std::mem::take(&mut copies.reserve);
        debug_assert!(
            copies.in_use.iter().all(|copy| copy.member.is_some()),
            "they are of members"
        );
        true
    }

    /// Whether a device is long enough for a copy, and has the same block size.
    pub(crate) fn fits(&self, device: &dyn BlockDevice) -> bool {
        let geometry = device.geometry();
        geometry.block_size == self.geometry.block_size && geometry.blocks >= self.geometry.blocks
    }

    pub(crate) fn devices(&self) -> Vec<Arc<dyn BlockDevice>> {
        self.copies
            .lock()
            .in_use
            .iter()
            .map(|copy| Arc::clone(&copy.device))
            .collect()
    }

    /// Returns the devices of the copies whose members are in sync, or of all copies if no such member
    /// exists: a member that was missing has outdated content.
    pub(crate) fn current_devices(&self) -> Vec<Arc<dyn BlockDevice>> {
        let states = self.members.states();
        let copies = self.copies.lock();
        let is_in_sync = |copy: &&Copy| {
            let state = copy
                .member
                .as_ref()
                .and_then(|member| states.members.get(member.index));
            state.is_none_or(|state| *state == MemberState::InSync)
        };
        let current: Vec<_> = copies
            .in_use
            .iter()
            .filter(is_in_sync)
            .map(|copy| Arc::clone(&copy.device))
            .collect();
        drop(copies);
        if current.is_empty() {
            self.devices()
        } else {
            current
        }
    }

    pub(crate) fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// Returns the number of copies whose members have not failed.
    pub(crate) fn copies(&self) -> usize {
        self.current().len()
    }

    /// Writes whole blocks to stable storage, on all copies.
    pub(crate) async fn write(&self, lba: u64, data: &Slice) -> Result<(), DeviceError> {
        let extent = Extent::new(lba, (data.len() / self.block_bytes()) as u64);
        debug_assert!(
            data.len().is_multiple_of(self.block_bytes()),
            "whole blocks"
        );
        debug_assert!(lba + extent.blocks.0 <= self.blocks(), "within the area");
        self.members.check_ownership()?;
        let copies = self.current();
        let written = self.members.land(async {
            match &copies[..] {
                // This is the usual case for a separate device: there is no other copy to wait for.
                [only] => self.write_copy(only, extent, data).await,
                copies => {
                    let written = try_all(
                        copies
                            .iter()
                            .map(|copy| self.write_copy(copy, extent, data)),
                    )
                    .await;
                    written.map(|are_kept| are_kept.contains(&true))
                }
            }
        });
        let written = written.await;
        // The members whose copies do not have the write have failed, and their failures are recorded.
        if written? {
            Ok(())
        } else {
            Err(DeviceError::NotReady)
        }
    }

    /// Writes one copy. Returns false if the copy's member has failed; the failure is then recorded.
    async fn write_copy(
        &self,
        copy: &Copy,
        extent: Extent,
        data: &Slice,
    ) -> Result<bool, DeviceError> {
        let error = match write_certainly(&*copy.device, extent, data).await {
            Ok(()) => return Ok(true),
            Err(error) => error,
        };
        match &copy.member {
            Some(member) => self
                .members
                .write_failed(member, error)
                .await
                .map(|()| false),
            // The separate device may now belong to another host, together with the set.
            None => self.members.note_ownership(error).and(Err(error)),
        }
    }

    /// Drops the copies of failed members, and so releases their devices.
    pub(crate) fn release_failed(&self) {
        self.current();
    }

    fn current(&self) -> Vec<Copy> {
        let mut copies = self.copies.lock();
        let is_present = |copy: &Copy| {
            copy.member
                .as_ref()
                .is_none_or(|member| self.members.is_present(member))
        };
        copies.reserve.retain(is_present);
        copies.in_use.retain(is_present);
        copies.in_use.clone()
    }
}

/// Writes to stable storage. Earlier content of the area is already on stable storage, so only a loss of this
/// write matters: if a member has lost other writes, and the set cannot run without it, its copy stays in
/// use. A loss that is reported to a concurrent flush may include this write.
async fn write_certainly(
    device: &dyn BlockDevice,
    extent: Extent,
    data: &Slice,
) -> Result<(), DeviceError> {
    let before = certain_losses(device).await?;
    device
        .write(extent, data.clone(), Durability::Stable)
        .await?;
    if certain_losses(device).await? == before {
        Ok(())
    } else {
        Err(DeviceError::WritesLost)
    }
}
