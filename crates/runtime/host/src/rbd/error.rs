//! Why an image could not be opened: one variant per cause, each with its remedy.

use std::io;

use derive_more::{Display, Error};

use block::BlockSize;

/// Why an RBD image could not be opened.
#[derive(Debug, Display, Error)]
#[expect(missing_docs, reason = "the fields are the words of the sentences below")]
pub enum RbdError {
    /// librados or librbd is missing or too old.
    #[display("{why}")]
    NoLibrary { why: String },
    /// A name with a zero byte.
    #[display("a name of Ceph's cannot contain the character %00")]
    NotAName,
    /// The configuration file of the cluster cannot be read.
    #[display("{file}: {source}: name the cluster's configuration by conf=PATH")]
    Configuration { file: String, source: io::Error },
    /// No monitor responds, or none is known.
    #[display(
        "no monitor of the cluster answers ({source}): is it running, and is {file} its configuration?"
    )]
    Unreachable { file: String, source: io::Error },
    /// The cluster did not respond in time.
    #[display("the cluster does not answer within {seconds} s (timeout)")]
    TimedOut { seconds: u64 },
    /// The user or its key is unknown to the cluster, or has no permission.
    #[display(
        "{doing}: not permitted to client.{user}: give it a keyring and `profile rbd`, or name another user by id=NAME"
    )]
    NotAllowed { doing: String, user: String },
    /// There is no such pool.
    #[display("there is no pool {pool}: `ceph osd pool create {pool}`, then `rbd pool init {pool}`")]
    NoPool { pool: String },
    /// There is no such image, and no size to create it with.
    #[display("there is no image {image}: give a size to create it, as in rbd:{image}?size=1GiB")]
    NoImage { image: String },
    /// There is no such snapshot of the image, or no such image.
    #[display("there is no snapshot {snapshot}: `rbd snap ls IMAGE` lists what an image has")]
    NoSnapshot { snapshot: String },
    /// The image has no exclusive lock, so several clients could write to it concurrently.
    #[display(
        "{image} has no exclusive lock, so that two gateways could write to it: `rbd feature enable {image} exclusive-lock`, or open it read-only"
    )]
    NoExclusiveLock { image: String },
    /// Another client has the exclusive lock.
    #[display(
        "{image} is in use: the client at {holder} has its exclusive lock (`rbd lock ls {image}`). End that client, or open it read-only; the lock of a client that has crashed ends within 30 s"
    )]
    Locked { image: String, holder: String },
    /// With this setting, acknowledged writes would be only in this process, or two gateways could write.
    #[display(
        "{image} has {setting} in its configuration, with which data can be lost or a request can block: `rbd config image remove {image} {name}`"
    )]
    Setting { image: String, setting: String, name: String },
    /// The image is shorter than the requested size.
    #[display(
        "{image} has {found} bytes, not the {asked} asked for: extend it (`rbd resize --size {asked}B {image}`), or ask for less"
    )]
    TooShort { image: String, found: u64, asked: u64 },
    /// The image's size is zero or not a whole number of blocks.
    #[display(
        "{image}: {bytes} bytes are not a whole number of blocks of {} bytes, at least one: give a multiple",
        block_size.bytes()
    )]
    Ragged { image: String, bytes: u64, block_size: BlockSize },
    /// Any other error of the cluster or its libraries.
    #[display("{doing}: {source}")]
    Io { doing: String, source: io::Error },
}
