//! The simulated wire: loss, duplication, reordering, delay, damage, partitions, and restarts of both sides.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use hyperscsi::initiator::{Config as ClientConfig, Times};
use hyperscsi::target::Config as ServerConfig;
use hyperscsi::{Cipher, Header, Psk};
use testkit::Random;

use super::client::Client;
use super::ledger::Ledger;
use super::server::{Address, Server};

/// Probabilities of faults, per thousand frames.
#[derive(Clone, Copy, Debug)]
struct Faults {
    loss: u64,
    duplication: u64,
    damage: u64,
    /// Additional delays of a frame: frequent, rare and very rare.
    jitter_us: u64,
    late: u64,
    very_late: u64,
    /// Per million steps.
    partitions: u64,
    server_restarts: u64,
    client_restarts: u64,
}

const QUIET: Faults = Faults {
    loss: 0,
    duplication: 0,
    damage: 0,
    jitter_us: 20,
    late: 0,
    very_late: 0,
    partitions: 0,
    server_restarts: 0,
    client_restarts: 0,
};

enum Item {
    Frame {
        from: Address,
        to: Address,
        bytes: Vec<u8>,
    },
    Heal {
        host: u8,
        interface: u8,
    },
    StartServer,
    StartClient {
        index: usize,
    },
}

/// Events of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) completed: u64,
    pub(crate) lost: u64,
    pub(crate) aborted: u64,
    pub(crate) resumed: u64,
    pub(crate) nexus_losses: u64,
    pub(crate) server_restarts: u64,
    pub(crate) client_restarts: u64,
    pub(crate) partitions: u64,
    pub(crate) frames: u64,
    pub(crate) bundles: u64,
    pub(crate) repeated: u64,
    pub(crate) held_bytes_max: usize,
    pub(crate) trace: u64,
}

pub(crate) struct World {
    base: Instant,
    now: u64,
    random: Random,
    faults: Faults,
    delay_us: u64,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    items: BTreeMap<u64, Item>,
    sequence: u64,
    server: Option<Server>,
    server_config: ServerConfig,
    key: Option<Psk>,
    clients: Vec<Client>,
    interfaces: u8,
    cut: BTreeMap<(u8, u8), u32>,
    ledger: Ledger,
    met: Met,
    trace: DefaultHasher,
    slow_per_mille: u64,
    /// Consecutive steps with only deadlines, without progress of time.
    idle_steps: u32,
}

impl World {
    pub(crate) fn new(seed: u64, commands: u64) -> World {
        let mut random = Random::new(seed);
        let hosts = 1 + random.below(3) as u8;
        let interfaces = 1 + random.below(2) as u8;
        let key = random.per_mille(400).then(|| Psk::from_secret(b"a secret"));
        let faults = Faults {
            loss: [0, 5, 20, 50, 100, 200][random.below(6) as usize],
            duplication: [0, 10, 100][random.below(3) as usize],
            damage: [0, 2, 20][random.below(3) as usize],
            jitter_us: [0, 50, 1000, 20_000][random.below(4) as usize],
            late: [0, 3, 20][random.below(3) as usize],
            very_late: [0, 1, 3][random.below(3) as usize],
            partitions: [0, 50, 400][random.below(3) as usize],
            server_restarts: [0, 10, 60][random.below(3) as usize],
            client_restarts: [0, 10, 60][random.below(3) as usize],
        };
        let base = Instant::now();
        let rekey_frames = [1 << 24, 300, 5000][random.below(3) as usize];
        let clients = (1..=hosts)
            .map(|host| {
                let cipher = if random.per_mille(500) {
                    Cipher::Aes256Gcm
                } else {
                    Cipher::ChaCha20Poly1305
                };
                let config = ClientConfig {
                    key: key.clone().map(|key| (key, cipher)),
                    frame_bytes: vec![[9000, 1500][random.below(2) as usize], 1232],
                    paths: interfaces,
                    bundles: random.per_mille(800),
                    times: Times {
                        rekey_frames,
                        ..Times::default()
                    },
                    ..ClientConfig::new(&format!("host-{host}"), "disk")
                };
                Client::new(base, host, config, commands / u64::from(hosts), &mut random)
            })
            .collect();
        let server_config = ServerConfig {
            frame_bytes: [9000, 1500, 1400][random.below(3) as usize],
            queue_depth: [128, 16, 3][random.below(3) as usize],
            send_bytes_max: [8 << 20, 4096][random.below(2) as usize],
            credit: 1 << 20,
            ..ServerConfig::default()
        };
        let slow_per_mille = [0, 20, 300][random.below(3) as usize];
        let server = Server::new(server_config, key.clone(), random.bytes(), slow_per_mille);
        World {
            base,
            now: 0,
            delay_us: [30, 200, 10_000][random.below(3) as usize],
            random,
            faults,
            heap: BinaryHeap::new(),
            items: BTreeMap::new(),
            sequence: 0,
            server: Some(server),
            server_config,
            key,
            clients,
            interfaces,
            cut: BTreeMap::new(),
            ledger: Ledger::default(),
            met: Met::default(),
            trace: DefaultHasher::new(),
            slow_per_mille,
            idle_steps: 0,
        }
    }

