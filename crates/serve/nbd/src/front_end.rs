//! NBD as a front end: the state shared by all cores, the clients of a core, and the handshake of a
//! connection, from its first byte until its transfer to its core. The client is not trusted, so the duration
//! of a handshake and the memory for its state are limited.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use block::Lock;
use front_end_core::{
    AUDIT, AbortOrder, Accepted, AddressBlock, ConnectionPermit, CoreFrontEnd, CoreHandle,
    CoreStatistics, CoreTally, Counted, Counts, FrontEnd, HostNames, Phase, RunningCore, Server,
    SlowHolder,
};
use nbd::{ChannelName, Exports, Handshake, Step, Violation};
use reactor::{Detached, InSlice, Sender, Stream};
use volume::Volume;

use crate::channels::{Channel, Channels};
use crate::client::{Beginning, Client, ClientStatus, Closing, ConnectionEnd, NBD};
use crate::config::{Config, Encryption, Export, Requester};
use crate::connection::{Connection, SCRATCH_BYTES, Scratch};
use crate::reported::{Account, Accounts};

/// The NBD front end: exports and their clients.
pub struct Nbd {
    /// The current configuration. A configuration change replaces it; clients hold their export by `Arc`.
    config: Lock<Arc<Config>>,
    /// The number of clients of each core.
    loads: Box<[AtomicUsize]>,
    /// The addresses of clients.
    addresses: Lock<Counts>,
    /// Connections that their clients have named.
    channels: Arc<Channels>,
    /// The lost writes reported to other clients.
    accounts: Arc<Accounts>,
    /// The labels of hosts for monitoring.
    names: HostNames,
}

/// Counts a client for its core and its address until it is dropped.
struct Place {
    front_end: Arc<Nbd>,
    core: usize,
    from: AddressBlock,
}

impl Drop for Place {
    fn drop(&mut self) {
        let before = self.front_end.loads[self.core].fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a client is counted until this is dropped");
        let mut addresses = self.front_end.addresses.lock();
        debug_assert!(
            addresses.count_of(self.from) > 0,
            "the address of a client is counted while it is connected"
        );
        addresses.remove(self.from);
    }
}

impl Nbd {
    /// Creates a front end that serves these exports on `cores` reactor threads.
    pub fn new(config: Config, cores: usize) -> Arc<Nbd> {
        debug_assert!(config.has_distinct_names(), "the names of exports differ");
        let loads = (0..cores.max(1)).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Nbd {
            config: Lock::new(Arc::new(config)),
            loads,
            addresses: Lock::default(),
            channels: Arc::default(),
            accounts: Arc::default(),
            names: HostNames::default(),
        })
    }

    /// The current configuration.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock())
    }

    /// Replaces the configuration. Must be called within [`Server::reconfigure`], which makes connections
    /// adapt. Connections whose export has been removed or replaced are closed, because NBD has no other way
    /// to notify the client. New limits apply to later connections.
    pub fn adopt(&self, config: Config) {
        debug_assert!(config.has_distinct_names(), "the names of exports differ");
        let openings: Vec<u64> = config
            .exports
            .iter()
            .map(|export| export.volume.opening())
            .collect();
        *self.config.lock() = Arc::new(config);
        self.accounts.keep(&openings);
    }

    /// Returns the status of all clients. Blocks for up to one second, so reactor threads must not call it.
    pub fn clients(&self, server: &Server) -> Vec<ClientStatus> {
        let status =
            |local: &Rc<RunningCore>| local.front_end::<CoreClients>().map(|core| core.status());
        let by_core = server.ask_cores(Duration::from_secs(1), status);
        let mut clients: Vec<ClientStatus> =
            by_core.into_iter().flatten().flatten().flatten().collect();
        clients.sort_by_key(|client| client.number);
        clients
    }

    /// Closes the connections with this number or from this host, and returns their number. Blocks like
    /// [`Nbd::clients`].
    pub fn drop_clients(&self, server: &Server, which: &str, force: bool) -> usize {
        let which = which.to_owned();
        let end = move |local: &Rc<RunningCore>| {
            local
                .front_end::<CoreClients>()
                .map_or(0, |core| core.drop_clients(&which, force))
        };
        server
            .ask_cores(Duration::from_secs(1), end)
            .into_iter()
            .flatten()
            .sum()
    }

    /// Counts a client on the core that has the fewest.
    fn place(self: &Arc<Self>, from: AddressBlock) -> Place {
        let load = |core: &usize| self.loads[*core].load(Ordering::Relaxed);
        let core = (0..self.loads.len()).min_by_key(load).unwrap_or(0);
        self.loads[core].fetch_add(1, Ordering::Relaxed);
        self.addresses.lock().add(from);
        Place {
            front_end: Arc::clone(self),
            core,
            from,
        }
    }
}

