//! NBD clients that read, write and flush concurrently over several connections. From the result of each
//! write, or its absence, they derive whether the write took effect.
//!
//! If a connection is lost, its requests may be executed until the server has closed its end. Requests that
//! the server has started and abandoned lock their blocks until the device has completed them. So shortly
//! after the server has closed its end, no request can take effect any more.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use super::simple::{self, Client, Form, Reply, Terms};
use crate::checker::{Now, WriteId, WriteKind, Writer};
use crate::features::Feature;
use crate::network;
use crate::network::Machine;
use crate::simple::{Lost, Slowness};
use crate::simulation::Simulation;
use crate::universe::{self, draw, note};
use crate::volume::BLOCK;
use crate::volume::Volume;

/// Starts a client that runs until the simulation ends.
pub(crate) fn begin(simulation: &Rc<Simulation>, number: u64) -> Machine {
    let machine = Machine::new(format!("NBD client {number}"));
    let simulation = Rc::clone(simulation);
    machine.run(move || live(simulation, super::FIRST_WRITER + number));
    machine
}

/// A client with all its connections.
struct Session {
    simulation: Rc<Simulation>,
    volume: Rc<Volume>,
    writer: Writer,
    clients: Vec<Client>,
    begun: Now,
    /// Whether a task has detected that the session must be closed.
    ends: Cell<bool>,
}

/// Writes whose results are unknown because their connection was lost.
struct Unknown {
    volume: Rc<Volume>,
    writer: Writer,
    of: Vec<SocketAddr>,
    writes: Vec<WriteId>,
}

async fn live(simulation: Rc<Simulation>, writer: Writer) {
    while !simulation.is_over.get() {
        let volume = simulation.any_volume();
        let Some(clients) = connect(&simulation, &volume).await else {
            let wait = draw(|random| random.mostly_small(1_000_000, 5_000_000_000));
            reactor::sleep(Duration::from_nanos(wait)).await;
            continue;
        };
        note(&[70, writer, clients.len() as u64], || {
            format!(
                "NBD client {writer} has {} connections to volume {}",
                clients.len(),
                volume.lun
            )
        });
        let begun = volume.check(|checker| checker.now());
        let session = Rc::new(Session {
            simulation: Rc::clone(&simulation),
            volume,
            writer,
            clients,
            begun,
            ends: Cell::new(false),
        });
        let depth = if simulation.has(Feature::Depth) {
            draw(|random| random.between(1, 12))
        } else {
            1
        };
        let hands: Vec<_> = (0..depth)
            .map(|_| reactor::spawn(work(Rc::clone(&session))))
            .collect();
        for hand in hands {
            hand.await;
        }
        session.leave().await;
    }
}

/// Opens a random number of connections. All of them are opened before the first request, because a loss of
/// writes is reported only to existing connections. Returns `None` if one fails.
async fn connect(simulation: &Simulation, volume: &Volume) -> Option<Vec<Client>> {
    let longest = if simulation.is_calm {
        1_000_000_000
    } else {
        90_000_000_000
    };
    let never = crate::disk::NEVER;
    let slow = match simulation.has(Feature::SlowPeers) {
        true => draw(|random| Slowness {
            reads_once_in: *random.pick(&[never, 50, 1_000]),
            sends_once_in: *random.pick(&[never, 50, 1_000]),
            longest: random.mostly_small(10_000_000, longest),
        }),
        false => Slowness {
            reads_once_in: never,
            sends_once_in: never,
            longest: 1_000_000,
        },
    };
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..draw(|random| random.between(1, 4)) {
        let form = draw(|random| *random.pick(&[Form::Simple, Form::Structured, Form::Extended]));
        let old = draw(|random| random.once_in(4)) && form != Form::Extended;
        let terms = Terms {
            export: super::export_name(volume.lun),
            form,
            old,
            slow,
            is_calm: simulation.is_calm,
        };
        let connected = reactor::timeout(
            Duration::from_secs(20),
            Client::connect(super::portal(), &terms),
        );
        let Ok(Some(client)) = connected.await else {
            clients.iter().for_each(Client::leave);
            return None;
        };
        if client.bytes() != volume.blocks * BLOCK as u64 || !client.can(simple::CAN_MULTI_CONN) {
            universe::fault(format!(
                "volume {} is exported as something else",
                volume.lun
            ));
        }
        clients.push(client);
    }
    Some(clients)
}

