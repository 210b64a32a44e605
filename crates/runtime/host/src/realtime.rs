//! Real-time scheduling of a thread.

// SAFETY of this file: sched_setscheduler(2) for the calling thread.
#![allow(unsafe_code)]

use std::io;

/// Lets the calling thread run whenever it can, before all threads of ordinary priority (`SCHED_FIFO`, lowest
/// level). Needs `CAP_SYS_NICE`. For threads that mostly wait.
pub fn run_at_once() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads one sched_param, which lives for the call.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