impl FrontEnd for Nbd {
    fn name(&self) -> &'static str {
        NBD
    }

    fn begin(self: Arc<Self>, handle: CoreHandle) -> Rc<dyn CoreFrontEnd> {
        Rc::new(CoreClients::new(self, handle))
    }

    fn has_sessions(&self, from: AddressBlock) -> bool {
        self.addresses.lock().count_of(from) > 0
    }

    /// Does nothing, because the protocol has no message for this. A client sees the new size when it
    /// reconnects.
    fn volume_grew(&self, _: &Arc<Volume>) {}
}

/// A slow client that has held memory for this long loses its connection if others need the memory.
const PATIENCE: Duration = Duration::from_secs(5);

/// State shared by the tasks of a core.
struct CoreClients {
    front_end: Arc<Nbd>,
    handle: CoreHandle,
    scratch: Rc<Scratch>,
    clients: RefCell<Vec<Rc<Client>>>,
    tally: CoreTally,
}

impl CoreClients {
    fn new(front_end: Arc<Nbd>, handle: CoreHandle) -> CoreClients {
        debug_assert_eq!(
            front_end.loads.len(),
            handle.server.cores(),
            "a load for each core"
        );
        let scratch = Rc::new(RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()));
        CoreClients {
            front_end,
            handle,
            scratch,
            clients: RefCell::default(),
            tally: CoreTally::default(),
        }
    }

    /// Serves a client that another core may have admitted.
    fn begin(self: &Rc<Self>, mut admitted: Admitted) {
        let core = Rc::clone(self);
        drop(reactor::spawn(async move {
            let peer = admitted.beginning.peer;
            // The name of the connection must be released only when none of its requests can still be
            // executed.
            let channel = admitted.channel.take();
            let (permit, place) = (admitted.permit, admitted.place);
            debug_assert_eq!(
                place.core, core.handle.core,
                "it is served where it is counted"
            );
            let client = match tls::adopt(admitted.stream) {
                Ok(stream) => {
                    let client = Rc::new(core.client(admitted.beginning));
                    // The configuration may have changed since the client was admitted.
                    if !core.still_serves(&client) {
                        return;
                    }
                    let connection =
                        Connection::new(Rc::clone(&client), stream, Rc::clone(&core.scratch));
                    core.clients.borrow_mut().push(Rc::clone(&client));
                    if channel.as_ref().is_some_and(Channel::has_to_end) {
                        client.close(Closing::Dropped);
                    }
                    core.greet(&client);
                    let end = connection.run().await;
                    client.requests.abort();
                    drop((permit, place));
                    core.see_off(&client, &end);
                    client.idle().await;
                    let has_disconnected =
                        matches!(end, ConnectionEnd::Closed(Closing::Disconnected));
                    client.losses.end(has_disconnected, reactor::now());
                    debug_assert!(
                        !client.requests.are_outstanding(),
                        "all requests have ended or are given up"
                    );
                    client
                }
                Err(error) => {
                    return tracing::warn!(%peer, %error, "a connection could not change threads");
                }
            };
            core.clients
                .borrow_mut()
                .retain(|other| !Rc::ptr_eq(other, &client));
            drop(channel);
            if client.requests.has_left_changes() {
                core.handle
                    .server
                    .quiesce(vec![Arc::clone(client.requests.volume())])
                    .await;
            }
        }));
    }

    fn client(&self, beginning: Beginning) -> Client {
        let counted_as = self
            .front_end
            .names
            .label(&beginning.peer.ip().to_canonical().to_string());
        let tally = self.tally.volume(&beginning.export.volume);
        Client::new(beginning, counted_as, tally, &self.handle.memory)
    }

    /// Registers a named connection, once the connections that its client has lost have ended. `None` if the
    /// name is in use.
    async fn succeed(&self, name: &ChannelName) -> Option<Channel> {
        let channels = &self.front_end.channels;
        // The client may have timed out on an earlier connection with this name.
        let namesake = ChannelName {
            ended: vec![name.number],
            ..name.clone()
        };
        self.end(channels.condemn(&namesake)).await;
        let channel = channels.register(name)?;
        self.end(channels.condemn(name)).await;
        Some(channel)
    }

    /// Ends connections, on all cores.
    async fn end(&self, lost: Vec<(u128, u64)>) {
        if lost.is_empty() {
            return;
        }
        for core in 0..self.handle.server.cores() {
            let lost = lost.clone();
            self.handle.server.run_on(core, move |local| {
                let Some(core) = local.front_end::<CoreClients>() else {
                    return;
                };
                let is_lost = |client: &&Rc<Client>| {
                    let name = client.session.channel.as_ref();
                    name.is_some_and(|name| lost.contains(&(name.session, name.number)))
                };
                core.all()
                    .iter()
                    .filter(is_lost)
                    .for_each(|client| client.close(Closing::Dropped));
            });
        }
        self.front_end.channels.ended(&lost).await;
    }

    /// Announces a new client to the log, statistics and observer.
    fn greet(&self, client: &Client) {
        client.log_in();
        self.tally
            .note(Counted::Login, Some(&client.export.name), "accepted");
        let host = client.host();
        self.handle
            .server
            .tell(|observer| observer.session_began(client.info(&host), client.peer.into()));
    }

    fn see_off(&self, client: &Client, end: &ConnectionEnd) {
        client.log_out(end);
        let (export, counts, host) = (&client.export.name, client.counts(), client.host());
        self.tally
            .session_ended(export, &counts.host, counts.traffic);
        self.tally
            .note(Counted::ConnectionClosed, Some(export), end.name());
        self.handle
            .server
            .tell(|observer| observer.session_ended(client.info(&host)));
    }

    /// Whether the client could still connect to the same export.
    fn still_serves(&self, client: &Client) -> bool {
        let (config, export) = (self.front_end.config(), &client.export);
        let now = config.find(&export.name, &client.requester);
        let is_same = |now: &Arc<Export>| {
            Arc::ptr_eq(&export.volume, &now.volume) && now.read_only == export.read_only
        };
        now.is_some_and(is_same) && self.handle.server.volumes().contains(&export.volume)
    }

    fn status(&self) -> Vec<ClientStatus> {
        self.all()
            .iter()
            .map(|client| client.status(self.handle.core))
            .collect()
    }

    fn drop_clients(&self, which: &str, force: bool) -> usize {
        let (number, closing) = (
            which.parse::<u16>(),
            if force {
                Closing::Dropped
            } else {
                Closing::Asked
            },
        );
        let is_meant = |client: &&Rc<Client>| {
            number == Ok(client.number()) || client.peer.ip().to_string() == which
        };
        let all = self.all();
        let meant = all.iter().filter(is_meant);
        meant.map(|client| client.close(closing)).count()
    }

    fn all(&self) -> Vec<Rc<Client>> {
        self.clients.borrow().clone()
    }
}