async fn work(session: Rc<Session>) {
    let simulation = Rc::clone(&session.simulation);
    for _ in 0..draw(|random| random.mostly_small(10, 5_000)) {
        let is_lost = session.clients.iter().any(Client::is_lost);
        if simulation.is_over.get() || is_lost || session.ends.get() {
            return;
        }
        simulation.pause().await;
        simulation.count_command();
        let client = draw(|random| random.pick(&session.clients)).clone();
        let place = session.volume.place();
        let outcome = match draw(|random| random.below(20)) {
            0..8 => session.write(&client, simple::WRITE, place).await,
            8 | 9 if !simulation.has(Feature::Zeros) => continue,
            8 => session.write(&client, simple::WRITE_ZEROES, place).await,
            9 if client.can(simple::SEND_TRIM) => session.write(&client, simple::TRIM, place).await,
            9 => continue,
            10..12 if !simulation.has(Feature::Flushes) => continue,
            10..12 => session.flush(&client).await,
            12 => session.cache(&client, place).await,
            13 => session.read_bytes(&client, place).await,
            _ => session.read(&client, place).await,
        };
        if outcome.is_err() {
            break;
        }
    }
    session.ends.set(true);
}

impl Session {
    /// Executes a request that changes blocks.
    async fn write(
        &self,
        client: &Client,
        command: u16,
        (lba, blocks): (u64, u64),
    ) -> Result<(), Lost> {
        let volume = &self.volume;
        let kind = WriteKind {
            zeros: command != simple::WRITE,
            ..WriteKind::default()
        };
        let before = volume.gate.get();
        let id = volume.check(|checker| {
            let id = checker.begin_write(self.writer, lba, blocks, kind);
            if before.is_shut {
                let now = checker.now();
                checker.suspend(now, |write, _| write == id);
            }
            id
        });
        let mut data = vec![
            0;
            if kind.zeros {
                0
            } else {
                blocks as usize * BLOCK
            }
        ];
        volume.check(|checker| checker.fill(id, lba, &mut data));
        let optional: &[u16] = match command {
            simple::WRITE_ZEROES => &[0, simple::NO_HOLE, simple::FAST_ZERO],
            _ => &[0],
        };
        let mut flags = *draw(|random| random.pick(optional));
        let fua = self.simulation.has(Feature::Flushes) && draw(|random| random.once_in(6));
        flags |= if fua { simple::FUA } else { 0 };
        note(&[72, self.writer, lba, blocks], || {
            format!(
                "NBD client {}: {command} {flags:#x} {id:?} LUN {} {lba}+{blocks}",
                self.writer, volume.lun
            )
        });
        let reply = client
            .request(command, flags, bytes(lba, blocks), &data)
            .await;
        note(&[73, self.writer, lba], || {
            format!("NBD client {}: {id:?} ends: {reply:?}", self.writer)
        });
        let Reply { error, .. } = reply?;
        match error {
            0 if before.is_shut && volume.gate.get() == before => universe::fault(format!(
                "LUN {}: {id:?} of an NBD client was executed, although a reservation forbids it",
                volume.lun
            )),
            0 if fua => volume.check(|checker| checker.wrote_stable(id)),
            0 => volume.check(|checker| checker.wrote(id)),
            _ => volume.check(|checker| checker.is_over(id)), // losses are reported by flushes only
        }
        self.expect_plain(error, flags);
        Ok(())
    }

    async fn read(&self, client: &Client, (lba, blocks): (u64, u64)) -> Result<(), Lost> {
        self.read_around(client, (lba, blocks), (0, 0)).await
    }

    /// Reads the blocks, together with some bytes of the blocks before and after them.
    async fn read_bytes(&self, client: &Client, (lba, blocks): (u64, u64)) -> Result<(), Lost> {
        let most = BLOCK as u64 - 1;
        let (before, behind) = draw(|random| (random.below(most), random.below(most)));
        let behind = if lba + blocks < self.volume.blocks {
            behind
        } else {
            0
        };
        self.read_around(
            client,
            (lba, blocks),
            (if lba > 0 { before } else { 0 }, behind),
        )
        .await
    }

