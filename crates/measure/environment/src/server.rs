//! Finds the process that serves the storage, if it runs on this machine. Its CPU time is part of the cost of
//! a request, and a server thread that is always busy is the bottleneck.
//!
//! The kernel's tables of TCP sockets also contain the server's end of our connection, with the two addresses
//! exchanged, and its inode number. The serving process has this inode open. Sockets of the kernel (LIO) are
//! not open in any process, and sockets of other network namespaces are not in our tables.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use bench::record::ServerCpu;
use foreign::printable;
use host::cputime::{self, Threads};
use iscsi_client::RemoteTarget;

use super::system::System;

/// A serving process, or a serving thread of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    name: String,
    pid: u32,
    /// The thread; `None` means all threads of the process.
    thread: Option<u32>,
}

/// The CPU time of a server so far.
#[derive(Clone, Debug)]
pub struct ServerClocks {
    process: Duration,
    threads: Threads,
}

impl Server {
    /// Returns the process that serves this session. Returns `None` if the process is not on this machine, or
    /// if it may not be inspected (root may inspect all processes). Also returns `None` for this process,
    /// whose CPU time cannot be separated from the client's.
    pub async fn serving(target: &RemoteTarget) -> Option<Server> {
        let connections = target.statistics().await?.connections;
        let first = connections.first()?;
        let system = System::this();
        Server::holding(&system, server_socket(&system, first.local, first.peer)?)
    }

    /// Returns the process that serves a TCP connection of this process to this host and port, or `None` in
    /// the same cases as [`Server::serving`]. Resolving the host name blocks the thread.
    pub fn connected(host: &str, port: u16) -> Option<Server> {
        let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().ok()?.collect();
        let system = System::this();
        let is_ours = |socket: &Socket| {
            addresses
                .iter()
                .any(|address| plain(socket.remote) == plain(*address))
                && holds(Path::new("/proc/self"), socket.inode)
        };
        let ours = sockets(&system).find(is_ours)?;
        Server::holding(&system, server_socket(&system, ours.local, ours.remote)?)
    }

    /// Returns the process that serves connections to this Unix socket, or `None` in the same cases as
    /// [`Server::serving`].
    pub fn on_socket(path: &Path) -> Option<Server> {
        let system = System::this();
        let table = system.text("proc/net/unix")?;
        let mut accepted = table
            .lines()
            .skip(1)
            .filter_map(|line| accepted_on(line, path));
        accepted.find_map(|inode| Server::holding(&system, inode))
    }

    fn holding(system: &System, inode: u64) -> Option<Server> {
        let pid = holder(Path::new("/proc"), inode)?;
        let name = system.text(format!("proc/{pid}/comm")).unwrap_or_default();
        (pid != std::process::id()).then(|| Server {
            name: printable(&name),
            pid,
            thread: None,
        })
    }

    /// Creates a server that is a thread of this process, with the thread's number in the kernel.
    pub fn here(name: &str, thread: u32) -> Server {
        Server {
            name: name.to_owned(),
            pid: std::process::id(),
            thread: Some(thread),
        }
    }

    /// Returns the CPU time so far. Fails if the process has ended.
    pub fn clocks(&self) -> io::Result<ServerClocks> {
        match self.thread {
            None => {
                let threads = Threads::of_process(self.pid)?;
                Ok(ServerClocks {
                    process: cputime::of_process(self.pid)?,
                    threads,
                })
            }
            Some(thread) => {
                let threads = Threads::only(self.pid, thread)?;
                Ok(ServerClocks {
                    process: threads.of_thread(thread),
                    threads,
                })
            }
        }
    }

    /// Returns the CPU time since `earlier`, for the record, or `None` if the process has ended.
    pub fn cpu_since(&self, earlier: &ServerClocks) -> Option<ServerCpu> {
        let now = self.clocks().ok()?;
        let used = now.process.saturating_sub(earlier.process);
        let (of, busiest) = match self.thread {
            None => (
                format!("process {}", self.pid),
                now.threads.busiest_since(&earlier.threads),
            ),
            Some(_) => ("a thread of this process".to_owned(), used),
        };
        Some(ServerCpu {
            of: format!("{} ({of})", self.name),
            seconds: used.as_secs_f64(),
            busiest_thread_s: Some(busiest.as_secs_f64()),
            machine: None,
        })
    }
}

impl ServerClocks {
    /// Returns the CPU time since `earlier` of the thread that was the busiest in this time.
    pub fn busiest_since(&self, earlier: &ServerClocks) -> Duration {
        self.threads.busiest_since(&earlier.threads)
    }
}

/// Returns the inode of the socket at the other end of the connection from `local` to `peer`.
fn server_socket(system: &System, local: SocketAddr, peer: SocketAddr) -> Option<u64> {
    sockets(system)
        .find(|socket| socket.connects(peer, local))
        .map(|socket| socket.inode)
}

/// Returns all TCP sockets of this network namespace.
fn sockets(system: &System) -> impl Iterator<Item = Socket> {
    let tables =
        ["proc/net/tcp", "proc/net/tcp6"].map(|table| system.text(table).unwrap_or_default());
    let lines: Vec<Socket> = tables
        .iter()
        .flat_map(|table| table.lines().skip(1).filter_map(Socket::parse))
        .collect();
    lines.into_iter()
}

