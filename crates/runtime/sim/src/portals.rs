//! Two portals in addition to those of the server: the redirector redirects every login, and the breaker
//! breaks connections.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use reactor::{InSlice, Stream};

use crate::network::Machine;
use crate::pdu::{self, pdu};
use crate::simulation::{GROUPS, Simulation, portal};
use crate::universe::{self, draw, note};

/// The portal group of the redirector. It redirects every login to a random portal group of the server (RFC
/// 7143 section 11.13.5, status class 1). An initiator that logs in again through the redirector may get
/// another I_T nexus while its commands are still outstanding in the old one.
const REDIRECTOR: u16 = 9;

/// Starts a redirector that runs until the simulation ends.
pub(crate) fn begin_redirector() -> Machine {
    let machine = Machine::new("redirector");
    machine.run(redirect_all);
    machine
}

/// Draws the portal group for a login: one of the server's, or the redirector.
pub(crate) fn any_group(simulation: &Simulation) -> u16 {
    let direct = || draw(|random| random.between(1, u64::from(GROUPS))) as u16;
    if simulation.redirects && !draw(|random| random.once_in(4)) {
        REDIRECTOR
    } else {
        direct()
    }
}

async fn redirect_all() {
    let Ok(listener) = reactor::world().listen(portal(REDIRECTOR), &Default::default()) else {
        return;
    };
    loop {
        match listener.try_accept() {
            Ok(stream) => drop(reactor::spawn(async move { drop(redirect(stream).await) })),
            Err(_) if poll_fn(|cx| listener.poll_acceptable(cx)).await.is_err() => return,
            Err(_) => {}
        }
    }
}

async fn redirect(stream: Box<dyn Stream>) -> io::Result<()> {
    let (request, _) = pdu::read_pdu(&*stream).await?;
    let group = draw(|random| random.between(1, u64::from(GROUPS))) as u16;
    note(&[70, u64::from(group)], || {
        format!("redirected to portal group {group}")
    });
    let text = format!("TargetAddress={},{group}\0", portal(group));
    let mut response = [0; 48];
    response[0] = 0x23;
    response[8..14].copy_from_slice(&request[8..14]); // ISID
    response[16..20].copy_from_slice(&request[16..20]); // ITT
    response[28..32].copy_from_slice(&request[24..28]); // ExpCmdSN
    response[32..36].copy_from_slice(&request[24..28]); // MaxCmdSN
    (response[36], response[37]) = (1, 1); // target moved temporarily
    pdu::write(&*stream, &pdu(response, text.as_bytes())).await?;
    // The initiator must close the connection; further data is ignored.
    pdu::read(&*stream, &mut [0]).await
}

/// The portal group of the breaker. It forwards connections to the server. Except for the first connection of
/// each session, it breaks each connection after a few responses. A target behind a faulty middlebox behaves
/// like this, and so does a target with a bug in a single command. The breaker also checks the login rate of
/// our initiator: a session may log in up to [`LOGINS_MAX`] times per [`WINDOW`].
pub(crate) const BREAKER: u16 = 8;

const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of logins of a session per [`WINDOW`]. A back-off that doubles from 50 ms to 3 s allows 26.
const LOGINS_MAX: usize = 40;
/// Maximum number of responses that the breaker forwards before it breaks a connection.
const ANSWERS_MAX: u64 = 8;

/// For each ISID, the login times of the session in nanoseconds, and the number of responses after which its
/// connections break.
type Sessions = Rc<RefCell<BTreeMap<[u8; 6], (Vec<u64>, u64)>>>;

/// Starts a breaker that runs until the simulation ends.
pub(crate) fn begin_breaker(simulation: &Rc<Simulation>) -> Machine {
    let machine = Machine::new("breaker");
    let simulation = Rc::clone(simulation);
    machine.run(move || break_all(simulation));
    machine
}

async fn break_all(simulation: Rc<Simulation>) {
    let Ok(listener) = reactor::world().listen(portal(BREAKER), &Default::default()) else {
        return;
    };
    let sessions = Sessions::default();
    loop {
        match listener.try_accept() {
            Ok(stream) => {
                let (simulation, sessions) = (Rc::clone(&simulation), Rc::clone(&sessions));
                drop(reactor::spawn(async move {
                    drop(carry(stream, &simulation, &sessions).await)
                }));
            }
            Err(_) if poll_fn(|cx| listener.poll_acceptable(cx)).await.is_err() => return,
            Err(_) => {}
        }
    }
}

/// Forwards one connection until it is time to break it, or until one end closes it.
async fn carry(
    initiator: Box<dyn Stream>,
    simulation: &Simulation,
    sessions: &Sessions,
) -> io::Result<()> {
    let (request, text) = pdu::read_pdu(&*initiator).await?;
    let isid = std::array::from_fn(|at| request[8 + at]);
    let answers = login(isid, sessions);
    let group = draw(|random| random.between(1, u64::from(GROUPS))) as u16;
    let target = reactor::world().connect(portal(group), &Default::default())?;
    poll_fn(|cx| target.poll_writable(cx)).await?;
    pdu::write(&*target, &pdu(request, &text)).await?;
    let answered = async {
        let mut left = answers;
        loop {
            let (header, data) = pdu::read_pdu(&*target).await?;
            pdu::write(&*initiator, &pdu(header, &data)).await?;
            // Count PDUs that complete commands: SCSI Responses, and Data-In with a status. Login responses
            // do not count.
            let is_answer = header[0] == 0x21 || header[0] == 0x25 && header[1] & 1 != 0;
            left = left.map(|left| left.saturating_sub(u64::from(is_answer)));
            if left == Some(0) && !simulation.is_over.get() {
                note(&[80], || "a session fails after a response".to_owned());
                return Ok(());
            }
        }
    };
    let asked = hand_on(&*initiator, &*target);
    let (mut answered, mut asked) = (std::pin::pin!(answered), std::pin::pin!(asked));
    poll_fn(|cx| match answered.as_mut().poll(cx) {
        Poll::Pending => asked.as_mut().poll(cx),
        ended => ended,
    })
    .await
}

/// Records a login. Returns the number of responses after which to break the connection.
fn login(isid: [u8; 6], sessions: &Sessions) -> Option<u64> {
    let (now, window) = (universe::nanoseconds(), WINDOW.as_nanos() as u64);
    let mut sessions = sessions.borrow_mut();
    let drawn = || (Vec::new(), draw(|random| random.between(1, ANSWERS_MAX)));
    let (logins, answers) = sessions.entry(isid).or_insert_with(drawn);
    let is_first = logins.is_empty();
    logins.retain(|at| at + window > now);
    logins.push(now);
    if logins.len() > LOGINS_MAX {
        universe::fault(format!(
            "a session has logged in {LOGINS_MAX} times in {} s",
            WINDOW.as_secs()
        ));
    }
    // The first connection breaks too, but much later.
    Some(if is_first { *answers * 100 } else { *answers })
}

/// Forwards bytes from the initiator as they arrive.
async fn hand_on(from: &dyn Stream, to: &dyn Stream) -> io::Result<()> {
    let mut bytes = vec![0; 16 << 10];
    loop {
        match from.try_read(&mut [InSlice::Bytes(&mut bytes)]) {
            Ok(0) => return Ok(()),
            Ok(taken) => pdu::write(to, &bytes[..taken]).await?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|cx| from.poll_readable(cx)).await?;
            }
            Err(error) => return Err(error),
        }
    }
}
