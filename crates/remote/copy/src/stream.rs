//! Transfers between storage and a pipe: [`read`] copies a range of a device to an output, and [`write`]
//! copies an input to a range of a device. An output file gets holes instead of zeros.
//!
//! Requests complete in any order, but data is passed on in order. The pipe has a separate thread: while that
//! thread blocks, the session continues to respond to its target.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread;

use backends::{Failure, FailureKind};
use block::{BlockDevice, Buffer, DeviceError, Slice, bytewise};
use reactor::{JoinHandle, Receiver, mailbox};

use crate::pieces::{self, Piece, Pieces, Queue};
use crate::source::Source;

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
    /// Returns true if the transfer must end early. Outstanding requests are still executed.
    pub is_interrupted: &'a dyn Fn() -> bool,
}

/// The length and alignment of a request.
const REQUEST_BYTES: u64 = 1 << 20;

/// Pieces queued between the session and the pipe's thread: usually enough that neither waits for the other.
const WAITING_MAX: usize = 4;

/// The byte range that starts at `offset` of a device of `bytes` bytes. It has the length `length`, or
/// extends to the end of the device. `None` if it exceeds the end.
pub fn range(offset: u64, length: Option<u64>, bytes: u64) -> Option<Range<u64>> {
    let all = bytes.checked_sub(offset)?;
    let length = length.unwrap_or(all);
    (length <= all).then(|| offset..offset + length)
}

/// Splits a range at multiples of `request_bytes`, so that no two pieces share a block.
pub(crate) fn requests(range: Range<u64>, request_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        at = (start - start % request_bytes)
            .saturating_add(request_bytes)
            .min(range.end);
        (start < range.end).then_some(start..at)
    })
}

/// The output of [`read`].
pub enum Output {
    /// A pipe, or any other output to which every byte is written.
    Pipe(Box<dyn Write + Send>),
    /// A new file. It gets holes where the device has holes, which are not read, and where the device's data
    /// is zero.
    NewFile(File),
}

/// Writes the part to `output`; `output_name` is the output's display name. It is not an error if the reader
/// closes the pipe early. After a failure, an output file ends at the position of the failure.
///
/// # Errors
/// The read or write failed; [`FailureKind::Interrupted`] if the transfer was interrupted.
pub async fn read(
    part: &DeviceRange<'_>,
    output: Output,
    output_name: &str,
) -> Result<(), Failure> {
    let is_file = matches!(output, Output::NewFile(_));
    let mut outlet = Outlet::open(output, output_name.to_owned())?;
    let done = pass_on(part, &mut outlet, is_file).await;
    let is_open = match &done {
        Ok(is_open) => *is_open,
        Err(_) => is_file, // a write to a pipe may wait for the reader forever
    };
    let finished = if is_open {
        outlet.finish().await
    } else {
        Ok(())
    };
    done?;
    finished?;
    match is_open && (part.is_interrupted)() {
        true => Err(Failure::new(FailureKind::Interrupted, "interrupted")),
        false => Ok(()),
    }
}

/// A task that reads a piece.
type Reading = JoinHandle<Result<Slice, DeviceError>>;

/// Reads pieces concurrently, and puts them into the outlet in order. Returns false if the reader has closed
/// the pipe.
async fn pass_on(
    part: &DeviceRange<'_>,
    outlet: &mut Outlet,
    is_file: bool,
) -> Result<bool, Failure> {
    let source = Rc::new(Source::up_to(
        part.range.end,
        Arc::clone(part.device),
        part.name.to_owned(),
    ));
    let block = source.block_bytes();
    let pieces = if is_file {
        Pieces::new
    } else {
        Pieces::all_data
    };
    let mut pieces = pieces(source, part.range.start, REQUEST_BYTES, block);
    let mut outstanding: VecDeque<(Range<u64>, Option<Reading>)> = VecDeque::new();
    loop {
        while outstanding.len() < usize::from(part.depth) && !(part.is_interrupted)() {
            let Some(Piece { range, is_hole }) = pieces.next().await else {
                break;
            };
            let (request, device) = (range.clone(), Arc::clone(part.device));
            let reading = async move { bytewise::read(&*device, request).await };
            outstanding.push_back((range, (!is_hole).then(|| reactor::spawn(reading))));
        }
        let Some((range, reading)) = outstanding.pop_front() else {
            return Ok(true);
        };
        let passed = match reading {
            None => Part::Hole(range.end - range.start),
            Some(reading) => Part::Data(reading.await.map_err(|error| {
                Failure::device(
                    format_args!("cannot read {} at byte {}", part.name, range.start),
                    error,
                )
            })?),
        };
        if !outlet.put(passed).await? {
            return Ok(false); // the reader, such as `head`, needs no more data
        }
    }
}