impl CoreFrontEnd for CoreClients {
    fn accept(self: Rc<Self>, accepted: Accepted) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(admit(self, accepted))
    }

    fn abort(self: Rc<Self>, order: &AbortOrder, done: &Sender<()>) {
        for client in self.all() {
            let uses = Arc::ptr_eq(client.requests.volume(), &order.volume);
            if uses && order.is_about(client.requests.attachment()) {
                client.requests.abort();
            } else if uses {
                // PREEMPT AND ABORT selects registrants, and an NBD client cannot be a registrant.
                client.requests.abort_reserved();
            }
        }
        // Quiesce after the woken tasks have run, because only then are their blocks locked until the device
        // has quiesced.
        let done = Sender::clone(done);
        drop(reactor::spawn(async move {
            reactor::yield_now().await;
            drop(done);
        }));
    }

    fn adapt(self: Rc<Self>, _: &Sender<()>) {
        let config = self.front_end.config();
        self.tally
            .keep_served(|target| config.exports.iter().any(|export| export.name == target));
        for client in self.all() {
            if !self.still_serves(&client) {
                client.requests.abort();
                client.close(Closing::Gone);
            }
        }
    }

    fn statistics(&self) -> CoreStatistics {
        let clients = self.all();
        let mut statistics = self
            .tally
            .statistics(clients.iter().map(|client| client.counts()));
        for volume in &mut statistics.volumes {
            let uses = |client: &&Rc<Client>| {
                Arc::as_ptr(client.requests.volume()) == volume.volume.as_ptr()
            };
            volume.in_flight = clients
                .iter()
                .filter(uses)
                .map(|client| client.running.get() as u64)
                .sum();
        }
        statistics
    }

    fn tick(&self, now: Instant) -> bool {
        let clients = self.all();
        for client in &clients {
            if let Some(silent) = client.requests.expire(now, client.export.deadline) {
                self.handle.server.fence(client.requests.volume(), silent);
            }
            client.tick();
        }
        clients.iter().any(|client| client.is_busy())
    }

    fn slowest_holder(&self, now: Instant) -> Option<SlowHolder> {
        let slow = |client: Rc<Client>| {
            let since = client
                .slow_since()
                .filter(|since| now.duration_since(*since) > PATIENCE)?;
            Some(SlowHolder {
                since,
                cut: Box::new(move || client.close(Closing::TooSlow)),
            })
        };
        self.all()
            .into_iter()
            .filter_map(slow)
            .min_by_key(|holder| holder.since)
    }

    /// The protocol has no message for this. Outstanding requests are answered, but no later requests.
    fn ask_to_leave(&self, _: Duration) {
        self.all()
            .iter()
            .for_each(|client| client.close(Closing::Asked));
    }

    fn is_idle(&self) -> bool {
        self.clients.borrow().is_empty()
    }

    fn close_all(&self) {
        self.all()
            .iter()
            .for_each(|client| client.close(Closing::Dropped));
    }
}

