//! `linerate read`: a LUN, or a part of it, to standard output or a file.
//!
//! Requests end in any order and are written in theirs. Writing is a thread's of its own: while nobody reads at the
//! other end of a pipe, the session goes on answering its target.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;

use block::{DeviceError, Slice};
use reactor::{JoinHandle, Receiver, mailbox};

use crate::bytewise;
use crate::failure::{Failure, Kind};
use crate::interrupt::Interrupt;
use crate::place::{Opened, Place};
use crate::private_file;
use crate::remote;
use crate::spec::Bytes;

/// Reads a LUN or volume, or a part of it, to standard output or a file
#[derive(Debug, clap::Args)]
pub(crate) struct ReadArguments {
    /// What to read: iscsi://[user@]host[:port]/target/lun[?key=value&...], a volume such as file:/data/vm1.img, or the
    /// path of a file or block device
    #[arg(value_name = "URL")]
    place: String,
    /// Where to begin
    #[arg(long, value_name = "SIZE", default_value = "0")]
    offset: Bytes,
    /// How much to read [default: to the end]
    #[arg(long, value_name = "SIZE")]
    length: Option<Bytes>,
    /// Where to write to [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Requests under way at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
}

/// What one request asks for. They begin at multiples of it.
pub(crate) const REQUEST_BYTES: u64 = 1 << 20;

/// Runs the command.
pub(crate) fn run(arguments: &ReadArguments) -> Result<(), Failure> {
    let place = Place::parse(&arguments.place)?;
    let interrupt = Interrupt::listen()?;
    remote::run(async {
        let opened = place.open(true).await?;
        let done = read(arguments, &place, &opened, &interrupt).await;
        opened.close().await;
        done
    })
}

async fn read(
    arguments: &ReadArguments,
    place: &Place,
    opened: &Opened,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let range = part(arguments.offset, arguments.length, opened.device.geometry().bytes(), place)?;
    let mut outlet = Outlet::open(arguments)?;
    let mut under_way: VecDeque<(u64, JoinHandle<Result<Slice, DeviceError>>)> = VecDeque::new();
    let mut requests = requests(range, REQUEST_BYTES);
    loop {
        while under_way.len() < usize::from(arguments.depth) && !interrupt.is_asked() {
            let Some(request) = requests.next() else { break };
            let (at, device) = (request.start, Arc::clone(&opened.device));
            let reading = reactor::spawn(async move { bytewise::read(&*device, request).await });
            under_way.push_back((at, reading));
        }
        let Some((at, reading)) = under_way.pop_front() else { break };
        let data = reading.await;
        let data =
            data.map_err(|error| Failure::device(format_args!("cannot read {place} at byte {at}"), error))?;
        if !outlet.put(data).await? {
            return Ok(()); // nobody wants the rest: `linerate read … | head` has what it asked for
        }
    }
    outlet.finish().await?;
    match interrupt.is_asked() {
        true => Err(Failure::new(Kind::Interrupted, "interrupted")),
        false => Ok(()),
    }
}

/// The part of something `bytes` long that was asked for.
pub(crate) fn part(
    offset: Bytes,
    length: Option<Bytes>,
    bytes: u64,
    place: &Place,
) -> Result<Range<u64>, Failure> {
    let all = bytes.checked_sub(offset.0);
    let end = match (all, length) {
        (Some(_), None) => Some(bytes),
        (Some(all), Some(length)) if length.0 <= all => Some(offset.0 + length.0),
        _ => None,
    };
    end.map(|end| offset.0..end).ok_or_else(|| Failure::refused(format!("{place} ends at byte {bytes}")))
}

/// A range cut at multiples of `request_bytes`: no two of the pieces share a block.
pub(crate) fn requests(range: Range<u64>, request_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let start = at;
        at = (start - start % request_bytes).saturating_add(request_bytes).min(range.end);
        (start < range.end).then_some(start..at)
    })
}

/// A thread that writes.
struct Outlet {
    data: Option<mpsc::Sender<Slice>>,
    /// An answer for each of the data, and one for the end.
    written: Receiver<io::Result<()>>,
    waiting: usize,
    /// Where the data go, for people.
    name: String,
}

/// Data that wait for the thread: enough that it never waits for us.
const WAITING_MAX: usize = 4;

impl Outlet {
    fn open(arguments: &ReadArguments) -> Result<Outlet, Failure> {
        let output: Box<dyn Write + Send> = match &arguments.output {
            None => Box::new(io::stdout()),
            Some(path) => {
                let made = private_file::create_new(path);
                let name = path.display();
                Box::new(made.map_err(|error| Failure::refused(format!("cannot make {name}: {error}")))?)
            }
        };
        let (data, to_write) = mpsc::channel::<Slice>();
        let (done, written) = mailbox();
        let write = move || {
            let mut output = output;
            for data in to_write {
                if done.send(output.write_all(&data)).is_err() {
                    return;
                }
            }
            let _ = done.send(output.flush()); // nobody asks any more only where the command has failed
        };
        thread::Builder::new().name("output".to_owned()).spawn(write).map_err(Failure::failed)?;
        let name = arguments.output.as_ref();
        let name = name.map_or_else(|| "standard output".to_owned(), |path| path.display().to_string());
        Ok(Outlet { data: Some(data), written, waiting: 0, name })
    }

    /// Hands it more; false once nobody reads any more.
    async fn put(&mut self, data: Slice) -> Result<bool, Failure> {
        // A thread that has gone has said why.
        let _ = self.data.as_ref().map(|queue| queue.send(data));
        self.waiting += 1;
        let mut is_open = true;
        while self.waiting >= WAITING_MAX && is_open {
            is_open = self.next().await?;
        }
        Ok(is_open)
    }

    /// Ends when all is written.
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
            Some(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Some(Err(error)) => Err(Failure::unwritten(&self.name, &error)),
            None => Err(Failure::failed("the output has gone")),
        }
    }
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
    fn a_part_that_is_not_there_is_refused() {
        let place = Place::parse("ram:1MiB").expect("a place");
        let whole = 1 << 20;
        let part = |offset, length: Option<u64>| part(Bytes(offset), length.map(Bytes), whole, &place).ok();
        assert_eq!(part(0, None), Some(0..whole));
        assert_eq!(part(3, Some(5)), Some(3..8));
        assert_eq!(part(whole, Some(0)), Some(whole..whole));
        assert_eq!(part(whole + 1, None), None);
        assert_eq!(part(1, Some(whole)), None);
        assert_eq!(part(1, Some(u64::MAX)), None);
    }
}
