//! The half that answers: any initiator that connects, so many at once and no more.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bench::raw::iscsi::{self, Disk};
use block::{BlockDevice as _, Extent, Lba};
use host::{RamDevice, RamOptions};
use reactor::{ListenOptions, Stream};

use super::Poll;
use crate::failure::Failure;
use crate::output::say;
use crate::spec::Bytes;

#[derive(Debug, clap::Args)]
pub(crate) struct RawServeArguments {
    /// Address to listen on; every host that reaches it is answered, without a secret
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = LOOPBACK)]
    listen: SocketAddr,
    /// Size of the disk that initiators see, and of the memory behind it
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    size: Bytes,
    /// Way to wait for requests
    #[arg(long, value_enum, default_value_t = Poll::Never)]
    poll: Poll,
}

/// Not assigned by IANA, and the one behind `linerate lab peer`'s.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9862);
/// Connections that are answered at once, with 256 KiB each; one more is closed at once.
const CONNECTIONS_MAX: u32 = 1024;
/// Before a connection is accepted again, if that has failed.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn run(arguments: &RawServeArguments) -> Result<(), Failure> {
    let disk = disk(arguments.size)?;
    let at = arguments.listen;
    reactor::block_on(arguments.poll.world()?, async {
        let listener = reactor::world().listen(at, &ListenOptions::default());
        let listener =
            listener.map_err(|error| Failure::refused(format!("cannot listen on {at}: {error}")))?;
        say(&format!(
            "linerate lab raw-serve: iSCSI without storage, to measure what is beside it\n\
             listens on {}; answers whoever asks for any target; keeps nothing\nready\n",
            listener.local()
        ));
        let present = Rc::new(Cell::new(0));
        loop {
            match listener.accept().await {
                Ok(stream) if present.get() < CONNECTIONS_MAX => {
                    reactor::spawn(answer(stream, disk.clone(), Guest::enter(&present)));
                }
                Ok(stream) => drop(stream),
                Err(error) => {
                    // No file descriptors or no memory: there may be some later.
                    tracing::warn!(%error, "cannot accept a connection");
                    reactor::sleep(PAUSE).await;
                }
            }
        }
    })
}

/// All of the memory is taken from the system before anybody measures.
fn disk(Bytes(bytes): Bytes) -> Result<Disk, Failure> {
    let ram = RamDevice::new(RamOptions::new(bytes)).map_err(Failure::refused)?;
    let all = Extent { lba: Lba(0), blocks: ram.geometry().blocks };
    let piece = vec![0x5a; 1 << 20];
    if let Some(mut blocks) = ram.memory_to_write(all) {
        (0..blocks.len()).step_by(piece.len()).for_each(|at| blocks.put(at, &piece));
    }
    let too_small = || Failure::refused("the disk is too small: take at least 256KiB");
    ram.memory(all).and_then(Disk::new).ok_or_else(too_small)
}

async fn answer(stream: Box<dyn Stream>, disk: Disk, _guest: Guest) {
    if let Err(error) = iscsi::serve(&*stream, &disk).await {
        // One who has measured enough goes away in the middle, which is no failure.
        tracing::debug!(peer = %stream.peer(), %error, "a connection has ended");
    }
}

/// The place of one who is answered.
struct Guest(Rc<Cell<u32>>);

impl Guest {
    fn enter(present: &Rc<Cell<u32>>) -> Guest {
        present.set(present.get() + 1);
        Guest(Rc::clone(present))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