/// A client that has completed its handshake, before its transfer to its core.
struct Admitted {
    stream: Detached,
    permit: ConnectionPermit,
    place: Place,
    beginning: Beginning,
    /// The name of the connection, if the client has given it one.
    channel: Option<Channel>,
}

/// The reason why a connection ended before its first request.
enum Failure {
    Socket(io::Error),
    Violation(Violation),
    /// The name belongs to another connection.
    NameTaken,
    Tls(tls::Failure),
    /// Data arrived after STARTTLS and before the reply: an attacker may have injected it.
    Injected,
    /// The client ended the handshake after it had requested information.
    Ended,
}

impl Failure {
    /// Clients that only list exports close the connection without ABORT.
    fn reading(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            Failure::Ended
        } else {
            Failure::Socket(error)
        }
    }
}

/// The exports visible to a client.
struct VisibleExports<'a> {
    config: Arc<Config>,
    from: &'a Requester,
    channels: &'a Channels,
    told: &'a Announced,
}

/// The state announced to a client, which must match the volume that the client then uses.
#[derive(Default)]
struct Announced {
    /// The opening of the volume in the latest export reply, which is the reply to GO.
    opening: Cell<Option<u64>>,
    /// The opening and the loss count of the volume in the latest reply that contained its start number.
    losses: Cell<Option<(u64, u64)>>,
}

