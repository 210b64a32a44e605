//! The client of the control socket.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Reply, Request};
use backends::Failure;

/// Ten thousand sessions with all their keys fit into it.
const REPLY_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Timeout. A server answers within a second unless its machine is overloaded.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no reply.
#[derive(Debug)]
pub enum AskError {
    /// No server listens there.
    NoServer(PathBuf),
    /// The conversation broke off.
    Io(PathBuf, io::Error),
}

impl std::error::Error for AskError {}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::NoServer(path) => {
                let path = path.display();
                write!(f, "no server listens at {path}; start one, or name its socket with --control")
            }
            AskError::Io(path, error) => {
                write!(f, "the server at {} does not answer: {error}", path.display())
            }
        }
    }
}

/// Asks the server whose socket is at `path`.
pub fn ask(path: &Path, request: &Request) -> Result<Reply, AskError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AskError::NoServer(path.to_owned()),
        _ => AskError::Io(path.to_owned(), error),
    };
    converse(path, request).map_err(failed)
}

/// What is wrong with a reply that is not the one that was asked for.
pub fn unexpected(reply: Reply) -> Failure {
    match reply {
        Reply::Refused { reason } => Failure::failed(reason),
        Reply::Done | Reply::Sessions { .. } | Reply::Volumes { .. } | Reply::Reloaded { .. } => {
            Failure::failed("the server answered something else; is it of this version?")
        }
    }
}

/// The timeout of a request. A reload opens and closes volumes, which may be remote or hang.
fn patience(request: &Request) -> Duration {
    match request {
        Request::Reload { .. } | Request::Change { .. } => Duration::from_secs(300),
        Request::Sessions | Request::Volumes | Request::Fault { .. } => PATIENCE,
    }
}

fn converse(path: &Path, request: &Request) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(patience(request)))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = Vec::new();
    BufReader::new(stream).take(REPLY_BYTES_MAX).read_until(b'\n', &mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}
