//! An NBD client that violates the protocol. It reads all exports but writes only to its own one. It also
//! requests exports that do not exist, and does not receive replies.

use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::time::Duration;

use reactor::{InSlice, Stream};

use super::simple::{self, OPTION_MAGIC, go, greet, option, option_reply};
use crate::network::Machine;
use crate::pdu;
use crate::simulation::Simulation;
use crate::universe::{draw, note};

/// Starts an adversary that runs until the simulation ends.
pub(crate) fn begin(simulation: &Rc<Simulation>) -> Machine {
    Machine::of("NBD adversary", simulation, live)
}

async fn live(simulation: Rc<Simulation>) {
    while !simulation.is_over.get() {
        let wait = draw(|random| random.mostly_small(100_000, 5_000_000_000));
        reactor::sleep(Duration::from_nanos(wait)).await;
        let Ok(stream) = reactor::world().connect(super::portal(), &Default::default()) else {
            continue;
        };
        let kind = draw(|random| random.below(8));
        note(&[61, kind], || {
            format!("the NBD adversary starts with behaviour {kind}")
        });
        let time = Duration::from_nanos(draw(|random| {
            random.mostly_small(100_000_000, 60_000_000_000)
        }));
        let _ = reactor::timeout(time, attack(&*stream, &simulation, kind)).await;
    }
}

async fn attack(stream: &dyn Stream, simulation: &Simulation, kind: u64) -> io::Result<()> {
    match kind {
        0 => return babble(stream).await,
        1 => return std::future::pending().await, // never answers the greeting
        _ => greet(stream).await?,
    }
    if kind == 2 {
        return haggle(stream).await;
    }
    let is_own = draw(|random| random.once_in(2));
    let lun = draw(|random| random.below(simulation.volumes.len() as u64)) as u16;
    let name = if is_own {
        super::VICTIM.to_owned()
    } else {
        super::export_name(lun)
    };
    pdu::write(stream, &option(simple::OPT_GO, &go(&name))).await?;
    loop {
        match option_reply(stream, simple::OPT_GO).await?.0 {
            simple::REPLY_ACK => break,
            kind if kind >> 31 == 1 => return Ok(()),
            _ => {}
        }
    }
    // Reads replies only occasionally or never, so that they accumulate in the server.
    let reads_once_in = *draw(|random| random.pick(&[1, 8, crate::disk::NEVER]));
    while !simulation.is_over.get() {
        for _ in 0..draw(|random| random.mostly_small(1, 64)) {
            pdu::write(stream, &request(is_own)).await?;
        }
        if draw(|random| random.once_in(reads_once_in)) {
            read_what_is_there(stream)?;
        }
        let wait = draw(|random| random.mostly_small(1_000, 3_000_000_000));
        reactor::sleep(Duration::from_nanos(wait)).await;
    }
    Ok(())
}

/// Sends meaningless bytes.
async fn babble(stream: &dyn Stream) -> io::Result<()> {
    loop {
        let mut bytes = vec![0; draw(|random| random.mostly_small(1, 4096)) as usize];
        draw(|random| random.fill(&mut bytes));
        pdu::write(stream, &bytes).await?;
    }
}

/// Sends options that are unknown, too long, truncated or repeated.
async fn haggle(stream: &dyn Stream) -> io::Result<()> {
    loop {
        let number =
            draw(|random| *random.pick(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, u32::MAX]));
        let mut data = vec![0; draw(|random| random.mostly_small(1, 8192)) as usize - 1];
        draw(|random| random.fill(&mut data));
        let mut sent = option(number, &data);
        match draw(|random| random.below(8)) {
            0 => {
                sent[8 + 4..16].copy_from_slice(&draw(|random| random.next() as u32).to_be_bytes())
            }
            1 => sent.truncate(draw(|random| random.below(sent.len() as u64)) as usize),
            2 => sent[..8]
                .copy_from_slice(&OPTION_MAGIC[..].iter().rev().copied().collect::<Vec<_>>()),
            _ => {}
        }
        pdu::write(stream, &sent).await?;
        if draw(|random| random.once_in(4)) {
            read_what_is_there(stream)?;
        }
        reactor::sleep(Duration::from_nanos(draw(|random| {
            random.mostly_small(1_000, 3_000_000_000)
        })))
        .await;
    }
}

/// Returns a request that is valid, nearly valid or invalid. It changes data only on the adversary's own
/// export.
fn request(is_own: bool) -> Vec<u8> {
    let reading = [simple::READ, simple::READ, simple::CACHE, 7, 8, 0xffff];
    let changing = [
        simple::WRITE,
        simple::WRITE,
        simple::TRIM,
        simple::WRITE_ZEROES,
        simple::FLUSH,
    ];
    let changes = is_own && draw(|random| random.once_in(2));
    let command = *draw(|random| random.pick(if changes { &changing[..] } else { &reading[..] }));
    let magic = if draw(|random| random.once_in(200)) {
        draw(|random| random.next() as u32)
    } else {
        simple::REQUEST
    };
    let flags = draw(|random| *random.pick(&[0, 0, 0, simple::FUA, simple::DF, 0x8000]));
    let block = crate::volume::BLOCK as u64;
    let offset = draw(|random| match random.below(10) {
        0 => random.next(),
        1 => random.below(600 * block),
        _ => random.below(64) * block,
    });
    let length = draw(|random| match random.below(10) {
        0 => random.next() as u32,
        1 => random.below(5 * block) as u32,
        _ => (random.mostly_small(1, 512) * block) as u32,
    });
    let mut sent = magic.to_be_bytes().to_vec();
    sent.extend(flags.to_be_bytes());
    sent.extend(command.to_be_bytes());
    sent.extend(draw(|random| random.below(4)).to_be_bytes()); // repeated cookies
    sent.extend(offset.to_be_bytes());
    sent.extend(length.to_be_bytes());
    if command == simple::WRITE {
        // The data is mostly shorter than announced, so the server reads the next request as data.
        sent.extend(vec![0xad; draw(|random| random.below(8193)) as usize]);
    }
    sent
}

/// Reads and discards the data that has arrived.
pub(super) fn read_what_is_there(stream: &dyn Stream) -> io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        match stream.try_read(&mut [InSlice::Bytes(&mut bytes)]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
