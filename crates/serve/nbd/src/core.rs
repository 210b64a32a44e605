//! The front end's part of one core: its clients.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use front_end_core::{AbortOrder, Accepted, CoreFrontEnd, CoreHandle, CoreStatistics, CoreTally, SlowHolder};
use nbd::ChannelName;
use reactor::Sender;

use crate::admission::{self, Admitted};
use crate::channels::Channel;
use crate::client::{Client, ClientStatus, Closing};
use crate::config::Export;
use crate::connection::{Connection, ConnectionEnd};
use crate::front_end::Nbd;
use crate::receive::{SCRATCH_BYTES, Scratch};

/// A slow client that has held memory for this long loses its connection if others need the memory.
const PATIENCE: Duration = Duration::from_secs(5);

/// State shared by the tasks of a core.
pub(crate) struct CoreClients {
    pub(crate) front_end: Arc<Nbd>,
    pub(crate) handle: CoreHandle,
    pub(crate) scratch: Rc<Scratch>,
    clients: RefCell<Vec<Rc<Client>>>,
    pub(crate) tally: CoreTally,
}

impl CoreClients {
    pub(crate) fn new(front_end: Arc<Nbd>, handle: CoreHandle) -> CoreClients {
        let scratch = Rc::new(RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()));
        CoreClients { front_end, handle, scratch, clients: RefCell::default(), tally: CoreTally::default() }
    }

    /// Serves a client that another core may have admitted.
    pub(crate) fn begin(self: &Rc<Self>, mut admitted: Admitted) {
        let core = Rc::clone(self);
        drop(reactor::spawn(async move {
            let peer = admitted.peer;
            // Dropped when none of its requests can be carried out any more.
            let channel = admitted.channel.take();
            let client = match Connection::new(&core, admitted) {
                // What is served may have changed since it was admitted.
                Ok((client, connection)) if core.still_serves(&client) => {
                    core.clients.borrow_mut().push(Rc::clone(&client));
                    if channel.as_ref().is_some_and(Channel::has_to_end) {
                        client.close(Closing::Dropped);
                    }
                    core.greet(&client);
                    let end = connection.run().await;
                    client.requests.abort();
                    core.see_off(&client, &end);
                    client.idle().await;
                    client
                }
                Ok(_) => return,
                Err(error) => return tracing::warn!(%peer, %error, "a connection could not change threads"),
            };
            core.clients.borrow_mut().retain(|other| !Rc::ptr_eq(other, &client));
            drop(channel);
            if client.requests.has_left_changes() {
                core.handle.server.quiesce(vec![Arc::clone(client.requests.volume())]).await;
            }
        }));
    }

    /// Registers a connection by its name, once those that its client has lost have ended. `None` if the name is
    /// taken.
    pub(crate) async fn succeed(&self, name: &ChannelName) -> Option<Channel> {
        let channels = &self.front_end.channels;
        // Its client was not answered in time when it first came with this name.
        let namesake = ChannelName { ended: vec![name.number], ..name.clone() };
        self.end(channels.condemn(&namesake)).await;
        let channel = channels.register(name)?;
        self.end(channels.condemn(name)).await;
        Some(channel)
    }

    /// Ends connections, on whichever cores they are.
    async fn end(&self, lost: Vec<(u128, u64)>) {
        if lost.is_empty() {
            return;
        }
        for core in 0..self.handle.server.cores() {
            let lost = lost.clone();
            self.handle.server.run_on(core, move |local| {
                let Some(core) = local.front_end::<CoreClients>() else { return };
                let is_lost = |client: &&Rc<Client>| {
                    let name = client.session.channel.as_ref();
                    name.is_some_and(|name| lost.contains(&(name.session, name.number)))
                };
                core.all().iter().filter(is_lost).for_each(|client| client.close(Closing::Dropped));
            });
        }
        self.front_end.channels.ended(&lost).await;
    }

    /// A client begins, and everybody who wants to know is told.
    fn greet(&self, client: &Client) {
        client.log_in();
        self.tally.login(Some(&client.export.name), "accepted");
        let host = client.host();
        self.handle.server.tell(|observer| observer.session_began(client.info(&host), client.peer.into()));
    }

    fn see_off(&self, client: &Client, end: &ConnectionEnd) {
        client.log_out(end);
        let (export, counts, host) = (&client.export.name, client.counts(), client.host());
        self.tally.session_ended(export, &counts.host, counts.traffic);
        self.tally.connection_closed(Some(export), end.name());
        self.handle.server.tell(|observer| observer.session_ended(client.info(&host)));
    }

    /// Whether the client could connect to the same export now.
    fn still_serves(&self, client: &Client) -> bool {
        let (config, export) = (self.front_end.config(), &client.export);
        let now = config.find(&export.name, &client.requester);
        let is_same =
            |now: &Arc<Export>| Arc::ptr_eq(&export.volume, &now.volume) && now.read_only == export.read_only;
        now.is_some_and(is_same) && self.handle.server.volumes().contains(&export.volume)
    }

    pub(crate) fn status(&self) -> Vec<ClientStatus> {
        self.all().iter().map(|client| client.status(self.handle.core)).collect()
    }

    pub(crate) fn drop_clients(&self, which: &str, force: bool) -> usize {
        let (number, closing) = (which.parse::<u16>(), if force { Closing::Dropped } else { Closing::Asked });
        let is_meant =
            |client: &&Rc<Client>| number == Ok(client.number()) || client.peer.ip().to_string() == which;
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
        Box::pin(admission::admit(self, accepted))
    }

    fn abort(self: Rc<Self>, order: &AbortOrder, done: &Sender<()>) {
        for client in self.all() {
            let uses = Arc::ptr_eq(client.requests.volume(), &order.volume);
            if uses && order.is_about(client.requests.attachment()) {
                client.requests.abort();
            } else if uses {
                // PREEMPT AND ABORT names registrants, and a client cannot be one.
                client.requests.abort_reserved();
            }
        }
        // Behind the tasks that were woken by it: only then their blocks are locked until the device has quiesced.
        let done = Sender::clone(done);
        drop(reactor::spawn(async move {
            reactor::yield_now().await;
            drop(done);
        }));
    }

    fn adapt(self: Rc<Self>, _: &Sender<()>) {
        let config = self.front_end.config();
        self.tally.keep_served(|target| config.exports.iter().any(|export| export.name == target));
        for client in self.all() {
            if !self.still_serves(&client) {
                client.requests.abort();
                client.close(Closing::Gone);
            }
        }
    }

    fn statistics(&self) -> CoreStatistics {
        let clients = self.all();
        let mut statistics = self.tally.statistics(clients.iter().map(|client| client.counts()));
        for volume in &mut statistics.volumes {
            let uses = |client: &&Rc<Client>| Arc::as_ptr(client.requests.volume()) == volume.volume.as_ptr();
            volume.in_flight = clients.iter().filter(uses).map(|client| client.in_flight() as u64).sum();
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
            let since = client.slow_since().filter(|since| now.duration_since(*since) > PATIENCE)?;
            Some(SlowHolder { since, cut: Box::new(move || client.close(Closing::TooSlow)) })
        };
        self.all().into_iter().filter_map(slow).min_by_key(|holder| holder.since)
    }

    /// The protocol has no message for it: what is outstanding is answered, and nothing else.
    fn ask_to_leave(&self, _: Duration) {
        self.all().iter().for_each(|client| client.close(Closing::Asked));
    }

    fn is_idle(&self) -> bool {
        self.clients.borrow().is_empty()
    }

    fn close_all(&self) {
        self.all().iter().for_each(|client| client.close(Closing::Dropped));
    }
}
