//! Features that a simulation can omit, and additions that it can have.

use clap::ValueEnum;

/// A feature that a simulation can omit, so that a fault can be reproduced in a smaller simulation. The
/// features whose absence simplifies a trace most come first.
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
    /// An initiator that preempts the registrations of others.
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
    /// COMPARE AND WRITE commands.
    Exchanges,
    /// Commands that write zeros or unmap blocks.
    Zeros,
    /// Flush commands.
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

/// Additions to a simulation. A simulation without an addition draws no random numbers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[clap(rename_all = "PascalCase")]
pub enum Addition {
    /// The simulation's own NBD clients, on the volumes of the initiators.
    Nbd,
    /// Our NBD client, without a journal.
    OurNbd,
    /// Our NBD client, with a journal. The servers are only killed, never powered off, so acknowledged writes
    /// to a disk without faults are not lost: after a loss, a replay would overwrite newer writes of other
    /// clients.
    Journals,
    /// Sessions of our initiator that break shortly after each login except the first.
    Breaks,
    /// Peers of the server and of clients that send endlessly before the login has completed.
    Floods,
}
