//! The outstanding device requests of one attachment, for front ends whose commands are single requests. Each
//! request must be permitted by the volume, can be aborted, and has a deadline.
//!
//! ```text
//!   ask ── not permitted, or aborted since it was accepted ──► Unserved
//!    └──► outstanding ──┬─ the device completes it ────► its result; recorded for the volume's health
//!                       ├─ abort ─────────────────────► Unserved::Aborted    ┐
//!                       ├─ abort_reserved ────────────► Denied::Reserved     │ the blocks of a change stay
//!                       ├─ expire: its deadline ──────► DeviceError::TimedOut ├ locked until the device
//!                       └─ its future is dropped                             ┘ has quiesced
//! ```
//!
//! Order and exclusion among requests are the front end's responsibility: it holds a range lock during each
//! request.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use block::{DeviceError, Extent};
use volume::{Access, AttachmentId, Denied, HostPath, RequestKind, Requester, Volume};

/// The requests of one attachment.
pub struct Requests {
    volume: Arc<Volume>,
    attachment: AttachmentId,
    path: HostPath,
    /// The results of `Volume::permits` for each kind of access, in this generation.
    permitted: Cell<(u64, [Result<(), Denied>; 2])>,
    outstanding: RefCell<BTreeMap<u64, Outstanding>>,
    /// The number of the next request.
    next: Cell<u64>,
    /// Number of times all requests were aborted.
    aborts: Cell<u64>,
    has_left_changes: Cell<bool>,
}

/// A request that the device has not completed.
struct Outstanding {
    access: Access,
    since: Instant,
    /// Whether the request has been sent to the device. If not, it is waiting for something else, such as a
    /// lock.
    is_asked: bool,
    /// The reason for ending the request early.
    early: Option<Unserved>,
    waker: Option<Waker>,
}

/// Identifies an accepted request. A later abort applies to the request even if it has not been sent to the
/// device yet.
#[derive(Clone, Copy, Debug)]
pub struct Ticket(u64);

/// The reason why a request was not executed, or only partly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// The volume does not permit the request.
    Denied(Denied),
    /// The device returned an error, or the request timed out.
    Failed(DeviceError),
    /// The request was aborted.
    Aborted,
}

/// Removes a request from the list, however the request ends.
struct Listed<'a> {
    requests: &'a Requests,
    number: u64,
    /// The blocks that the request changes; `None` once the device has completed it.
    changes: Option<Extent>,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let listed = self.requests.outstanding.borrow_mut().remove(&self.number);
        debug_assert!(
            listed.is_some(),
            "a request is listed until this is dropped"
        );
        if let Some(extent) = self.changes {
            self.requests.has_left_changes.set(true);
            self.requests.volume.lock_until_quiesced(extent);
        }
    }
}

impl Requests {
    /// Creates an empty list.
    pub fn new(volume: Arc<Volume>, attachment: AttachmentId, path: HostPath) -> Requests {
        // The generation is never `u64::MAX`.
        let permitted = Cell::new((u64::MAX, [Ok(()); 2]));
        let outstanding = RefCell::default();
        let (next, aborts, has_left_changes) = (Cell::new(0), Cell::new(0), Cell::new(false));
        Requests {
            volume,
            attachment,
            path,
            permitted,
            outstanding,
            next,
            aborts,
            has_left_changes,
        }
    }

    /// Whether a change was abandoned while the device was executing it. Its blocks stay locked until
    /// [`Server::quiesce`](crate::Server::quiesce) has been awaited. Either the code that ended the change
    /// must await it or, at the latest, the code that drops this list.
    pub fn has_left_changes(&self) -> bool {
        self.has_left_changes.get()
    }

    /// The volume.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// The attachment that makes the requests.
    pub fn attachment(&self) -> AttachmentId {
        self.attachment
    }

    /// Accepts a request.
    pub fn accept(&self) -> Ticket {
        Ticket(self.aborts.get())
    }

    /// Whether the volume currently permits this access. Must be called under the lock of the blocks.
    ///
    /// # Errors
    /// The first reason to deny the access.
    #[inline]
    pub fn permits(&self, access: Access) -> Result<(), Denied> {
        let generation = self.volume.generation();
        debug_assert_ne!(generation, u64::MAX, "that stands for none");
        let (known, mut permitted) = self.permitted.get();
        if known != generation {
            let requester = Requester {
                attachment: self.attachment,
                path: &self.path,
            };
            permitted =
                [Access::Read, Access::Write].map(|access| self.volume.permits(&requester, access));
            self.permitted.set((generation, permitted));
        }
        permitted[usize::from(access == Access::Write)]
    }

