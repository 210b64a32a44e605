//! Portals besides those of the server: one redirects every login, the other breaks connections.

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

/// The portal group of the redirector. Every login there is redirected (RFC 7143 section 11.13.5, status class 1) to a random portal
/// group of the server. An initiator that logs in again by it may get another I_T nexus while its commands are outstanding in the old
/// one.
const REDIRECTOR: u16 = 9;

/// Begins one, which goes on until the simulation ends.
pub(crate) fn begin_redirector() -> Machine {
    let machine = Machine::new("redirector");
    machine.run(redirect_all);
    machine
}

/// Where an initiator asks: at a portal group of the server, or at the redirector.
pub(crate) fn any_group(simulation: &Simulation) -> u16 {
    let direct = || draw(|random| random.between(1, u64::from(GROUPS))) as u16;
    if simulation.redirects && !draw(|random| random.once_in(4)) { REDIRECTOR } else { direct() }
}

async fn redirect_all() {
    let Ok(listener) = reactor::world().listen(portal(REDIRECTOR), &Default::default()) else { return };
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
    note(&[70, u64::from(group)], || format!("redirected to portal group {group}"));
    let text = format!("TargetAddress={},{group}\0", portal(group));
    let mut response = [0; 48];
    response[0] = 0x23;
    response[8..14].copy_from_slice(&request[8..14]); // ISID
    response[16..20].copy_from_slice(&request[16..20]); // ITT
    response[28..32].copy_from_slice(&request[24..28]); // ExpCmdSN
    response[32..36].copy_from_slice(&request[24..28]); // MaxCmdSN
    (response[36], response[37]) = (1, 1); // the target has moved for now
    pdu::write(&*stream, &pdu(response, text.as_bytes())).await?;
    // It is for the initiator to close; what it sends now is ignored.
    pdu::read(&*stream, &mut [0]).await
}

/// The portal group of the breaker. It hands connections on to the server and breaks them: of each session all but the first, after a
/// few answers. A target behind a broken middlebox does the same, and so does one with a fault in a single command. It holds our
/// initiator to a pace: one session logs in [`LOGINS_MAX`] times in [`WINDOW`] at most.
pub(crate) const BREAKER: u16 = 8;

const WINDOW: Duration = Duration::from_secs(60);
/// Pauses that double from 50 ms to 3 s leave room for 26.
const LOGINS_MAX: usize = 40;
/// Answers that a session of its own gets before it breaks, at most.
const ANSWERS_MAX: u64 = 8;

/// When each session has logged in, by its ISID, in nanoseconds; and after how many answers it breaks.
type Sessions = Rc<RefCell<BTreeMap<[u8; 6], (Vec<u64>, u64)>>>;

/// Begins one, which goes on until the simulation ends.
pub(crate) fn begin_breaker(simulation: &Rc<Simulation>) -> Machine {
    let machine = Machine::new("breaker");
    let simulation = Rc::clone(simulation);
    machine.run(move || break_all(simulation));
    machine
}

async fn break_all(simulation: Rc<Simulation>) {
    let Ok(listener) = reactor::world().listen(portal(BREAKER), &Default::default()) else { return };
    let sessions = Sessions::default();
    loop {
        match listener.try_accept() {
            Ok(stream) => {
                let (simulation, sessions) = (Rc::clone(&simulation), Rc::clone(&sessions));
                drop(reactor::spawn(async move { drop(carry(stream, &simulation, &sessions).await) }));
            }
            Err(_) if poll_fn(|cx| listener.poll_acceptable(cx)).await.is_err() => return,
            Err(_) => {}
        }
    }
}

/// One connection, until it is broken or an end closes it.
async fn carry(initiator: Box<dyn Stream>, simulation: &Simulation, sessions: &Sessions) -> io::Result<()> {
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
            // Responses and Data-In with a status end commands; logins are none of them.
            let is_answer = header[0] == 0x21 || header[0] == 0x25 && header[1] & 1 != 0;
            left = left.map(|left| left.saturating_sub(u64::from(is_answer)));
            if left == Some(0) && !simulation.is_over.get() {
                note(&[80], || "a session is broken behind an answer".to_owned());
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

/// Notes a login, and returns after how many answers its session breaks, if it does.
fn login(isid: [u8; 6], sessions: &Sessions) -> Option<u64> {
    let (now, window) = (universe::nanoseconds(), WINDOW.as_nanos() as u64);
    let mut sessions = sessions.borrow_mut();
    let drawn = || (Vec::new(), draw(|random| random.between(1, ANSWERS_MAX)));
    let (logins, answers) = sessions.entry(isid).or_insert_with(drawn);
    let is_first = logins.is_empty();
    logins.retain(|at| at + window > now);
    logins.push(now);
    if logins.len() > LOGINS_MAX {
        universe::fault(format!("a session has logged in {LOGINS_MAX} times in {} s", WINDOW.as_secs()));
    }
    // The first breaks, too, once it has seen something.
    Some(if is_first { *answers * 100 } else { *answers })
}

/// Bytes of the initiator, as they come.
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
