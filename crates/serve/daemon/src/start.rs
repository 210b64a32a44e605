//! Startup and shutdown of a configured server. At startup, the volumes are opened, and the reactor threads
//! start to listen. At shutdown, all volumes are flushed before the threads exit.

use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};

use backends::{Failure, secrets};
use front_end_core::{Core, FrontEnd, ListenAddress, Server};
use host::local_socket::SocketFile;
use host::{EpollOptions, threads};
use reactor::{Sender, mailbox};
use volume::backend::Undo;

use crate::config::{Config, RunningFrontEnd, Serving};
use crate::control::{ControlReply, Events, Socket};
use crate::live::{Live, LiveState};
use crate::metrics::http::Bound;
use crate::start_options::StartOptions;
use crate::state::{self, CONTROL, ServerState};
use crate::waiting::{Ends, Jobs, LastUse, Openers};
use crate::{announce, volumes};

/// A started server. Dropping it leaves its threads running.
pub struct Started {
    live: Arc<Live>,
    addresses: Vec<ListenAddress>,
    ends: Ends,
    reactors: threads::Reactors<bool>,
    socket: Option<Socket>,
    socket_file: Option<SocketFile>,
}

/// Starts the server of `config`, which was read from `start_options`. Until the server is
/// [open](Started::open), it listens, but rejects logins with a temporary status. Also raises this
/// process's limit on open files to the maximum that the system allows.
///
/// # Errors
/// The configuration cannot be served completely. Files that were created for it have been removed.
pub fn start(start_options: StartOptions, config: Config) -> Result<Started, Failure> {
    let undo = Undo::default();
    let started = start_noting(start_options, config, &undo).inspect_err(|_| undo.take_back())?;
    undo.keep();
    Ok(started)
}

fn start_noting(
    start_options: StartOptions,
    config: Config,
    undo: &Undo,
) -> Result<Started, Failure> {
    config
        .io_engine
        .unwrap_or_default()
        .choose()
        .map_err(|error| {
            Failure::refused(format!(
                "io_uring is unavailable ({error}); use --io-engine auto"
            ))
        })?;
    tracing::debug!(open_files = ?host::usage::raise_open_files(), "limits");
    let state = ServerState::open(&state_directory(&config)?, undo).map_err(Failure::refused)?;
    let cores = config
        .reactors
        .and_then(NonZeroUsize::new)
        .unwrap_or_else(threads::available);
    let (openers, of_cores, ends) = Openers::of_cores(cores);
    let (reactors, begins) = start_reactors(&config, cores, of_cores)?;
    let volumes = volumes::open(&config, &state, &openers, undo)?;
    let units = volumes.units();
    let serving = Serving {
        config: &config,
        units: &units,
    };
    let front_ends: Vec<Arc<dyn RunningFrontEnd>> = config
        .front_ends()
        .map(|front_end| front_end.start(serving, cores.get()))
        .collect();
    let for_server = front_ends
        .iter()
        .map(|front_end| Arc::clone(front_end) as Arc<dyn FrontEnd>)
        .collect();
    let (server, parts) = Server::new(serving.of_server(), cores.get(), for_server);
    let events = Arc::new(Events::default());
    server.set_observer(events.clone());
    let addresses = addresses(&begin(&begins, parts))?;
    debug_assert_eq!(
        addresses.len(),
        server.portals().len(),
        "an address for each portal"
    );
    let socket = Socket::bind(&control(&config, state.directory())).map_err(Failure::refused)?;
    let metrics = config.metrics.map(Bound::new).transpose()?;
    tell(&start_options, &config, &state, &addresses);
    let live = Live::new(
        state,
        server,
        front_ends,
        events,
        openers,
        LiveState {
            start_options,
            config,
            volumes,
            ordered: Vec::new(),
            waiting: 0,
        },
    );
    live.serve_metrics(metrics)?;
    Ok(Started {
        live,
        addresses,
        ends,
        reactors,
        socket: Some(socket),
        socket_file: None,
    })
}

impl Started {
    /// The running server.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// The addresses of the portals, in their order, with the bound ports.
    pub fn addresses(&self) -> &[ListenAddress] {
        &self.addresses
    }

