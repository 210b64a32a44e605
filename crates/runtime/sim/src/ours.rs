//! The initiator of this project (`iscsi_client`) with its recovery, and its NBD client (`nbd_client`) with
//! its channels. Both are block devices that survive the loss of connections.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent};
use iscsi::negotiate::{DigestKind, Offers};
use iscsi_client::{RemoteLun, Settings, Url};
use nbd_client::{RemoteExport, Writers};

use crate::checker::{Now, OUR_FIRST_WRITER, WriteId, WriteKind, Writer};
use crate::disk::Disk;
use crate::features::{Addition, Feature};
use crate::nbd;
use crate::network::Machine;
use crate::portals;
use crate::simulation::{Simulation, TARGET, portal};
use crate::universe::{self, draw, note};
use crate::volume::BLOCK;
use crate::volume::Volume;
use crate::writing;

/// The lowest writer number of our NBD clients.
const FIRST_NBD_WRITER: Writer = 1_500;

/// Timeout of a request in simulations in which sessions break after each login.
const COMMAND_TIME: Duration = Duration::from_secs(5);
const RECONNECT_TIME: Duration = Duration::from_secs(10);
/// Maximum duration of a read in these simulations: the time for its first attempt, which may have to wait
/// for a session, plus the time for all retries. Each of the two includes the interval at which the initiator
/// checks its timers.
const READ_TIME: Duration = Duration::from_secs(2 * (5 + 10) + 2);

/// The protocol of an initiator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Iscsi,
    Nbd,
}

/// An open remote volume.
enum Remote {
    Lun(RemoteLun),
    Export(RemoteExport),
}

impl Remote {
    fn device(&self) -> &dyn BlockDevice {
        match self {
            Remote::Lun(lun) => lun,
            Remote::Export(export) => export,
        }
    }

    async fn close(self) {
        match self {
            Remote::Lun(lun) => lun.close().await,
            Remote::Export(export) => drop(export),
        }
    }
}

/// Starts an initiator that reads and writes until the simulation ends.
pub(crate) fn begin(simulation: &Rc<Simulation>, protocol: Protocol, number: u64) -> Machine {
    let name = if protocol == Protocol::Nbd {
        "our NBD client"
    } else {
        "ours"
    };
    let machine = Machine::fair(format!("{name} {number}"));
    let simulation = Rc::clone(simulation);
    machine.run(move || live(simulation, protocol, number));
    machine
}

