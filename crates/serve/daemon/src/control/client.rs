//! The client of the control socket, and queries about the RAID sets of a running server.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use backends::raid::{Scrub, SetState};
use backends::{Failure, FailureKind};

use super::events::Occurrence;
use super::{ControlReply, ControlRequest, RaidOrder, line_of, message_of};
use crate::config::values::VolumeName;
use crate::waiting::{CLOSE_TIME, FLUSH_TIME};

/// Maximum size of a reply: enough for ten thousand sessions with all their keys.
const REPLY_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The timeout of most requests. A server responds within a second unless its host is overloaded.
const PATIENCE: Duration = Duration::from_secs(10);
/// After this time, a message reports that a change is still in progress.
const NOTICE: Duration = Duration::from_secs(3);

/// The reason why there is no reply.
#[derive(Debug)]
pub enum AskError {
    /// No server listens on this socket.
    NoServer(PathBuf),
    /// The connection failed.
    Io(PathBuf, io::Error),
}

impl AskError {
    fn new(path: &Path, error: io::Error) -> AskError {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                AskError::NoServer(path.to_owned())
            }
            _ => AskError::Io(path.to_owned(), error),
        }
    }
}

impl std::error::Error for AskError {}

/// If there is no server, the failure is "unreachable".
impl From<AskError> for Failure {
    fn from(error: AskError) -> Failure {
        let kind = if matches!(error, AskError::NoServer(_)) {
            FailureKind::Unreachable
        } else {
            FailureKind::Failed
        };
        Failure::new(kind, error)
    }
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::NoServer(path) => {
                let path = path.display();
                write!(
                    f,
                    "no server listens at {path}; start one, or name its socket with --control or its configuration with --config"
                )
            }
            AskError::Io(path, error) if error.kind() == io::ErrorKind::PermissionDenied => {
                write!(
                    f,
                    "only the user that runs the server can use its socket {}: {error}",
                    path.display()
                )
            }
            AskError::Io(path, error) => {
                write!(
                    f,
                    "the server at {} is not responding: {error}",
                    path.display()
                )
            }
        }
    }
}

/// Sends a request to the server whose socket is at `path`.
///
/// # Errors
/// There is no server, or the connection failed.
pub fn ask(path: &Path, request: &ControlRequest) -> Result<ControlReply, AskError> {
    converse(path, request)
        .map(|(reply, _)| reply)
        .map_err(|error| AskError::new(path, error))
}

/// The events of a server.
#[derive(Debug)]
pub struct Subscription {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

/// Subscribes to the events of the server whose socket is at `path`.
///
/// # Errors
/// There is no server, or it rejects the subscription, for instance because it has the maximum number of
/// subscribers.
pub fn subscribe(path: &Path) -> Result<Subscription, Failure> {
    let failed = |error| Failure::from(AskError::new(path, error));
    let (reply, stream) = converse(path, &ControlRequest::Events).map_err(failed)?;
    match reply {
        ControlReply::Done => {
            stream.get_ref().set_read_timeout(None).map_err(failed)?;
            Ok(Subscription {
                path: path.to_owned(),
                stream,
            })
        }
        other => Err(unexpected(other)),
    }
}

impl Subscription {
    /// Waits for the next event; `None` when the server has closed the connection.
    ///
    /// # Errors
    /// The connection failed.
    pub fn next_event(&mut self) -> Result<Option<Occurrence>, AskError> {
        let line = read_line(&mut self.stream).map_err(|error| AskError::new(&self.path, error))?;
        if line.is_empty() {
            return Ok(None);
        }
        serde_json::from_slice(&line)
            .map(Some)
            .map_err(|error| AskError::new(&self.path, error.into()))
    }
}

/// Returns the error for a reply of the wrong kind.
pub fn unexpected(reply: ControlReply) -> Failure {
    match reply {
        ControlReply::Refused { reason } => Failure::failed(reason),
        ControlReply::Done
        | ControlReply::Sessions { .. }
        | ControlReply::Volumes { .. }
        | ControlReply::Targets { .. }
        | ControlReply::Dropped { .. }
        | ControlReply::Metrics { .. }
        | ControlReply::Usage { .. }
        | ControlReply::Reloaded { .. } => {
            Failure::failed("unexpected response from the server; is its version the same?")
        }
    }
}

/// Returns the timeout of a request. A reload opens and closes volumes, which may be remote or hang.
fn patience(request: &ControlRequest) -> Duration {
    match request {
        ControlRequest::Reload { .. }
        | ControlRequest::Change { .. }
        | ControlRequest::Raid { .. } => Duration::from_secs(300),
        ControlRequest::Sessions
        | ControlRequest::Volumes
        | ControlRequest::Targets
        | ControlRequest::Drop { .. }
        | ControlRequest::Metrics
        | ControlRequest::Usage
        | ControlRequest::Events
        | ControlRequest::Fault { .. } => PATIENCE,
    }
}

fn converse(
    path: &Path,
    request: &ControlRequest,
) -> io::Result<(ControlReply, BufReader<UnixStream>)> {
    let mut stream = UnixStream::connect(path)?;
    let patience = patience(request);
    stream.set_read_timeout(Some(NOTICE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&line_of(request)?)?;
    let mut stream = BufReader::new(stream);
    let is_late = stream
        .fill_buf()
        .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    if is_late && patience > PATIENCE {
        tracing::warn!(
            flush_seconds = FLUSH_TIME.as_secs(),
            requests_seconds = CLOSE_TIME.as_secs(),
            "the server is still waiting for volumes to open, to be checked for data before they shrink, or, \
             if they are removed, to flush and to complete their last requests"
        );
    }
    stream.get_ref().set_read_timeout(Some(patience))?;
    let reply = message_of(&read_line(&mut stream)?).map_err(io::Error::other)?;
    Ok((reply, stream))
}

fn read_line(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    stream.take(REPLY_BYTES_MAX).read_until(b'\n', &mut line)?;
    Ok(line)
}

/// A RAID set of a volume of a running server, written `VOLUME`, or `VOLUME/N` if the volume has several
/// sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedSet {
    volume: VolumeName,
    /// The number of the set, counted from the outermost; `None` if the volume has only one set.
    number: Option<usize>,
}

impl FromStr for ServedSet {
    type Err = String;

