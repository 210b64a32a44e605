//! Login of one connection: from an address to full feature phase.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

use iscsi::chap::{Challenge, ChapClaim, Credentials, Secret};
use iscsi::framing::Framing;
use iscsi::login::{
    Attached, InitiatorConfig, InitiatorEvent, InitiatorLogin, LOGIN_DATA_BYTES_MAX, Transmit,
};
use iscsi::name::Name;
use iscsi::pdu::{BHS_BYTES, Bhs, pad_bytes};
use reactor::Stream;
use volume::spec::Time;

use crate::error::{Ending, OpenError};
use crate::recorder::{Direction, Ends, Recording};
use crate::secret_file;
use crate::url::Settings;

/// A source of random numbers for secrets.
pub type Random = fn(&mut [u8]);

/// A logged-in connection.
pub(crate) struct LoggedIn {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) attached: Attached,
    /// Bytes received after the last login response.
    pub(crate) already: Vec<u8>,
    pub(crate) recording: Rc<Recording>,
}

/// The result of a login that was not rejected.
pub(crate) enum Outcome {
    LoggedIn(LoggedIn),
    /// Redirection: `host[:port][,tag]`.
    Redirected(String),
}

/// Connects to `address` and logs in, within the timeout of the settings.
pub(crate) async fn log_in(
    address: SocketAddr,
    settings: &Settings,
    config: InitiatorConfig,
) -> Result<Outcome, OpenError> {
    let mut begun = None;
    let login = async {
        let stream = connect(address, settings).await?;
        let recording = Rc::new(
            settings
                .recorder
                .begin(reactor::now(), ends(&*stream, address, &config)),
        );
        begun = Some(Rc::clone(&recording));
        LiveConnection {
            stream,
            address,
            received: Vec::new(),
            recording,
        }
        .run(InitiatorLogin::new(config))
        .await
    };
    let outcome = reactor::timeout(settings.login_time, login).await;
    let outcome = outcome.unwrap_or_else(|_| {
        Err(match &begun {
            Some(_) => OpenError::LoginTimedOut(address),
            None => {
                let why = format!("no response within {}", Time(settings.login_time));
                OpenError::Connect {
                    address,
                    error: io::Error::new(io::ErrorKind::TimedOut, why),
                }
            }
        })
    });
    if let (Some(recording), Err(error)) = (begun, &outcome) {
        // Do not write a file for a failed login: its caller receives the error. Files are for lost
        // connections, which failed logins must not displace.
        recording.end(reactor::now(), error);
    }
    outcome
}

/// Returns the CHAP account with which the initiator authenticates, and the one that it requires from the
/// target. Every login has a new challenge, and reads secrets from their files again.
pub(crate) fn chap(settings: &Settings, random: Random) -> Result<Option<ChapClaim>, OpenError> {
    let Some(initiator) = account(settings.account.as_ref(), settings.secret_file.as_deref())?
    else {
        return Ok(None);
    };
    let target = account(
        settings.target_account.as_ref(),
        settings.target_secret_file.as_deref(),
    )?;
    let target = target.map(|account| (account, challenge(random)));
    Ok(Some(ChapClaim {
        algorithms: settings.chap.clone(),
        initiator,
        target,
    }))
}

/// Returns an account with its secret, which may be in a file.
fn account(
    account: Option<&Credentials>,
    file: Option<&Path>,
) -> Result<Option<Credentials>, OpenError> {
    let Some(path) = file else {
        return Ok(account.cloned());
    };
    let account = account.ok_or_else(|| OpenError::SecretWithoutUser(path.to_owned()))?;
    let secret = secret_file::read(path).map_err(|error| OpenError::Secret {
        path: path.to_owned(),
        error,
    })?;
    Ok(Some(Credentials {
        name: account.name.clone(),
        secret: Secret::new(&secret),
    }))
}

fn challenge(random: Random) -> Challenge {
    let mut fresh = [0; 1 + CHALLENGE_BYTES];
    random(&mut fresh);
    let [identifier, bytes @ ..] = fresh;
    Challenge {
        identifier,
        bytes: bytes.to_vec(),
    }
}

/// "The server sends […] 64 bits, 0x4e42444d41474943" (NBD's proto.md).
const NBD_MAGIC: &[u8] = b"NBDMAGIC";
/// Length of a CHAP challenge. It is as long as the longest hash, so that guessing a response is no easier
/// than breaking the hash.
const CHALLENGE_BYTES: usize = 32;

