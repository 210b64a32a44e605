//! An initiator that violates the protocol, to show that the server keeps working and that other initiators
//! are not affected. It writes only to its own volume, so the data of others does not change.

use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use iscsi_server::Export;
use logical_unit::{Identity, LogicalUnit, LogicalUnitOptions};
use reactor::{InSlice, Stream};
use volume::{Volume, VolumeOptions};

use crate::network::Machine;
use crate::pdu::{self, Header, get_32, pdu, set_32};
use crate::simple::SILENCE_MAX;
use crate::simulation::{GROUPS, Simulation, TARGET, portal};
use crate::universe::{draw, note};
use crate::volume::BLOCK;
use crate::volume::ram;

/// The LUN that it may write to.
pub(crate) const LUN: u16 = 15;

/// Returns the adversary's volume, which no other initiator uses.
pub(crate) fn export() -> Export {
    let identity = Identity::new(*b"simulated victim");
    let options = LogicalUnitOptions {
        identity,
        removable: false,
        thin: None,
    };
    let volume = Volume::new(ram(512 * BLOCK as u64), VolumeOptions::default());
    let unit = volume
        .and_then(|volume| LogicalUnit::new(volume, options))
        .expect("a unit that keeps nothing");
    let deadline = Duration::from_secs(30);
    Export {
        lun: LUN,
        volume: "adversary".to_owned(),
        unit,
        initiators: None,
        deadline,
    }
}

/// Starts an adversary that runs until the simulation ends.
pub(crate) fn begin(simulation: &Rc<Simulation>) -> Machine {
    Machine::of("adversary", simulation, live)
}

async fn live(simulation: Rc<Simulation>) {
    while !simulation.is_over.get() {
        let wait = draw(|random| random.mostly_small(100_000, 5_000_000_000));
        reactor::sleep(Duration::from_nanos(wait)).await;
        let group = draw(|random| random.between(1, u64::from(GROUPS))) as u16;
        let Ok(stream) = reactor::world().connect(portal(group), &Default::default()) else {
            continue;
        };
        let attack = Attack {
            stream,
            cmd_sn: 1,
            exp_stat_sn: 1,
        };
        // In a simulation with faults, the adversary's effect on other initiators could not be detected.
        let holds = simulation.is_calm && draw(|random| random.once_in(2));
        let kind = if holds {
            HOLDS
        } else {
            draw(|random| random.below(7))
        };
        note(&[60, kind], || {
            format!("the adversary starts with behaviour {kind}")
        });
        // The maximum duration depends on the behaviour.
        let time = match kind {
            HOLDS => HOLD,
            _ => Duration::from_nanos(draw(|random| {
                random.mostly_small(100_000_000, 60_000_000_000)
            })),
        };
        let _ = reactor::timeout(time, attack.go_on(&simulation, kind)).await;
    }
}

/// The number of the behaviour in which the adversary does not receive data.
const HOLDS: u64 = 2;
/// Time for which the adversary does not receive data: longer than any initiator waits for a response in a
/// simulation without faults.
const HOLD: Duration = SILENCE_MAX.saturating_add(Duration::from_secs(100));

struct Attack {
    stream: Box<dyn Stream>,
    cmd_sn: u32,
    exp_stat_sn: u32,
}

/// The server has closed the connection.
struct Closed;

impl Attack {
    async fn go_on(mut self, simulation: &Simulation, kind: u64) -> Result<(), Closed> {
        match kind {
            0 => return self.babble().await,
            1 => return self.stay_silent().await,
            _ => self.log_in().await?,
        }
        if kind == HOLDS {
            return self.hold(simulation).await;
        }
        // Read responses rarely or never, so that they accumulate in the server.
        let reads_once_in = *draw(|random| random.pick(&[1, 8, crate::disk::NEVER]));
        loop {
            if simulation.is_over.get() {
                return Ok(());
            }
            for _ in 0..draw(|random| random.mostly_small(1, 64)) {
                let (header, data) = self.anything(simulation);
                self.send(&header, &data).await?;
            }
            if draw(|random| random.once_in(reads_once_in)) {
                self.read_what_is_there().await?;
            }
            let wait = draw(|random| random.mostly_small(1_000, 3_000_000_000));
            reactor::sleep(Duration::from_nanos(wait)).await;
        }
    }

