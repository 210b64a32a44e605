//! What can be wrong.

use serde::{Deserialize, Serialize};

/// A cause of slowness that somebody can do something about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Too few requests at once for the distance, by the load itself.
    Depth,
    /// The target's command window, or its queue, lets fewer commands be under way than are asked.
    CommandWindow,
    /// A TCP window that is smaller than what the path holds.
    TcpWindow,
    /// A write's first data wait to be asked for: InitialR2T, ImmediateData, FirstBurstLength.
    Solicitation,
    /// A write waits for an R2T again and again: MaxBurstLength, MaxOutstandingR2T.
    SmallBursts,
    /// Data travel in many short PDUs: MaxRecvDataSegmentLength.
    SmallSegments,
    /// Digests take the time of a CPU that has none left.
    Digests,
    /// The link runs at less than it is built for.
    LinkRate,
    /// Long packets do not arrive: an MTU that differs along the way, and nobody says so.
    PathMtu,
    /// Packets are lost.
    Loss,
    /// One of several connections has a slower way than the others.
    SlowPath,
    /// The storage behind the target is slow.
    Medium,
    /// Making writes durable is slow.
    Flush,
    /// Writes that are shorter than the physical block, or cross its ends: each is read, changed and written back.
    Misalignment,
    /// The target has no CPU time left.
    TargetCpu,
    /// This machine has no CPU time left.
    ClientCpu,
    /// Acknowledgements are held back and somebody waits for them: Nagle's algorithm against delayed ones.
    DelayedAck,
    /// One connection of NBD gives less than several.
    Connections,
    /// Encryption takes the time of a CPU that has none left.
    Tls,
}
