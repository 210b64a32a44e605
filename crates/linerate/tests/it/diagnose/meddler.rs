//! A proxy that inspects every PDU of a session without digests, and forwards, changes or drops it as
//! configured. It turns a normal target into one that rejects, ignores, misreports or fails.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

use iscsi::pdu::{BHS_BYTES, Bhs, Opcode};

/// The fate of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The PDU is forwarded in its current form.
    Passes,
    /// The PDU is dropped.
    Vanishes,
    /// The connection becomes unresponsive, in both directions.
    Silences,
    /// The connection is closed.
    Ends,
}

/// A PDU in transit.
pub(crate) struct Pdu {
    pub(crate) bhs: Bhs,
    /// Additional header segments, the data, and their padding.
    pub(crate) rest: Vec<u8>,
}

impl Pdu {
    pub(crate) fn is(&self, opcode: Opcode) -> bool {
        self.bhs.opcode() == Some(opcode)
    }

    /// The operation code of a SCSI command's CDB.
    pub(crate) fn command(&self) -> Option<u8> {
        self.is(Opcode::ScsiCommand).then(|| self.bhs.0[32])
    }

    pub(crate) fn data_bytes(&self) -> u32 {
        self.bhs.data_segment_length()
    }
}

/// Decides the fate of PDUs to the target and to the initiator.
pub(crate) trait Meddle: Send + 'static {
    fn to_target(&mut self, _: &mut Pdu) -> Fate {
        Fate::Passes
    }
    fn to_initiator(&mut self, _: &mut Pdu) -> Fate {
        Fate::Passes
    }
}

/// Listens in front of this loopback port; each connection gets a separate meddler.
pub(crate) struct Meddler {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Meddler {
    pub(crate) fn before<M: Meddle>(target: u16, each: impl Fn() -> M + Send + 'static) -> Meddler {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        // The thread ends with the test's process.
        thread::spawn(move || {
            for initiator in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, Relaxed);
                let target = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).expect("a target");
                begin(&initiator, &target, each());
            }
        });
        Meddler { port, connections }
    }

    /// The URL of a LUN through this proxy.
    pub(crate) fn url(&self, straight: &str, port: u16) -> String {
        straight.replace(&format!(":{port}/"), &format!(":{}/", self.port))
    }

    /// The proxy's port, on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }
}

fn begin(initiator: &TcpStream, target: &TcpStream, meddle: impl Meddle) {
    let meddle = Arc::new(Mutex::new((meddle, false)));
    for (from, to, to_target) in [(initiator, target, true), (target, initiator, false)] {
        [from, to]
            .iter()
            .for_each(|stream| stream.set_nodelay(true).expect("a socket option"));
        let (from, to) = (
            from.try_clone().expect("a socket"),
            to.try_clone().expect("a socket"),
        );
        let meddle = Arc::clone(&meddle);
        thread::spawn(move || {
            let _ = pass(&from, &to, to_target, &meddle); // either end may disconnect at any time
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
    }
}

/// Forwards PDUs until the connection ends. The second shared value is true if the connection is
/// unresponsive.
fn pass(
    mut from: &TcpStream,
    mut to: &TcpStream,
    to_target: bool,
    shared: &Mutex<(impl Meddle, bool)>,
) -> io::Result<()> {
    loop {
        let mut pdu = Pdu {
            bhs: Bhs([0; BHS_BYTES]),
            rest: Vec::new(),
        };
        from.read_exact(&mut pdu.bhs.0)?;
        let ahs = usize::from(pdu.bhs.0[4]) * 4;
        pdu.rest
            .resize(ahs + (pdu.data_bytes() as usize).next_multiple_of(4), 0);
        from.read_exact(&mut pdu.rest)?;
        let fate = {
            let mut shared = shared.lock().expect("no panic while locked");
            let (meddle, is_silent) = &mut *shared;
            let fate = if to_target {
                meddle.to_target(&mut pdu)
            } else {
                meddle.to_initiator(&mut pdu)
            };
            *is_silent |= fate == Fate::Silences;
            if *is_silent { Fate::Vanishes } else { fate }
        };
        match fate {
            Fate::Passes => to.write_all(&[&pdu.bhs.0[..], &pdu.rest].concat())?,
            Fate::Vanishes | Fate::Silences => {}
            Fate::Ends => return Ok(()),
        }
    }
}