/// Returns the inode in a line of `/proc/net/unix` (unix(7)), if the line is a connection that was accepted
/// on the socket at `path`. Such a connection has the path of the listening socket.
fn accepted_on(line: &str, path: &Path) -> Option<u64> {
    const CONNECTED: &str = "03";
    let mut fields = line.splitn(7, ' ');
    // The fields before it are the number, references, protocol, flags and type.
    let (state, rest) = (fields.nth(5)?, fields.next()?.trim_start());
    let (inode, at) = rest.split_once(' ')?;
    (state == CONNECTED && Path::new(at) == path).then(|| inode.parse().ok())?
}

fn plain(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// A socket in `/proc/net/tcp` or `tcp6` (proc_pid_net(5)).
struct Socket {
    local: SocketAddr,
    remote: SocketAddr,
    inode: u64,
}

impl Socket {
    fn parse(line: &str) -> Option<Socket> {
        let mut fields = line.split_ascii_whitespace();
        let (local, remote) = (address(fields.nth(1)?)?, address(fields.next()?)?);
        // The fields in between are the state, queues, timer, retransmissions, user and timeout.
        let inode = fields.nth(6)?.parse().ok().filter(|inode| *inode != 0)?;
        Some(Socket {
            local,
            remote,
            inode,
        })
    }

    fn connects(&self, from: SocketAddr, to: SocketAddr) -> bool {
        plain(self.local) == plain(from) && plain(self.remote) == plain(to)
    }
}

/// Parses an address such as `0100007F:0CBC`: 32-bit words of the address in native byte order, and the port
/// as a plain number.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        u32::from_str_radix(ip.get(at..at + 8)?, 16)
            .ok()
            .map(u32::to_ne_bytes)
    };
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (index, bytes) in bytes.chunks_exact_mut(4).enumerate() {
                bytes.copy_from_slice(&word(index * 8)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Returns the process that has the socket open; the first one, if several processes share it.
fn holder(proc: &Path, inode: u64) -> Option<u32> {
    let pids = fs::read_dir(proc).ok()?.flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| holds(&proc.join(pid.to_string()), inode))
}

/// Whether a process has the socket open. A process that has ended, or that may not be inspected, appears to
/// have no open files.
fn holds(process: &Path, inode: u64) -> bool {
    let wanted = format!("socket:[{inode}]");
    let files = fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    files
        .filter_map(|file| fs::read_link(file.path()).ok())
        .any(|link| link.as_os_str() == &*wanted)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::super::system::TestSystem;
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn the_other_end_of_a_connection_is_found_in_either_table() {
        let heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        let rest = "01 00000000:00000000 00:00000000 00000000     0        0";
        let v4 =
            format!("{heading}\n   0: 0100007F:0CBC 0100007F:9C40 {rest} 4711 1 0 20 4 1 64 -1\n");
        let mapped = "0000000000000000FFFF0000";
        let v6 = format!(
            "{heading}\n   0: {mapped}0100007F:0CBD {mapped}0100007F:9C41 {rest} 4712 1 0 20\n"
        );
        let made = TestSystem::with(&[("proc/net/tcp", &v4), ("proc/net/tcp6", &v6)]);
        let find = |local, peer| server_socket(&made.system, at(local), at(peer));
        assert_eq!(find("127.0.0.1:40000", "127.0.0.1:3260"), Some(4711));
        assert_eq!(find("127.0.0.1:40001", "127.0.0.1:3261"), Some(4712));
        assert_eq!(
            find("127.0.0.1:3260", "127.0.0.1:40000"),
            None,
            "our own end is not the server"
        );
    }

    #[test]
    fn lines_of_another_form_are_passed_over() {
        for line in [
            "",
            "0:",
            "0: 0100007F:0CBC",
            "0: 01:1 02:2 01 a b c d e 7",
            "0: ÄÖÜ:1 ÄÖÜ:2 3 4 5 6 7 8 9",
        ] {
            assert!(Socket::parse(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_socket_of_this_process_leads_to_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (_server, _) = listener.accept().expect("accepted");
        let (local, peer) = (
            client.local_addr().expect("ours"),
            client.peer_addr().expect("theirs"),
        );
        let inode = server_socket(&System::this(), local, peer).expect("in the table");
        assert_eq!(holder(Path::new("/proc"), inode), Some(std::process::id()));
    }

    #[test]
    fn what_was_accepted_on_a_unix_socket_is_found_by_its_path() {
        let path = Path::new("/run/a b");
        let line = |state, at| {
            format!("000000006c38f5b8: 00000003 00000000 00000000 0001 {state}  4713 {at}")
        };
        assert_eq!(accepted_on(&line("03", "/run/a b"), path), Some(4713));
        assert_eq!(
            accepted_on(&line("01", "/run/a b"), path),
            None,
            "it listens"
        );
        assert_eq!(accepted_on(&line("03", "/run/a"), path), None);
        assert_eq!(
            accepted_on(
                "000000006c38f5b8: 00000003 00000000 00000000 0001 03 4713",
                path
            ),
            None
        );
        assert_eq!(accepted_on("", path), None);
    }

    #[test]
    fn a_server_that_has_ended_has_no_cpu_time() {
        let server = Server {
            name: "tgtd".to_owned(),
            pid: 1 << 23,
            thread: None,
        };
        assert!(server.clocks().is_err());
        let here = Server {
            name: "test".to_owned(),
            pid: std::process::id(),
            thread: None,
        };
        let before = here.clocks().expect("we are there");
        let cpu = here.cpu_since(&before).expect("we are there still");
        assert_eq!(cpu.of, format!("test (process {})", std::process::id()));
        assert!(server.cpu_since(&before).is_none());
    }
}
