//! The class `linerate.Lun`.

use std::sync::Mutex;

use block::{Buffer, DeviceError, Durability, Extent, Slice};
use blocking::{Ended, Lun as Remote, Request};
use iscsi_client::verbs::VerbError;
use iscsi_client::{CommandError, CommandResult, Settings, Transfer, cdb::Cdb};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::errors;
use crate::futures::future;
use crate::waiting::wait;

/// A logical unit of a target (`linerate._linerate.Lun`). The subclass `linerate.Lun` adds the parts that do
/// not need Rust.
#[pyclass(frozen, subclass, module = "linerate._linerate")]
pub(crate) struct Lun {
    remote: Mutex<Option<Remote>>,
    process: u32,
    /// The requested and negotiated keys of the login, as JSON.
    negotiated: String,
    identity: String,
    /// T10 vendor identification, product identification, and product revision level.
    product: (String, String, String),
}

impl Lun {
    pub(crate) fn new(py: Python<'_>, remote: Remote, settings: &Settings) -> PyResult<Lun> {
        let got = remote.remote().target().parameters();
        let negotiated = inspect::negotiation::negotiated(&settings.offers, &got);
        let negotiated = serde_json::to_string(&negotiated).unwrap_or_default(); // numbers and words
        let asked = remote.run(|device| async move {
            let unit = device.unit();
            let identity = unit.identity().await?;
            Ok::<_, Failed>((identity.to_string(), unit.inquiry().await?))
        });
        let (identity, inquiry) =
            wait(py, asked)?.map_err(|Failed(error)| errors::command(py, error))?;
        Ok(Lun {
            remote: Mutex::new(Some(remote)),
            process: std::process::id(),
            negotiated,
            identity,
            product: (inquiry.vendor, inquiry.product, inquiry.revision),
        })
    }

    fn remote(&self, py: Python<'_>) -> PyResult<Remote> {
        if self.process != std::process::id() {
            return Err(errors::forked(py));
        }
        self.held().clone().ok_or_else(|| errors::closed(py))
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<Remote>> {
        self.remote
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn bytes_of(&self, remote: &Remote, extent: Extent) -> Result<usize, DeviceError> {
        let geometry = remote.geometry();
        // Check this before the memory is allocated.
        if !geometry.contains(extent) {
            return Err(DeviceError::OutOfRange);
        }
        usize::try_from(geometry.length(extent)).map_err(|_| DeviceError::OutOfRange)
    }

    fn reading(
        &self,
        py: Python<'_>,
        lba: u64,
        blocks: u64,
    ) -> PyResult<Request<Buffer, DeviceError>> {
        let (remote, extent) = (self.remote(py)?, Extent::new(lba, blocks));
        let length = self
            .bytes_of(&remote, extent)
            .map_err(|error| errors::device(py, error))?;
        Ok(remote.read(extent, Buffer::recycled(length)))
    }

    fn reading_bytes(
        &self,
        py: Python<'_>,
        offset: u64,
        length: u64,
    ) -> PyResult<Request<Slice, DeviceError>> {
        let beyond = || errors::device(py, DeviceError::OutOfRange);
        let end = offset.checked_add(length).ok_or_else(beyond)?;
        Ok(self.remote(py)?.read_bytes(offset..end))
    }

    fn writing(
        &self,
        py: Python<'_>,
        lba: u64,
        data: &Bound<'_, PyAny>,
        fua: bool,
    ) -> PyResult<Request<(), DeviceError>> {
        let remote = self.remote(py)?;
        let data = copied(data)?;
        let size = remote.geometry().block_size;
        let Some(blocks) = size.exact(data.len() as u64) else {
            let (length, size) = (data.len(), size.bytes());
            let sentence =
                format!("{length} bytes are not a whole number of blocks of {size} bytes");
            return Err(PyValueError::new_err(sentence));
        };
        let durability = if fua {
            Durability::Stable
        } else {
            Durability::Cached
        };
        Ok(remote.write(Extent::new(lba, blocks.0), data.share(), durability))
    }

    fn commanding(
        &self,
        py: Python<'_>,
        cdb: &[u8],
        data_in: usize,
        data_out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request<CommandResult, CommandError>> {
        let mut padded = Cdb::default();
        let Some(start) = padded
            .get_mut(..cdb.len())
            .filter(|start| !start.is_empty())
        else {
            return Err(PyValueError::new_err("a CDB has 1 to 16 bytes"));
        };
        start.copy_from_slice(cdb);
        let transfer = match (data_in, data_out) {
            (0, None) => Transfer::None,
            (0, Some(data)) => Transfer::Out(copied(data)?.share()),
            (length, None) if length <= DATA_IN_MAX => {
                Transfer::into_all_of(Buffer::zeroed(length))
            }
            (_, None) => return Err(PyValueError::new_err("data_in is limited to 256 MiB")),
            (_, Some(_)) => {
                return Err(PyValueError::new_err(
                    "a command can have data_in or data_out, not both",
                ));
            }
        };
        Ok(self.remote(py)?.command(padded, transfer))
    }
}

/// Maximum amount of data that one command can read, since the buffer is allocated before the target
/// responds.
const DATA_IN_MAX: usize = 256 << 20;

/// The status, the parts of the sense data, and the data.
type Reply<'py> = (u8, Option<SenseParts>, Bound<'py, PyBytes>);

/// Sense key, ASC, ASCQ, INFORMATION, whether the error is deferred, and the decoded text.
type SenseParts = (u8, u8, u8, Option<u64>, bool, String);

#[pymethods]
impl Lun {
    #[getter]
    fn block_size(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.remote(py)?.geometry().block_size.bytes())
    }

    #[getter]
    fn blocks(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.remote(py)?.geometry().blocks.0)
    }

