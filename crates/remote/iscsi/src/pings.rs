//! NOP-Outs of a caller, to measure round-trip times and check data.
//!
//! The keepalive pings of the session are the machine's, without a waiting caller.

use std::time::Duration;

use iscsi::initiator::PingId;
use reactor::{Receiver, Sender, mailbox};

/// The response to a ping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pong {
    /// From submission to response.
    pub time: Duration,
    /// The returned data: those sent, up to the data segment limits of both sides, if the target is correct.
    pub data: Vec<u8>,
}

/// Outstanding pings with a waiting caller.
#[derive(Default)]
pub(crate) struct Pings(Vec<(PingId, Sender<Vec<u8>>)>);

impl Pings {
    pub(crate) fn asked(&mut self, ping: PingId) -> Receiver<Vec<u8>> {
        let (sender, receiver) = mailbox();
        self.0.push((ping, sender));
        receiver
    }

    /// Completes a ping; without data the receiver is closed.
    pub(crate) fn answered(&mut self, ping: PingId, data: Option<Vec<u8>>) {
        let Some(place) = self.0.iter().position(|(asked, _)| *asked == ping) else { return };
        let (_, sender) = self.0.swap_remove(place);
        if let Some(data) = data {
            // The caller was dropped.
            let _ = sender.send(data);
        }
    }
}
