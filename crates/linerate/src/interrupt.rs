//! Signals. SIGINT, SIGTERM and SIGHUP for commands that have something to bring to an end: the first asks, the second
//! ends the process. SIGHUP for processes that others depend on: it is ignored.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// The signals that ask a command to end.
pub(crate) fn endings() -> Vec<i32> {
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    [SIGINT, SIGTERM].into_iter().chain(hangup).collect()
}

/// Whether the process was started with this signal ignored, as `nohup` does with SIGHUP (proc(5), `SigIgn`).
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// From now on SIGHUP does no more than write a log line. Without that it would end a server without a last flush, and
/// leave a mount behind that nothing answers, because a terminal is closed or because somebody wants a configuration read
/// again.
pub(crate) fn ignore_hangups() -> Result<(), Failure> {
    let mut signals = Signals::new([SIGHUP]).map_err(Failure::failed)?;
    let log = move || {
        for _ in signals.forever() {
            tracing::warn!("SIGHUP is ignored; SIGTERM ends this process");
        }
    };
    thread::Builder::new().name("hangups".to_owned()).spawn(log).map(drop).map_err(Failure::failed)
}

/// Whether somebody has asked.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Interrupt, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in endings() {
            // In this order: the second signal finds the flag that the first one has set.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))
                .and_then(|_| flag::register(signal, Arc::clone(&asked)))
                .map_err(Failure::failed)?;
        }
        Ok(Interrupt(asked))
    }

    /// Asks, as a signal does.
    pub(crate) fn ask(&self) {
        self.0.store(true, Relaxed);
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Relaxed)
    }
}
