//! Requests in one direction, and how long they took.

use serde::{Deserialize, Serialize};
use stats::Histogram;

/// Requests in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Those that ended well.
    pub ios: u64,
    /// Data they moved.
    pub bytes: u64,
    /// From when a request was handed to the device to its end.
    pub service: Histogram,
    /// From when it was meant to be made to its end; in an open loop only. What a request waits for those before it
    /// counts here, and a closed loop cannot see it ("coordinated omission").
    #[serde(default, skip_serializing_if = "Histogram::is_empty")]
    pub response: Histogram,
}
