//! Waiting for a request with the interpreter's lock given back.

use std::time::Duration;

use blocking::Request;
use pyo3::prelude::*;

/// How long Ctrl-C may take to be noticed. A signal does not wake the thread that waits, so that it looks.
pub(crate) const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// The outcome of a request. A signal whose handler raises (KeyboardInterrupt) drops the request, which cancels it.
pub(crate) fn wait<T: Send, E: Send>(py: Python<'_>, mut request: Request<T, E>) -> PyResult<Result<T, E>> {
    loop {
        match py.detach(|| request.wait_for(SIGNALS_EVERY)) {
            Ok(outcome) => return Ok(outcome),
            Err(outstanding) => request = outstanding,
        }
        py.check_signals()?;
    }
}
