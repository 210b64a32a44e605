//! Status of sessions: plain values, made on request.

use std::time::Duration;

use front_end_core::{HostAddress, Traffic};
use hyperscsi::Counters;

/// A session.
#[derive(Clone, Debug)]
pub struct SessionStatus {
    /// The initiator's name.
    pub initiator: String,
    /// The initiator's number of it: two sessions of one name and number to a target replace each other.
    pub port: u32,
    /// Our number of it.
    pub handle: u16,
    /// The target's name.
    pub target: String,
    /// Whether frames are sealed, and the initiator has proven to know its key.
    pub is_encrypted: bool,
    /// Where it logged in from.
    pub peer: HostAddress,
    /// The portal by which it did.
    pub portal: String,
    /// Since its login.
    pub age: Duration,
    /// The reactor thread it lives on.
    pub core: usize,
    /// The numbers of the LUNs it sees.
    pub luns: Vec<u16>,
    /// Commands in flight now.
    pub in_flight: usize,
    /// Its traffic so far.
    pub traffic: Traffic,
    /// Bytes of a frame.
    pub frame_bytes: usize,
    /// What the protocol's machine has counted of it.
    pub counters: Counters,
    /// The paths that it has used.
    pub paths: Vec<PathStatus>,
}

/// A path of a session.
#[derive(Clone, Debug)]
pub struct PathStatus {
    /// The initiator's end.
    pub peer: HostAddress,
    /// The portal by which its last genuine frame came.
    pub portal: String,
    /// Whether it carries frames.
    pub is_up: bool,
    /// Its round trip, once it is measured.
    pub round_trip: Option<Duration>,
    /// Its window.
    pub window_frames: u32,
}