    async fn read_around(
        &self,
        client: &Client,
        (lba, blocks): (u64, u64),
        (before, behind): (u64, u64),
    ) -> Result<(), Lost> {
        let volume = &self.volume;
        let begun = volume.check(|checker| checker.begin_read(lba, blocks));
        note(&[78, self.writer, lba, blocks], || {
            format!(
                "NBD client {} starts to read LUN {} {lba}+{blocks}",
                self.writer, volume.lun
            )
        });
        let (offset, length) = bytes(lba, blocks);
        let flags = if client.has_chunks() && draw(|random| random.once_in(4)) {
            simple::DF
        } else {
            0
        };
        let reply = client
            .request(
                simple::READ,
                flags,
                (offset - before, length + before + behind),
                &[],
            )
            .await;
        if !matches!(&reply, Ok(reply) if reply.error == 0) {
            volume.check(|checker| checker.read_nothing(begun));
        }
        let Reply { error, data } = reply?;
        note(&[74, self.writer, lba, blocks], || {
            format!(
                "NBD client {} reads LUN {} {lba}+{blocks}: {error}",
                self.writer, volume.lun
            )
        });
        if error == 0 {
            let own = before as usize..data.len() - behind as usize;
            volume.check_read(self.writer, begun, lba, &data[own]);
        }
        if error == simple::EPERM {
            universe::fault(format!(
                "LUN {}: an NBD client's read was rejected, although nothing forbids it",
                volume.lun
            ));
        }
        self.expect_plain(error, 0);
        Ok(())
    }

    async fn cache(&self, client: &Client, (lba, blocks): (u64, u64)) -> Result<(), Lost> {
        client
            .request(simple::CACHE, 0, bytes(lba, blocks), &[])
            .await
            .map(drop)
    }

    /// Flushes on one connection. This covers writes that were answered on any connection.
    async fn flush(&self, client: &Client) -> Result<(), Lost> {
        let begun = self.volume.check(|checker| checker.now());
        note(&[79, self.writer], || {
            format!(
                "NBD client {} requests a flush of LUN {}",
                self.writer, self.volume.lun
            )
        });
        let error = client.request(simple::FLUSH, 0, (0, 0), &[]).await?.error;
        note(&[75, self.writer], || {
            format!(
                "NBD client {} flushes LUN {}: {error}",
                self.writer, self.volume.lun
            )
        });
        match error {
            0 => self.volume.check_flush(self.writer, begun),
            _ => self
                .volume
                .check(|checker| checker.flush_failed(self.writer)),
        }
        Ok(())
    }

    /// Accepts only errors that a correct server may return in a simulation with faults.
    fn expect_plain(&self, error: u32, flags: u16) {
        let is_wrong = match error {
            simple::EPERM => !self.volume.is_fenced,
            simple::ENOSPC => self.volume.disk().is_none(),
            simple::ENOTSUP => flags & simple::FAST_ZERO == 0,
            _ => false,
        };
        if is_wrong {
            universe::fault(format!(
                "LUN {}: legal NBD request: error {error}",
                self.volume.lun
            ));
        }
    }

    /// Closes all connections, and returns once no request of this client is outstanding.
    async fn leave(&self) {
        for client in &self.clients {
            match draw(|random| random.once_in(2)) {
                true => client.disconnect().await,
                false => client.leave(),
            }
        }
        // Losses are not reported to connections that are opened after them.
        self.volume.check(|checker| checker.is_gone(self.writer));
        let of = self.clients.iter().map(Client::local).collect();
        let writes = self
            .volume
            .check(|checker| checker.open_since(self.begun, self.writer));
        let unknown = Unknown {
            volume: Rc::clone(&self.volume),
            writer: self.writer,
            of,
            writes,
        };
        if !unknown.writes.is_empty() {
            reactor::spawn(unknown.settle());
        }
    }
}

impl Unknown {
    async fn settle(self) {
        while !self
            .of
            .iter()
            .all(|client| network::is_closed_by_peer(*client))
        {
            reactor::sleep(LOOK).await;
        }
        reactor::sleep(LOOK).await;
        note(&[76, self.writer], || {
            format!("NBD client {}: {:?} are over", self.writer, self.writes)
        });
        self.volume
            .check(|checker| self.writes.iter().for_each(|write| checker.is_over(*write)));
    }
}

/// Interval between checks whether the server has closed the connections, and delay after the last check. It
/// is longer than a stall of a core.
const LOOK: Duration = Duration::from_millis(100);

fn bytes(lba: u64, blocks: u64) -> (u64, u64) {
    (lba * BLOCK as u64, blocks * BLOCK as u64)
}
