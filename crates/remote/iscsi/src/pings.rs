//! NOP-Outs that a caller sends to see how long a target takes, and whether data come through.
//!
//! Those by which the session itself looks whether the target is there are the machine's, and nobody waits for them.

use std::time::Duration;

use iscsi::initiator::PingId;
use reactor::{Receiver, Sender, mailbox};

/// A target's answer to a ping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pong {
    /// From when it was asked for to when the answer was there.
    pub time: Duration,
    /// The data that came back: those that were sent, as far as the target takes them in one PDU and we do, unless it
    /// lies.
    pub data: Vec<u8>,
}

/// The pings under way that somebody waits for.
#[derive(Default)]
pub(crate) struct Pings(Vec<(PingId, Sender<Vec<u8>>)>);

impl Pings {
    pub(crate) fn asked(&mut self, ping: PingId) -> Receiver<Vec<u8>> {
        let (sender, receiver) = mailbox();
        self.0.push((ping, sender));
        receiver
    }

    /// The target has answered, or will not: then the receiver finds that nobody will send.
    pub(crate) fn answered(&mut self, ping: PingId, data: Option<Vec<u8>>) {
        let Some(place) = self.0.iter().position(|(asked, _)| *asked == ping) else { return };
        let (_, sender) = self.0.swap_remove(place);
        if let Some(data) = data {
            // Who does not wait any more does not need it.
            let _ = sender.send(data);
        }
    }
}