async fn live(simulation: Rc<Simulation>, protocol: Protocol, number: u64) {
    let volumes: Vec<_> = simulation
        .volumes
        .iter()
        .filter(|volume| !volume.is_fenced)
        .cloned()
        .collect();
    if volumes.is_empty() {
        return;
    }
    // The initiator may retry its requests through another nexus, so attribute them to the initiator instead
    // of the nexus.
    let writer = number
        + if protocol == Protocol::Nbd {
            FIRST_NBD_WRITER
        } else {
            OUR_FIRST_WRITER
        };
    while !simulation.is_over.get() {
        let volume = Rc::clone(draw(|random| random.pick(&volumes)));
        let remote = match protocol {
            Protocol::Iscsi => open(&simulation, &volume, number).await.map(Remote::Lun),
            Protocol::Nbd => open_export(&simulation, &volume, number)
                .await
                .map(Remote::Export),
        };
        let Some(remote) = remote else {
            reactor::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let opened = volume.check(|checker| checker.now());
        let simulation = Rc::clone(&simulation);
        let depth = if simulation.has(Feature::Depth) {
            draw(|random| random.between(1, 16))
        } else {
            1
        };
        let own = RefCell::default();
        let client = Rc::new(Client {
            simulation,
            volume: Rc::clone(&volume),
            remote,
            writer,
            opened,
            own,
        });
        let hands: Vec<_> = (0..depth)
            .map(|_| Rc::clone(&client))
            .map(|client| reactor::spawn(client.work()))
            .collect();
        for hand in hands {
            hand.await;
        }
        if let Ok(client) = Rc::try_unwrap(client) {
            client.remote.close().await;
        }
        // The next open uses another ISID and so another nexus, to which earlier losses are not reported.
        volume.check(|checker| checker.is_gone(writer));
    }
}

async fn open(simulation: &Simulation, volume: &Volume, number: u64) -> Option<RemoteLun> {
    let breaks = simulation.with(Addition::Breaks);
    let portal = portal(if breaks {
        portals::BREAKER
    } else {
        portals::any_group(simulation)
    });
    let url = format!("iscsi://{portal}/{TARGET}/{}", volume.lun);
    let mut url = Url::parse(&url).ok()?;
    let digest = |is_there| {
        vec![if is_there {
            DigestKind::Crc32c
        } else {
            DigestKind::None
        }]
    };
    url.settings = draw(|random| Settings {
        initiator: format!("iqn.2026-01.io.linerate:ours{number}"),
        offers: Offers {
            max_connections: if simulation.is_moving {
                1
            } else {
                random.between(1, 4) as u16
            },
            header_digest: digest(random.once_in(4)),
            data_digest: digest(random.once_in(4)),
            immediate_data: random.once_in(2),
            initial_r2t: random.once_in(2),
            first_burst_length: *random.pick(&[512, 4 << 10, 256 << 10]),
            max_burst_length: *random.pick(&[4 << 10, 16_776_192]),
            max_recv_data_segment_length: *random.pick(&[512, 4 << 10, 256 << 10]),
            max_outstanding_r2t: *random.pick(&[1, 8]),
            ..Offers::of_initiator()
        },
        gather: random.once_in(2),
        command_time: Duration::from_secs(if simulation.is_calm {
            60
        } else {
            random.between(5, 60)
        }),
        nop_interval: Duration::from_nanos(random.of_any_size(
            100_000_000,
            if simulation.is_moving {
                1_000_000_000
            } else {
                20_000_000_000
            },
        )),
        command_tries: if simulation.is_calm {
            None
        } else {
            *random.pick(&[None, Some(3)])
        },
        reconnect_time: Duration::from_secs(if simulation.is_calm {
            300
        } else {
            random.between(0, 120)
        }),
        ..Settings::default()
    });
    if breaks {
        // Use header digests, one connection, and a timeout short enough for requests to end within the
        // simulation.
        let offers = &mut url.settings.offers;
        (offers.header_digest, offers.data_digest) = (digest(false), digest(false));
        (offers.max_connections, url.settings.command_tries) = (1, None);
        url.settings.command_time = COMMAND_TIME;
        url.settings.reconnect_time = RECONNECT_TIME;
    }
    match iscsi_client::open(&url, universe::fill_random).await {
        Ok(lun) => Some(lun),
        Err(error) => {
            note(&[40, number], || {
                format!("ours {number} cannot log in: {error}")
            });
            None
        }
    }
}

async fn open_export(
    simulation: &Simulation,
    volume: &Volume,
    number: u64,
) -> Option<RemoteExport> {
    let url = format!("nbd://{}/{}", nbd::portal(), nbd::export_name(volume.lun));
    let mut url = nbd_client::Url::parse(&url).ok()?;
    url.options = draw(|random| nbd_client::Options {
        connections: random.between(1, 4) as usize,
        timeout: Duration::from_secs(if simulation.is_calm {
            300
        } else {
            random.between(5, 120)
        }),
        stall: *random.pick(&[
            None,
            Some(Duration::from_secs(1)),
            Some(Duration::from_secs(20)),
        ]),
        journal_bytes: match simulation.with(Addition::Journals) {
            true => *random.pick(&[4 << 10, 64 << 10, 1 << 20]),
            // Use no journal, because others also write to the volume: a replay after a loss would overwrite
            // their later writes.
            false => 0,
        },
        writers: if volume.loses_nothing() {
            Writers::Unknown
        } else {
            Writers::Several
        },
        ..nbd_client::Options::default()
    });
    match nbd_client::open(&url, None, universe::fill_random).await {
        Ok(export) => Some(export),
        Err(error) => {
            note(&[40, number], || {
                format!("our NBD client {number} cannot connect: {error}")
            });
            None
        }
    }
}

/// A client with an open volume.
struct Client {
    simulation: Rc<Simulation>,
    volume: Rc<Volume>,
    remote: Remote,
    writer: Writer,
    opened: Now,
    /// For each block, the client's latest answered write, and the number of losses that the device had
    /// reported before that write.
    own: RefCell<BTreeMap<u64, (WriteId, u64)>>,
}

impl Client {
    async fn work(self: Rc<Client>) {
        let (simulation, volume, writer) = (&self.simulation, &self.volume, self.writer);
        for _ in 0..draw(|random| random.mostly_small(10, 5_000)) {
            if simulation.is_over.get() {
                return;
            }
            simulation.pause().await;
            simulation.count_command();
            let (lba, blocks) = volume.place();
            let extent = Extent::new(lba, blocks);
            let outcome = match draw(|random| random.below(10)) {
                0..4 => self.write(extent).await,
                4 if !simulation.has(Feature::Zeros) => continue,
                5 if !simulation.has(Feature::Flushes) => continue,
                4 => self.zero(extent).await,
                5 => self.flush().await,
                _ => self.read(extent).await,
            };
            match outcome {
                Ok(())
                | Err(
                    DeviceError::Unreadable(_)
                    | DeviceError::Unwritable(_)
                    | DeviceError::WritesLost,
                ) => {}
                Err(error) => {
                    note(&[41, writer], || format!("writer {writer}: {error}"));
                    if simulation.is_calm && !simulation.with(Addition::Breaks) {
                        universe::fault(format!(
                            "writer {writer} got \"{error}\", although the server had only orderly shutdowns"
                        ));
                    }
                    return;
                }
            }
        }
    }

    async fn write(self: &Rc<Client>, extent: Extent) -> Result<(), DeviceError> {
        let (volume, writer) = (&self.volume, self.writer);
        let (lba, blocks) = (extent.lba.0, extent.blocks.0);
        let id = volume.check(|checker| {
            checker.begin_write(
                writer,
                lba,
                blocks,
                WriteKind {
                    repeats: true,
                    ..WriteKind::default()
                },
            )
        });
        let mut buffer = Buffer::zeroed(blocks as usize * BLOCK);
        volume.check(|checker| checker.fill(id, lba, &mut buffer));
        note(&[42, writer, lba, blocks], || {
            format!("writer {writer}: {id:?} LUN {} {extent}", volume.lun)
        });
        let losses = self.remote.device().losses().count();
        let request = self
            .remote
            .device()
            .write(extent, buffer.share(), Durability::Cached);
        let outcome = match writing::patience(&self.simulation) {
            None => request.await,
            Some(patience) => match reactor::timeout(patience, request).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    note(&[49, writer, lba], || {
                        format!("writer {writer}: {id:?} is abandoned")
                    });
                    self.see_the_end_of(id).await;
                    return Ok(());
                }
            },
        };
        note(&[43, writer, lba], || {
            format!("writer {writer}: {id:?} ends: {outcome:?}")
        });
        if outcome.is_ok() {
            self.own
                .borrow_mut()
                .extend((lba..lba + blocks).map(|lba| (lba, (id, losses))));
        }
        self.settle(id, outcome).await
    }

    async fn zero(self: &Rc<Client>, extent: Extent) -> Result<(), DeviceError> {
        let (volume, writer) = (&self.volume, self.writer);
        let (lba, blocks) = (extent.lba.0, extent.blocks.0);
        let kind = WriteKind {
            zeros: true,
            repeats: true,
            ..WriteKind::default()
        };
        let id = volume.check(|checker| checker.begin_write(writer, lba, blocks, kind));
        note(&[44, writer, lba, blocks], || {
            format!("writer {writer}: zeros {id:?} LUN {} {extent}", volume.lun)
        });
        let outcome = self
            .remote
            .device()
            .write_zeroes(extent, draw(|random| random.once_in(2)))
            .await;
        note(&[45, writer, lba], || {
            format!("writer {writer}: {id:?} ends: {outcome:?}")
        });
        self.settle(id, outcome).await
    }

    /// Reports the end of a write to the checker. A failed write is over once the device reports that nothing
    /// is outstanding. The same applies to a successful write over NBD, which the client may have sent over
    /// two connections.
    async fn settle(
        self: &Rc<Client>,
        id: WriteId,
        outcome: Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        match (&outcome, &self.remote) {
            (Ok(()), Remote::Lun(_)) => self.volume.check(|checker| checker.wrote(id)),
            (Ok(()), Remote::Export(_)) => {
                self.volume
                    .check(|checker| checker.wrote_perhaps_again(id, self.opened));
                let client = Rc::clone(self);
                reactor::spawn(async move { client.see_the_end_of(id).await });
            }
            (Err(_), _) => self.see_the_end_of(id).await,
        }
        outcome
    }

    async fn see_the_end_of(&self, id: WriteId) {
        if self.remote.device().quiesced().await.is_ok() {
            self.volume.check(|checker| checker.is_over(id));
        }
    }

    async fn read(&self, extent: Extent) -> Result<(), DeviceError> {
        let (volume, writer) = (&self.volume, self.writer);
        let begun = volume.check(|checker| checker.begin_read(extent.lba.0, extent.blocks.0));
        let buffer = Buffer::zeroed(extent.blocks.0 as usize * BLOCK);
        let own = self.own.borrow().clone();
        let reading = self.remote.device().read(extent, buffer);
        let outcome = match self.remote {
            Remote::Lun(_) if self.simulation.with(Addition::Breaks) => {
                reactor::timeout(READ_TIME, reading)
                    .await
                    .unwrap_or_else(|_| {
                        universe::fault(format!(
                            "writer {writer} has been reading for {} s without data or an error",
                            READ_TIME.as_secs()
                        ));
                        Err(DeviceError::NotReady)
                    })
            }
            _ => reading.await,
        };
        if outcome.is_err() {
            volume.check(|checker| checker.read_nothing(begun));
        }
        let data = outcome?;
        note(&[46, writer, extent.lba.0], || {
            format!("writer {writer} reads LUN {} {extent}", volume.lun)
        });
        volume.check_read(writer, begun, extent.lba.0, &data);
        self.check_doubt(&own, extent.lba.0, &data).await;
        Ok(())
    }

    /// Checks a guarantee on which RAID relies when it chooses among copies: a device that returns stale data
    /// also reports a loss, or a possible loss. `own` contains the client's writes that had been answered
    /// when the read started.
    async fn check_doubt(&self, own: &BTreeMap<u64, (WriteId, u64)>, lba: u64, data: &[u8]) {
        let device = self.remote.device();
        let is_unknown = device.losses().is_in_doubt() && device.resolve_losses().await.is_err();
        let losses = device.losses();
        if is_unknown || losses.is_in_doubt() || self.volume.disk().is_some_and(Disk::lies) {
            return;
        }
        for (block, lba) in data.chunks(BLOCK).zip(lba..) {
            let Some((id, before)) = own
                .get(&lba)
                .filter(|(_, before)| *before == losses.count())
            else {
                continue;
            };
            if self.volume.check(|checker| checker.lacks(lba, block, *id)) {
                let (writer, lun) = (self.writer, self.volume.lun);
                universe::fault(format!(
                    "LUN {lun}, block {lba}: writer {writer} reads older data than acknowledged ({id:?}), \
                     but its device still reports {before} losses"
                ));
            }
        }
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        let (volume, writer) = (&self.volume, self.writer);
        let begun = volume.check(|checker| checker.now());
        note(&[48, writer], || {
            format!("writer {writer} starts to flush LUN {}", volume.lun)
        });
        let outcome = self.remote.device().flush().await;
        note(&[47, writer], || {
            format!("writer {writer} flushes LUN {}: {outcome:?}", volume.lun)
        });
        match outcome {
            Ok(()) => volume.check_flush(writer, begun),
            Err(_) => volume.check(|checker| checker.flush_failed(writer)),
        }
        outcome
    }
}
