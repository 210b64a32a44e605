//! An upper limit, for reports.

use serde::{Deserialize, Serialize};

/// More than this cannot be: a curve of bytes a second over the length of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// What limits: `1 Gbit/s Ethernet, MTU 1500`, `raw TCP on this machine`.
    pub name: String,
    /// Which direction it limits: `read`, `write`, or `both` at once.
    pub direction: String,
    /// Requests at once that it holds for; any if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Points of the curve: length of requests in bytes, bytes a second.
    pub points: Vec<(u32, f64)>,
}
