//! Transfers between storage and a pipe: [`read`] copies a range of a device to an output, [`write`] an input
//! to a range of a device.
//!
//! Requests complete in any order, and data is passed on in order. The pipe has a separate thread: while it
//! blocks, the session continues to respond to its target.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::thread;

use backends::{Failure, FailureKind};
use block::{BlockDevice, Buffer, DeviceError, Slice, bytewise};
use reactor::{JoinHandle, Receiver, mailbox};

use crate::pieces::Queue;

/// A range of a device to read or write.
pub struct DeviceRange<'a> {
    /// The device.
    pub device: &'a Arc<dyn BlockDevice>,
    /// Its display name.
    pub name: &'a str,
    /// The byte range.
    pub range: Range<u64>,
    /// Maximum number of outstanding requests.
    pub depth: u16,
    /// Whether to end early. Outstanding requests are still executed.
    pub is_interrupted: &'a dyn Fn() -> bool,
}

/// The length and alignment of a request.
const REQUEST_BYTES: u64 = 1 << 20;

/// Pieces queued between the session and the pipe's thread: usually enough that neither waits for the other.
const WAITING_MAX: usize = 4;

/// The byte range that starts at `offset` in `bytes` bytes, of length `length` or up to the end. `None` if it
/// exceeds the end.
pub fn range(offset: u64, length: Option<u64>, bytes: u64) -> Option<Range<u64>> {
    let all = bytes.checked_sub(offset)?;
    let length = length.unwrap_or(all);
    (length <= all).then(|| offset..offset + length)
}

/// A range split at multiples of `request_bytes`, so that no two pieces share a block.
pub(crate) fn requests(range: Range<u64>, request_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        at = (start - start % request_bytes).saturating_add(request_bytes).min(range.end);
        (start < range.end).then_some(start..at)
    })
}

/// Writes the part to `output`; `name` is its display name. If the reader closes the pipe early, that counts
/// as success.
///
/// # Errors
/// The read or write failed. [`FailureKind::Interrupted`] if it was interrupted.
pub async fn read(
    part: &DeviceRange<'_>,
    output: Box<dyn Write + Send>,
    output_name: &str,
) -> Result<(), Failure> {
    let mut outlet = Outlet::open(output, output_name.to_owned())?;
    let mut outstanding: VecDeque<(u64, JoinHandle<Result<Slice, DeviceError>>)> = VecDeque::new();
    let mut requests = requests(part.range.clone(), REQUEST_BYTES);
    loop {
        while outstanding.len() < usize::from(part.depth) && !(part.is_interrupted)() {
            let Some(request) = requests.next() else { break };
            let (at, device) = (request.start, Arc::clone(part.device));
            let reading = reactor::spawn(async move { bytewise::read(&*device, request).await });
            outstanding.push_back((at, reading));
        }
        let Some((at, reading)) = outstanding.pop_front() else { break };
        let data = reading.await.map_err(|error| {
            Failure::device(format_args!("cannot read {} at byte {at}", part.name), error)
        })?;
        if !outlet.put(data).await? {
            return Ok(()); // `linerate read … | head` has all it needs
        }
    }
    outlet.finish().await?;
    match (part.is_interrupted)() {
        true => Err(Failure::new(FailureKind::Interrupted, "interrupted")),
        false => Ok(()),
    }
}

/// Writes the content of `input` to the part, until the input ends or the part is full, and returns the byte
/// position reached; `name` is its display name. Nothing is flushed. Input beyond the part is ignored if the
/// part `is_exact`, and an error otherwise.
///
/// # Errors
/// The read or write failed.
pub async fn write(
    part: &DeviceRange<'_>,
    input: Box<dyn Read + Send>,
    input_name: &str,
    is_exact: bool,
) -> Result<u64, Failure> {
    let mut inlet = Inlet::open(input, part.range.clone(), is_exact)?;
    let mut queue: Queue<Result<(), Failure>> = Queue::new(usize::from(part.depth));
    let (mut end, mut result) = (part.range.start, Ok(()));
    while result.is_ok() && !(part.is_interrupted)() {
        let data = match inlet.next().await {
            Ok(Some(data)) => data,
            Ok(None) => break,
            Err(error) => {
                result = Err(Failure::failed(format_args!("cannot read {input_name}: {error}")));
                break;
            }
        };
        if end >= part.range.end {
            let full = format_args!("{} is full, and more input follows", part.name);
            result = Err(Failure::new(FailureKind::NoSpace, full));
            break;
        }
        let (at, length) = (end, data.len() as u64);
        let (device, name) = (Arc::clone(part.device), part.name.to_owned());
        queue.start(async move {
            let written = bytewise::write(&*device, at, data).await;
            written.map_err(|error| Failure::device(format_args!("cannot write {name} at byte {at}"), error))
        });
        end += length;
        if queue.is_full()
            && let Some(written) = queue.next().await
        {
            result = result.and(written);
        }
    }
    while let Some(written) = queue.next().await {
        result = result.and(written);
    }
    result.map(|()| end)
}