    /// Accepts logins, and serves the control socket.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn open(&mut self) -> Result<(), Failure> {
        if let Some(socket) = self.socket.take() {
            // In a program that runs longer than the server, the thread that waits for clients may outlive
            // the server, and must not keep its state directory locked.
            let live = Arc::downgrade(&self.live);
            let answer = move |request, by: &str| match live.upgrade() {
                Some(live) => live.answer(&request, by),
                None => ControlReply::Refused {
                    reason: "the server has ended".to_owned(),
                },
            };
            let served = socket.serve(Arc::clone(self.live.events()), answer);
            self.socket_file = Some(served.map_err(Failure::failed)?);
        }
        self.live.server().open();
        Ok(())
    }

    /// Waits until the server has shut down, which [`Live::shutdown`] initiates.
    ///
    /// # Errors
    /// A thread ended early, or a volume could not be flushed.
    pub fn join(self) -> Result<(), Failure> {
        self.ends.all_flushed();
        // Close the RAID sets while the cores still run, because the sessions of their members and their
        // maintenance tasks are on the cores.
        self.live.close_sets();
        drop(self.ends);
        let flushed = self.reactors.join().map_err(Failure::failed)?;
        tracing::info!("ended");
        match flushed.into_iter().all(|flushed| flushed) {
            true => Ok(()),
            false => Err(Failure::failed(
                "a volume could not be flushed; acknowledged writes may not be on stable storage",
            )),
        }
    }
}

/// Returns the directory for the state of a server.
pub(crate) fn state_directory(config: &Config) -> Result<PathBuf, Failure> {
    match &config.state {
        Some(directory) => Ok(directory.clone()),
        None => state::usual_directory().map_err(Failure::refused),
    }
}

pub(crate) fn control(config: &Config, state: &Path) -> PathBuf {
    config
        .control
        .clone()
        .unwrap_or_else(|| state.join(CONTROL))
}

/// Logs the configuration at the start.
fn tell(
    start_options: &StartOptions,
    config: &Config,
    state: &ServerState,
    bound: &[ListenAddress],
) {
    let file = start_options
        .path
        .as_ref()
        .map(|path| path.display().to_string());
    let (version, pid, state) = (
        env!("CARGO_PKG_VERSION"),
        process::id(),
        state.directory().display(),
    );
    tracing::info!(version, pid, config = file, %state, "started");
    for line in announce::summary_of(config, bound).lines() {
        tracing::info!("serves: {}", secrets::masked(line).trim_start());
    }
}

type BoundPortals = Receiver<io::Result<Vec<ListenAddress>>>;

/// The part of the server on one reactor thread, and the channel for its bound portals.
type Part = (Core, mpsc::Sender<io::Result<Vec<ListenAddress>>>);

/// Starts the reactor threads. They open remote volumes, and wait for their parts of the server at their
/// mailboxes.
fn start_reactors(
    config: &Config,
    cores: NonZeroUsize,
    of_cores: Vec<(Jobs, LastUse)>,
) -> Result<(threads::Reactors<bool>, Vec<Sender<Part>>), Failure> {
    let usual = EpollOptions::default();
    let options = EpollOptions {
        spin: config.poll.unwrap_or(usual.spin),
        gather: config.gather.unwrap_or(usual.gather),
    };
    let with_mailbox = |of_core| {
        let (begin, part) = mailbox::<Part>();
        (begin, Some((of_core, part)))
    };
    let (begins, parts): (Vec<_>, Vec<_>) = of_cores.into_iter().map(with_mailbox).unzip();
    debug_assert_eq!(parts.len(), cores.get(), "each reactor thread has its part");
    let parts = Arc::new(Mutex::new(parts));
    let main = move |number: usize| {
        let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
        let part = parts.get_mut(number).and_then(Option::take);
        async move {
            let Some(((jobs, last_use), mut part)) = part else {
                return true;
            };
            drop(reactor::spawn(jobs.attend()));
            // The mailbox is closed without a part if the server could not be started.
            let Some((core, report)) = part.recv().await else {
                return true;
            };
            let flushed = core.run(report).await;
            last_use.ended().await;
            flushed
        }
    };
    let reactors = threads::start(cores, options, main).map_err(Failure::failed)?;
    Ok((reactors, begins))
}

/// Passes the reactor threads their parts. The returned receiver receives the bound portals.
fn begin(begins: &[Sender<Part>], parts: Vec<Core>) -> BoundPortals {
    let (report, bound) = mpsc::channel();
    debug_assert_eq!(begins.len(), parts.len(), "each reactor has a core");
    for (begin, core) in begins.iter().zip(parts) {
        // If a reactor has ended, the caller detects this when it waits for the portals.
        let _ = begin.send((core, report.clone()));
    }
    bound
}

fn addresses(bound: &BoundPortals) -> Result<Vec<ListenAddress>, Failure> {
    match bound.recv() {
        Ok(Ok(addresses)) => Ok(addresses),
        Ok(Err(error)) => Err(Failure::refused(no_listener(&error))),
        Err(_) => Err(Failure::failed(
            "the reactor threads ended before they listened",
        )),
    }
}