    fn instant(&self) -> Instant {
        self.base + Duration::from_micros(self.now)
    }

    fn later(&mut self, delay_us: u64, item: Item) {
        self.sequence += 1;
        self.heap
            .push(Reverse((self.now + delay_us, self.sequence)));
        self.items.insert(self.sequence, item);
    }

    fn is_cut(&self, end: Address) -> bool {
        self.cut.get(&end).is_some_and(|cuts| *cuts > 0)
    }

    /// Transmits a frame.
    fn transmit(&mut self, from: Address, to: Address, bytes: &[u8]) {
        self.met.frames += 1;
        self.met.bundles += u64::from(Header::parse(bytes).is_ok_and(|header| header.bundle));
        (self.now, from, to, bytes.len()).hash(&mut self.trace);
        bytes[..28].hash(&mut self.trace);
        let faults = self.faults;
        let copies = 1 + u64::from(self.random.per_mille(faults.duplication));
        for _ in 0..copies {
            if self.random.per_mille(faults.loss) || self.is_cut(from) || self.is_cut(to) {
                continue;
            }
            let mut delay = self.delay_us + self.random.below(faults.jitter_us + 1);
            if self.random.per_mille(faults.late) {
                delay += self.random.below(3_000_000);
            }
            if self.random.per_mille(faults.very_late) {
                delay += self.random.below(25_000_000);
            }
            let mut bytes = bytes.to_vec();
            if self.random.per_mille(faults.damage) {
                let at = self.random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << self.random.below(8);
                if self.random.per_mille(200) {
                    bytes.truncate(at);
                }
            }
            // Networks pad short frames, and some longer ones.
            bytes.resize(bytes.len().max(46) + self.random.below(4) as usize, 0);
            self.later(delay, Item::Frame { from, to, bytes });
        }
    }

    /// Sends all pending frames of the state machines.
    fn flush(&mut self) {
        let now = self.instant();
        let mut frame = Vec::new();
        if let Some(mut server) = self.server.take() {
            server.run(self.now, &mut self.ledger, &mut self.random);
            while let Some(to) = server.machine.poll_transmit(now, &mut frame) {
                self.transmit((0, to.1), to, &frame);
            }
            self.server = Some(server);
        }
        let mut clients = std::mem::take(&mut self.clients);
        for client in &mut clients {
            client.run(now, &mut self.ledger, &mut self.random);
            while let Some(path) = client.machine.poll_transmit(now, &mut frame) {
                assert!(path < self.interfaces);
                self.transmit((client.host, path), (0, path), &frame);
            }
            client.run(now, &mut self.ledger, &mut self.random);
        }
        self.clients = clients;
    }

    fn handle(&mut self, item: Item) {
        let now = self.instant();
        match item {
            Item::Frame {
                from,
                to: (0, _),
                mut bytes,
            } => {
                if let Some(server) = &mut self.server {
                    server.handle_frame(now, from, &mut bytes);
                }
            }
            Item::Frame { to, mut bytes, .. } => {
                let client = self.clients.iter_mut().find(|client| client.host == to.0);
                client
                    .expect("a host")
                    .machine
                    .handle_frame(now, &mut bytes);
            }
            Item::Heal { host, interface } => *self.cut.entry((host, interface)).or_default() -= 1,
            Item::StartServer => {
                let (key, seed) = (self.key.clone(), self.random.bytes());
                self.server = Some(Server::new(
                    self.server_config,
                    key,
                    seed,
                    self.slow_per_mille,
                ));
            }
            Item::StartClient { index } => {
                let client = &mut self.clients[index];
                client.restart(now, &mut self.ledger, &mut self.random);
            }
        }
    }

    fn misfortune(&mut self) {
        let faults = self.faults;
        if self.random.below(1_000_000) < faults.partitions {
            self.met.partitions += 1;
            let host = self.random.below(self.clients.len() as u64 + 1) as u8;
            let longest = if self.random.per_mille(100) {
                150_000_000
            } else {
                6_000_000
            };
            let (length, all) = (self.random.below(longest), self.random.per_mille(500));
            let one = self.random.below(u64::from(self.interfaces)) as u8;
            for interface in (0..self.interfaces).filter(|interface| all || *interface == one) {
                *self.cut.entry((host, interface)).or_default() += 1;
                self.later(length, Item::Heal { host, interface });
            }
        }
        if self.random.below(1_000_000) < faults.server_restarts && self.server.is_some() {
            self.met.server_restarts += 1;
            self.server = None;
            let pause = self.random.below(5_000_000);
            self.later(pause, Item::StartServer);
        }
        if self.random.below(1_000_000) < faults.client_restarts {
            self.met.client_restarts += 1;
            let index = self.random.below(self.clients.len() as u64) as usize;
            self.handle(Item::StartClient { index });
        }
    }

