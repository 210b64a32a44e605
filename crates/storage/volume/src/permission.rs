//! Access control of a volume: the check that every front end makes before it executes a request, and the
//! state that determines the result.
//!
//! | a request is denied by | properties |
//! |---|---|
//! | persistent [reservations](crate::reservations) | belong to a host's path, and outlive its attachment |
//! | the reservation of an attachment ([`Volume::reserve`]) | ends with the attachment |
//! | a [`Fence`](crate::Fence) | the device is unresponsive |
//! | write protection ([`WriteProtection`]) | is configured, the device's, or set by a front end |
//!
//! One lock protects everything except the fence. No other lock is taken while it is held: a front end takes
//! its own lock first. Each change takes effect first, and then advances [`Volume::generation`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::Volume;
use crate::persistent_state::SaveLock;
use crate::reservations::{Access, AttachmentId, Refusal, Registrations, Requester};

/// The state that determines access, except the fence.
#[derive(Default)]
pub(crate) struct Permissions {
    reservations: Arc<Registrations>,
    /// The attachment that has reserved the volume, if any.
    reserved_by: Option<AttachmentId>,
    is_write_protected: bool,
}

/// The reason why a request is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Another host's reservation forbids the request.
    Reserved,
    /// The device is unresponsive.
    Fenced,
    /// The volume is write protected.
    WriteProtected,
}

/// The cause of write protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteProtection {
    /// The configuration or the device is read-only.
    Permanent,
    /// A front end has called [`Volume::set_write_protected`].
    Software,
}

impl Permissions {
    pub(crate) fn new(reservations: Registrations) -> Permissions {
        Permissions {
            reservations: Arc::new(reservations),
            ..Permissions::default()
        }
    }

    /// Returns whether reservations permit this access. Persistent reservations and an attachment's
    /// reservation exclude each other (SPC-2 5.5.1), so each can be checked separately.
    fn permit(&self, requester: &Requester<'_>, access: Access) -> bool {
        self.reserved_by
            .is_none_or(|holder| holder == requester.attachment)
            && self.reservations.permit(requester.path, access)
    }

    /// Returns false if there are no registrations, true if a persistent reservation gives this requester
    /// write access, and otherwise a conflict.
    fn shared_by_registrants(&self, requester: &Requester<'_>) -> Result<bool, Refusal> {
        if self.reservations.registered().is_empty() {
            return Ok(false);
        }
        let is_registered = self.reservations.key_of(requester.path).is_some();
        let is_reserved = self.reservations.reservation().is_some();
        if is_registered && is_reserved && self.reservations.permit(requester.path, Access::Write) {
            Ok(true)
        } else {
            Err(Refusal::Conflict)
        }
    }
}