    fn from_str(text: &str) -> Result<ServedSet, String> {
        let (volume, number) = text
            .split_once('/')
            .map_or((text, None), |(name, number)| (name, Some(number)));
        let number = number.map(str::parse).transpose();
        let number = number
            .map_err(|_| format!("write the number of a set after the slash, as in {volume}/0"))?;
        Ok(ServedSet {
            volume: volume.parse().map_err(|error| format!("{error}"))?,
            number,
        })
    }
}

/// Interval of progress queries.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl ServedSet {
    /// Queries the state of the set, or of all sets of the volume if no set is named.
    ///
    /// # Errors
    /// There is no server, or no such set.
    pub fn states(&self, socket: &Path) -> Result<Vec<SetState>, Failure> {
        let volumes = match ask(socket, &ControlRequest::Volumes).map_err(Failure::from)? {
            ControlReply::Volumes { volumes } => volumes,
            other => return Err(unexpected(other)),
        };
        let volume = volumes
            .into_iter()
            .find(|volume| volume.name == self.volume.as_str());
        let not_found = |why: String| Failure::new(FailureKind::NotFound, why);
        let volume = volume
            .ok_or_else(|| not_found(format!("no volume named {} is served", self.volume)))?;
        let sets: Vec<SetState> = match self.number {
            None => volume.layers.raid,
            Some(number) => volume
                .layers
                .raid
                .into_iter()
                .skip(number)
                .take(1)
                .collect(),
        };
        match sets.is_empty() {
            true => Err(not_found(format!(
                "volume {} has no such RAID set",
                self.volume
            ))),
            false => Ok(sets),
        }
    }

    /// Sends an order to the set.
    ///
    /// # Errors
    /// There is no server.
    pub fn order(&self, socket: &Path, order: RaidOrder) -> Result<ControlReply, Failure> {
        let request = ControlRequest::Raid {
            volume: self.volume.to_string(),
            set: self.number,
            order,
        };
        ask(socket, &request).map_err(Failure::from)
    }

    /// Scrubs the set and waits until the scrub ends. The server continues the scrub if this process ends.
    /// `tells` is called with the number of finished stripes and the total number of stripes.
    ///
    /// # Errors
    /// There is no server or no such set, or a scrub is already running.
    pub fn scrub(
        &self,
        socket: &Path,
        repair: bool,
        tells: &mut dyn FnMut(u64, u64),
    ) -> Result<Scrub, Failure> {
        match self.order(socket, RaidOrder::Scrub { repair })? {
            ControlReply::Reloaded { .. } => {}
            ControlReply::Refused { reason } => return Err(Failure::refused(reason)),
            other => return Err(unexpected(other)),
        }
        loop {
            let scrub = self.states(socket)?.into_iter().find_map(|set| set.scrub);
            match scrub {
                None => {
                    return Err(Failure::failed("the scrub was cancelled"));
                }
                Some(scrub) if scrub.has_ended => return Ok(scrub.found),
                Some(scrub) => tells(scrub.progress.done, scrub.progress.total),
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_named_by_its_volume() {
        let set = |text: &str| text.parse::<ServedSet>();
        assert_eq!(set("vm1").map(|set| set.number), Ok(None));
        assert_eq!(set("vm1/2").map(|set| set.number), Ok(Some(2)));
        assert!(set("vm1/x").expect_err("a mistake").contains("vm1/0"));
        assert!(
            set("VM")
                .expect_err("a mistake")
                .contains("is not a valid volume name")
        );
    }
}
