//! A portal that redirects every login (RFC 7143 section 11.13.5, status class 1) to a random portal group of
//! the server. An initiator that logs in again by it may get another I_T nexus while its commands are
//! outstanding in the old one.

use std::future::poll_fn;
use std::io;

use reactor::Stream;

use crate::cores::Machine;
use crate::pdu::{self, pdu};
use crate::scenario::{GROUPS, Simulation, portal};
use crate::universe::{draw, note};

/// The portal group that it has to itself.
pub(crate) const GROUP: u16 = 9;

/// Begins one, which goes on until the simulation ends.
pub(crate) fn begin() -> Machine {
    let machine = Machine::new("redirector");
    machine.run(live);
    machine
}

/// Where an initiator asks: at a portal group of the server, or at the redirector.
pub(crate) fn any_group(simulation: &Simulation) -> u16 {
    let direct = || draw(|random| random.between(1, u64::from(GROUPS))) as u16;
    if simulation.redirects && !draw(|random| random.once_in(4)) { GROUP } else { direct() }
}

async fn live() {
    let Ok(listener) = reactor::world().listen(portal(GROUP), &Default::default()) else { return };
    loop {
        match listener.try_accept() {
            Ok(stream) => drop(reactor::spawn(async move { drop(answer(stream).await) })),
            Err(_) if poll_fn(|cx| listener.poll_acceptable(cx)).await.is_err() => return,
            Err(_) => {}
        }
    }
}

async fn answer(stream: Box<dyn Stream>) -> io::Result<()> {
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