impl Volume {
    /// Checks whether a request is permitted. A front end may cache the result as long as the
    /// [generation](Volume::generation), which it must read before this call, is unchanged.
    ///
    /// # Errors
    /// Returns the first reason to deny the request.
    ///
    /// ```
    /// use std::num::NonZeroU64;
    /// # use std::future::Future;
    /// # use std::pin::pin;
    /// # use std::sync::Arc;
    /// # use std::task::{Context, Poll, Waker};
    /// # use block::{BlockSize, Geometry, Null};
    /// # use volume::{Access, AttachmentId, Denied, HostPath, HostPort, Requester, ServicePort};
    /// # use volume::{Volume, VolumeOptions};
    /// use volume::reservations::{Change, Register, Registrations, ReservationType};
    ///
    /// # fn now<T>(future: impl Future<Output = T>) -> T {
    /// #     match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
    /// #         Poll::Ready(value) => value,
    /// #         Poll::Pending => unreachable!("no other thread saves"),
    /// #     }
    /// # }
    /// # fn path(host: &str) -> HostPath {
    /// #     let host = HostPort { name: host.to_owned(), qualifier: [0; 6] };
    /// #     HostPath { host, service: ServicePort { name: "disk".to_owned(), group: 1, relative_port: 1 } }
    /// # }
    /// # let blocks = BlockSize::B512.exact(1 << 20).expect("whole blocks");
    /// # let device = Null::new(Geometry { block_size: BlockSize::B512, blocks, physical_exponent: 0 });
    /// # let volume = Volume::new(Arc::new(device), VolumeOptions::default()).expect("nothing was saved");
    /// // A client without reservations, and a host that reserves the volume by another protocol.
    /// let (client, host) = (path("client.example.com"), path("iqn.1994-05.com.redhat:host"));
    /// let requester = Requester { attachment: AttachmentId::next(), path: &client };
    /// assert_eq!(volume.permits(&requester, Access::Write), Ok(()));
    ///
    /// let change = |change| {
    ///     let lock = now(volume.lock_to_save());
    ///     let mut next = Registrations::clone(&volume.reservations());
    ///     next.change(&host, change).expect("it is the host's to do");
    ///     now(volume.save_reservations(&next, &lock)).expect("there is nothing to save");
    ///     volume.set_reservations(next, &lock);
    /// };
    /// let before = volume.generation();
    /// change(Change::Register(Register::new(NonZeroU64::MIN)));
    /// change(Change::Reserve { key: 1, kind: ReservationType::WriteExclusive });
    /// assert_ne!(volume.generation(), before, "ask again");
    /// assert_eq!(volume.permits(&requester, Access::Write), Err(Denied::Reserved));
    /// assert_eq!(volume.permits(&requester, Access::Read), Ok(()));
    ///
    /// let before = volume.generation();
    /// change(Change::Release { key: 1, kind: ReservationType::WriteExclusive });
    /// assert_ne!(volume.generation(), before, "ask again");
    /// assert_eq!(volume.permits(&requester, Access::Write), Ok(()));
    /// ```
    pub fn permits(&self, requester: &Requester<'_>, access: Access) -> Result<(), Denied> {
        if !self.reservations_permit(requester, access) {
            Err(Denied::Reserved)
        } else if self.is_fenced() {
            Err(Denied::Fenced)
        } else if access == Access::Write && self.write_protection().is_some() {
            Err(Denied::WriteProtected)
        } else {
            Ok(())
        }
    }

    /// Returns whether reservations of both kinds permit this request.
    pub fn reservations_permit(&self, requester: &Requester<'_>, access: Access) -> bool {
        self.permissions.lock().permit(requester, access)
    }

    /// Returns the current persistent reservations.
    pub fn reservations(&self) -> Arc<Registrations> {
        Arc::clone(&self.permissions.lock().reservations)
    }

    /// Puts `next` into effect. It must have been derived from [`Volume::reservations`] and
    /// [saved](Volume::save_reservations) under this lock.
    pub fn set_reservations(&self, next: Registrations, _lock: &SaveLock) {
        self.change_permissions(|permissions| permissions.reservations = Arc::new(next));
    }

    /// Returns the attachment that has reserved the volume, if any.
    pub fn reserved_by(&self) -> Option<AttachmentId> {
        self.permissions.lock().reserved_by
    }

    /// Reserves the volume for one attachment, until the attachment releases it or ends: RESERVE in SCSI
    /// (SPC-2 7.21). Reserving again is not an error. If there are registrations, this succeeds without
    /// effect for hosts to which a persistent reservation gives access (CRH, SPC-4 5.12.3), and is refused
    /// for others.
    ///
    /// # Errors
    /// [`Refusal::Conflict`]: another attachment has reserved the volume, or persistent reservations exclude
    /// this host.
    pub fn reserve(&self, requester: &Requester<'_>) -> Result<(), Refusal> {
        self.change_permissions(|permissions| {
            if permissions.shared_by_registrants(requester)? {
                return Ok(());
            }
            debug_assert!(
                permissions.reservations.registered().is_empty(),
                "the two kinds exclude each other"
            );
            let reserved_by = *permissions.reserved_by.get_or_insert(requester.attachment);
            if reserved_by == requester.attachment {
                Ok(())
            } else {
                Err(Refusal::Conflict)
            }
        })
    }

