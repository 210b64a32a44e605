//! A request of librbd under way. It owns its memory until the library is done with it, also if nobody waits for the request any more.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use block::{Buffer, Permit, Slice};

use super::fence::Fence;
use super::library::{Handle, Library, THICK_PROVISION};
use crate::files::orphans::{Claim, Orphans, Ticket};

/// What is asked of an image. Lengths are in bytes.
pub(super) enum Request {
    Read(Buffer),
    Write(Slice),
    /// Written if the image has what is expected, in one step of the object server. Where it has something else, the library
    /// says from which byte on.
    CompareAndWrite {
        expected: Slice,
        data: Slice,
        differs_at: Box<AtomicU64>,
    },
    /// The bytes read as zeros afterwards: deallocated where an object or a part of it can be, or, if `is_thick`, written.
    Zero {
        length: usize,
        is_thick: bool,
    },
    Flush,
}

/// The future of a request: its result as librbd has it, which is negative for an errno, and the request with its memory.
/// Dropped before that it leaves the request to the library, which keeps the memory.
pub(super) struct Running {
    operation: Arc<Operation>,
    _claim: Claim,
}

struct Operation {
    library: &'static Library,
    fence: Arc<Fence>,
    state: Mutex<OperationState>,
}

struct OperationState {
    /// Taken by the waiter once there is a result.
    request: Option<Request>,
    result: Option<isize>,
    waker: Option<Waker>,
    /// Until the library is done.
    held: Option<(Permit, Ticket)>,
}

/// Hands a request for the bytes from `at` on to the library.
///
/// # Safety
/// `image` is an open image of `library`, and stays open until the request has ended: closing it waits for that.
pub(super) unsafe fn submit(
    library: &'static Library,
    fence: &Arc<Fence>,
    image: Handle,
    request: Request,
    at: u64,
    permit: Permit,
    orphans: &Arc<Orphans>,
) -> Result<Running, c_int> {
    let (claim, ticket) = orphans.ticket();
    let state =
        OperationState { request: Some(request), result: None, waker: None, held: Some((permit, ticket)) };
    let operation = Arc::new(Operation { library, fence: Arc::clone(fence), state: Mutex::new(state) });
    let given = Arc::into_raw(Arc::clone(&operation)).cast_mut();
    let mut completion = ptr::null_mut();
    // SAFETY: the callback has the type that the library calls, and takes over the reference `given`.
    let created =
        unsafe { (library.rbd_aio_create_completion)(given.cast::<c_void>(), completed, &mut completion) };
    let begun = match created {
        // SAFETY: the image by the caller, and `completion` has just been made.
        0.. => unsafe { operation.begin(image, at, completion) },
        error => error,
    };
    if begun < 0 {
        // SAFETY: a request that was refused has no callback, so that the reference is still ours, and so is a completion.
        unsafe {
            if created >= 0 {
                (library.rbd_aio_release)(completion);
            }
            drop(Arc::from_raw(given));
        }
        return Err(begun);
    }
    Ok(Running { operation, _claim: claim })
}

impl Operation {
    /// # Safety
    /// `image` is open, and `completion` unused.
    unsafe fn begin(&self, image: Handle, at: u64, completion: Handle) -> c_int {
        // The lock is not held during the call, which may call back. The memory is on the heap, and neither moves nor goes
        // before there is a result.
        let (address, length, kind) = match &mut self.state().request {
            Some(Request::Read(buffer)) => (buffer.as_mut_ptr(), buffer.len(), Kind::Read),
            Some(Request::Write(data)) => (data.as_ptr().cast_mut(), data.len(), Kind::Write),
            Some(Request::CompareAndWrite { expected, data, differs_at }) => {
                let (expected, differs_at) = (expected.as_ptr(), differs_at.as_ptr());
                (data.as_ptr().cast_mut(), data.len(), Kind::CompareAndWrite { expected, differs_at })
            }
            Some(Request::Zero { length, is_thick }) => {
                (ptr::null_mut(), *length, Kind::Zero { flags: if *is_thick { THICK_PROVISION } else { 0 } })
            }
            Some(Request::Flush) | None => (ptr::null_mut(), 0, Kind::Flush),
        };
        let (address, library) = (address.cast(), self.library);
        // SAFETY: image and completion by the caller; `length` bytes at `address` stay the operation's until the callback, and
        // a write only reads them. What is expected is as long as the data, and lives in the operation like `differs_at`.
        unsafe {
            match kind {
                Kind::Read => (library.rbd_aio_read)(image, at, length, address, completion),
                Kind::Write => (library.rbd_aio_write)(image, at, length, address, completion),
                Kind::CompareAndWrite { expected, differs_at } => (library.rbd_aio_compare_and_write)(
                    image,
                    at,
                    length,
                    expected.cast(),
                    address,
                    completion,
                    differs_at,
                    0,
                ),
                Kind::Zero { flags } => {
                    (library.rbd_aio_write_zeroes)(image, at, length, completion, flags, 0)
                }
                Kind::Flush => (library.rbd_aio_flush)(image, completion),
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, OperationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, result: isize) {
        if result < 0 {
            // Here, since nobody may wait for the result any more.
            let _ = self.fence.error(result as c_int);
        }
        let mut state = self.state();
        state.result = Some(result);
        let (held, waker) = (state.held.take(), state.waker.take());
        drop(state);
        drop(held);
        waker.into_iter().for_each(Waker::wake);
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
    CompareAndWrite { expected: *const u8, differs_at: *mut u64 },
    Zero { flags: c_int },
    Flush,
}

/// Called by a thread of the library, once for each request.
unsafe extern "C" fn completed(completion: Handle, argument: *mut c_void) {
    // SAFETY: `argument` is the reference that `submit` gave away, and comes back once.
    let operation = unsafe { Arc::from_raw(argument.cast_const().cast::<Operation>()) };
    // SAFETY: the completion is done, and nobody else has it; a callback may release it.
    let result = unsafe {
        let result = (operation.library.rbd_aio_get_return_value)(completion);
        (operation.library.rbd_aio_release)(completion);
        result
    };
    operation.end(result);
}

impl Future for Running {
    type Output = (isize, Option<Request>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.operation.state();
        match state.result {
            Some(result) => Poll::Ready((result, state.request.take())),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
