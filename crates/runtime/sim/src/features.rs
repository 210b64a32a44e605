//! Features that a simulation can omit, and additions that it can have.

use clap::ValueEnum;

/// A feature that a simulation can omit, to reproduce a fault in a smaller one. The features that matter most
/// to a reader of a trace come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[clap(rename_all = "PascalCase")]
pub enum Feature {
    /// Servers that are killed, and power cuts.
    Crashes,
    /// Orderly shutdowns of servers, and their replacements.
    Ends,
    /// LUNs that come and go while a server serves.
    Changes,
    /// Connections that are cut, stalled or half-open.
    NetworkTrouble,
    /// Disks that hang or fail.
    DiskTrouble,
    /// Our initiator.
    Ours,
    /// Preemption.
    Fencing,
    /// An initiator that breaks rules.
    Adversary,
    /// Logins that are redirected to another portal group.
    Redirections,
    /// Resets of logical units.
    Resets,
    /// Commands that are aborted or abandoned.
    Aborts,
    /// Copies between volumes.
    Copies,
    /// More than one volume.
    Volumes,
    /// More than one core.
    Cores,
    /// More than one writer.
    Writers,
    /// Peers that are slow to send or to read.
    SlowPeers,
    /// COMPARE AND WRITE.
    Exchanges,
    /// Zeros.
    Zeros,
    /// Flushes.
    Flushes,
    /// Volumes in memory.
    Memory,
    /// Volumes with a cache in the server's memory.
    Layers,
    /// Little memory for commands, and narrow windows.
    Want,
    /// More than one outstanding command per initiator.
    Depth,
}

/// Additions to a simulation; without them nothing is drawn for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[clap(rename_all = "PascalCase")]
pub enum Addition {
    /// NBD clients of the simulation's own on the initiators' volumes.
    Nbd,
    /// Our NBD client, without a journal.
    OurNbd,
    /// Our NBD client with a journal. Servers are only killed, so what a disk without faults acknowledged is
    /// not lost: a replay to it would overwrite newer writes of others.
    Journals,
    /// Sessions of our initiator that break after each login but the first.
    Breaks,
    /// Peers of server and clients that never stop sending before a login has ended.
    Floods,
}
