//! The handshake of a connection, from the first byte to its core. The client is not trusted: it has so much
//! time, and the machine bounds what is kept of it.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use front_end_core::{AUDIT, Accepted, AddressBlock, ConnectionPermit, ListenAddress, Phase, Portal};
use nbd::{Exports, Handshake, Step, Violation};
use reactor::{Detached, InSlice, Stream};

use crate::channels::{Channel, Channels};
use crate::config::{Config, Encryption, Export, Limits, Requester};
use crate::core::CoreClients;
use crate::front_end::Place;

/// A client that has agreed with an export, on its way to its core.
pub(crate) struct Admitted {
    pub(crate) stream: Detached,
    pub(crate) permit: ConnectionPermit,
    pub(crate) place: Place,
    pub(crate) peer: SocketAddr,
    pub(crate) requester: Requester,
    pub(crate) local: ListenAddress,
    pub(crate) portal: Portal,
    pub(crate) export: Arc<Export>,
    pub(crate) session: nbd::Session,
    pub(crate) limits: Limits,
    /// If the client has named the connection.
    pub(crate) channel: Option<Channel>,
    /// The losses of the export's volume that the client has been told of.
    pub(crate) losses_told: u64,
}

/// Why a connection ended before there were requests.
enum Failure {
    Socket(io::Error),
    Violation(Violation),
    /// Another connection has its name.
    NameTaken,
    Tls(tls::Failure),
    /// It has sent something behind STARTTLS, before it was answered: what others could have put there.
    Injected,
    /// It only wanted to know what there is.
    Ended,
}

impl Failure {
    /// Clients that only list close without ABORT.
    fn reading(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::UnexpectedEof { Failure::Ended } else { Failure::Socket(error) }
    }
}

/// The exports as a client sees them.
struct Seen<'a> {
    config: Arc<Config>,
    from: &'a Requester,
    channels: &'a Channels,
    told: &'a Told,
}

/// What a client was told, which must be true of the volume that it is served.
#[derive(Default)]
struct Told {
    /// The opening of the volume that the latest export told of, which is that of GO.
    opening: Cell<Option<u64>>,
    /// The opening of the volume, and its losses, that the latest start has told of.
    losses: Cell<Option<(u64, u64)>>,
}

impl Exports for Seen<'_> {
    fn list<'a>(&'a self, from: usize) -> Box<dyn Iterator<Item = (&'a str, &'a str)> + 'a> {
        let told = |export: &'a Arc<Export>| (export.name.as_str(), export.description.as_str());
        Box::new(self.config.seen(self.from).skip(from).map(told))
    }

    fn find(&self, name: &str) -> Option<nbd::Export> {
        let export = self.config.find(name, self.from)?;
        self.told.opening.set(Some(export.volume.opening()));
        Some(export.as_told())
    }

    fn start(&self, export: &str) -> u128 {
        let Some(export) = self.config.find(export, self.from) else { return 0 };
        // Counted first: a loss in between is told twice, and not missed.
        self.told.losses.set(Some((export.volume.opening(), export.volume.lost_writes())));
        self.channels.start(&export.volume)
    }

    fn volume(&self, export: &str) -> Option<u128> {
        self.config.find(export, self.from)?.identity
    }

    fn needs_tls(&self, name: &str) -> bool {
        self.config.needs_tls(name, self.from)
    }
}

/// Takes a connection through its handshake and hands it to its core.
pub(crate) async fn admit(core: Rc<CoreClients>, accepted: Accepted) {
    let Accepted { portal, stream, permit } = accepted;
    let server = &core.handle.server;
    if server.phase() != Phase::Open {
        return; // clients try again; a handshake would have to say that there is nothing
    }
    let peer = stream.peer();
    let local = portal.listen.inet().map_or_else(|| portal.listen.clone(), |_| stream.local().into());
    let limit = core.front_end.config().limits.handshake_time;
    let shaken = shake_hands(&core, stream);
    let (result, why) = match reactor::timeout(limit, shaken).await {
        Ok(Ok(Agreed { stream, requester, session, channel, told })) => {
            let config = core.front_end.config();
            let Some(export) = config.find(&session.export.name, &requester).map(Arc::clone) else { return };
            let opening = export.volume.opening();
            // A client without a name begins with no losses to be told of.
            let losses = told.losses.get().filter(|_| channel.is_some());
            let (told_of, losses_told) = losses.unwrap_or((opening, export.volume.lost_writes()));
            if told.opening.get() != Some(opening) || told_of != opening {
                // Its size, identity and start are those of a volume that has been replaced since. The client connects again.
                return tracing::info!(target: AUDIT, %peer, export = session.export.name, "the export changed during the handshake");
            }
            let place = core.front_end.place(AddressBlock::containing(peer.ip()));
            let (at, limits) = (place.core, config.limits);
            let stream = stream.detach();
            let admitted = Admitted {
                stream,
                permit,
                place,
                peer,
                requester,
                local,
                portal,
                export,
                session,
                limits,
                channel,
                losses_told,
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
        Ok(Err(Failure::NameTaken)) => ("protocol_error", "another connection has this name".to_owned()),
        Ok(Err(Failure::Injected)) => {
            ("protocol_error", "something in clear text between STARTTLS and TLS".to_owned())
        }
        Err(_) => ("too_slow", "the handshake took too long".to_owned()),
    };
    core.tally.login(None, result);
    if server.may_log(peer.ip()) {
        tracing::warn!(target: AUDIT, why, %peer, "login refused");
    }
}

/// A client that may begin.
struct Agreed {
    stream: Box<dyn Stream>,
    requester: Requester,
    session: nbd::Session,
    channel: Option<Channel>,
    told: Told,
}

/// The configuration is looked at anew for each option: a client that takes its time keeps no volume of an earlier one open.
async fn shake_hands(core: &CoreClients, mut stream: Box<dyn Stream>) -> Result<Agreed, Failure> {
    let mut requester = Requester { address: stream.peer().ip(), encryption: None };
    let mut machine = Handshake::new(core.front_end.config().tls_mode());
    let mut replies = Handshake::greeting().to_vec();
    let mut received = Vec::new();
    let told = Told::default();
    loop {
        stream.write_all(&replies).await.map_err(Failure::Socket)?;
        replies.clear();
        received.resize(machine.wanted(), 0);
        stream.read_exact(&mut received).await.map_err(Failure::reading)?;
        let config = core.front_end.config();
        let exports = Seen { config, from: &requester, channels: &core.front_end.channels, told: &told };
        let step = machine.take(&received, &exports, &mut replies);
        drop(exports);
        match step.map_err(Failure::Violation)? {
            Step::Continue => {}
            Step::StartTls => {
                let server = core.front_end.config().tls.as_ref().map(|tls| tls.server.clone());
                let Some(server) = server else { return Err(Failure::Ended) };
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
                return Ok(Agreed { stream, requester, session, channel, told });
            }
            Step::End => {
                let _ = stream.write_all(&replies).await; // it may have closed already
                return Err(Failure::Ended);
            }
        }
    }
}

/// Nothing in clear text may come behind STARTTLS. What comes later than this look is no TLS, and ends the handshake.
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