/// Writes the content of `input` to the part, until the input ends or the part is full. Returns the byte
/// position reached. `name` is the input's display name. Does not flush. Input beyond the end of the part is
/// ignored if `is_exact` is set, and an error otherwise.
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
                result = Err(Failure::failed(format_args!(
                    "cannot read {input_name}: {error}"
                )));
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
            written.map_err(|error| {
                Failure::device(format_args!("cannot write {name} at byte {at}"), error)
            })
        });
        end += length;
        debug_assert!(
            end <= part.range.end,
            "the input does not go beyond its part"
        );
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

/// A part of the output.
enum Part {
    Data(Slice),
    /// A hole of this many bytes.
    Hole(u64),
}

impl Output {
    /// Writes the part at this position.
    fn write(&mut self, at: u64, part: &Part) -> io::Result<()> {
        match (self, part) {
            (Output::Pipe(pipe), Part::Data(data)) => pipe.write_all(data),
            (Output::NewFile(file), Part::Data(data)) => {
                let runs = pieces::runs(data).into_iter().filter(|run| !run.is_zero);
                runs.map(|run| run.range).try_for_each(|run| {
                    file.write_all_at(&data[run.clone()], at + run.start as u64)
                })
            }
            (Output::Pipe(pipe), Part::Hole(bytes)) => {
                io::copy(&mut io::repeat(0).take(*bytes), pipe).map(drop)
            }
            (Output::NewFile(_), Part::Hole(_)) => Ok(()),
        }
    }

    /// Ends the output. All data before this position was written.
    fn end(&mut self, at: u64) -> io::Result<()> {
        match self {
            Output::Pipe(pipe) => pipe.flush(),
            Output::NewFile(file) => file.set_len(at),
        }
    }
}

impl Part {
    fn bytes(&self) -> u64 {
        match self {
            Part::Data(data) => data.len() as u64,
            Part::Hole(bytes) => *bytes,
        }
    }
}

/// A thread that writes the output, until its first error.
struct Outlet {
    data: Option<mpsc::Sender<Part>>,
    /// Receives one result for each piece of data, and one for the end.
    written: Receiver<io::Result<()>>,
    waiting: usize,
    name: String,
}

impl Outlet {
    fn open(mut output: Output, name: String) -> Result<Outlet, Failure> {
        let (data, to_write) = mpsc::channel::<Part>();
        let (done, written) = mailbox();
        let write = move || {
            let mut at = 0;
            for part in to_write {
                let result = output.write(at, &part);
                if result.is_err() {
                    let _ = output.end(at); // the error that ended the loop is reported instead
                    let _ = done.send(result);
                    return;
                }
                at += part.bytes();
                if done.send(result).is_err() {
                    return;
                }
            }
            let _ = done.send(output.end(at)); // fails only if the command has already failed
        };
        thread::Builder::new()
            .name("output".to_owned())
            .spawn(write)
            .map_err(Failure::failed)?;
        Ok(Outlet {
            data: Some(data),
            written,
            waiting: 0,
            name,
        })
    }

    /// Queues more data. Returns false once the reader has closed the pipe.
    async fn put(&mut self, part: Part) -> Result<bool, Failure> {
        // If the thread has ended, it has sent its error before.
        let _ = self.data.as_ref().map(|queue| queue.send(part));
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
            None => Err(Failure::failed("the reader of the output has closed it")),
        }
    }
}

/// A thread that reads the input, in pieces that match the requests.
struct Inlet {
    data: Receiver<io::Result<Slice>>,
    /// Permits to read further pieces.
    allow: mpsc::Sender<()>,
}

