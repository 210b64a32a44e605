//! Listening Unix sockets of servers. They are accessible only to their owner, and are removed with the
//! server.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use socket2::{Domain, SockAddr, Socket, Type};

/// Maximum number of connections that wait to be accepted, chosen so that a host that logs in to hundreds of
/// LUNs at boot is not rejected. The system limit (net.core.somaxconn, 4096) also applies.
pub(crate) const BACKLOG: i32 = 1024;

/// The file of a listening socket. Dropping this removes the file, unless it now belongs to another socket.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file.
    identity: (u64, u64),
}

/// Listens at `path`, for this user only (mode 600). Replaces a stale socket of a terminated server. If
/// several servers start at the same time, one succeeds.
///
/// # Errors
/// The same as for [`look`].
pub fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let _turn = turn(path)?;
    look(path)?;
    make(path).map_err(unfit)
}

/// Locks the directory, so that no other process replaces a socket in it between the check and the start of
/// listening. Returns `None` if the directory cannot be opened or locked.
///
/// # Errors
/// `AddrInUse`: another process holds the lock for longer than a server takes to start.
fn turn(path: &Path) -> io::Result<Option<File>> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let Ok(folder) = File::open(folder) else {
        return Ok(None);
    };
    for _ in 0..TURN_TRIES {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(folder)),
            Err(rustix::io::Errno::WOULDBLOCK) => thread::sleep(TURN_PAUSE),
            Err(_) => return Ok(None), // the file system does not support locks
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        "another program has locked its directory",
    ))
}

const TURN_TRIES: u32 = 200;
const TURN_PAUSE: Duration = Duration::from_millis(10);

/// Checks whether [`bind`] would succeed. Changes nothing.
///
/// # Errors
/// - `AddrInUse`: a server listens on this socket.
/// - `AlreadyExists`: the path exists and is not a socket.
/// - `InvalidInput`: no socket can be created at the path; the source is the system's error.
pub fn look(path: &Path) -> io::Result<()> {
    use io::ErrorKind::{AddrInUse, AlreadyExists, ConnectionRefused, NotFound, WouldBlock};
    let error = match connect_local(path) {
        Ok(_) => None,
        // A server listens, but its queue of connections is full.
        Err(error) if error.kind() == WouldBlock => None,
        Err(error) => Some(error),
    };
    let Some(error) = error else {
        return Err(io::Error::new(AddrInUse, "another server is using it"));
    };
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => Err(io::Error::new(
            AlreadyExists,
            "the path exists and is not a socket",
        )),
        _ if matches!(error.kind(), ConnectionRefused | NotFound) => Ok(()),
        _ => Err(unfit(error)),
    }
}

fn make(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.cloexec(), None)?;
    // Linux creates the file with the mode of the socket, so there is no moment at which other users can
    // connect. (CVE-2020-10699 was a control socket that was open to all users.)
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => socket.bind(&SockAddr::unix(path)?)?,
    }
    let metadata = fs::symlink_metadata(path)?;
    let file = SocketFile {
        path: path.to_owned(),
        identity: (metadata.dev(), metadata.ino()),
    };
    socket.listen(BACKLOG)?;
    Ok((UnixListener::from(std::os::fd::OwnedFd::from(socket)), file))
}

/// Connects to a Unix socket.
pub(crate) fn connect_local(path: &Path) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket.into())
}

/// Wraps a system error that has no more specific kind.
fn unfit(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = |metadata: fs::Metadata| (metadata.dev(), metadata.ino()) == self.identity;
        if fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixDatagram;
    use std::sync::Barrier;

    use super::*;

    fn refused(path: &Path) -> io::ErrorKind {
        bind(path).expect_err("there is something").kind()
    }

    #[test]
    fn a_dead_servers_socket_is_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        drop(UnixListener::bind(&path).expect("a socket to leave behind"));
        let (_listener, file) = bind(&path).expect("replaced");
        let mode = fs::metadata(&path)
            .expect("the socket")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "whatever the umask is");
        assert_eq!(refused(&path), io::ErrorKind::AddrInUse);
        drop(file);
        assert!(!path.exists());
        fs::write(&path, "notes").expect("a file");
        assert_eq!(refused(&path), io::ErrorKind::AlreadyExists);
        fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink("nowhere", &path).expect("a link");
        assert_eq!(refused(&path), io::ErrorKind::AlreadyExists);
        fs::remove_file(&path).expect("removed");
        let _other = UnixDatagram::bind(&path).expect("a socket of another type");
        assert_eq!(refused(&path), io::ErrorKind::InvalidInput);
        assert_eq!(
            refused(&folder.path().join("missing/s")),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(
            refused(&folder.path().join("s".repeat(108))),
            io::ErrorKind::InvalidInput,
            "too long"
        );
    }

    #[test]
    fn of_servers_that_start_at_once_one_listens() {
        let folder = tempfile::tempdir().expect("a folder");
        for round in 0..20 {
            let path = folder.path().join(format!("s{round}"));
            drop(UnixListener::bind(&path).expect("a socket to leave behind"));
            let start = Barrier::new(4);
            let bound: Vec<_> = thread::scope(|scope| {
                let begin = || {
                    scope.spawn(|| {
                        start.wait();
                        bind(&path)
                    })
                };
                let servers: Vec<_> = (0..4).map(|_| begin()).collect();
                servers
                    .into_iter()
                    .map(|server| server.join().expect("a server"))
                    .collect()
            });
            assert_eq!(
                bound.iter().filter(|bound| bound.is_ok()).count(),
                1,
                "{bound:?}"
            );
            std::os::unix::net::UnixStream::connect(&path).expect("the one that listens is there");
        }
    }

    #[test]
    fn the_socket_of_another_server_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let (_first, file) = bind(&path).expect("free");
        fs::rename(&path, folder.path().join("t")).expect("renamed");
        let (_second, _its_file) = bind(&path).expect("free again");
        drop(file);
        assert_eq!(refused(&path), io::ErrorKind::AddrInUse);
    }
}
