//! Tests of a second front end next to iSCSI on the same volumes. Data written through one is read through
//! the other; fences, resets and reservations affect both; and both can be added and removed while the server
//! runs.

mod configured;
mod front_end;
mod section;

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use block::{BlockDevice, Buffer, Durability, Extent, Fault, FaultControl};
use front_end::{ECHO, EchoDisk};
use front_end_core::{Config, Limits, ListenAddress, Portal, Server};
use host::{Epoll, EpollOptions, RamDevice, RamOptions, ReactorClock};
use iscsi_client::verbs::{PersistentReserve, ReservationType};
use iscsi_client::{Management, RemoteLun, TaskManagementResult};
use iscsi_server::{Export, ISCSI, Iscsi, Target};
use logical_unit::{Identity, LogicalUnit, LogicalUnitOptions};
use volume::{NamedVolumes, Volume, VolumeOptions};

const NAME: &str = "iqn.2026-01.io.linerate:both";

/// A server with one volume, `disk`, behind both front ends.
struct Both {
    server: Arc<Server>,
    volume: Arc<Volume>,
    faults: FaultControl,
    portals: Vec<Portal>,
    addresses: Vec<ListenAddress>,
    cores: Vec<JoinHandle<bool>>,
}

impl Both {
    fn start() -> Both {
        let faults = FaultControl::default();
        let volume = memory(&faults);
        let options = LogicalUnitOptions {
            identity: Identity::new(*b"behind two sides"),
            removable: false,
            thin: None,
        };
        let unit = LogicalUnit::new(Arc::clone(&volume), options).expect("nothing was saved");
        let deadline = Duration::from_secs(3600);
        let export = Export {
            lun: 0,
            volume: "disk".to_owned(),
            unit,
            initiators: None,
            deadline,
        };
        let iscsi = iscsi_server::Config {
            targets: vec![Arc::new(Target::open(NAME, vec![export]))],
            discovery_authentication: None,
            limits: iscsi_server::Limits::default(),
            random,
        };
        let portals = vec![portal(ISCSI), portal(ECHO)];
        let served = Config {
            volumes: vec![("disk".to_owned(), Arc::clone(&volume))],
            portals: portals.clone(),
            limits: LIMITS,
        };
        let (server, cores) = Server::new(
            served,
            2,
            vec![
                Iscsi::new(iscsi, 2),
                EchoDisk::new(vec!["disk".to_owned(), "another".to_owned()]),
            ],
        );
        let (report, bound) = mpsc::channel();
        let run = |core: front_end_core::Core| {
            let report = report.clone();
            thread::spawn(move || {
                let world = Epoll::shared(EpollOptions::default()).expect("a world");
                reactor::block_on(world, core.run(report))
            })
        };
        let cores = cores.into_iter().map(run).collect();
        let addresses = bound.recv().expect("a core").expect("free ports");
        server.open();
        Both {
            server,
            volume,
            faults,
            portals,
            addresses,
            cores,
        }
    }

    fn echo(&self) -> Echo {
        Echo::connect(&self.addresses[1])
    }

    fn url(&self) -> String {
        format!("iscsi://{}/{NAME}/0", self.addresses[0])
    }

    /// Reconfigures the server to serve these volumes through these portals.
    fn reconfigure(&self, volumes: NamedVolumes, portals: Vec<Portal>) -> Vec<ListenAddress> {
        let (server, config) = (
            Arc::clone(&self.server),
            Config {
                volumes,
                portals,
                limits: LIMITS,
            },
        );
        let changed = async move { server.reconfigure(config, || ()).await };
        reactor::block_on(reactor::Alone::real_time(), changed).expect("free ports")
    }

    fn disk(&self) -> (String, Arc<Volume>) {
        ("disk".to_owned(), Arc::clone(&self.volume))
    }

    fn stop(self) {
        self.server.shutdown(Duration::from_secs(10));
        let flushed = self
            .cores
            .into_iter()
            .map(|core| core.join().expect("a core that ends"));
        assert!(flushed.collect::<Vec<_>>().iter().all(|flushed| *flushed));
    }
}

/// Limits with a short wait: a reset waits this long for an unresponsive device. After that, the volume is
/// fenced, and the reset completes.
const LIMITS: Limits = Limits {
    connections_per_address: 64,
    logins: 64,
    fence_time: Duration::from_millis(50),
    staging_bytes: 1 << 20,
};

fn memory(faults: &FaultControl) -> Arc<Volume> {
    let device = RamDevice::new(RamOptions::new(1 << 20)).expect("memory");
    let device = Fault::new(device, Arc::new(ReactorClock), faults.clone());
    Volume::new(Arc::new(device), VolumeOptions::default()).expect("nothing was saved")
}

fn portal(front_end: &'static str) -> Portal {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0)).into();
    Portal {
        front_end,
        listen,
        tag: 1,
        advertise: None,
        stream: Default::default(),
    }
}

fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system's random source");
}

/// A client of the echo disk.
struct Echo(BufReader<TcpStream>);

impl Echo {
    fn connect(to: impl fmt::Display) -> Echo {
        let stream = TcpStream::connect(to.to_string()).expect("a server that listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(240)))
            .expect("a socket option");
        Echo(BufReader::new(stream))
    }

    fn tell(&mut self, line: &str) {
        self.0
            .get_mut()
            .write_all(format!("{line}\n").as_bytes())
            .expect("a connection that is open");
    }

    /// Receives a line; empty if the server has closed the connection.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line, or the end");
        line.trim().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }
}