impl Inlet {
    /// Opens the input for `range`. One byte beyond it is read unless the range `is_exact`: such a byte is an
    /// error.
    fn open(
        mut input: Box<dyn Read + Send>,
        range: Range<u64>,
        is_exact: bool,
    ) -> Result<Inlet, Failure> {
        let (sender, data) = mailbox();
        let (allow, allowed) = mpsc::channel();
        let read = move || {
            let beyond = (!is_exact).then_some(range.end..range.end.saturating_add(1));
            for request in requests(range, REQUEST_BYTES).chain(beyond) {
                if allowed.recv().is_err() {
                    return; // the command has ended
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
        thread::Builder::new()
            .name("input".to_owned())
            .spawn(read)
            .map_err(Failure::failed)?;
        for _ in 0..WAITING_MAX {
            let _ = allow.send(()); // fails only if the thread has ended, and then there is nothing to read
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

/// Reads `wanted` bytes of the input, or fewer at its end.
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
    use std::cell::Cell;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use backends::remote;
    use host::{RamDevice, RamOptions};

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Creates a device of 8 MiB. Zeros are written to its second and third MiB, and sevens to its sixth.
    fn device() -> Arc<dyn BlockDevice> {
        let device: Arc<dyn BlockDevice> =
            Arc::new(RamDevice::new(RamOptions::new(8 << 20)).expect("memory"));
        let written = remote::run(async {
            let zeros = bytewise::write(&*device, MIB, Buffer::zeroed(2 << 20).share()).await;
            let sevens = Buffer::from(&vec![7; 1 << 20][..]).share();
            Ok(zeros.and(bytewise::write(&*device, 5 * MIB, sevens).await))
        });
        written.expect("a world").expect("memory");
        device
    }

    /// Reads the range into a new file.
    fn read_to_file(
        range: Range<u64>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> (Result<(), Failure>, File) {
        let (device, file) = (device(), tempfile::tempfile().expect("a temporary file"));
        let part = DeviceRange {
            device: &device,
            name: "disk",
            range,
            depth: 1,
            is_interrupted,
        };
        let output = Output::NewFile(file.try_clone().expect("a file"));
        (remote::run(read(&part, output, "file")), file)
    }

    #[test]
    fn a_new_file_gets_holes_for_holes_and_for_zeros() {
        let range = 1000..8 * MIB - 3;
        let (done, file) = read_to_file(range.clone(), &|| false);
        done.unwrap_or_else(|failure| panic!("{failure}"));
        let mut expected = vec![0; 8 << 20];
        expected[5 << 20..6 << 20].fill(7);
        let mut found = vec![1; (range.end - range.start) as usize];
        file.read_exact_at(&mut found, 0).expect("the whole range");
        assert!(found == expected[range.start as usize..range.end as usize]);
        let metadata = file.metadata().expect("a file");
        assert_eq!(metadata.len(), range.end - range.start);
        assert!(
            metadata.blocks() * 512 <= 2 * MIB,
            "{} blocks",
            metadata.blocks()
        );
    }

    #[test]
    fn a_file_of_an_interrupted_read_ends_with_the_data_that_was_read() {
        let looks = Cell::new(0);
        let is_interrupted = || looks.replace(looks.get() + 1) >= 2;
        let (done, file) = read_to_file(0..8 * MIB, &is_interrupted);
        assert_eq!(
            done.expect_err("interrupted").kind(),
            FailureKind::Interrupted
        );
        // The file contains the first hole, and the first MiB of the zeros after it.
        assert_eq!(file.metadata().expect("a file").len(), 2 * MIB);
    }

    #[test]
    fn a_pipe_gets_every_byte() {
        let (device, folder) = (device(), tempfile::tempdir().expect("a temporary folder"));
        let path = folder.path().join("output");
        let output = Output::Pipe(Box::new(File::create(&path).expect("a file")));
        let part = DeviceRange {
            device: &device,
            name: "disk",
            range: 0..8 * MIB,
            depth: 4,
            is_interrupted: &|| false,
        };
        remote::run(read(&part, output, "pipe")).unwrap_or_else(|failure| panic!("{failure}"));
        let found = fs::read(&path).expect("a file");
        assert_eq!(
            (found.len() as u64, found[5 << 20], found[6 << 20]),
            (8 * MIB, 7, 0)
        );
        assert!(path.metadata().expect("a file").blocks() * 512 >= 8 * MIB);
    }

    #[test]
    fn requests_are_cut_at_multiples_of_their_length() {
        let cut: Vec<_> = requests(1000..2 * REQUEST_BYTES + 7, REQUEST_BYTES).collect();
        let expected = [
            1000..REQUEST_BYTES,
            REQUEST_BYTES..2 * REQUEST_BYTES,
            2 * REQUEST_BYTES..2 * REQUEST_BYTES + 7,
        ];
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
