//! Waits for a request with the interpreter's lock released.

use std::time::Duration;

use blocking::Request;
use pyo3::prelude::*;

/// Maximum delay before Ctrl-C takes effect. A signal does not wake the waiting thread, so the thread polls.
pub(crate) const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Waits for the outcome of a request. If a signal handler raises an exception (such as KeyboardInterrupt),
/// cancels the request.
pub(crate) fn wait<T: Send, E: Send>(
    py: Python<'_>,
    mut request: Request<T, E>,
) -> PyResult<Result<T, E>> {
    loop {
        match py.detach(|| request.wait_for(SIGNALS_EVERY)) {
            Ok(outcome) => return Ok(outcome),
            Err(outstanding) => request = outstanding,
        }
        py.check_signals()?;
    }
}
