//! Opening a LUN by its URL.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use derive_more::Display;
use hyperscsi::initiator::{Config, EndReason, Times};
use hyperscsi::{Initiator, Psk, Refusal};
use iscsi_client::carrier::CommandRecord;
use iscsi_client::{Isid, Nexus, RemoteLun, RemoteTarget, Timeouts, Tsih, secret_file};
use reactor::{DatagramAddress, Resident};

use crate::carrier::{Carried, HyperScsi};
use crate::link::{self, Link};
use crate::session::{Session, SessionStatus};
use crate::url::{SCHEME, Url};

/// Fills bytes with fresh random numbers.
pub type Random = fn(&mut [u8]);

/// The target of a lost session is looked for so long at a time.
const FIND_AGAIN: Duration = Duration::from_secs(5);
/// A session in which nothing is answered for so long is lost; less if requests do not wait so long.
const GIVE_UP: Duration = Duration::from_secs(60);
const GIVE_UP_LEAST: Duration = Duration::from_secs(10);

/// Why a LUN could not be opened.
#[derive(Debug, Display)]
pub enum OpenError {
    /// An interface or socket cannot be used.
    #[display("{_0}")]
    Interface(io::Error),
    /// The host has no address.
    #[display("{host}: {error}")]
    Resolve {
        /// The host.
        host: String,
        /// The resolver's error.
        error: io::Error,
    },
    /// The host name exists, but has no address.
    #[display("{_0} has no address")]
    NoAddress(String),
    /// The file with the key cannot be read.
    #[display("the key in {} cannot be used: {error}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Nobody answers.
    #[display("no HyperSCSI target answers at {place} within {} s", time.as_secs_f64())]
    Silent {
        /// Where it was looked for.
        place: String,
        /// For how long.
        time: Duration,
    },
    /// There are others.
    #[display("no target {target} answers at {place}; there {} {}", if names.len() == 1 { "is" } else { "are" }, names.join(", "))]
    Elsewhere {
        /// Who was looked for.
        target: String,
        /// Where.
        place: String,
        /// The names there.
        names: Vec<String>,
    },
    /// The target refuses the login.
    #[display("{target}: {}", refused(*refusal, *has_key, name))]
    Refused {
        /// The target.
        target: String,
        /// Why.
        refusal: Refusal,
        /// Whether a key was given.
        has_key: bool,
        /// The initiator's name.
        name: String,
    },
    /// The login has failed.
    #[display("{target}: {reason}")]
    Login {
        /// The target.
        target: String,
        /// Why.
        reason: EndReason,
    },
    /// The LUN cannot be used.
    #[display("{_0}")]
    Lun(iscsi_client::OpenError),
}

impl std::error::Error for OpenError {}

fn refused(refusal: Refusal, has_key: bool, name: &str) -> String {
    match refusal {
        Refusal::Authentication if has_key => {
            format!(
                "the target refuses the key of {name}: it has another one for this name, or none (key=FILE, name=NAME)"
            )
        }
        Refusal::Authentication => {
            format!("the target wants a key of {name}: name a file that holds it (key=FILE)")
        }
        Refusal::UnknownTarget => format!("the target has no such name, or not for {name} (name=NAME)"),
        other => other.to_string(),
    }
}

/// Logs in to the target of a URL and attaches its LUN. The session lives on the reactor of this thread, which must run for as long as
/// the LUN is in use. Resolving a host's name blocks the thread; addresses do not.
///
/// # Errors
/// Why not.
pub async fn open(url: &Url, random: Random) -> Result<RemoteLun, OpenError> {
    open_with_session(url, random).await.map(|(lun, _)| lun)
}

/// Ports of this process follow each other from a random one: a server divides its sessions among its cores by them.
fn next_port(random: Random) -> u32 {
    static FIRST: OnceLock<u32> = OnceLock::new();
    static OPENED: AtomicU32 = AtomicU32::new(0);
    let first = FIRST.get_or_init(|| {
        let mut first = [0; 4];
        random(&mut first);
        u32::from_be_bytes(first)
    });
    first.wrapping_add(OPENED.fetch_add(1, Ordering::Relaxed))
}

/// The same, with the session to look at.
///
/// # Errors
/// Why not.
pub async fn open_with_session(url: &Url, random: Random) -> Result<(RemoteLun, SessionHandle), OpenError> {
    let Opened { target, session } = open_target(url, random).await?;
    match target.lun(url.lun).await {
        Ok(lun) => Ok((lun, session)),
        Err(error) => {
            target.close().await;
            Err(OpenError::Lun(error))
        }
    }
}