    /// Executes the next event.
    fn step(&mut self) {
        let timeouts = self
            .clients
            .iter()
            .filter_map(|client| client.machine.poll_timeout());
        let server = self.server.as_ref();
        let timeout = timeouts
            .chain(server.and_then(|server| server.machine.poll_timeout()))
            .min();
        let timeout = timeout.map(|at| {
            // A deadline is reached when its microsecond is over.
            at.saturating_duration_since(self.base)
                .as_nanos()
                .div_ceil(1000) as u64
        });
        let item = self.heap.peek().map(|Reverse((at, _))| *at);
        let job = server.and_then(Server::due);
        // When all have disconnected, nothing is pending.
        let next = [timeout, item, job]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(self.now + 1_000_000);
        self.idle_steps = if next > self.now || item == Some(next) {
            0
        } else {
            self.idle_steps + 1
        };
        assert!(self.idle_steps < 100, "a deadline that has passed stays");
        self.now = self.now.max(next);
        let now = self.instant();
        if item == Some(next) {
            let Reverse((_, sequence)) = self.heap.pop().expect("an item");
            let item = self.items.remove(&sequence).expect("an item");
            self.handle(item);
        }
        if timeout.is_some_and(|at| at <= self.now) {
            for client in &mut self.clients {
                client.machine.handle_timeout(now);
            }
            if let Some(server) = &mut self.server {
                server.machine.handle_timeout(now);
            }
        }
        for index in 0..self.clients.len() {
            if self.clients[index].is_ended && self.clients[index].quota > 0 {
                self.clients[index].is_ended = false;
                let pause = self.random.below(100_000);
                self.later(pause, Item::StartClient { index });
            }
        }
        self.flush();
        self.check_memory();
    }

    fn check_memory(&mut self) {
        let Some(server) = &self.server else { return };
        let sessions = server.machine.sessions();
        let (live, unacknowledged, bytes) = server.machine.holds();
        let depth = usize::from(self.server_config.queue_depth);
        assert!(
            live <= depth * sessions,
            "{live} requests in {sessions} sessions"
        );
        assert!(
            unacknowledged <= (2 * depth + 2) * sessions,
            "{unacknowledged} messages"
        );
        // Twice the credit, for an epoch that started while messages arrived in the previous one.
        let credit = (self.server_config.credit as usize).max(1 << 20) + 4096;
        assert!(
            bytes <= 2 * credit * sessions,
            "{bytes} bytes in {sessions} sessions"
        );
        self.met.held_bytes_max = self.met.held_bytes_max.max(bytes);
        assert!(
            self.clients
                .iter()
                .all(|client| client.machine.held_bytes() <= 4 << 20)
        );
    }

    /// Runs until all commands have been issued and completed, and nothing is left.
    pub(crate) fn run(mut self) -> Met {
        self.flush();
        while self.clients.iter().any(|client| client.quota > 0) {
            self.step();
            self.misfortune();
            assert!(self.now < 6_000_000_000, "no progress: {:?}", self.met);
        }
        self.faults = QUIET;
        while !self.clients.iter().all(Client::is_done) {
            self.step();
            assert!(self.now < 12_000_000_000, "no end: {:?}", self.met);
        }
        // Outstanding frames arrive, and old sessions time out.
        let end = self.now + 200_000_000;
        while self.now < end {
            self.step();
        }
        let server = self.server.take().expect("it is there again");
        assert_eq!(
            (server.machine.holds(), server.jobs()),
            ((0, 0, 0), 0),
            "nothing is left at the target"
        );
        for client in &self.clients {
            let left = (
                client.machine.outstanding(),
                client.machine.unacknowledged(),
            );
            assert_eq!(
                (left, client.machine.held_bytes()),
                ((0, 0), 0),
                "nothing is left at an initiator"
            );
            self.met.resumed += client.resumed;
            self.met.nexus_losses += client.nexus_losses;
        }
        self.met.repeated += server.machine.counters().messages_repeated;
        (self.met.completed, self.met.lost) = (self.ledger.completed, self.ledger.lost);
        (self.met.aborted, self.met.trace) = (self.ledger.aborted, self.trace.finish());
        self.met
    }
}
