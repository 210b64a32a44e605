//! Converts errors to the exceptions of `linerate._errors`, which documents them.

use backends::Failure;
use block::DeviceError;
use iscsi_client::CommandError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Creates an instance of the named exception.
fn exception(py: Python<'_>, name: &str, arguments: (String, Option<u64>)) -> PyErr {
    static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = ERRORS.get_or_try_init(py, || py.import("linerate._errors").map(Bound::unbind));
    let made = module.and_then(|module| module.bind(py).getattr(name)?.call1(arguments));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// Returns the exception for a failure. It depends on the exit code that commands use (docs/command-line.md).
pub(crate) fn raised(py: Python<'_>, failure: &Failure) -> PyErr {
    let name = match failure.code() {
        2 => "RefusedError",
        3 => "UnreachableError",
        4 => "LoginError",
        5 => "AuthenticationError",
        6 => "NotFoundError",
        7 => "ReservedError",
        8 => "ReadOnlyError",
        9 => "DeviceError",
        11 => "NoSpaceError",
        _ => "Error",
    };
    exception(py, name, (failure.to_string(), None))
}

pub(crate) fn open(py: Python<'_>, error: blocking::OpenError) -> PyErr {
    match error {
        blocking::OpenError::Open(error) => raised(py, &Failure::from(error)),
        error => raised(py, &Failure::failed(error)),
    }
}

pub(crate) fn device(py: Python<'_>, error: DeviceError) -> PyErr {
    let (name, lba) = match error {
        DeviceError::OutOfRange => ("OutOfRangeError", None),
        DeviceError::ReadOnly => ("ReadOnlyError", None),
        DeviceError::Unsupported => ("UnsupportedError", None),
        DeviceError::NoSpace => ("NoSpaceError", None),
        DeviceError::Unreadable(lba) | DeviceError::Unwritable(lba) => ("MediumError", Some(lba.0)),
        DeviceError::NotReady | DeviceError::Fenced => ("NotReadyError", None),
        DeviceError::Reserved => ("ReservedError", None),
        DeviceError::TimedOut => ("TimedOutError", None),
        DeviceError::Cancelled => ("CancelledError", None),
        DeviceError::WritesLost => ("WritesLostError", None),
        DeviceError::Unsettled => ("UnsettledError", None),
    };
    exception(py, name, (error.to_string(), lba))
}

pub(crate) fn command(py: Python<'_>, error: CommandError) -> PyErr {
    let name = match error {
        CommandError::TimedOut => "TimedOutError",
        CommandError::ConnectionLost | CommandError::Reinstated => "NotReadyError",
        CommandError::Aborted => "CancelledError",
        CommandError::Unsettled => "UnsettledError",
        CommandError::TooLong => "OutOfRangeError",
        CommandError::Rejected => "DeviceError",
    };
    exception(py, name, (error.to_string(), None))
}

/// Returns the exception for a call on a closed LUN.
pub(crate) fn closed(py: Python<'_>) -> PyErr {
    exception(py, "ClosedError", ("the LUN is closed".to_owned(), None))
}

/// Returns the exception for a call after fork(2). Threads do not survive a fork, so a request would wait
/// forever.
pub(crate) fn forked(py: Python<'_>) -> PyErr {
    let sentence = "the LUN was opened by the parent process: connect again after fork";
    exception(py, "ClosedError", (sentence.to_owned(), None))
}
