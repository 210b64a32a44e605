//! Creates `concurrent.futures.Future` objects for requests. One thread per process waits for all requests
//! and sets the results of their futures.

use std::pin::Pin;
use std::sync::OnceLock;
use std::task::Poll;

use blocking::Request;
use host::{Epoll, EpollOptions};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use reactor::Sender;

/// Starts a task on the thread for futures.
type Start = Box<dyn FnOnce() + Send>;

/// Returns a Python future that completes with `request`. Cancelling the future cancels the request.
pub(crate) fn future<'py, T, E>(
    py: Python<'py>,
    mut request: Request<T, E>,
    result: impl FnOnce(Python<'_>, Result<T, E>) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>>
where
    T: Send + 'static,
    E: Send + 'static,
{
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || {
        py.import("concurrent.futures")?
            .getattr("Future")
            .map(Bound::unbind)
    })?;
    let future = class.bind(py).call0()?;
    let (cancel, mut cancelled) = reactor::mailbox();
    future.call_method1("add_done_callback", (Done { cancel },))?;
    let of_python = future.clone().unbind();
    let start: Start = Box::new(move || {
        reactor::spawn(async move {
            let outcome = std::future::poll_fn(|cx| {
                if let Poll::Ready(Some(())) = cancelled.poll_recv(cx) {
                    return Poll::Ready(None);
                }
                Pin::new(&mut request).poll(cx).map(Some)
            });
            let Some(outcome) = outcome.await else { return };
            // If the interpreter is shutting down, the result is discarded.
            let _ = Python::try_attach(|py| complete(of_python.bind(py), result(py, outcome)));
        });
    });
    thread(py)?
        .send(start)
        .map_err(|_| PyOSError::new_err("cannot start the thread for futures"))?;
    Ok(future)
}

/// Sets the result. If the future has been cancelled, this raises an exception, which is ignored.
fn complete(future: &Bound<'_, PyAny>, result: PyResult<Py<PyAny>>) {
    let py = future.py();
    let _ = match result {
        Ok(value) => future.call_method1("set_result", (value,)),
        Err(error) => future.call_method1("set_exception", (error.into_value(py),)),
    };
}

/// The callback of a future that is done for any reason, including cancellation.
#[pyclass(frozen)]
struct Done {
    cancel: Sender<()>,
}

#[pymethods]
impl Done {
    fn __call__(&self, _future: &Bound<'_, PyAny>) {
        let _ = self.cancel.send(()); // the request may be over
    }
}

/// Returns this process's thread that waits for requests.
fn thread(py: Python<'_>) -> PyResult<Sender<Start>> {
    static THREAD: OnceLock<(u32, Sender<Start>)> = OnceLock::new();
    let started = py.detach(|| {
        THREAD.get_or_init(|| {
            let (sender, mut received) = reactor::mailbox::<Start>();
            std::thread::spawn(move || {
                // Without a runtime environment, the mailbox closes, and requests are rejected.
                let Ok(world) = Epoll::shared(EpollOptions::default()) else {
                    return;
                };
                reactor::block_on(world, async move {
                    while let Some(start) = received.recv().await {
                        start();
                    }
                });
            });
            (std::process::id(), sender)
        })
    });
    if started.0 != std::process::id() {
        return Err(PyOSError::new_err(
            "futures do not work after fork: start a new process",
        ));
    }
    Ok(started.1.clone())
}
