//! What was found of an NBD export, with remedies for NBD's servers and clients in place of those for iSCSI's.

use super::Found;
use crate::{Cause, NbdSession, Otherwise, Remedy, Where};

/// As many connections as a client uses that is told of several.
pub(crate) const CONNECTIONS: u16 = 4;

pub(super) fn told(found: Found, session: &NbdSession) -> Found {
    let Found { cause, because, gain, remedies, trial } = found;
    let more = more(cause, session);
    let kept = remedies.into_iter().filter_map(|remedy| kept(cause, remedy));
    let trial = match cause {
        Cause::TcpWindow => may_have_more(session).then(|| Otherwise::Connections(CONNECTIONS).change()),
        _ => trial,
    };
    Found { cause, because, gain, remedies: more.into_iter().chain(kept).collect(), trial }
}

fn may_have_more(session: &NbdSession) -> bool {
    session.multi_conn && session.connections < CONNECTIONS
}

/// What can be changed of NBD only.
fn more(cause: Cause, session: &NbdSession) -> Option<Remedy> {
    match cause {
        Cause::TcpWindow if may_have_more(session) => {
            Some(Where::Url.remedy(format!("connections={CONNECTIONS}: each has a window of its own")))
        }
        Cause::DelayedAck => Some(Where::Server.remedy(
            "TCP_NODELAY on its sockets, and a reply's header and data in one write (writev, MSG_MORE); look for a proxy \
             or tunnel between that does neither",
        )),
        _ => None,
    }
}

/// The same remedy where it is one for NBD, too.
fn kept(cause: Cause, remedy: Remedy) -> Option<Remedy> {
    let at = match (remedy.at, cause) {
        (Where::OpenIscsi | Where::Windows | Where::Esxi | Where::Lio, _) => return None,
        // What it says of the buffers of a host holds for any server's.
        (Where::Tgt, Cause::TcpWindow) => Where::Server,
        (Where::Tgt, _) => return None,
        // Keys of iSCSI: buffers of sockets and portals.
        (Where::Url | Where::Linerate, Cause::TcpWindow) | (Where::Linerate, Cause::Loss) => return None,
        (Where::Target, Cause::DelayedAck) | (Where::Kernel, Cause::SlowPath) => return None,
        (Where::Target, _) => {
            return Some(Remedy { at: Where::Server, change: remedy.change.replace("target", "server") });
        }
        (at, _) => at,
    };
    Some(Remedy { at, ..remedy })
}
