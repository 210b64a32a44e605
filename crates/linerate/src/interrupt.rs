//! SIGINT and SIGTERM for commands that have something to bring to an end: the first asks, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::Failure;

/// Whether somebody has asked.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Interrupt, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        for (signal, exit_code) in [(SIGINT, 130), (SIGTERM, 143)] {
            // In this order: the second signal finds the flag that the first one has set.
            flag::register_conditional_shutdown(signal, exit_code, Arc::clone(&asked))
                .and_then(|_| flag::register(signal, Arc::clone(&asked)))
                .map_err(Failure::failed)?;
        }
        Ok(Interrupt(asked))
    }

    /// Nobody asks.
    #[cfg(test)]
    pub(crate) fn never() -> Interrupt {
        Interrupt(Arc::default())
    }

    /// Asks, as a signal does.
    pub(crate) fn ask(&self) {
        self.0.store(true, Relaxed);
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Relaxed)
    }
}
