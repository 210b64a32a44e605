//! Notifications to the service manager, as in sd_notify(3): ready, reloading, stopping, status and watchdog.
//!
//! The protocol is a datagram of lines to a UNIX socket; libsystemd is not needed. A datagram that cannot be
//! sent is logged and otherwise ignored.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Interval of status notifications without a watchdog.
const STATUS_TIME: Duration = Duration::from_secs(10);

/// The service manager of this process.
#[derive(Debug)]
pub struct Supervisor {
    socket: UnixDatagram,
    address: SocketAddr,
    /// The service manager kills the process if it receives no notification for this time.
    pub(crate) watchdog: Option<Duration>,
}

impl Supervisor {
    /// Returns the service manager specified by the environment, if any: by `NOTIFY_SOCKET`, and by
    /// `WATCHDOG_USEC` unless `WATCHDOG_PID` names a process other than this one, `pid`. These variables must
    /// not be passed on to children.
    ///
    /// # Errors
    /// The environment contains an invalid value.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<OsString>,
        pid: u32,
    ) -> io::Result<Option<Supervisor>> {
        let Some(path) = variable("NOTIFY_SOCKET") else {
            return Ok(None);
        };
        let address = match path.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(&path)?,
            // For example, the address of a virtual machine (vsock:…).
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "NOTIFY_SOCKET is not a UNIX socket",
                ));
            }
        };
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        let is_ours = number("WATCHDOG_PID").is_none_or(|other| other == u64::from(pid));
        let watchdog = number("WATCHDOG_USEC").filter(|time| is_ours && *time > 0);
        debug_assert!(watchdog != Some(0), "that is no watchdog");
        let (socket, watchdog) = (
            UnixDatagram::unbound()?,
            watchdog.map(Duration::from_micros),
        );
        // A service manager that does not read must not block a reload.
        socket.set_nonblocking(true)?;
        Ok(Some(Supervisor {
            socket,
            address,
            watchdog,
        }))
    }

    /// Reports that the server is reloading its configuration.
    pub(crate) fn reloading(&self) {
        let time = host::monotonic().as_micros();
        self.tell(&format!(
            "RELOADING=1\nMONOTONIC_USEC={time}\nSTATUS=reloading"
        ));
    }

    pub(crate) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=requesting logout from initiators");
    }

    pub(crate) fn tell(&self, lines: &str) {
        if let Err(error) = self.socket.send_to_addr(lines.as_bytes(), &self.address) {
            tracing::debug!(%error, "cannot notify the service manager");
        }
    }

    /// Half the watchdog's timeout.
    pub(crate) fn period(&self) -> Duration {
        self.watchdog.map_or(STATUS_TIME, |time| time / 2)
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
        assert!(
            of(&[("WATCHDOG_USEC", "1000000")])
                .expect("nothing wrong")
                .is_none()
        );
        assert!(of(&[("NOTIFY_SOCKET", "vsock:2:1234")]).is_err());
        assert!(of(&[("NOTIFY_SOCKET", "relative")]).is_err());
    }

    #[test]
    fn the_watchdog_is_told_twice_in_its_time() {
        let socket = ("NOTIFY_SOCKET", "@linerate-test-of-nobody");
        let period = |variables: &[_]| {
            of(&[&[socket], variables].concat())
                .expect("fine")
                .expect("a service manager")
                .period()
        };
        assert_eq!(period(&[]), STATUS_TIME);
        assert_eq!(
            period(&[("WATCHDOG_USEC", "30000000")]),
            Duration::from_secs(15)
        );
        let others = [("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", "8")];
        assert_eq!(period(&others), STATUS_TIME, "it watches another process");
        assert_eq!(
            period(&[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", "7")]),
            Duration::from_secs(15)
        );
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
        for (socket, named) in listening
            .iter()
            .zip([path.display().to_string(), format!("@{name}")])
        {
            let supervisor = of(&[("NOTIFY_SOCKET", &named)])
                .expect("fine")
                .expect("a service manager");
            supervisor.reloading();
            let mut text = [0; 256];
            let length = socket.recv(&mut text).expect("a datagram");
            let text = String::from_utf8_lossy(&text[..length]).into_owned();
            let time = text
                .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
                .and_then(|rest| rest.lines().next());
            assert!(
                time.is_some_and(|time| time.parse::<u64>().is_ok()),
                "{text}"
            );
        }
    }
}
