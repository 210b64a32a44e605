//! The reasons why an image could not be opened: one variant per cause, each with a remedy.

use std::io;

use derive_more::{Display, Error};

use block::BlockSize;

/// The reason why an RBD image could not be opened.
#[derive(Debug, Display, Error)]
#[expect(
    missing_docs,
    reason = "the fields are the words of the sentences below"
)]
pub enum RbdError {
    /// librados or librbd is missing or too old.
    #[display("{why}")]
    NoLibrary { why: String },
    /// A name contains a zero byte.
    #[display("a Ceph name cannot contain the character %00")]
    NotAName,
    /// The configuration file of the cluster cannot be read.
    #[display("{file}: {source}; specify the cluster's configuration with conf=PATH")]
    Configuration { file: String, source: io::Error },
    /// No monitor responds, or no monitor is configured.
    #[display(
        "no monitor of the cluster responds ({source}); check that it is running, and that {file} is its \
         configuration"
    )]
    Unreachable { file: String, source: io::Error },
    /// The cluster did not respond in time.
    #[display("the cluster did not respond within {seconds} s (timeout)")]
    TimedOut { seconds: u64 },
    /// The user or its key is unknown to the cluster, or has no permission.
    #[display(
        "{doing}: client.{user} does not have permission; give it a keyring and `profile rbd`, or specify \
         another user with id=NAME"
    )]
    NotAllowed { doing: String, user: String },
    /// The pool does not exist.
    #[display(
        "there is no pool {pool}; create it with `ceph osd pool create {pool}` and `rbd pool init {pool}`"
    )]
    NoPool { pool: String },
    /// The image does not exist, and no size was specified for creating it.
    #[display(
        "there is no image {image}; to create it, specify a size, as in rbd:{image}?size=1GiB"
    )]
    NoImage { image: String },
    /// The snapshot or its image does not exist.
    #[display("there is no snapshot {snapshot}; list the snapshots with `rbd snap ls IMAGE`")]
    NoSnapshot { snapshot: String },
    /// The image does not have the feature exclusive-lock, so several clients could write to it concurrently.
    #[display(
        "{image} has no exclusive lock, so two gateways could write to it; use `rbd feature enable {image} \
         exclusive-lock`, or open it read-only"
    )]
    NoExclusiveLock { image: String },
    /// Another client has the exclusive lock.
    #[display(
        "{image} is in use: the client at {holder} has its exclusive lock (`rbd lock ls {image}`); stop that \
         client, or open the image read-only. The lock of a crashed client expires within 30 s"
    )]
    Locked { image: String, holder: String },
    /// With this setting of the image, acknowledged writes could be lost with this process, two gateways
    /// could write, or requests could block a thread.
    #[display(
        "{image} has {setting} in its configuration, which can lose data or block requests; remove it with \
         `rbd config image remove {image} {name}`"
    )]
    Setting {
        image: String,
        setting: String,
        name: String,
    },
    /// The image is shorter than the requested size.
    #[display(
        "{image} has {found} bytes, less than the requested {asked}; extend it (`rbd resize --size {asked}B \
         {image}`), or request less"
    )]
    TooShort {
        image: String,
        found: u64,
        asked: u64,
    },
    /// The image's size is zero or not a whole number of blocks.
    #[display(
        "{image}: the size must be a multiple of the block size, {} bytes, and not 0; it is {bytes} bytes",
        block_size.bytes()
    )]
    Ragged {
        image: String,
        bytes: u64,
        block_size: BlockSize,
    },
    /// Any other error of the cluster or its libraries.
    #[display("{doing}: {source}")]
    Io { doing: String, source: io::Error },
}