/// Logs in to the target of a URL, for any of its LUNs.
///
/// # Errors
/// Why not.
pub async fn open_target(url: &Url, random: Random) -> Result<Opened, OpenError> {
    let options = &url.options;
    let port = options.port.unwrap_or_else(|| next_port(random));
    let connector = Connector { url: url.clone(), port, random };
    let end = reactor::now() + options.timeout;
    let (link, machine) = connector.machine(options.timeout).await?;
    let nexus = connector.nexus(&link);
    let timeouts = Timeouts { command: options.timeout, reconnect: options.reconnect, ..Timeouts::default() };
    let record = CommandRecord::default();
    let session = Session::begin(machine, link, connector, timeouts, record.clone());
    OPEN.with_borrow_mut(|open| {
        open.retain(|session| session.strong_count() > 0);
        open.push(Rc::downgrade(&session));
    });
    let left = end.saturating_duration_since(reactor::now());
    let silent = || OpenError::Silent {
        place: format!("{}://{}", url.place.scheme(), url.place),
        time: options.timeout,
    };
    match reactor::timeout(left, session.logged_in()).await {
        Ok(Ok(())) => {}
        Ok(Err(EndReason::Unreachable)) => return Err(silent()),
        Ok(Err(EndReason::Refused(refusal))) => {
            return Err(OpenError::Refused {
                target: url.target.clone(),
                refusal,
                has_key: options.key_file.is_some(),
                name: options.name.clone(),
            });
        }
        Ok(Err(reason)) => return Err(OpenError::Login { target: url.target.clone(), reason }),
        Err(_) => {
            session.close().await;
            return Err(silent());
        }
    }
    let shared = Arc::clone(session.shared());
    let session = Resident::new(session, async |session: Rc<Session>| session.close().await);
    let session = Arc::new(HyperScsi { session, shared, nexus });
    let target = RemoteTarget::carried(Carried(Arc::clone(&session)), &record, timeouts);
    Ok(Opened { target, session: SessionHandle(session) })
}

/// A target that was logged in to.
pub struct Opened {
    /// The target, for its LUNs.
    pub target: Arc<RemoteTarget>,
    /// The session, to look at.
    pub session: SessionHandle,
}

/// A session, to be looked at from any thread. It keeps the session alive.
#[derive(Clone)]
pub struct SessionHandle(Arc<HyperScsi>);

impl SessionHandle {
    /// How it is; `None` if its thread has ended, or it is not logged in now.
    pub async fn status(&self) -> Option<SessionStatus> {
        self.0.session.with(async |session| session.status()).await?
    }
}

thread_local! {
    static OPEN: RefCell<Vec<Weak<Session>>> = const { RefCell::new(Vec::new()) };
}

/// Closes all sessions of this thread, so that their targets do not keep them until they time out.
pub async fn closed() {
    let open: Vec<Rc<Session>> = OPEN.take().iter().filter_map(Weak::upgrade).collect();
    let closing: Vec<_> =
        open.into_iter().map(|session| reactor::spawn(async move { session.close().await })).collect();
    for closing in closing {
        closing.await;
    }
}

/// What every login of a session needs.
pub(crate) struct Connector {
    url: Url,
    port: u32,
    random: Random,
}

impl Connector {
    /// Finds the target, and begins to log in to it.
    async fn machine(&self, time: Duration) -> Result<(Link, Initiator), OpenError> {
        let Url { place, target, options, .. } = &self.url;
        // Read at every login, as secrets of iSCSI are.
        let key = options.key_file.as_deref().map(|path| {
            let secret =
                secret_file::read(path).map_err(|error| OpenError::Key { path: path.to_owned(), error })?;
            if secret.is_empty() {
                let error = io::Error::new(io::ErrorKind::InvalidData, "it is empty");
                return Err(OpenError::Key { path: path.to_owned(), error });
            }
            Ok((Psk::from_secret(&secret), options.cipher))
        });
        let key = key.transpose()?;
        let link = link::find(place, target, options, time, self.random).await?;
        let config = Config {
            port: self.port,
            key,
            frame_bytes: link.sizes.clone(),
            paths: link.routes.len() as u8,
            times: Times { give_up: options.reconnect.clamp(GIVE_UP_LEAST, GIVE_UP), ..Times::default() },
            ..Config::new(&options.name, target)
        };
        let mut seed = [0; 32];
        (self.random)(&mut seed);
        Ok((link, Initiator::new(reactor::now(), config, seed)))
    }

    /// The same for a session that was lost.
    pub(crate) async fn machine_again(&self) -> Result<(Link, Initiator), OpenError> {
        self.machine(FIND_AGAIN).await
    }

    /// A pause with a random part, so that the many initiators of a target do not all log in at the same moment.
    pub(crate) fn spread(&self, pause: Duration) -> Duration {
        let mut dice = [0];
        (self.random)(&mut dice);
        pause + pause.mul_f64(f64::from(dice[0]) / 512.0)
    }

    /// Both ends in words of iSCSI, as our server names them in reservations: the port is where an ISID would be. There is no portal
    /// group, and no IP address on an Ethernet.
    fn nexus(&self, link: &Link) -> Nexus {
        let address = link.routes.first().and_then(|route| match route.to {
            DatagramAddress::Udp(address) => Some(address),
            DatagramAddress::Ethernet(_) => None,
        });
        let [a, b, c, d] = self.port.to_be_bytes();
        Nexus {
            initiator: format!("{SCHEME}:{}", self.url.options.name),
            isid: Isid([0, 0, a, b, c, d]),
            target: self.url.target.clone(),
            target_portal_group_tag: None,
            tsih: Tsih::NEW,
            address: address.unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)),
        }
    }
}
