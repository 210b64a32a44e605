//! The server side of the control socket: one thread per client, with bounded clients, request length and
//! time. A long request (a reload) does not delay other clients.

use std::fmt;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::{Reply, Request};

/// Longer than any request; a client that sends more is not one of ours.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;
/// Clients served concurrently; further ones wait to be accepted.
const CLIENTS_MAX: usize = 16;
/// What a client may take to send its next request or to take a reply, while others wait.
const PATIENCE: Duration = Duration::from_secs(2);

/// A socket that waits for clients. Dropping it takes it off the file system.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    file: SocketFile,
}

/// The socket's name, which goes away with this value.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

/// Why there is no socket.
#[derive(Debug)]
pub enum BindError {
    /// Another server answers there.
    InUse(PathBuf),
    /// Something that is not a socket has the name.
    NotASocket(PathBuf),
    /// The system says no.
    Io(PathBuf, io::Error),
}

impl std::error::Error for BindError {}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, why) = match self {
            BindError::InUse(path) => (path, "another server uses it; give this one its own with --control"),
            BindError::NotASocket(path) => (path, "there is a file that is no socket; name another place"),
            BindError::Io(path, error) => {
                return write!(f, "cannot make the control socket {}: {error}", path.display());
            }
        };
        write!(f, "cannot make the control socket {}: {why}", path.display())
    }
}

impl Socket {
    /// Makes the socket at `path`, for its owner only. One that a dead server left behind is replaced.
    pub fn bind(path: &Path) -> Result<Socket, BindError> {
        let failed = |error| BindError::Io(path.to_owned(), error);
        match UnixStream::connect(path) {
            Ok(_) => return Err(BindError::InUse(path.to_owned())),
            Err(_) if !is_socket_or_nothing(path) => return Err(BindError::NotASocket(path.to_owned())),
            Err(_) => {}
        }
        let listener = bind_privately(path).map_err(failed)?;
        Ok(Socket { listener, file: SocketFile(path.to_owned()) })
    }

    /// Answers requests on threads of its own until the process ends or the returned value is dropped, which
    /// takes the name away.
    pub fn serve(self, answer: impl Fn(Request) -> Reply + Send + Sync + 'static) -> io::Result<SocketFile> {
        let (listener, answer) = (self.listener, Arc::new(answer));
        let work = move || {
            for client in listener.incoming() {
                let answer = Arc::clone(&answer);
                // One more than the clients there are: this thread's own, and the one that is to be attended
                // to.
                let is_crowded = Arc::strong_count(&answer) > CLIENTS_MAX + 1;
                let attend = move || {
                    if let Err(error) = client.and_then(|client| attend(&client, &*answer)) {
                        tracing::debug!(%error, "a client of the control socket went away");
                    }
                };
                let attended = match is_crowded {
                    true => {
                        attend();
                        Ok(())
                    }
                    false => thread::Builder::new().name("control client".to_owned()).spawn(attend).map(drop),
                };
                if let Err(error) = attended {
                    tracing::warn!(%error, "no thread to be had for a client of the control socket");
                }
            }
        };
        thread::Builder::new().name("control".to_owned()).spawn(work)?;
        Ok(self.file)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If it was removed already, nothing is left to do.
        let _ = fs::remove_file(&self.0);
    }
}

fn is_socket_or_nothing(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::symlink_metadata(path).map_or(true, |metadata| metadata.file_type().is_socket())
}

/// Binds in a directory that other users cannot enter, then moves the socket into place: at no moment can
/// others connect to it (CVE-2020-10699 was a control socket open to all).
fn bind_privately(path: &Path) -> io::Result<UnixListener> {
    let mut directory = path.as_os_str().to_owned();
    directory.push(format!(".{}", std::process::id()));
    let directory = PathBuf::from(directory);
    DirBuilder::new().mode(0o700).create(&directory)?;
    let made = bind_in(&directory, path);
    fs::remove_dir_all(&directory)?;
    made
}

fn bind_in(directory: &Path, path: &Path) -> io::Result<UnixListener> {
    let inside = directory.join("s");
    let listener = UnixListener::bind(&inside)?;
    fs::set_permissions(&inside, Permissions::from_mode(0o600))?;
    fs::rename(&inside, path)?;
    Ok(listener)
}

/// Answers one client's requests until it is done or asks for too much.
fn attend(client: &UnixStream, answer: &impl Fn(Request) -> Reply) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(client);
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut reader).take(REQUEST_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        let reply = match serde_json::from_slice(&line) {
            Ok(request) => answer(request),
            Err(error) => Reply::Refused { reason: format!("not a request: {error}") },
        };
        let mut text = serde_json::to_vec(&reply)?;
        text.push(b'\n');
        let mut writer = client;
        writer.write_all(&text)?;
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ask;
    use super::super::client::AskError;
    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("control.sock");
        (directory, path)
    }

    fn serve(path: &Path) -> SocketFile {
        let socket = Socket::bind(path).expect("a free place");
        socket.serve(|request| Reply::Refused { reason: format!("{request:?}") }).expect("a thread")
    }

    #[test]
    fn requests_are_answered_and_nobody_else_may_ask() {
        let (_directory, path) = place();
        let _server = serve(&path);
        let mode = fs::metadata(&path).expect("the socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let reply = ask(&path, &Request::Sessions).expect("an answer");
        assert_eq!(reply, Reply::Refused { reason: "Sessions".to_owned() });
        ask(&path, &Request::Sessions).expect("another");
    }

    #[test]
    fn what_is_no_request_is_refused_and_the_next_client_served() {
        let (_directory, path) = place();
        let _server = serve(&path);
        for bad in [&b"rubbish\n"[..], b"{\"request\":\"reboot\"}\n", &[b'x'; 200_000]] {
            let mut client = UnixStream::connect(&path).expect("a server");
            // The server may hang up on the long one before it has all been sent.
            let _ = client.write_all(bad);
            let _ = client.shutdown(std::net::Shutdown::Write);
            let mut answer = String::new();
            let _ = BufReader::new(client).read_line(&mut answer);
            assert!(answer.is_empty() || answer.contains("not a request"), "{answer}");
        }
        ask(&path, &Request::Sessions).expect("an answer");
    }

    #[test]
    fn a_dead_servers_socket_is_replaced_and_a_live_ones_is_not() {
        let (_directory, path) = place();
        drop(UnixListener::bind(&path).expect("a socket to leave behind"));
        let server = serve(&path);
        assert!(matches!(Socket::bind(&path), Err(BindError::InUse(_))));
        drop(server);
        assert!(!path.exists());
        fs::write(&path, "notes").expect("a file");
        assert!(matches!(Socket::bind(&path), Err(BindError::NotASocket(_))));
    }

    #[test]
    fn without_a_server_the_question_says_where_it_was_put() {
        let (_directory, path) = place();
        let error = ask(&path, &Request::Sessions).expect_err("nobody is there");
        assert!(matches!(error, AskError::NoServer(_)));
        assert!(error.to_string().contains("control.sock"));
    }
}