/// A thread that writes.
struct Outlet {
    data: Option<mpsc::Sender<Slice>>,
    /// A result for each piece of data, and one for the end.
    written: Receiver<io::Result<()>>,
    waiting: usize,
    name: String,
}

impl Outlet {
    fn open(mut output: Box<dyn Write + Send>, name: String) -> Result<Outlet, Failure> {
        let (data, to_write) = mpsc::channel::<Slice>();
        let (done, written) = mailbox();
        let write = move || {
            for data in to_write {
                if done.send(output.write_all(&data)).is_err() {
                    return;
                }
            }
            let _ = done.send(output.flush()); // the receiver is gone only if the command has failed
        };
        thread::Builder::new().name("output".to_owned()).spawn(write).map_err(Failure::failed)?;
        Ok(Outlet { data: Some(data), written, waiting: 0, name })
    }

    /// Queues more data. Returns false once the reader has closed the pipe.
    async fn put(&mut self, data: Slice) -> Result<bool, Failure> {
        // A thread that has ended has sent its error.
        let _ = self.data.as_ref().map(|queue| queue.send(data));
        self.waiting += 1;
        let mut is_open = true;
        while self.waiting >= WAITING_MAX && is_open {
            is_open = self.next().await?;
        }
        Ok(is_open)
    }

    /// Resolves when everything is written.
    async fn finish(mut self) -> Result<(), Failure> {
        self.data = None;
        self.waiting += 1;
        while self.waiting > 0 && self.next().await? {}
        Ok(())
    }

    async fn next(&mut self) -> Result<bool, Failure> {
        self.waiting -= 1;
        match self.written.recv().await {
            Some(Ok(())) => Ok(true),
            Some(Err(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Some(Err(error)) => Err(Failure::unwritten(&self.name, &error)),
            None => Err(Failure::failed("the reader of the output has gone")),
        }
    }
}

/// A thread that reads, in pieces that match the requests.
struct Inlet {
    data: Receiver<io::Result<Slice>>,
    /// Permits to read further pieces.
    allow: mpsc::Sender<()>,
}

impl Inlet {
    /// Opens the input for `range`. One byte beyond it is read unless the range `is_exact`: such a byte is an
    /// error.
    fn open(mut input: Box<dyn Read + Send>, range: Range<u64>, is_exact: bool) -> Result<Inlet, Failure> {
        let (sender, data) = mailbox();
        let (allow, allowed) = mpsc::channel();
        let read = move || {
            let beyond = (!is_exact).then_some(range.end..range.end.saturating_add(1));
            for request in requests(range, REQUEST_BYTES).chain(beyond) {
                if allowed.recv().is_err() {
                    return; // the command is over
                }
                let wanted = (request.end - request.start) as usize;
                let filled = fill(&mut *input, wanted);
                let is_last = !matches!(&filled, Ok(data) if data.len() == wanted);
                let is_empty = matches!(&filled, Ok(data) if data.is_empty());
                if is_empty || sender.send(filled).is_err() || is_last {
                    return;
                }
            }
        };
        thread::Builder::new().name("input".to_owned()).spawn(read).map_err(Failure::failed)?;
        for _ in 0..WAITING_MAX {
            let _ = allow.send(()); // the thread has ended only if there is nothing to read
        }
        Ok(Inlet { data, allow })
    }

    /// The next data; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Slice>> {
        let next = self.data.recv().await.transpose();
        let _ = self.allow.send(());
        next
    }
}

/// Reads up to `wanted` bytes of the input; fewer at its end.
fn fill(input: &mut dyn Read, wanted: usize) -> io::Result<Slice> {
    let (mut buffer, mut filled) = (Buffer::recycled(wanted), 0);
    while filled < wanted {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(filled);
    Ok(buffer.share())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_cut_at_multiples_of_their_length() {
        let cut: Vec<_> = requests(1000..2 * REQUEST_BYTES + 7, REQUEST_BYTES).collect();
        let expected =
            [1000..REQUEST_BYTES, REQUEST_BYTES..2 * REQUEST_BYTES, 2 * REQUEST_BYTES..2 * REQUEST_BYTES + 7];
        assert_eq!(cut, expected);
        assert_eq!(requests(5..5, 512).count(), 0);
        assert_eq!(requests(u64::MAX - 3..u64::MAX, 512).count(), 1);
    }

    #[test]
    fn a_part_that_is_not_there_has_no_range() {
        let whole = 1 << 20;
        let part = |offset, length| range(offset, length, whole);
        assert_eq!(part(0, None), Some(0..whole));
        assert_eq!(part(3, Some(5)), Some(3..8));
        assert_eq!(part(whole, Some(0)), Some(whole..whole));
        assert_eq!(part(whole + 1, None), None);
        assert_eq!(part(1, Some(whole)), None);
        assert_eq!(part(1, Some(u64::MAX)), None);
    }
}