/// Returns the message for a portal that cannot be bound. The error names the portal.
pub(crate) fn no_listener(error: &io::Error) -> String {
    format!("cannot listen on {error}; {}", remedy(error.kind()))
}

fn remedy(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrInUse => {
            "stop the program that uses the address, or choose another address or port with --listen"
        }
        io::ErrorKind::AddrNotAvailable => "use --listen with an address of this machine",
        // These errors occur only for Unix sockets.
        io::ErrorKind::AlreadyExists | io::ErrorKind::InvalidInput => {
            "choose a path at which this user can create a socket"
        }
        io::ErrorKind::PermissionDenied => "choose a port above 1023, such as 3260",
        // This error occurs only for a congestion control algorithm.
        io::ErrorKind::NotFound => {
            "choose another with --congestion, or `congestion` of the portal"
        }
        _ => "see --listen",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::control::{Change, ControlRequest, RaidOrder, ask};

    #[test]
    fn a_volume_shrinks_by_an_order_alone_and_not_into_its_data() {
        use std::os::unix::fs::FileExt as _;
        let one = One::start("file:FOLDER/v.img?size=4MiB");
        let image = one.folder.path().join("v.img");
        let file = std::fs::File::options()
            .write(true)
            .open(&image)
            .expect("made");
        file.write_all_at(b"data", 3 << 20).expect("written");
        let resize = |mib: u64, shrink, discard_data| {
            let change = Change::Resize {
                volume: "v".parse().expect("a name"),
                bytes: mib << 20,
                shrink,
                discard_data,
            };
            match one.live().answer(
                &ControlRequest::Change {
                    change,
                    dry_run: false,
                    force: false,
                },
                "test",
            ) {
                ControlReply::Reloaded { failed, .. } => failed.join("\n"),
                ControlReply::Refused { reason } => reason,
                other => panic!("{other:?}"),
            }
        };
        assert!(resize(2, false, false).contains("to 2MiB"));
        let told = resize(2, true, false);
        testkit::says(&told, &["there is data after that size, from byte 3145728"]);
        assert_eq!(one.mib(), 4);
        assert_eq!(resize(2, true, true), "");
        assert_eq!(one.mib(), 2);
        assert_eq!(resize(1, true, false), "", "there is no data");
        assert_eq!(resize(4, false, false), "", "the file has kept its length");
        assert_eq!(one.mib(), 4);
        let folder = one.end();
        let start_options = start_options("127.0.0.1:0", "file:FOLDER/v.img?size=2MiB", &folder);
        let config = start_options.safe_config().expect("nothing wrong");
        let told = start(start_options, config)
            .map(drop)
            .expect_err("cut by a configuration")
            .to_string();
        testkit::says(&told, &["served with 4MiB, and would be shrunk to 2MiB"]);
    }

    /// The thread that waits for clients of the control socket outlives the server.
    #[test]
    fn a_server_that_has_ended_keeps_neither_its_volumes_nor_its_state_directory() {
        let one = One::start("file:FOLDER/v.img?size=1MiB");
        let live = Arc::downgrade(one.server.as_ref().expect("started").live());
        let folder = one.end();
        assert!(live.upgrade().is_none());
        One::start_in(folder, "127.0.0.1:0", "file:FOLDER/v.img?size=1MiB").end();
    }

    /// A server with a single volume and its control socket; `FOLDER` is replaced with a new directory.
    struct One {
        folder: tempfile::TempDir,
        server: Option<Started>,
    }

    impl One {
        fn start(spec: &str) -> One {
            One::start_at("127.0.0.1:0", spec)
        }

        fn start_at(listen: &str, spec: &str) -> One {
            One::start_in(
                tempfile::tempdir().expect("a temporary directory"),
                listen,
                spec,
            )
        }

        fn start_in(folder: tempfile::TempDir, listen: &str, spec: &str) -> One {
            let start_options = start_options(listen, spec, &folder);
            let mut one = One {
                folder,
                server: None,
            };
            let config = start_options.safe_config().expect("nothing wrong");
            let server = one
                .server
                .insert(start(start_options, config).expect("started"));
            server.open().expect("threads");
            one
        }

        fn text(&self, spec: &str) -> String {
            spec.replace("FOLDER", &self.folder.path().display().to_string())
        }

        fn live(&self) -> &Live {
            self.server.as_ref().expect("started").live()
        }

        fn mib(&self) -> u64 {
            self.live().volumes()[0].bytes >> 20
        }

        fn faults(&self) -> block::FaultControl {
            self.live()
                .now()
                .volumes
                .named("v")
                .and_then(|volume| volume.faults.clone())
                .expect("a layer")
        }

        /// Sends a request on another thread, which sends the text of the reply to the returned receiver.
        fn ask(&self, request: ControlRequest) -> mpsc::Receiver<String> {
            let socket = self.folder.path().join("state").join(CONTROL);
            let (tell, reply) = mpsc::channel();
            let asked =
                move || tell.send(format!("{:?}", ask(&socket, &request).expect("a reply")));
            drop(std::thread::spawn(asked));
            reply
        }

        fn shrink(&self, mib: u64, dry_run: bool) -> mpsc::Receiver<String> {
            let volume = "v".parse().expect("a name");
            let change = Change::Resize {
                volume,
                bytes: mib << 20,
                shrink: true,
                discard_data: false,
            };
            self.ask(ControlRequest::Change {
                change,
                dry_run,
                force: false,
            })
        }

        fn end(mut self) -> tempfile::TempDir {
            let server = self.server.take().expect("started");
            server.live().shutdown(Duration::ZERO);
            server.join().expect("flushed");
            self.folder
        }
    }

    fn start_options(listen: &str, spec: &str, folder: &tempfile::TempDir) -> StartOptions {
        let spec = spec.replace("FOLDER", &folder.path().display().to_string());
        StartOptions {
            volumes: vec![format!("v={spec}").parse().expect("a volume")],
            listen: vec![listen.parse().expect("an address")],
            state: Some(folder.path().join("state")),
            reactors: Some(1),
            ..StartOptions::default()
        }
    }

    /// A generous time limit: the events that a test waits for occur much sooner.
    const WAIT: Duration = Duration::from_secs(60);

    fn wait_until(what: impl Fn() -> bool) {
        let end = std::time::Instant::now() + WAIT;
        while !what() {
            assert!(std::time::Instant::now() < end, "it does not happen");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Regression: the part to cut off was checked only while hosts could still write.
    #[test]
    fn data_that_a_host_writes_after_the_check_keeps_a_volume_from_being_cut() {
        use std::os::unix::fs::FileExt as _;
        let one = One::start("fault:[file:FOLDER/v.img?size=4MiB]");
        let faults = one.faults();
        let hang = block::Rule::all(block::FaultAction::Hang);
        faults.set([block::Rule {
            requests: block::Requests::Flushes,
            ..hang
        }]);
        let reply = one.shrink(2, false);
        // The last flush hangs: the check has passed, and hosts are about to lose the volume.
        wait_until(|| faults.counts().hanging > 0);
        let image = one.folder.path().join("v.img");
        let file = std::fs::File::options()
            .write(true)
            .open(&image)
            .expect("there");
        file.write_all_at(b"data", 3 << 20).expect("written");
        faults.pass();
        let reply = reply.recv_timeout(WAIT).expect("a reply");
        assert_eq!(one.mib(), 4, "{reply}");
        assert!(reply.contains("the volume is unchanged"), "{reply}");
        drop(one.end());
    }

    /// Regression: the check held the lock of all orders without a time limit, so the order to end an
    /// injected fault waited for the fault to end.
    #[test]
    fn a_device_that_does_not_answer_the_check_before_a_shrink_keeps_no_other_order_waiting() {
        let one = One::start("fault:[file:FOLDER/v.img?size=4MiB]");
        let faults = one.faults();
        faults.hang();
        let reply = one
            .shrink(2, true)
            .recv_timeout(WAIT)
            .expect("a dry run asks no device");
        assert!(reply.contains("Reloaded"), "{reply}");
        let reply = one.shrink(2, false);
        wait_until(|| faults.counts().hanging > 0);
        for request in [
            ControlRequest::Volumes,
            ControlRequest::Fault {
                volume: "v".to_owned(),
                mode: crate::control::FaultMode::Pass,
            },
        ] {
            one.ask(request).recv_timeout(WAIT).expect("a reply");
        }
        reply.recv_timeout(WAIT).expect("a reply");
        drop(one.end());
    }

    /// Regression: the volume was checked for data before it was checked whether the volume is in use.
    #[test]
    fn a_shrink_of_a_volume_in_use_is_refused_before_its_device_is_asked() {
        use std::io::{Read as _, Write as _};
        let one = One::start_at("nbd://127.0.0.1:0", "fault:[file:FOLDER/v.img?size=4MiB]");
        let address = one
            .server
            .as_ref()
            .and_then(|server| server.addresses()[0].inet())
            .expect("a port");
        let mut client = std::net::TcpStream::connect(address).expect("connected");
        client.set_read_timeout(Some(WAIT)).expect("a limit");
        // NBD_FLAG_C_FIXED_NEWSTYLE and NBD_FLAG_C_NO_ZEROES, NBD_OPT_EXPORT_NAME.
        let hello = [
            &3_u32.to_be_bytes()[..],
            b"IHAVEOPT",
            &1_u32.to_be_bytes(),
            &1_u32.to_be_bytes(),
            b"v",
        ];
        client.read_exact(&mut [0; 18]).expect("a greeting");
        client.write_all(&hello.concat()).expect("an export");
        client.read_exact(&mut [0; 10]).expect("its size and flags");
        let faults = one.faults();
        faults.hang();
        let reply = one.shrink(2, false).recv_timeout(WAIT).expect("a reply");
        testkit::says(&reply, &["resources in use would be removed"]);
        assert_eq!(
            (faults.counts().hanging, faults.counts().dropped),
            (0, 0),
            "its device is not asked"
        );
        faults.pass();
        drop(client);
        drop(one.end());
    }

    /// Starts a server with a mirror of two files, the first of which can be made to hang.
    fn mirror() -> One {
        mirror_with("")
    }

    /// [`mirror`], started with these options of the set.
    fn mirror_with(options: &str) -> One {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let member = |name: &str| format!("file:{}?size=96MiB", folder.path().join(name).display());
        let spec = format!("raid1:[fault:[{}], {}]", member("a"), member("b"));
        let set = backends::parse(&spec).expect("a specification");
        let creation = backends::raid::Creation::default();
        backends::remote::run(async {
            backends::raid::create(&set, &creation, disk_contents::Consent::Given)
                .await
                .map(drop)
        })
        .expect("a set");
        One::start_in(folder, "127.0.0.1:0", &format!("{spec}{options}"))
    }

    /// Regression: an option that overrides a refusal was kept in the specification, and would have
    /// overridden the next refusal.
    #[test]
    fn the_specification_after_an_order_to_a_set_overrules_no_refusal() {
        let one = mirror_with("?missing-are-lost&rebuild=1GiB");
        let reply = add_spare(&one, "spare")
            .recv_timeout(WAIT)
            .expect("a reply");
        let written = one.live().now().config.volumes[0].spec.to_string();
        for text in [&reply, &written] {
            testkit::says(text, &["spare", "]?rebuild=1GiB"]);
            assert!(!text.contains("missing-are-lost"), "{text}");
        }
        drop(one.end());
    }

    fn add_spare(one: &One, name: &str) -> mpsc::Receiver<String> {
        let spare = one.text(&format!("file:FOLDER/{name}?size=96MiB"));
        let order = RaidOrder::Add {
            spare,
            overwrite: false,
        };
        one.ask(ControlRequest::Raid {
            volume: "v".to_owned(),
            set: None,
            order,
        })
    }

    fn is_ordered(one: &One) -> bool {
        !one.live().now().ordered.is_empty()
    }

    /// Regression: an order held the lock of the configuration until all members had responded.
    #[test]
    fn an_order_to_a_set_whose_member_does_not_answer_keeps_nobody_else_waiting() {
        let one = mirror();
        let faults = one.faults();
        faults.hang();
        let order = add_spare(&one, "spare");
        wait_until(|| is_ordered(&one) && faults.counts().hanging > 0);
        for (request, expected) in [
            (ControlRequest::Targets, "iqn.2026-01.io.linerate:v"),
            (ControlRequest::Volumes, "raid1"),
            (
                ControlRequest::Reload {
                    dry_run: false,
                    force: false,
                },
                "Reloaded",
            ),
            (add_ram("w", 1), "+ volume w"),
            // A dry run changes nothing.
            (remove("v", true), "- volume v"),
        ] {
            let reply = one
                .ask(request)
                .recv_timeout(WAIT)
                .expect("a reply while the order waits");
            assert!(reply.contains(expected), "{reply}");
        }
        assert!(
            order.try_recv().is_err() && is_ordered(&one),
            "the order still waits"
        );
        faults.pass();
        let reply = order.recv_timeout(WAIT).expect("a reply");
        assert!(reply.contains("failed: []"), "{reply}");
        drop(one.end());
    }

    /// Regression: an order that completed after its requester had stopped waiting was not written to the
    /// configuration, and the next start did not open the new member.
    #[test]
    fn an_order_that_takes_longer_than_its_requester_waits_is_written_to_the_configuration() {
        let one = mirror();
        let faults = one.faults();
        let add_late = |name: &str| {
            let spare = one.text(&format!("file:FOLDER/{name}?size=96MiB"));
            let order = RaidOrder::Add {
                spare,
                overwrite: false,
            };
            faults.hang();
            // An order that has not started within this time limit is withdrawn.
            let told = loop {
                let late = one
                    .live()
                    .raid_unnoted("v", None, &order, Duration::from_secs(1));
                let told = late.expect_err("a member hangs").to_string();
                if !told.contains("withdrawn") {
                    break told;
                }
            };
            assert!(told.contains("the operation continues"), "{told}");
            assert!(!is_ordered(&one), "other orders do not wait for it");
        };
        let is_written = |name: &str| {
            let now = one.live().now();
            let specs = [
                now.config.volumes[0].spec.to_string(),
                now.start_options.volumes[0].spec.to_string(),
            ];
            specs.iter().all(|spec| spec.contains(name))
        };
        add_late("first");
        faults.pass();
        wait_until(|| is_written("/first"));
        add_late("second");
        let third = add_spare(&one, "third");
        wait_until(|| is_ordered(&one));
        faults.pass();
        let reply = third.recv_timeout(WAIT).expect("a reply");
        assert!(reply.contains("failed: []"), "{reply}");
        wait_until(|| ["/first", "/second", "/third"].into_iter().all(is_written));
        drop(one.end());
    }

    fn add_ram(volume: &str, mib: u64) -> ControlRequest {
        let change = Change::Add {
            volume: volume.parse().expect("a name"),
            spec: format!("ram:{mib}MiB"),
            front_end: None,
            target: None,
            lun: None,
            initiators: Vec::new(),
            keys: Vec::new(),
        };
        ControlRequest::Change {
            change,
            dry_run: false,
            force: false,
        }
    }

    fn remove(volume: &str, dry_run: bool) -> ControlRequest {
        let change = Change::Remove {
            volume: volume.parse().expect("a name"),
        };
        ControlRequest::Change {
            change,
            dry_run,
            force: true,
        }
    }

    #[test]
    fn orders_to_a_set_and_changes_of_its_volume_wait_for_the_order_before() {
        let one = mirror();
        let added = one
            .ask(add_ram("w", 1))
            .recv_timeout(WAIT)
            .expect("a reply");
        assert!(added.contains("+ volume w"), "{added}");
        let faults = one.faults();
        faults.hang();
        let first = add_spare(&one, "first");
        wait_until(|| is_ordered(&one) && faults.counts().hanging > 0);
        let second = add_spare(&one, "second");
        wait_until(|| one.live().now().waiting == 1);
        faults.pass();
        for order in [first, second] {
            let reply = order.recv_timeout(WAIT).expect("a reply");
            assert!(reply.contains("failed: []"), "{reply}");
        }
        let spec = one.live().volumes().remove(0).spec;
        testkit::says(&spec, &["/first", "/second"]);
        faults.hang();
        let third = add_spare(&one, "third");
        wait_until(|| is_ordered(&one) && faults.counts().hanging > 0);
        let removed = one.ask(remove("v", false));
        wait_until(|| one.live().now().waiting == 1);
        assert_eq!(
            one.live().volumes().len(),
            2,
            "it is served while the order waits"
        );
        faults.pass();
        let reply = third.recv_timeout(WAIT).expect("a reply");
        assert!(reply.contains("failed: []"), "{reply}");
        let reply = removed.recv_timeout(WAIT).expect("a reply");
        testkit::says(&reply, &["- volume v", "failed: []"]);
        drop(one.end());
    }

    /// Regression: the first `size=` in the specification of a set was changed. It belonged to a member, and
    /// all hosts lost access to the set needlessly.
    #[test]
    fn a_raid_set_is_not_shrunk_by_cutting_its_first_member() {
        let one = mirror();
        let opening = || {
            one.live()
                .now()
                .volumes
                .named("v")
                .expect("served")
                .unit
                .volume()
                .opening()
        };
        let (before, mib) = (opening(), one.mib());
        let reply = one.shrink(80, false).recv_timeout(WAIT).expect("a reply");
        testkit::says(&reply, &["Refused", "only file volumes"]);
        assert_eq!((opening(), one.mib()), (before, mib), "its hosts keep it");
        drop(one.end());
    }

    /// Regression: the record still contained an order that a reload had removed, so the next such order was
    /// ignored.
    #[test]
    fn a_reload_that_removes_an_order_lets_the_next_one_count() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let (image, path) = (
            folder.path().join("v.img"),
            folder.path().join("linerate.toml"),
        );
        let write = |order: &str| {
            let spec = format!("file:{}?size=1MiB{order}", image.display());
            let text = format!(
                "[volume.v]\nspec = \"{spec}\"\n[[portal]]\nlisten = \"127.0.0.1:0\"\n[[target]]\n\
                 name = \"iqn.2026-01.com.example:a\"\nlun = [{{ lun = 0, volume = \"v\" }}]\n"
            );
            std::fs::write(&path, text).expect("written");
        };
        let start_options = StartOptions {
            path: Some(path.clone()),
            state: Some(folder.path().join("state")),
            reactors: Some(1),
            ..StartOptions::default()
        };
        let start = || {
            start(
                start_options.clone(),
                start_options.safe_config().expect("nothing wrong"),
            )
        };
        let end = |server: Started| {
            server.live().shutdown(std::time::Duration::ZERO);
            server.join().expect("flushed");
        };
        write("&create");
        let mut server = start().expect("started");
        server.open().expect("threads");
        write("");
        let reloaded = server
            .live()
            .reload(crate::ReloadOptions::default(), "a test")
            .expect("reloaded");
        assert!(reloaded.failed.is_empty(), "{reloaded:?}");
        end(server);
        std::fs::remove_file(&image).expect("lost");
        write("&create");
        let mut server = start().expect("the order is a new one");
        server.open().expect("threads");
        end(server);
    }

    /// Regression: a volume that a reload renamed was looked up by its new name in the former configuration.
    /// If the volume could not be reopened, it was no longer served. If it could not grow, the configuration
    /// nevertheless had the new size.
    #[test]
    fn a_renamed_volume_that_cannot_be_changed_stays_as_it_was() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("linerate.toml");
        let file = |name: &str| format!("file:{}/{name}", folder.path().display());
        let write = |[v, w]: [&str; 2], specs: [&str; 2]| {
            let mut text = "[[portal]]\nlisten = \"127.0.0.1:0\"\n".to_owned();
            for ((name, previous), spec) in [(v, "v"), (w, "w")].into_iter().zip(specs) {
                text += &format!(
                    "[volume.{name}]\nprevious-name = \"{previous}\"\nspec = \"{spec}\"\n"
                );
                text += &format!("[[target]]\nname = \"iqn.2026-01.com.example:{previous}\"\n");
                text += &format!("lun = [{{ lun = 0, volume = \"{name}\" }}]\n");
            }
            std::fs::write(
                &path,
                text.replace(
                    "previous-name = \"w\"",
                    "read-only = true\nprevious-name = \"w\"",
                ),
            )
            .expect("written");
        };
        let start_options = StartOptions {
            path: Some(path.clone()),
            state: Some(folder.path().join("state")),
            reactors: Some(1),
            ..StartOptions::default()
        };
        std::fs::write(folder.path().join("w.img"), vec![0; 1 << 20]).expect("written");
        write(
            ["v", "w"],
            [&file("v.img?size=1MiB"), &file("w.img?size=1MiB")],
        );
        let config = start_options.safe_config().expect("nothing wrong");
        let mut server = start(start_options.clone(), config).expect("started");
        server.open().expect("threads");
        let live = server.live();
        let uuid = |name| {
            live.now()
                .volumes
                .named(name)
                .map(|volume| volume.unit.identity().uuid)
        };
        let before = ["v", "w"].map(uuid);
        assert!(before.iter().all(Option::is_some));
        write(
            ["v2", "w2"],
            [&file("missing.img"), &file("w.img?size=2MiB")],
        );
        let options = crate::ReloadOptions {
            force: true,
            ..crate::ReloadOptions::default()
        };
        for _ in 0..2 {
            let failed = live.reload(options, "a test").expect("reloaded").failed;
            assert_eq!(failed.len(), 2, "the next reload retries both: {failed:?}");
            assert!(
                failed[0].contains("missing.img") && failed[0].ends_with("the volume is unchanged"),
                "{failed:?}"
            );
            assert!(
                failed[1].contains("volume w2 cannot grow to 2MiB"),
                "{failed:?}"
            );
            assert_eq!(["v2", "w2"].map(uuid), before);
            let specs: Vec<String> = live
                .volumes()
                .into_iter()
                .map(|volume| volume.spec)
                .collect();
            assert!(
                specs[0].contains("v.img?size=1MiB") && specs[1].contains("w.img?size=1MiB"),
                "{specs:?}"
            );
        }
        std::fs::write(folder.path().join("missing.img"), vec![0; 1 << 20]).expect("written");
        let failed = live.reload(options, "a test").expect("reloaded").failed;
        assert_eq!(
            (failed.len(), ["v2", "w2"].map(uuid)),
            (1, before),
            "{failed:?}"
        );
        server.live().shutdown(Duration::ZERO);
        server.join().expect("flushed");
    }

    /// Regression: a reload with the file of another disk replaced the data under the identity of the volume,
    /// and an added volume did the same.
    #[test]
    fn a_reload_or_an_added_volume_does_not_serve_another_disk_under_a_known_identity() {
        use crate::identity::read_mark;
        let folder = tempfile::tempdir().expect("a temporary directory");
        let image = |name: &str| folder.path().join(name);
        let path = image("linerate.toml");
        ["a", "b", "c"]
            .iter()
            .for_each(|name| std::fs::write(image(name), vec![7; 1 << 20]).expect("data"));
        let write = |volumes: &[(&str, &str)]| {
            let mut text = "[[portal]]\nlisten = \"127.0.0.1:0\"\n".to_owned();
            for (name, file) in volumes {
                text += &format!(
                    "[volume.{name}]\nspec = \"file:{}\"\n",
                    image(file).display()
                );
                text += &format!("[[target]]\nname = \"iqn.2026-01.com.example:{name}\"\n");
                text += &format!("lun = [{{ lun = 0, volume = \"{name}\" }}]\n");
            }
            std::fs::write(&path, text).expect("written");
        };
        let start_options = StartOptions {
            path: Some(path.clone()),
            state: Some(image("state")),
            reactors: Some(1),
            ..StartOptions::default()
        };
        write(&[("v", "a"), ("w", "b")]);
        let config = start_options.safe_config().expect("nothing wrong");
        let mut server = start(start_options.clone(), config).expect("started");
        server.open().expect("threads");
        let live = server.live();
        let reload = |dry_run| {
            live.reload(
                crate::ReloadOptions {
                    dry_run,
                    force: false,
                },
                "a test",
            )
        };
        write(&[("v", "a")]);
        reload(false).expect("reloaded");
        let (of_a, of_b) = (read_mark(&image("a")), read_mark(&image("b")));
        let opening = || {
            live.now()
                .volumes
                .named("v")
                .expect("served")
                .unit
                .volume()
                .opening()
        };
        let before = opening();
        write(&[("v", "b")]);
        for dry_run in [true, false] {
            let told = reload(dry_run).expect_err("another disk").to_string();
            testkit::says(
                &told,
                &["(volume w of this state directory), but v is the disk"],
            );
        }
        assert_eq!(opening(), before, "its hosts keep it");
        write(&[("v", "a")]);
        let add = |volume: &str, file: &str| {
            let change = Change::Add {
                volume: volume.parse().expect("a name"),
                spec: format!("file:{}", image(file).display()),
                front_end: None,
                target: Some("iqn.2026-01.com.example:v".to_owned()),
                lun: Some(1),
                initiators: Vec::new(),
                keys: Vec::new(),
            };
            let request = ControlRequest::Change {
                change,
                dry_run: false,
                force: false,
            };
            format!("{:?}", live.answer(&request, "a test"))
        };
        let told = add("x", "b");
        testkit::says(
            &told,
            &["Refused", "which is volume w in the state directory"],
        );
        assert!(
            add("w", "c").contains("hosts treat it as the same disk"),
            "unmarked"
        );
        let removed = live.answer(&remove("w", false), "a test");
        assert!(
            matches!(&removed, ControlReply::Reloaded { failed, .. } if failed.is_empty()),
            "{removed:?}"
        );
        assert_eq!(
            (read_mark(&image("a")), read_mark(&image("b"))),
            (of_a, of_b)
        );
        std::fs::write(image("d"), vec![7; 1 << 20]).expect("data");
        write(&[("v", "d")]);
        for dry_run in [true, false] {
            let notes = reload(dry_run).expect("maybe a copy").notes;
            assert!(
                notes
                    .iter()
                    .any(|note| note.contains("hosts treat it as the same disk")),
                "{notes:?}"
            );
        }
        server.live().shutdown(Duration::ZERO);
        server.join().expect("flushed");
    }

    /// The operations of another program that manages a server, executed in this process.
    #[test]
    fn a_server_is_started_asked_changed_and_ended() {
        let one = One::start("ram:1MiB");
        let server = one.server.as_ref().expect("started");
        assert_ne!(
            server.addresses()[0].inet().map(|address| address.port()),
            Some(0),
            "the port that was taken"
        );
        let socket = one.folder.path().join("state").join(CONTROL);
        let Ok(ControlReply::Targets { targets }) = ask(&socket, &ControlRequest::Targets) else {
            panic!("no targets");
        };
        assert_eq!(targets[0].portals, [server.addresses()[0].to_string()]);
        let added = ask(&socket, &add_ram("vm2", 2)).expect("a reply");
        assert!(
            matches!(&added, ControlReply::Reloaded { failed, .. } if failed.is_empty()),
            "{added:?}"
        );
        let sizes = server
            .live()
            .volumes()
            .into_iter()
            .map(|volume| (volume.name, volume.bytes));
        let expected = [("v".to_owned(), 1 << 20), ("vm2".to_owned(), 2 << 20)];
        assert_eq!(sizes.collect::<Vec<_>>(), expected);
        let _folder = one.end();
        assert!(!socket.exists(), "its socket goes with it");
    }
}