    /// Releases the reservation of this attachment. If another attachment has reserved the volume, this
    /// succeeds without effect (SPC-2 7.23).
    ///
    /// # Errors
    /// [`Refusal::Conflict`]: persistent reservations exclude this host.
    pub fn release(&self, requester: &Requester<'_>) -> Result<(), Refusal> {
        self.change_permissions(|permissions| {
            if !permissions.shared_by_registrants(requester)? {
                permissions.reserved_by = permissions
                    .reserved_by
                    .filter(|holder| *holder != requester.attachment);
            }
            Ok(())
        })
    }

    /// Releases the reservation of an attachment that has ended, or with `None`, the reservation of any
    /// attachment.
    pub fn end_reservation(&self, of: Option<AttachmentId>) {
        self.change_permissions(|permissions| {
            permissions.reserved_by = permissions
                .reserved_by
                .filter(|holder| of.is_some_and(|of| of != *holder));
        });
    }

    /// Returns the write protection, if any.
    pub fn write_protection(&self) -> Option<WriteProtection> {
        if self.is_read_only || self.device().profile().read_only {
            Some(WriteProtection::Permanent)
        } else {
            self.permissions
                .lock()
                .is_write_protected
                .then_some(WriteProtection::Software)
        }
    }

    /// Sets or clears software write protection (SWP of SCSI's control mode page).
    pub fn set_write_protected(&self, is_write_protected: bool) {
        self.change_permissions(|permissions| permissions.is_write_protected = is_write_protected);
    }

    fn change_permissions<T>(&self, change: impl FnOnce(&mut Permissions) -> T) -> T {
        let result = change(&mut self.permissions.lock());
        self.advance_generation();
        result
    }
}

/// The gate, with one generation counter for everything that could forbid a request.
///
/// A front end first reads the generation, then calls [`Volume::permits`], and caches the result, which is
/// valid as long as the generation is unchanged. A change takes effect before it advances the generation. So
/// a cached result can be newer than its generation, but a result from before a change is never valid for the
/// generation after it.
#[derive(Default)]
pub(crate) struct Gate {
    generation: AtomicU64,
    fences: AtomicUsize,
    /// Number of fences so far.
    fenced: AtomicU64,
    /// Whether the storage has fenced this server because another host has taken over the device.
    is_taken_over: AtomicBool,
}

/// Fences the volume until this is dropped. Several fences may exist at the same time; the volume is fenced
/// while there is at least one.
pub struct Fence {
    volume: Arc<Volume>,
}

impl Drop for Fence {
    fn drop(&mut self) {
        let fences = self.volume.gate.fences.fetch_sub(1, Ordering::Release);
        debug_assert!(fences > 0, "a fence is removed once");
        self.volume.advance_generation();
    }
}