    /// Sends random bytes.
    async fn babble(&mut self) -> Result<(), Closed> {
        loop {
            let mut bytes = vec![0; draw(|random| random.mostly_small(1, 4096)) as usize];
            draw(|random| random.fill(&mut bytes));
            self.write(&bytes).await?;
        }
    }

    /// Never logs in, or stops in the middle of a header.
    async fn stay_silent(&mut self) -> Result<(), Closed> {
        let some = draw(|random| random.below(48)) as usize;
        self.write(&[0x43; 48][..some]).await?;
        std::future::pending().await
    }

    /// Sends read requests for whole volumes, then for smaller and smaller parts, until the server has no
    /// memory left, but does not receive the data. Occasionally sends a NOP-Out to stay connected.
    async fn hold(&mut self, simulation: &Simulation) -> Result<(), Closed> {
        for (number, volume) in simulation
            .volumes
            .iter()
            .cycle()
            .take(READS_HELD)
            .enumerate()
        {
            let blocks = (volume.blocks >> (number % 8)).max(1) as u32;
            let mut header = [0; 48];
            header[0] = 0x01;
            header[1] = 0xc1; // final, reads, simple
            header[8..10].copy_from_slice(&volume.lun.to_be_bytes());
            set_32(&mut header, 16, self.cmd_sn);
            set_32(&mut header, 20, blocks * BLOCK as u32);
            set_32(&mut header, 24, self.cmd_sn);
            set_32(&mut header, 28, self.exp_stat_sn);
            header[32] = 0x88;
            header[42..46].copy_from_slice(&blocks.to_be_bytes());
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
            self.send(&header, &[]).await?;
        }
        loop {
            let mut ping = [0; 48];
            (ping[0], ping[1]) = (0x40, 0x80);
            ping[16..24].fill(0xff); // requests no response
            set_32(&mut ping, 24, self.cmd_sn);
            set_32(&mut ping, 28, self.exp_stat_sn);
            self.send(&ping, &[]).await?;
            reactor::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn log_in(&mut self) -> Result<(), Closed> {
        let (header, text) = login(draw(|random| random.below(4)));
        self.send(&header, text.as_bytes()).await?;
        let (answer, _) = pdu::read_pdu(&*self.stream).await.map_err(|_| Closed)?;
        self.exp_stat_sn = get_32(&answer, 24).wrapping_add(1);
        Ok(())
    }

    /// Returns a PDU that is valid, nearly valid or invalid.
    fn anything(&mut self, simulation: &Simulation) -> (Header, Vec<u8>) {
        let mut header = [0; 48];
        let mut data = Vec::new();
        let lun = draw(|random| {
            let own = [LUN, LUN, LUN, LUN + 1, 0x4000];
            if random.once_in(2) {
                *random.pick(&own)
            } else {
                random.below(simulation.volumes.len() as u64) as u16
            }
        });
        let task = draw(|random| random.below(16)) as u32;
        header[8..10].copy_from_slice(&lun.to_be_bytes());
        set_32(&mut header, 16, task);
        set_32(&mut header, 28, self.exp_stat_sn);
        match draw(|random| random.below(10)) {
            0..3 => {
                header[0] = 0x01;
                header[1] = 0xc1; // final, reads, simple
                let blocks = draw(|random| random.mostly_small(1, 512)) as u32;
                set_32(&mut header, 20, blocks * 512);
                let cdb = draw(|random| *random.pick(&READS));
                header[32..48].copy_from_slice(&cdb);
                header[42..46].copy_from_slice(&blocks.to_be_bytes());
                self.number(&mut header);
            }
            3..6 => {
                // Writes to the adversary's own volume. Sends a part of the data immediately, and the rest
                // never, twice or late.
                header[8..10].copy_from_slice(&LUN.to_be_bytes());
                header[0] = 0x01;
                header[1] = draw(|random| *random.pick(&[0xa1, 0x21]));
                let blocks = draw(|random| random.mostly_small(1, 512)) as u32;
                set_32(&mut header, 20, blocks * 512);
                header[32] = 0x8a;
                header[42..46].copy_from_slice(&blocks.to_be_bytes());
                data = vec![0xad; draw(|random| random.below(8193)) as usize];
                self.number(&mut header);
            }
            6 | 7 => {
                // Sends a Data-Out for a task that may not exist.
                header[8..10].copy_from_slice(&LUN.to_be_bytes());
                header[0] = 0x05;
                header[1] = draw(|random| *random.pick(&[0x80, 0]));
                set_32(
                    &mut header,
                    20,
                    draw(|random| *random.pick(&[u32::MAX, 0, 1, 2, 3])),
                );
                set_32(&mut header, 36, draw(|random| random.below(4)) as u32);
                set_32(
                    &mut header,
                    40,
                    draw(|random| random.below(64)) as u32 * 512,
                );
                data = vec![0xda; draw(|random| random.below(8193)) as usize];
            }
            8 => {
                // Sends a task management function for the adversary's own tasks and its own volume.
                header[8..10].copy_from_slice(&LUN.to_be_bytes());
                header[0] = 0x42;
                header[1] = 0x80 | draw(|random| *random.pick(&[1, 2, 3, 4, 5, 8, 9, 10, 11]));
                set_32(&mut header, 20, draw(|random| random.below(16)) as u32);
                set_32(&mut header, 24, self.cmd_sn);
            }
            _ => {
                header[0] =
                    draw(|random| *random.pick(&[0x00, 0x40, 0x04, 0x44, 0x06, 0x10, 0x3f, 0x1c]));
                header[1] = 0x80;
                set_32(&mut header, 20, draw(|random| *random.pick(&[u32::MAX, 7])));
                data = vec![b'A'; draw(|random| random.below(600)) as usize];
                self.number(&mut header);
            }
        }
        if draw(|random| random.once_in(40)) {
            let place = draw(|random| random.below(48)) as usize;
            // Do not change the opcode, the LUN, a length or the CDB, so that the command cannot write to
            // another volume.
            if matches!(place, 1..4 | 16..32) {
                header[place] = draw(|random| random.next()) as u8;
            }
        }
        (header, data)
    }

    /// Sets CmdSN: usually to the next number, occasionally to an old number, a number far ahead, or the next
    /// number plus one.
    fn number(&mut self, header: &mut Header) {
        let ahead = draw(|random| *random.pick(&[0, 0, 0, 0, 0, 0, 0, 1, 1000, u32::MAX]));
        set_32(header, 24, self.cmd_sn.wrapping_add(ahead));
        if ahead == 0 {
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
        }
    }

    async fn send(&mut self, header: &Header, data: &[u8]) -> Result<(), Closed> {
        self.write(&pdu(*header, data)).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Closed> {
        pdu::write(&*self.stream, bytes).await.map_err(|_| Closed)
    }

    async fn read_what_is_there(&mut self) -> Result<(), Closed> {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.try_read(&mut [InSlice::Bytes(&mut bytes)]) {
                Ok(0) => return Err(Closed),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(Closed),
            }
        }
    }
}

/// Returns the header and text of an adversary's login, which consists of a single request.
pub(crate) fn login(number: u64) -> (Header, String) {
    let mut header = [0; 48];
    header[0] = 0x43;
    header[1] = 0x87;
    header[8..14].copy_from_slice(&[0x40, 0, 0, 0, 9, number as u8]);
    set_32(&mut header, 24, 1);
    let text = format!(
        "InitiatorName=iqn.2026-01.io.linerate:adversary{number}\0TargetName={TARGET}\0SessionType=Normal\0\
         HeaderDigest=None\0DataDigest=None\0InitialR2T=No\0ImmediateData=Yes\0iSCSIProtocolLevel=2\0"
    );
    (header, text)
}

/// Number of reads to send. The target ignores reads outside the command window.
const READS_HELD: usize = 64;

/// READ (16), GET LBA STATUS, READ CAPACITY (16), INQUIRY, REPORT LUNS, and an unknown command.
const READS: [[u8; 16]; 6] = [
    [0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [0x12, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
    [0xee, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
];
