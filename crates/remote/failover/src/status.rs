//! What is known of channels, for people and reports.

use std::pin::Pin;
use std::time::Duration;

use block::BlockDevice;

/// A block device that is reached by channels.
pub trait Channelled: BlockDevice {
    /// What is known of them; `None` if their thread has ended.
    fn status(&self) -> Pin<Box<dyn Future<Output = Option<Status>> + '_>>;

    /// What the server tells of its volume that distinguishes it from others; `None` if it tells nothing of that kind. Where the protocol
    /// has a number for it (NBD), also from the same volume after a loss of flushed data. A LUN has none: one in its target's memory
    /// has the same identity after a restart, and is empty.
    fn identity(&self) -> Option<String>;
}

/// All channels of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Each of them.
    pub channels: Vec<ChannelStatus>,
    /// Requests that were sent again.
    pub resends: u64,
    /// The longest time to the answer of a request that was sent again.
    pub longest_stall: Duration,
    /// How often the journal was replayed, since the server may have been restarted.
    pub replays: u64,
    /// Bytes of acknowledged changes that no flush has covered, as the journal has them.
    pub journal_bytes: usize,
    /// The server ends connections that the client names: fencing does not rely on time.
    pub fences: bool,
}

/// One channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelStatus {
    /// Its path, as the protocol names it.
    pub path: String,
    /// It has a connection.
    pub is_connected: bool,
    /// Why it lost the last one, or why there is none yet.
    pub last_error: Option<String>,
    /// Requests that were answered.
    pub requests: u64,
    /// Their data in bytes.
    pub bytes: u64,
    /// The time to their answers, all together.
    pub service: Duration,
    /// Requests outstanding, in bytes of their data and their overhead.
    pub outstanding_bytes: u64,
    /// Bytes a second when it has enough to do; `None` while that is unknown.
    pub rate: Option<f64>,
    /// The shortest time to an answer lately.
    pub latency: Duration,
    /// How often it has connected again.
    pub reconnects: u64,
    /// The longest time without a connection.
    pub longest_outage: Duration,
}

impl Status {
    /// What has been counted since `before`. What is no count is as it is now; so are the longest times.
    pub fn since(mut self, before: &Status) -> Status {
        for (channel, before) in self.channels.iter_mut().zip(&before.channels) {
            channel.requests -= before.requests.min(channel.requests);
            channel.bytes -= before.bytes.min(channel.bytes);
            channel.service = channel.service.saturating_sub(before.service);
            channel.reconnects -= before.reconnects.min(channel.reconnects);
        }
        self.resends -= before.resends.min(self.resends);
        self.replays -= before.replays.min(self.replays);
        self
    }
}