impl Volume {
    /// Returns a number that increases with each change that could affect whether a request is permitted. It
    /// is never `u64::MAX`.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.gate.generation.load(Ordering::Acquire)
    }

    /// Advances the generation. Call this after a change that could affect whether a request is permitted.
    pub fn advance_generation(&self) {
        let before = self.gate.generation.fetch_add(1, Ordering::Release);
        debug_assert!(before < u64::MAX - 1, "no generation is `u64::MAX`");
    }

    /// Fences the volume because its device is unresponsive. Requests then fail immediately as not ready,
    /// instead of waiting.
    pub fn fence(self: &Arc<Self>) -> Fence {
        self.gate.fences.fetch_add(1, Ordering::Release);
        self.gate.fenced.fetch_add(1, Ordering::Relaxed);
        self.advance_generation();
        Fence {
            volume: Arc::clone(self),
        }
    }

    /// Returns the number of fences since the volume was opened.
    pub fn fences_made(&self) -> u64 {
        self.gate.fenced.load(Ordering::Relaxed)
    }

    /// Returns whether there is a [`Fence`], or another host has taken over the device.
    pub fn is_fenced(&self) -> bool {
        self.gate.fences.load(Ordering::Acquire) > 0
    }

    /// Returns whether another host has taken over the device
    /// ([`DeviceError::Fenced`](block::DeviceError::Fenced)): no request succeeds until the volume is opened
    /// again.
    pub fn is_taken_over(&self) -> bool {
        self.gate.is_taken_over.load(Ordering::Acquire)
    }

    /// Fences the volume permanently, because the device reported a takeover.
    pub(crate) fn fence_for_good(&self) {
        if !self.gate.is_taken_over.swap(true, Ordering::AcqRel) {
            self.gate.fences.fetch_add(1, Ordering::Release);
            self.gate.fenced.fetch_add(1, Ordering::Relaxed);
            self.advance_generation();
        }
    }
}

#[cfg(test)]
mod tests {
    use block::{BlockSize, Geometry, Null};

    use crate::VolumeOptions;
    use crate::reservations::{HostPath, tests as scene};

    use super::*;

    fn volume(read_only: bool) -> Arc<Volume> {
        let blocks = BlockSize::B512.exact(1 << 20).expect("whole blocks");
        let device = Null::new(Geometry {
            block_size: BlockSize::B512,
            blocks,
            physical_exponent: 0,
        });
        let options = VolumeOptions {
            read_only,
            ..VolumeOptions::default()
        };
        Volume::new(Arc::new(device), options).expect("nothing was saved")
    }

    fn attached(path: &HostPath) -> Requester<'_> {
        Requester {
            attachment: AttachmentId::next(),
            path,
        }
    }

    /// If a host has two attachments, the reservation of one does not belong to the other.
    #[test]
    fn what_an_attachment_reserves_is_its_own_until_it_ends() {
        let (volume, path) = (volume(false), scene::path(1));
        let (holder, other) = (attached(&path), attached(&path));
        volume.reserve(&holder).expect("it is not reserved");
        assert_eq!(volume.permits(&holder, Access::Write), Ok(()));
        assert_eq!(volume.permits(&other, Access::Read), Err(Denied::Reserved));
        assert_eq!(volume.reserve(&other), Err(Refusal::Conflict));
        assert_eq!(volume.release(&other), Ok(()));
        volume.end_reservation(Some(other.attachment));
        assert_eq!(volume.reserved_by(), Some(holder.attachment));
        let before = volume.generation();
        volume.end_reservation(Some(holder.attachment));
        assert!(volume.generation() > before);
        assert_eq!(volume.permits(&other, Access::Write), Ok(()));
    }

    #[test]
    fn a_fence_stops_all_and_write_protection_stops_writes() {
        let (volume, path) = (volume(false), scene::path(1));
        let requester = attached(&path);
        volume.set_write_protected(true);
        assert_eq!(volume.permits(&requester, Access::Read), Ok(()));
        assert_eq!(
            volume.permits(&requester, Access::Write),
            Err(Denied::WriteProtected)
        );
        let fence = volume.fence();
        assert_eq!(
            volume.permits(&requester, Access::Read),
            Err(Denied::Fenced)
        );
        drop(fence);
        volume.set_write_protected(false);
        assert_eq!(volume.permits(&requester, Access::Write), Ok(()));
    }

    #[test]
    fn what_is_configured_read_only_stays_so() {
        let (volume, path) = (volume(true), scene::path(1));
        volume.set_write_protected(false);
        assert_eq!(volume.write_protection(), Some(WriteProtection::Permanent));
        assert_eq!(
            volume.permits(&attached(&path), Access::Write),
            Err(Denied::WriteProtected)
        );
    }
}
