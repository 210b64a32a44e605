//! Notifications to the service manager, as in sd_notify(3): ready, reloading, stopping, status and watchdog.
//!
//! The protocol is a datagram of lines to a UNIX socket; libsystemd is not needed. A datagram that cannot be sent is
//! logged and otherwise ignored.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use backends::Failure;

use crate::live::Live;

/// How often the status is told anew if there is no watchdog.
const STATUS_TIME: Duration = Duration::from_secs(10);

/// The service manager of this process.
#[derive(Debug)]
pub struct Supervisor {
    socket: UnixDatagram,
    address: SocketAddr,
    /// It ends the process if it hears nothing for so long.
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// The one that the environment names, if it names one: `NOTIFY_SOCKET`, and `WATCHDOG_USEC` unless `WATCHDOG_PID` is
    /// another process than `pid`, this one. None of them is to be handed on to children.
    ///
    /// # Errors
    /// It names one that cannot be meant.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<OsString>,
        pid: u32,
    ) -> io::Result<Option<Supervisor>> {
        let Some(path) = variable("NOTIFY_SOCKET") else { return Ok(None) };
        let address = match path.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(&path)?,
            // Such as that of a virtual machine (vsock:…).
            _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "NOTIFY_SOCKET is no UNIX socket")),
        };
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        let is_ours = number("WATCHDOG_PID").is_none_or(|other| other == u64::from(pid));
        let watchdog = number("WATCHDOG_USEC").filter(|time| is_ours && *time > 0);
        let (socket, watchdog) = (UnixDatagram::unbound()?, watchdog.map(Duration::from_micros));
        // A service manager that does not read must not hold up a reload.
        socket.set_nonblocking(true)?;
        Ok(Some(Supervisor { socket, address, watchdog }))
    }

    /// The server reads its configuration again.
    pub(crate) fn reloading(&self) {
        let time = host::monotonic().as_micros();
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={time}\nSTATUS=reloading"));
    }

    /// It serves.
    pub(crate) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// It ends.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=initiators are asked to log out");
    }

    fn tell(&self, lines: &str) {
        if let Err(error) = self.socket.send_to_addr(lines.as_bytes(), &self.address) {
            tracing::debug!(%error, "the service manager was not told");
        }
    }

    /// Twice in the time after which it would be ended.
    fn period(&self) -> Duration {
        self.watchdog.map_or(STATUS_TIME, |time| time / 2)
    }
}

impl Live {
    /// Tells the service manager that the server serves, and from now on how it goes. Its watchdog hears of this server as
    /// long as every reactor thread answers.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn supervise(self: &Arc<Live>, supervisor: Supervisor) -> Result<(), Failure> {
        let period = supervisor.period();
        let has_watchdog = supervisor.watchdog.is_some();
        self.set_supervisor(supervisor);
        self.tell_ready();
        let live = Arc::downgrade(self);
        let work = move || watch(&live, period, has_watchdog);
        thread::Builder::new().name("supervisor".to_owned()).spawn(work).map(drop).map_err(Failure::failed)
    }

    /// The server serves, or serves again after a reload.
    pub(crate) fn tell_ready(&self) {
        if let Some(supervisor) = self.supervisor() {
            supervisor.ready(&self.status());
        }
    }

    /// For people, in a line.
    fn status(&self) -> String {
        let targets = self.probe().targets().len();
        let volumes = self.server().volumes().iter().count();
        format!("serves {targets} target(s), {volumes} volume(s)")
    }

    /// The cores that do not run a closure within this time.
    fn silent_cores(&self, within: Duration) -> Vec<usize> {
        let answers = self.server().ask_cores(within, |_| ());
        answers.iter().enumerate().filter(|(_, answer)| answer.is_none()).map(|(core, _)| core).collect()
    }
}

fn watch(live: &Weak<Live>, period: Duration, has_watchdog: bool) {
    loop {
        let begin = Instant::now();
        let Some(live) = live.upgrade() else { return };
        let silent = live.silent_cores(period);
        let Some(supervisor) = live.supervisor() else { return };
        match &silent[..] {
            [] if has_watchdog => supervisor.tell(&format!("WATCHDOG=1\nSTATUS={}", live.status())),
            [] => supervisor.tell(&format!("STATUS={}", live.status())),
            _ => {
                tracing::error!(reactors = ?silent, "reactor threads do not answer");
                supervisor.tell(&format!("STATUS=reactor threads do not answer: {silent:?}"));
            }
        }
        drop(live);
        thread::sleep(period.saturating_sub(begin.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> io::Result<Option<Supervisor>> {
        let find = |name: &str| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Supervisor::from_environment(find, 7)
    }

    #[test]
    fn without_a_socket_there_is_no_service_manager() {
        assert!(of(&[("WATCHDOG_USEC", "1000000")]).expect("nothing wrong").is_none());
        assert!(of(&[("NOTIFY_SOCKET", "vsock:2:1234")]).is_err());
        assert!(of(&[("NOTIFY_SOCKET", "relative")]).is_err());
    }

    #[test]
    fn the_watchdog_is_told_twice_in_its_time() {
        let socket = ("NOTIFY_SOCKET", "@linerate-test-of-nobody");
        let period = |variables: &[_]| {
            of(&[&[socket], variables].concat()).expect("fine").expect("a service manager").period()
        };
        assert_eq!(period(&[]), STATUS_TIME);
        assert_eq!(period(&[("WATCHDOG_USEC", "30000000")]), Duration::from_secs(15));
        let others = [("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", "8")];
        assert_eq!(period(&others), STATUS_TIME, "it watches another process");
        assert_eq!(period(&[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", "7")]), Duration::from_secs(15));
    }

    #[test]
    fn lines_reach_a_named_and_an_abstract_socket() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("notify");
        let name = format!("linerate-test-{}", std::process::id());
        let listening = [
            UnixDatagram::bind(&path).expect("a socket"),
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name"))
                .expect("a socket"),
        ];
        for (socket, named) in listening.iter().zip([path.display().to_string(), format!("@{name}")]) {
            let supervisor = of(&[("NOTIFY_SOCKET", &named)]).expect("fine").expect("a service manager");
            supervisor.reloading();
            let mut text = [0; 256];
            let length = socket.recv(&mut text).expect("a datagram");
            let text = String::from_utf8_lossy(&text[..length]).into_owned();
            let time = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").and_then(|rest| rest.lines().next());
            assert!(time.is_some_and(|time| time.parse::<u64>().is_ok()), "{text}");
        }
    }
}