impl Exports for VisibleExports<'_> {
    fn list<'a>(&'a self, from: usize) -> Box<dyn Iterator<Item = (&'a str, &'a str)> + 'a> {
        let told = |export: &'a Arc<Export>| (export.name.as_str(), export.description.as_str());
        Box::new(self.config.exports_for(self.from).skip(from).map(told))
    }

    fn find(&self, name: &str) -> Option<nbd::Export> {
        let export = self.config.find(name, self.from)?;
        self.told.opening.set(Some(export.volume.opening()));
        Some(export.as_told())
    }

    fn start(&self, export: &str) -> u128 {
        let Some(export) = self.config.find(export, self.from) else {
            return 0;
        };
        // Read the loss count first: a loss between the two reads may then be reported twice, but is not
        // missed.
        self.told
            .losses
            .set(Some((export.volume.opening(), export.volume.lost_writes())));
        self.channels.start(&export.volume)
    }

    fn volume(&self, export: &str) -> Option<u128> {
        self.config.find(export, self.from)?.identity
    }

    fn needs_tls(&self, name: &str) -> bool {
        self.config.needs_tls(name, self.from)
    }
}

/// Performs the handshake of a connection, and passes the connection to its core.
async fn admit(core: Rc<CoreClients>, accepted: Accepted) {
    let Accepted {
        portal,
        stream,
        permit,
    } = accepted;
    let server = &core.handle.server;
    if server.phase() != Phase::Open {
        return; // the client retries; a handshake now would report that there are no exports
    }
    let peer = stream.peer();
    let local = portal
        .listen
        .inet()
        .map_or_else(|| portal.listen.clone(), |_| stream.local().into());
    let limit = core.front_end.config().limits.handshake_time;
    let shaken = shake_hands(&core, stream);
    let (result, why) = match reactor::timeout(limit, shaken).await {
        Ok(Ok(Agreed {
            stream,
            requester,
            session,
            channel,
            told,
        })) => {
            let config = core.front_end.config();
            let Some(export) = config
                .find(&session.export.name, &requester)
                .map(Arc::clone)
            else {
                return;
            };
            let opening = export.volume.opening();
            let named = told.losses.get().filter(|_| channel.is_some());
            let told_of = named.map_or(opening, |(told_of, _)| told_of);
            if told.opening.get() != Some(opening) || told_of != opening {
                // The announced size, identity and start number belong to a volume that has since been
                // replaced. Close the connection; the client reconnects.
                return tracing::info!(target: AUDIT, %peer, export = session.export.name, "the export changed during the handshake");
            }
            let place = core.front_end.place(AddressBlock::containing(peer.ip()));
            let (at, limits) = (place.core, config.limits);
            let losses = match named {
                Some((_, losses)) => Account::of_named(losses),
                None => core
                    .front_end
                    .accounts
                    .open(&export.volume, peer.ip(), reactor::now()),
            };
            let stream = stream.detach();
            let beginning = Beginning {
                peer,
                requester,
                local,
                portal,
                export,
                session,
                limits,
                losses,
            };
            let admitted = Admitted {
                stream,
                permit,
                place,
                beginning,
                channel,
            };
            return server.run_on(at, move |local| {
                if let Some(core) = local.front_end::<CoreClients>() {
                    core.begin(admitted);
                }
            });
        }
        Ok(Err(Failure::Ended)) => return tracing::debug!(target: AUDIT, %peer, "discovery"),
        Ok(Err(Failure::Socket(error))) => ("socket_error", error.to_string()),
        Ok(Err(Failure::Violation(violation))) => match violation {
            Violation::NoExport(_) => ("no_such_export", violation.to_string()),
            Violation::WithoutTls => ("no_tls", violation.to_string()),
            _ => ("protocol_error", violation.to_string()),
        },
        Ok(Err(Failure::Tls(failure))) => ("tls_failed", failure.to_string()),
        Ok(Err(Failure::NameTaken)) => (
            "protocol_error",
            "another connection uses this name".to_owned(),
        ),
        Ok(Err(Failure::Injected)) => (
            "protocol_error",
            "clear text between STARTTLS and TLS".to_owned(),
        ),
        Err(_) => ("too_slow", "the handshake took too long".to_owned()),
    };
    core.tally.note(Counted::Login, None, result);
    if server.may_log(peer.ip()) {
        tracing::warn!(target: AUDIT, why, %peer, "login refused");
    }
}