    #[getter]
    fn read_only(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.remote(py)?.profile().read_only)
    }

    #[getter]
    fn thin(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.remote(py)?.profile().thin)
    }

    #[getter]
    fn write_cache(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.remote(py)?.profile().volatile_cache)
    }

    #[getter]
    fn identity(&self) -> &str {
        &self.identity
    }

    #[getter]
    fn vendor(&self) -> &str {
        &self.product.0
    }

    #[getter]
    fn product(&self) -> &str {
        &self.product.1
    }

    #[getter]
    fn revision(&self) -> &str {
        &self.product.2
    }

    #[getter]
    fn target(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.remote(py)?.remote().target().nexus().target)
    }

    #[getter]
    fn portal(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self
            .remote(py)?
            .remote()
            .target()
            .nexus()
            .address
            .to_string())
    }

    #[getter]
    fn closed(&self) -> bool {
        self.held().is_none()
    }

    fn _negotiated(&self) -> &str {
        &self.negotiated
    }

    fn _statistics(&self, py: Python<'_>) -> PyResult<String> {
        let told = wait(py, self.remote(py)?.statistics())?.ok().flatten();
        let told = told.ok_or_else(|| errors::device(py, DeviceError::NotReady))?;
        serde_json::to_string(&told).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    #[pyo3(signature = (lba, blocks = 1))]
    fn read<'py>(&self, py: Python<'py>, lba: u64, blocks: u64) -> PyResult<Bound<'py, PyBytes>> {
        let read = wait(py, self.reading(py, lba, blocks)?)?;
        read.map(|buffer| PyBytes::new(py, &buffer))
            .map_err(|error| errors::device(py, error))
    }

    fn readinto(&self, py: Python<'_>, lba: u64, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let memory = writable(buffer)?;
        let size = self.remote(py)?.geometry().block_size;
        let length = memory.len_bytes();
        let Some(blocks) = size.exact(length as u64) else {
            let size = size.bytes();
            let sentence =
                format!("{length} bytes are not a whole number of blocks of {size} bytes");
            return Err(PyValueError::new_err(sentence));
        };
        let read = wait(py, self.reading(py, lba, blocks.0)?)?
            .map_err(|error| errors::device(py, error))?;
        memory.copy_from_slice(py, &read)?;
        Ok(length)
    }

    fn read_bytes<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let read = wait(py, self.reading_bytes(py, offset, length)?)?;
        read.map(|bytes| PyBytes::new(py, &bytes))
            .map_err(|error| errors::device(py, error))
    }

    #[pyo3(signature = (lba, data, *, fua = false))]
    fn write(&self, py: Python<'_>, lba: u64, data: &Bound<'_, PyAny>, fua: bool) -> PyResult<()> {
        wait(py, self.writing(py, lba, data, fua)?)?.map_err(|error| errors::device(py, error))
    }

    fn write_bytes(&self, py: Python<'_>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let request = self.remote(py)?.write_bytes(offset, copied(data)?.share());
        wait(py, request)?.map_err(|error| errors::device(py, error))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, self.remote(py)?.flush())?.map_err(|error| errors::device(py, error))
    }

    fn unmap(&self, py: Python<'_>, lba: u64, blocks: u64) -> PyResult<()> {
        let request = self.remote(py)?.unmap(Extent::new(lba, blocks));
        wait(py, request)?.map_err(|error| errors::device(py, error))
    }

    #[pyo3(signature = (lba, blocks, *, unmap = false))]
    fn write_zeroes(&self, py: Python<'_>, lba: u64, blocks: u64, unmap: bool) -> PyResult<()> {
        let request = self
            .remote(py)?
            .write_zeroes(Extent::new(lba, blocks), unmap);
        wait(py, request)?.map_err(|error| errors::device(py, error))
    }

    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, self.remote(py)?.refresh())?.map_err(|error| errors::device(py, error))
    }

    #[pyo3(signature = (cdb, data_in, data_out))]
    fn _scsi<'py>(
        &self,
        py: Python<'py>,
        cdb: &[u8],
        data_in: usize,
        data_out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Reply<'py>> {
        let answer = wait(py, self.commanding(py, cdb, data_in, data_out)?)?;
        let answer = answer.map_err(|error| errors::command(py, error))?;
        let sense = answer.sense.map(|sense| {
            let words = sense.to_string();
            (
                sense.key,
                sense.code,
                sense.qualifier,
                sense.information,
                sense.deferred,
                words,
            )
        });
        Ok((answer.status, sense, PyBytes::new(py, &answer.data)))
    }

    #[pyo3(signature = (lba, blocks = 1))]
    fn submit_read<'py>(
        &self,
        py: Python<'py>,
        lba: u64,
        blocks: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.reading(py, lba, blocks)?, |py, read| match read {
            Ok(buffer) => Ok(PyBytes::new(py, &buffer).into_any().unbind()),
            Err(error) => Err(errors::device(py, error)),
        })
    }

    #[pyo3(signature = (lba, data, *, fua = false))]
    fn submit_write<'py>(
        &self,
        py: Python<'py>,
        lba: u64,
        data: &Bound<'_, PyAny>,
        fua: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.writing(py, lba, data, fua)?, done)
    }

    fn submit_flush<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.remote(py)?.flush(), done)
    }

    fn submit_unmap<'py>(
        &self,
        py: Python<'py>,
        lba: u64,
        blocks: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        future(py, self.remote(py)?.unmap(Extent::new(lba, blocks)), done)
    }

    /// Logs out. Outstanding requests fail. A second call has no effect.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // Only the parent process may log out its session.
        let remote = self
            .held()
            .take()
            .filter(|_| self.process == std::process::id());
        match remote {
            // If the session's thread has ended, there is nothing to close.
            Some(remote) => wait(py, remote.close()).map(|closed| closed.unwrap_or(())),
            None => Ok(()),
        }
    }
}