fn ends(stream: &dyn Stream, peer: SocketAddr, config: &InitiatorConfig) -> Ends {
    let target = config.target_name.as_ref().map(Name::to_string);
    Ends {
        local: stream.local(),
        peer,
        cid: config.cid.0,
        target,
    }
}

async fn connect(address: SocketAddr, settings: &Settings) -> Result<Box<dyn Stream>, OpenError> {
    let failed = |error| OpenError::Connect { address, error };
    let stream = reactor::world()
        .connect(address, &settings.stream)
        .map_err(failed)?;
    poll_fn(|cx| stream.poll_writable(cx))
        .await
        .map_err(failed)?;
    // A failed connect also makes the stream writable. An empty write returns the error.
    match stream.try_write(&[]) {
        Ok(_) => Ok(stream),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(stream),
        Err(error) => Err(failed(error)),
    }
}

/// A connection during the login. Login PDUs are few and short, and are exchanged one at a time.
struct LiveConnection {
    stream: Box<dyn Stream>,
    address: SocketAddr,
    received: Vec<u8>,
    recording: Rc<Recording>,
}

impl LiveConnection {
    async fn run(mut self, mut login: InitiatorLogin) -> Result<Outcome, OpenError> {
        let address = self.address;
        loop {
            while let Some(pdu) = login.poll_transmit() {
                self.send(&pdu)
                    .await
                    .map_err(|ending| OpenError::Broken { address, ending })?;
            }
            match login.poll_event() {
                Some(InitiatorEvent::LoggedIn(attached)) => {
                    let LiveConnection {
                        stream,
                        received: already,
                        recording,
                        ..
                    } = self;
                    recording
                        .tape()
                        .logged_in(Framing::new(&attached.parameters));
                    let attached = *attached;
                    return Ok(Outcome::LoggedIn(LoggedIn {
                        stream,
                        attached,
                        already,
                        recording,
                    }));
                }
                Some(InitiatorEvent::Redirected { address, .. }) => {
                    return Ok(Outcome::Redirected(address));
                }
                Some(InitiatorEvent::Failed(why)) => return Err(OpenError::Login { address, why }),
                None => {}
            }
            let (bhs, data) = self
                .receive()
                .await
                .map_err(|ending| OpenError::Broken { address, ending })?;
            login.handle_pdu(&bhs, &data);
        }
    }

    async fn send(&mut self, pdu: &Transmit) -> Result<(), Ending> {
        let mut bytes = pdu.bhs.0.to_vec();
        bytes.extend_from_slice(&pdu.data);
        bytes.resize(bytes.len() + pad_bytes(pdu.data.len()), 0);
        self.recording
            .tape()
            .login(reactor::now(), Direction::Sent, &bytes);
        self.stream.write_all(&bytes).await.map_err(Ending::Io)
    }

    /// Receives the next PDU. There are no digests yet, and login PDUs have no additional header segments.
    async fn receive(&mut self) -> Result<(Bhs, Vec<u8>), Ending> {
        self.fill(BHS_BYTES).await?;
        let bhs = Bhs(std::array::from_fn(|i| self.received[i]));
        let length = bhs.data_segment_length() as usize;
        if length > LOGIN_DATA_BYTES_MAX || bhs.total_ahs_length() > 0 {
            self.recording
                .tape()
                .login(reactor::now(), Direction::Received, &bhs.0);
            return Err(Ending::NotALogin);
        }
        let end = BHS_BYTES + length;
        let whole = end + pad_bytes(length);
        self.fill(whole).await?;
        debug_assert!(self.received.len() >= whole);
        self.recording
            .tape()
            .login(reactor::now(), Direction::Received, &self.received[..whole]);
        let data = self.received[BHS_BYTES..end].to_vec();
        self.received.drain(..whole);
        Ok((bhs, data))
    }

    /// Receives until at least this many bytes are available. Later bytes are kept.
    async fn fill(&mut self, bytes: usize) -> Result<(), Ending> {
        while self.received.len() < bytes {
            let before = self.received.len();
            self.received.resize(before + LOGIN_DATA_BYTES_MAX, 0);
            let outcome = self.stream.read_some(&mut self.received[before..]).await;
            self.received
                .truncate(before + outcome.as_ref().copied().unwrap_or(0));
            // An NBD server sends a greeting first, which is shorter than a header, and resets the connection
            // after the login PDU.
            if self.received.starts_with(NBD_MAGIC) {
                return Err(Ending::Nbd);
            }
            match outcome {
                Ok(0) => return Err(Ending::Closed),
                Ok(_) => {}
                Err(error) => return Err(Ending::Io(error)),
            }
        }
        Ok(())
    }
}
