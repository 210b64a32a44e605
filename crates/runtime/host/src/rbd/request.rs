//! An outstanding librbd request. It owns its memory until the library is done with it, even if the request
//! was abandoned.

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

/// A request to an image. Lengths are in bytes.
pub(super) enum Request {
    Read(Buffer),
    Write(Slice),
    /// Atomically compares on the object server, and writes if the image has the expected data. On a
    /// mismatch, the library returns the offset of the first differing byte.
    CompareAndWrite {
        expected: Slice,
        data: Slice,
        differs_at: Box<AtomicU64>,
    },
    /// Makes bytes read as zeros: deallocates objects or parts of them, or writes zeros if `is_thick`.
    Zero {
        length: usize,
        is_thick: bool,
    },
    Flush,
}

/// The future of a request. Its output is librbd's result, which is a negative errno on failure, and the
/// request with its memory. If the future is dropped earlier, the request keeps its memory until the library
/// is done with it.
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
    /// The waiting future takes the request once there is a result.
    request: Option<Request>,
    result: Option<isize>,
    waker: Option<Waker>,
    /// Held until the library is done with the request.
    held: Option<(Permit, Ticket)>,
}

/// Submits a request to the library. The request starts at byte `at` of the image.
///
/// # Safety
/// `image` is an open image of `library`, and stays open until the request has ended; closing waits for that.
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
    let state = OperationState {
        request: Some(request),
        result: None,
        waker: None,
        held: Some((permit, ticket)),
    };
    let operation = Arc::new(Operation {
        library,
        fence: Arc::clone(fence),
        state: Mutex::new(state),
    });
    let given = Arc::into_raw(Arc::clone(&operation)).cast_mut();
    let mut completion = ptr::null_mut();
    // SAFETY: the callback has the type that the library calls, and takes over the reference `given`.
    let created = unsafe {
        (library.rbd_aio_create_completion)(given.cast::<c_void>(), completed, &mut completion)
    };
    let begun = match created {
        // SAFETY: the caller guarantees the image, and `completion` was just created.
        0.. => unsafe { operation.begin(image, at, completion) },
        error => error,
    };
    if begun < 0 {
        // SAFETY: a refused request gets no callback, so the reference and the completion are still ours.
        unsafe {
            if created >= 0 {
                (library.rbd_aio_release)(completion);
            }
            drop(Arc::from_raw(given));
        }
        return Err(begun);
    }
    Ok(Running {
        operation,
        _claim: claim,
    })
}

impl Operation {
    /// # Safety
    /// `image` is open, and `completion` unused.
    unsafe fn begin(&self, image: Handle, at: u64, completion: Handle) -> c_int {
        // The lock is not held during the call, which may call back. The memory is on the heap, and is
        // neither moved nor freed before there is a result.
        let (address, length, kind) = match &mut self.state().request {
            Some(Request::Read(buffer)) => (buffer.as_mut_ptr(), buffer.len(), Kind::Read),
            Some(Request::Write(data)) => (data.as_ptr().cast_mut(), data.len(), Kind::Write),
            Some(Request::CompareAndWrite {
                expected,
                data,
                differs_at,
            }) => {
                let (expected, differs_at) = (expected.as_ptr(), differs_at.as_ptr());
                (
                    data.as_ptr().cast_mut(),
                    data.len(),
                    Kind::CompareAndWrite {
                        expected,
                        differs_at,
                    },
                )
            }
            Some(Request::Zero { length, is_thick }) => (
                ptr::null_mut(),
                *length,
                Kind::Zero {
                    flags: if *is_thick { THICK_PROVISION } else { 0 },
                },
            ),
            Some(Request::Flush) | None => (ptr::null_mut(), 0, Kind::Flush),
        };
        let (address, library) = (address.cast(), self.library);
        // SAFETY: the caller guarantees image and completion. The operation owns the `length` bytes at
        // `address` until the callback, and a write only reads them. The expected data is as long as the new
        // data, and lives in the operation like `differs_at`.
        unsafe {
            match kind {
                Kind::Read => (library.rbd_aio_read)(image, at, length, address, completion),
                Kind::Write => (library.rbd_aio_write)(image, at, length, address, completion),
                Kind::CompareAndWrite {
                    expected,
                    differs_at,
                } => (library.rbd_aio_compare_and_write)(
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
            // Check the result here, because the waiting future may have been dropped.
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
    CompareAndWrite {
        expected: *const u8,
        differs_at: *mut u64,
    },
    Zero {
        flags: c_int,
    },
    Flush,
}

/// Called by a thread of the library, once for each request.
unsafe extern "C" fn completed(completion: Handle, argument: *mut c_void) {
    // SAFETY: `argument` is the reference that `submit` passed on, and is returned once.
    let operation = unsafe { Arc::from_raw(argument.cast_const().cast::<Operation>()) };
    // SAFETY: the completion is done, and has no other user; a callback may release it.
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