fn done(py: Python<'_>, outcome: Result<(), DeviceError>) -> PyResult<Py<PyAny>> {
    outcome
        .map(|()| py.None())
        .map_err(|error| errors::device(py, error))
}

/// Copies the bytes of any object with the buffer protocol, such as bytes, a memoryview or a numpy array. The
/// caller keeps the original, and may change it while the request is outstanding.
fn copied(data: &Bound<'_, PyAny>) -> PyResult<Buffer> {
    let memory = bytes_of(data)?;
    let mut buffer = Buffer::recycled(memory.len_bytes());
    memory.copy_to_slice(data.py(), &mut buffer)?;
    Ok(buffer)
}

fn writable(buffer: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    let memory = bytes_of(buffer)?;
    if memory.readonly() {
        return Err(PyBufferError::new_err("the buffer is read-only"));
    }
    Ok(memory)
}

/// Returns the object's memory as bytes, for any item type. The memory must be contiguous.
fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    let view = PyMemoryView::from(object)?;
    PyBuffer::get(&view.call_method1("cast", ("B",))?)
}

/// The error of the first commands after the login.
struct Failed(CommandError);

impl From<VerbError> for Failed {
    fn from(error: VerbError) -> Failed {
        match error {
            VerbError::Lost(error) => Failed(error),
            _ => Failed(CommandError::Rejected),
        }
    }
}

impl From<Ended> for Failed {
    fn from(_: Ended) -> Failed {
        Failed(CommandError::ConnectionLost)
    }
}