    /// Executes a request until it ends in one of the ways in the module's diagram. `request` is called only
    /// if the volume permits the access; `changes` are the blocks that it changes.
    ///
    /// # Errors
    /// The request was not executed, or it is unknown whether it was executed.
    pub async fn ask<T, F>(
        &self,
        ticket: Ticket,
        kind: RequestKind,
        changes: Option<Extent>,
        request: impl FnOnce() -> F,
    ) -> Result<T, Unserved>
    where
        F: Future<Output = Result<T, DeviceError>>,
    {
        if ticket.0 != self.aborts.get() {
            return Err(Unserved::Aborted);
        }
        debug_assert_eq!(
            kind == RequestKind::Change,
            changes.is_some(),
            "a change names its blocks"
        );
        let access = if kind == RequestKind::Change {
            Access::Write
        } else {
            Access::Read
        };
        self.permits(access).map_err(Unserved::Denied)?;
        let request = pin!(request());
        // Declared after `request`, so that it is dropped first and the blocks are locked when the request is
        // cancelled.
        let mut listed = self.list(access, changes, true);
        let ended = self.unless_early(&listed, request).await?;
        listed.changes = None;
        self.volume.record_end(kind, &ended);
        ended.map_err(Unserved::Failed)
    }

    /// Awaits a prerequisite of a request, such as the lock of its blocks. An abort or the deadline also ends
    /// this wait, since blocks may be locked for as long as a device hangs.
    ///
    /// # Errors
    /// The request is not permitted, or has ended early.
    pub async fn wait<T>(
        &self,
        ticket: Ticket,
        access: Access,
        needed: impl Future<Output = T>,
    ) -> Result<T, Unserved> {
        if ticket.0 != self.aborts.get() {
            return Err(Unserved::Aborted);
        }
        self.permits(access).map_err(Unserved::Denied)?;
        let needed = pin!(needed);
        let listed = self.list(access, None, false);
        self.unless_early(&listed, needed).await
    }

    /// Returns the output of `future`, unless the request ends early.
    async fn unless_early<T>(
        &self,
        listed: &Listed<'_>,
        mut future: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, Unserved> {
        poll_fn(|cx| {
            let mut outstanding = self.outstanding.borrow_mut();
            let entry = outstanding.get_mut(&listed.number);
            if let Some(Outstanding {
                early: Some(early), ..
            }) = entry
            {
                return Poll::Ready(Err(*early));
            }
            debug_assert!(entry.is_some(), "it is listed while it is waited for");
            if let Some(entry) = entry {
                entry.waker = Some(cx.waker().clone());
            }
            drop(outstanding);
            future.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    fn list(&self, access: Access, changes: Option<Extent>, is_asked: bool) -> Listed<'_> {
        debug_assert!(
            self.permitted.get().1[usize::from(access == Access::Write)].is_ok(),
            "only a permitted request is listed"
        );
        let number = self.next.replace(self.next.get() + 1);
        let outstanding = Outstanding {
            access,
            since: reactor::now(),
            is_asked,
            early: None,
            waker: None,
        };
        let before = self.outstanding.borrow_mut().insert(number, outstanding);
        debug_assert!(before.is_none(), "numbers are not used again");
        Listed {
            requests: self,
            number,
            changes,
        }
    }

    /// Whether any requests are outstanding.
    pub fn are_outstanding(&self) -> bool {
        !self.outstanding.borrow().is_empty()
    }

    /// Aborts all requests accepted so far.
    pub fn abort(&self) {
        self.aborts.set(self.aborts.get() + 1);
        for outstanding in self.outstanding.borrow_mut().values_mut() {
            outstanding.end(Unserved::Aborted);
        }
    }

    /// Ends requests that a reservation now forbids. As in SCSI, a reservation alone does not affect
    /// outstanding requests. A preemption with abort also ends the outstanding requests that the new
    /// reservation excludes, even if their host has no registration.
    pub fn abort_reserved(&self) {
        let reserved = |access| self.permits(access) == Err(Denied::Reserved);
        let reserved = [Access::Read, Access::Write].map(reserved);
        for outstanding in self.outstanding.borrow_mut().values_mut() {
            if reserved[usize::from(outstanding.access == Access::Write)] {
                outstanding.end(Unserved::Denied(Denied::Reserved));
            }
        }
    }

    /// Fails requests that the device has not completed within `deadline`. If there are any, returns the
    /// longest time for which the device has been unresponsive, and the caller must
    /// [fence](crate::Server::fence) the volume.
    pub fn expire(&self, now: Instant, deadline: Duration) -> Option<Duration> {
        let mut silent = None;
        for outstanding in self.outstanding.borrow_mut().values_mut() {
            let time = now.saturating_duration_since(outstanding.since);
            let ends = time > deadline && outstanding.end(Unserved::Failed(DeviceError::TimedOut));
            if ends && outstanding.is_asked {
                self.volume.health().timed_out();
                silent = silent.max(Some(time));
            }
        }
        silent
    }
}

impl Outstanding {
    /// Ends the request early, unless it has already been ended.
    fn end(&mut self, early: Unserved) -> bool {
        let ends = self.early.is_none();
        self.early.get_or_insert(early);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        ends
    }
}
