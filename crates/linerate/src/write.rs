//! `linerate write`: standard input to a LUN, or to a part of it.
//!
//! Reading is a thread's of its own, so that the session goes on answering its target while nothing comes.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use block::{BlockDevice, Buffer, Slice};
use reactor::{Receiver, mailbox};

use crate::bytewise;
use crate::failure::{Failure, Kind};
use crate::interrupt::Interrupt;
use crate::place::{Opened, Place};
use crate::queue::Queue;
use crate::read::{REQUEST_BYTES, part, requests};
use crate::remote;
use crate::spec::Bytes;
use crate::terminal::Overwritten;

/// Writes standard input to a LUN or volume, or to a part of it; ends when the data are on stable storage
#[derive(Debug, clap::Args)]
pub(crate) struct WriteArguments {
    /// Where to write: iscsi://[user@]host[:port]/target/lun[?key=value&...], a volume such as file:/data/vm1.img, or
    /// the path of a file or block device
    #[arg(value_name = "URL")]
    place: String,
    /// Where to begin
    #[arg(long, value_name = "SIZE", default_value = "0")]
    offset: Bytes,
    /// How much to write; it is an error if less comes, and what follows is not read [default: all that comes]
    #[arg(long, value_name = "SIZE")]
    length: Option<Bytes>,
    /// Overwrite what is there without asking
    #[arg(long)]
    yes: bool,
    /// Requests under way at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
}

/// Runs the command.
pub(crate) fn run(arguments: &WriteArguments) -> Result<(), Failure> {
    let place = Place::parse(&arguments.place)?;
    let interrupt = Interrupt::listen()?;
    remote::run(async {
        let opened = place.open(false).await?;
        let done = write(arguments, &place, &opened, &interrupt).await;
        opened.close().await;
        done
    })
}

async fn write(
    arguments: &WriteArguments,
    place: &Place,
    opened: &Opened,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let device = &opened.device;
    let range = part(arguments.offset, arguments.length, device.geometry().bytes(), place)?;
    Overwritten { device: &**device, name: place, part: None, lun: None }.consent(arguments.yes).await?;
    let written = pour(arguments, place, device, range.clone(), interrupt).await;
    let flushed = device.flush().await;
    let end = written?;
    flushed.map_err(|error| Failure::device(format_args!("cannot flush {place}"), error))?;
    if interrupt.is_asked() {
        let end = Bytes(end);
        return Err(Failure::new(
            Kind::Interrupted,
            format_args!("interrupted; {place} is written up to {end}"),
        ));
    }
    match arguments.length {
        Some(Bytes(length)) if end < range.end => {
            let came = end - range.start;
            Err(Failure::failed(format_args!("the input ended after {came} bytes of {length}")))
        }
        _ => Ok(()),
    }
}

/// Writes what comes, and says where it ended.
async fn pour(
    arguments: &WriteArguments,
    place: &Place,
    device: &Arc<dyn BlockDevice>,
    range: Range<u64>,
    interrupt: &Interrupt,
) -> Result<u64, Failure> {
    let is_bounded = arguments.length.is_some();
    let mut inlet = Inlet::open(range.clone(), is_bounded)?;
    let mut queue: Queue<Result<(), Failure>> = Queue::new(usize::from(arguments.depth));
    let (mut end, mut result) = (range.start, Ok(()));
    while result.is_ok() && !interrupt.is_asked() {
        let data = match inlet.next().await {
            Ok(Some(data)) => data,
            Ok(None) => break,
            Err(error) => {
                result = Err(Failure::failed(format_args!("cannot read standard input: {error}")));
                break;
            }
        };
        if end >= range.end {
            result =
                Err(Failure::new(Kind::NoSpace, format_args!("{place} is full, and more input follows")));
            break;
        }
        let (at, length) = (end, data.len() as u64);
        let (device, name) = (Arc::clone(device), place.to_string());
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

/// A thread that reads standard input, in pieces that fit the requests.
struct Inlet {
    data: Receiver<io::Result<Slice>>,
    /// How many more it may read.
    allow: mpsc::Sender<()>,
}

/// Read ahead: enough that the device never waits for the thread.
const READ_AHEAD: usize = 4;

impl Inlet {
    /// For what goes to `range`. One byte behind it is read, unless its end `is_bounded`: that is too much, then.
    fn open(range: Range<u64>, is_bounded: bool) -> Result<Inlet, Failure> {
        let (sender, data) = mailbox();
        let (allow, allowed) = mpsc::channel();
        let read = move || {
            let beyond = (!is_bounded).then_some(range.end..range.end.saturating_add(1));
            for request in requests(range, REQUEST_BYTES).chain(beyond) {
                if allowed.recv().is_err() {
                    return; // the command is over
                }
                let wanted = (request.end - request.start) as usize;
                let filled = fill(wanted);
                let is_last = !matches!(&filled, Ok(data) if data.len() == wanted);
                let is_empty = matches!(&filled, Ok(data) if data.is_empty());
                if is_empty || sender.send(filled).is_err() || is_last {
                    return;
                }
            }
        };
        thread::Builder::new().name("input".to_owned()).spawn(read).map_err(Failure::failed)?;
        for _ in 0..READ_AHEAD {
            let _ = allow.send(()); // it has gone only if there is nothing to read
        }
        Ok(Inlet { data, allow })
    }

    /// The next data; nothing at the end.
    async fn next(&mut self) -> io::Result<Option<Slice>> {
        let next = self.data.recv().await.transpose();
        let _ = self.allow.send(());
        next
    }
}

/// So many bytes of standard input; fewer at its end.
fn fill(wanted: usize) -> io::Result<Slice> {
    let mut buffer = Buffer::recycled(wanted);
    let (mut stdin, mut filled) = (io::stdin().lock(), 0);
    while filled < wanted {
        match stdin.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(filled);
    Ok(buffer.share())
}
