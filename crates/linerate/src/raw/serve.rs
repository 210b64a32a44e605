//! The half that answers: any initiator that connects, so many at once and no more.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bench::raw::iscsi::{self, Disk};
use block::{BlockDevice as _, Extent, Lba};
use host::{RamDevice, RamOptions};
use reactor::{Stream, StreamOptions};

use super::Poll;
use crate::failure::Failure;
use crate::listen;
use crate::output::say;
use crate::spec::Bytes;

#[derive(Debug, clap::Args)]
pub(crate) struct RawServeArguments {
    /// Address to listen on; every host that reaches it is answered, without a secret
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = LOOPBACK, value_parser = |text: &str| listen::address(text, LOOPBACK.port()))]
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
pub(crate) fn run(arguments: &RawServeArguments) -> Result<(), Failure> {
    reactor::block_on(arguments.poll.world()?, async {
        let listener = listen::at(arguments.listen, StreamOptions::default())?;
        say(&format!(
            "linerate lab raw-serve: iSCSI without storage, to measure what is beside it\n\
             listens on {}; answers every initiator, for any target; keeps no data\n\
             takes {} of memory\n",
            listener.local(),
            arguments.size
        ));
        // Some seconds for a large disk; connections wait meanwhile.
        let disk = disk(arguments.size)?;
        say("ready\n");
        let answer = |stream: Box<dyn Stream>| {
            let disk = disk.clone();
            async move { iscsi::serve(&*stream, &disk).await }
        };
        match wan::service::answer_each(&*listener, CONNECTIONS_MAX, answer).await {}
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