/// Runs an action on the volume as an iSCSI initiator.
fn by_iscsi<T>(url: &str, what: impl AsyncFnOnce(RemoteLun) -> T) -> T {
    let url = iscsi_client::Url::parse(url).expect("a URL");
    let world = Epoll::shared(EpollOptions::default()).expect("a world");
    reactor::block_on(world, async {
        what(iscsi_client::open(&url, random).await.expect("a login")).await
    })
}

const BLOCK: usize = 512;

#[test]
fn what_one_front_end_writes_the_other_reads() {
    let both = Both::start();
    let mut echo = both.echo();
    assert_eq!(echo.ask("use disk"), "ok 2048");
    assert_eq!(echo.ask("write 3 a5"), "ok");
    by_iscsi(&both.url(), async |lun| {
        let read = lun
            .read(Extent::new(3, 1), Buffer::zeroed(BLOCK))
            .await
            .expect("a block");
        assert!(read.iter().all(|byte| *byte == 0xa5));
        let mut data = Buffer::zeroed(BLOCK);
        data.fill(0x5a);
        lun.write(Extent::new(4, 1), data.share(), Durability::Stable)
            .await
            .expect("a block");
        lun.close().await;
    });
    assert_eq!(echo.ask("read 4"), "ok 5a");
    assert_eq!(echo.ask("flush"), "ok");
    assert_eq!(echo.ask("read 2048"), "error beyond the end of the device");
    both.stop();
}

/// A reset by an iSCSI initiator also ends the requests of the other front end's hosts.
#[test]
fn a_reset_and_a_fence_reach_both() {
    let both = Both::start();
    let mut echo = both.echo();
    assert_eq!(echo.ask("use disk"), "ok 2048");
    by_iscsi(&both.url(), async |lun| {
        both.faults.hang();
        echo.tell("write 7 77");
        while both.faults.counts().hanging == 0 {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        let reset = lun
            .target()
            .manage(Management::LogicalUnitReset(iscsi_client::Lun(0)))
            .await;
        assert_eq!(reset, Ok(TaskManagementResult::FunctionComplete));
        lun.close().await;
    });
    assert_eq!(echo.hear(), "error aborted");
    both.faults.pass();
    assert_eq!(
        echo.ask("read 7"),
        "ok 00",
        "what was aborted does not land"
    );
    let fence = both.volume.fence();
    assert_eq!(echo.ask("write 7 77"), "error not ready");
    drop(fence);
    assert_eq!(echo.ask("write 7 77"), "ok");
    both.stop();
}

/// An iSCSI initiator's reservations also apply to the hosts of the other front end, which cannot reserve
/// anything.
#[test]
fn a_reservation_holds_for_both() {
    let both = Both::start();
    let mut echo = both.echo();
    assert_eq!(echo.ask("use disk"), "ok 2048");
    by_iscsi(&both.url(), async |lun| {
        let (unit, key, kind) = (lun.unit(), 7, ReservationType::WriteExclusive);
        let register = PersistentReserve::RegisterAndIgnoreExistingKey {
            new_key: key,
            persist: false,
        };
        unit.persistent_reserve(register).await.expect("registered");
        unit.persistent_reserve(PersistentReserve::Reserve { key, kind })
            .await
            .expect("reserved");
        assert_eq!(echo.ask("write 7 77"), "error reserved");
        assert_eq!(echo.ask("read 7"), "ok 00");
        unit.persistent_reserve(PersistentReserve::Release { key, kind })
            .await
            .expect("released");
        assert_eq!(echo.ask("write 7 77"), "ok");
        lun.close().await;
    });
    both.stop();
}

#[test]
fn portals_and_volumes_come_and_go_beside_a_session_that_stays() {
    let both = Both::start();
    let mut stays = both.echo();
    assert_eq!(stays.ask("use disk"), "ok 2048");
    assert_eq!(stays.ask("use another"), "error there is no such volume");
    let another = memory(&FaultControl::default());
    let [iscsi, echo] = [both.portals[0].clone(), both.portals[1].clone()];
    let more = vec![iscsi.clone(), echo.clone(), portal(ECHO)];
    let addresses = both.reconfigure(
        vec![both.disk(), ("another".to_owned(), Arc::clone(&another))],
        more,
    );
    let mut goes = Echo::connect(&addresses[2]);
    assert_eq!(goes.ask("use another"), "ok 2048");
    assert_eq!(goes.ask("write 0 11"), "ok");
    let gone = Arc::downgrade(&another);
    drop(another);
    both.reconfigure(vec![both.disk()], vec![iscsi, echo]);
    assert_eq!(goes.hear(), "", "its volume is not served any more");
    while gone.strong_count() > 0 {
        thread::sleep(Duration::from_millis(1)); // the volume's observers poll once a second
    }
    assert!(
        TcpStream::connect(addresses[2].to_string()).is_err(),
        "nothing listens there any more"
    );
    assert_eq!(stays.ask("write 1 22"), "ok");
    assert_eq!(stays.ask("read 1"), "ok 22");
    both.stop();
}
