//! A process that uses the disk: the initiator state machine under load, with task management, crashes and
//! disconnects.

use std::collections::BTreeMap;
use std::time::Instant;

use hyperscsi::initiator::{Config, Event, RequestId, SubmitError};
use hyperscsi::{Command, FRAGMENTS_MAX, Function, FunctionResult, Initiator, Payload};
use testkit::Random;

use super::ledger::Ledger;

/// Blocks used by one host only: reads and writes of one block never overlap in time.
const BLOCKS: u64 = 24;

pub(crate) struct Client {
    pub(crate) host: u8,
    pub(crate) machine: Initiator,
    config: Config,
    /// Number of commands still to issue.
    pub(crate) quota: u64,
    depth: usize,
    outstanding: BTreeMap<RequestId, (u64, u16)>,
    functions: BTreeMap<RequestId, Option<RequestId>>,
    busy: BTreeMap<u16, u64>,
    /// Number of sessions so far, over all restarts of the host.
    session: u32,
    is_logged_in: bool,
    pub(crate) is_ended: bool,
    large_per_mille: u64,
    pub(crate) resumed: u64,
    pub(crate) nexus_losses: u64,
}

impl Client {
    pub(crate) fn new(
        now: Instant,
        host: u8,
        config: Config,
        quota: u64,
        random: &mut Random,
    ) -> Client {
        Client {
            host,
            machine: Initiator::new(now, config.clone(), random.bytes()),
            config,
            quota,
            depth: 1 + random.below(24) as usize,
            outstanding: BTreeMap::new(),
            functions: BTreeMap::new(),
            busy: BTreeMap::new(),
            session: 0,
            is_logged_in: false,
            is_ended: false,
            large_per_mille: random.below(40),
            resumed: 0,
            nexus_losses: 0,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.quota == 0 && self.outstanding.is_empty() && self.functions.is_empty()
    }

    /// Crashes and restarts the process.
    pub(crate) fn restart(&mut self, now: Instant, ledger: &mut Ledger, random: &mut Random) {
        ledger.lose_all(self.host);
        self.outstanding.clear();
        self.functions.clear();
        self.busy.clear();
        (self.is_logged_in, self.is_ended) = (false, false);
        self.machine = Initiator::new(now, self.config.clone(), random.bytes());
    }

    pub(crate) fn run(&mut self, now: Instant, ledger: &mut Ledger, random: &mut Random) {
        while let Some(event) = self.machine.poll_event() {
            self.handle(event, ledger);
        }
        while self.is_logged_in && self.quota > 0 && self.outstanding.len() < self.depth {
            if !self.issue(ledger, random) {
                break;
            }
        }
        if self.is_logged_in && !self.outstanding.is_empty() && random.per_mille(3) {
            self.manage(random);
        }
        if self.is_logged_in && self.quota > 0 && random.below(4000) == 0 {
            self.machine.disconnect(now);
            self.run_events(ledger);
        }
    }

    fn run_events(&mut self, ledger: &mut Ledger) {
        while let Some(event) = self.machine.poll_event() {
            self.handle(event, ledger);
        }
    }

    fn issue(&mut self, ledger: &mut Ledger, random: &mut Random) -> bool {
        let block = u16::from(self.host) << 8 | random.below(BLOCKS) as u16;
        if self.busy.contains_key(&block) || self.machine.room() == 0 {
            return false;
        }
        let is_write = random.per_mille(600);
        let longest = match (
            random.per_mille(self.large_per_mille),
            random.per_mille(100),
        ) {
            // A message longer than an epoch would restart forever.
            (true, true) if self.config.times.rekey_frames > 2 * FRAGMENTS_MAX as u64 => 1 << 20,
            (true, _) => 40_000,
            (false, _) => 1500,
        };
        let bytes = random.below(longest) as u32;
        let id = ledger.issue(self.host, self.session, block, bytes, is_write);
        let mut cdb = vec![if is_write { 0x8a } else { 0x88 }; 16];
        cdb[2..10].copy_from_slice(&id.to_be_bytes());
        let command = Command {
            lun: [0, (block & 1) as u8, 0, 0, 0, 0, 0, 0],
            cdb,
            data_in_bytes: if is_write { 0 } else { bytes },
            data_out: if is_write {
                super::ledger::pattern(id, bytes).into()
            } else {
                Payload::default()
            },
            ..Command::default()
        };
        let request = self.machine.submit(command).expect("there is room");
        self.outstanding.insert(request, (id, block));
        self.busy.insert(block, id);
        self.quota -= 1;
        true
    }

    fn manage(&mut self, random: &mut Random) {
        let victim = *self
            .outstanding
            .keys()
            .nth(random.below(self.outstanding.len() as u64) as usize)
            .expect("one");
        let lun = [0, random.below(2) as u8, 0, 0, 0, 0, 0, 0];
        let (function, task) = match random.below(10) {
            0..5 => (Function::AbortTask, Some(victim)),
            5 => (Function::QueryTask, Some(victim)),
            6 => (Function::AbortTaskSet, None),
            7 => (Function::LogicalUnitReset, None),
            8 => (Function::ITNexusReset, None),
            _ => (Function::Other(99), None),
        };
        match self.machine.manage(function, lun, task) {
            Ok(id) => _ = self.functions.insert(id, task),
            Err(error) => assert_eq!(error, SubmitError::Full),
        }
    }

    fn end(&mut self, id: RequestId) -> Option<u64> {
        let (command, block) = self.outstanding.remove(&id)?;
        self.busy.remove(&block);
        Some(command)
    }

    fn handle(&mut self, event: Event, ledger: &mut Ledger) {
        match event {
            Event::LoggedIn { is_encrypted, .. } => {
                assert_eq!(is_encrypted, self.config.key.is_some());
                self.session += 1;
                self.is_logged_in = true;
            }
            Event::Resumed => self.resumed += 1,
            Event::Completed { id, response } => {
                let command = self.end(id).expect("it is outstanding");
                match response.status {
                    0 => ledger.complete(command, &response.data),
                    0x40 => ledger.abort(command),
                    other => panic!("status {other}"),
                }
            }
            Event::FunctionDone { id, result } => {
                self.functions.remove(&id).expect("it is outstanding");
                assert_ne!(result, FunctionResult::IncorrectLun);
            }
            Event::Lost { id } => {
                if self.functions.remove(&id).is_none() {
                    let command = self.end(id).expect("it is outstanding");
                    ledger.lose(command);
                }
            }
            Event::NexusLost => {
                self.nexus_losses += 1;
                self.is_logged_in = false;
                assert!(self.outstanding.is_empty(), "they were lost first");
            }
            Event::Ended(_) => {
                self.is_logged_in = false;
                self.is_ended = true;
                assert!(
                    self.outstanding.is_empty() && self.functions.is_empty(),
                    "nothing is left behind"
                );
            }
        }
    }
}