struct Agreed {
    stream: Box<dyn Stream>,
    requester: Requester,
    session: nbd::Session,
    channel: Option<Channel>,
    told: Announced,
}

/// Runs the handshake. Each option is processed with the current configuration, so that a slow client does
/// not keep an old volume open.
async fn shake_hands(core: &CoreClients, mut stream: Box<dyn Stream>) -> Result<Agreed, Failure> {
    let mut requester = Requester {
        address: stream.peer().ip(),
        encryption: None,
    };
    let mut machine = Handshake::new(core.front_end.config().tls_mode());
    let mut replies = Handshake::greeting().to_vec();
    let mut received = Vec::new();
    let told = Announced::default();
    loop {
        stream.write_all(&replies).await.map_err(Failure::Socket)?;
        replies.clear();
        received.resize(machine.wanted(), 0);
        stream
            .read_exact(&mut received)
            .await
            .map_err(Failure::reading)?;
        let config = core.front_end.config();
        let exports = VisibleExports {
            config,
            from: &requester,
            channels: &core.front_end.channels,
            told: &told,
        };
        let step = machine.take(&received, &exports, &mut replies);
        drop(exports);
        match step.map_err(Failure::Violation)? {
            Step::Continue => {}
            Step::StartTls => {
                let server = core
                    .front_end
                    .config()
                    .tls
                    .as_ref()
                    .map(|tls| tls.server.clone());
                let Some(server) = server else {
                    return Err(Failure::Ended);
                };
                let encrypted = start_tls(stream, &server, &replies).await?;
                let (cipher, names) = (encrypted.cipher(), encrypted.peer_names());
                requester.encryption = Some(Encryption { cipher, names });
                stream = Box::new(encrypted);
                replies.clear();
            }
            Step::Transmission(session) => {
                let channel = match &session.channel {
                    Some(name) => Some(core.succeed(name).await.ok_or(Failure::NameTaken)?),
                    None => None,
                };
                stream.write_all(&replies).await.map_err(Failure::Socket)?;
                return Ok(Agreed {
                    stream,
                    requester,
                    session,
                    channel,
                    told,
                });
            }
            Step::End => {
                let _ = stream.write_all(&replies).await; // the client may have closed the connection
                return Err(Failure::Ended);
            }
        }
    }
}

/// Starts TLS. No clear text may follow STARTTLS: if the check finds none, clear text that arrives later is
/// not valid TLS, and ends the handshake.
async fn start_tls(
    stream: Box<dyn Stream>,
    server: &tls::Server,
    reply: &[u8],
) -> Result<tls::TlsStream, Failure> {
    match stream.try_read(&mut [InSlice::Bytes(&mut [0])]) {
        Ok(0) => return Err(Failure::Ended),
        Ok(_) => return Err(Failure::Injected),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => return Err(Failure::Socket(error)),
    }
    stream.write_all(reply).await.map_err(Failure::Socket)?;
    tls::accept(stream, server).await.map_err(Failure::Tls)
}
