//! Images of a Ceph cluster, or snapshots of images: `rbd:pool/image?size=50GiB`.

use std::sync::Arc;
use std::time::Duration;

use block::BlockSize;
use host::{RbdDevice, RbdError, RbdOptions};
use volume::backend::{Backend, BlockPlaces, Kind, Opened, Opening, Options};
use volume::spec::{BlockShape, Bytes, Problem, Time, Token, Written, decode, encode};

use crate::failure::{self, Failure};
use crate::peers;

/// A RADOS block device.
pub(crate) static RBD: Kind = Kind {
    name: "rbd",
    usage: "rbd:POOL/IMAGE",
    about: "an image of a Ceph cluster ([rbd.md](rbd.md)), or with `@SNAPSHOT` a read-only snapshot of it",
    blocks: BlockPlaces::Store,
    options: Options::Known(&[
        "block",
        "physical",
        "size",
        "conf",
        "cluster",
        "id",
        "namespace",
        "queue",
        "timeout",
        "lock-wait",
    ]),
    read,
};

#[derive(Debug)]
struct Rbd {
    options: RbdOptions,
    blocks: BlockShape,
    size: Option<Bytes>,
}

const CLUSTER: &str = "ceph";
const USER: &str = "admin";
/// Default queue depth: the number of commands that `linerate serve` allows one session to have outstanding.
const QUEUE: usize = 128;
/// The maximum of librbd's own throttle (`objecter_inflight_ops`).
const QUEUE_MAX: usize = 1024;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Default time to wait for the image's lock. It exceeds the time after which a cluster considers a crashed
/// client dead (`osd_client_watch_timeout`, 30 s).
const LOCK_WAIT: Duration = Duration::from_secs(40);
/// The maximum that can be configured for either time.
const WAIT_MAX: Duration = Duration::from_hours(1);

fn read(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    let blocks = BlockShape::read(written)?;
    let size = written
        .value("size")?
        .map(|size| blocks.capacity(size))
        .transpose()?;
    let name = |key| written.value(key)?.map(part).transpose();
    let (pool, image, snapshot) = place(written.argument())?;
    if let (Some(_), Some(size)) = (&snapshot, written.value("size")?) {
        return Err(Problem::new(
            size.at.clone(),
            "a snapshot has the size of its image; omit `size`",
        ));
    }
    let options = RbdOptions {
        cluster: name("cluster")?.unwrap_or_else(|| CLUSTER.to_owned()),
        conf: name("conf")?,
        user: name("id")?.unwrap_or_else(|| USER.to_owned()),
        pool,
        namespace: name("namespace")?,
        image,
        snapshot,
        bytes: size.map(|size| size.0),
        read_only: false,
        block_size: blocks.logical,
        physical_exponent: blocks.physical_exponent(),
        queue: queue(written)?,
        timeout: wait(written, "timeout", TIMEOUT)?,
        lock_wait: wait(written, "lock-wait", LOCK_WAIT)?,
    };
    Ok(Arc::new(Rbd {
        options,
        blocks,
        size,
    }))
}

/// Parses pool, image and snapshot.
fn place(word: &Token) -> Result<(String, String, Option<String>), Problem> {
    let wrong = |sentence: &str| Err(Problem::new(word.at.clone(), sentence));
    let token = |text: &str| Token {
        text: text.to_owned(),
        at: word.at.clone(),
    };
    let Some((pool, image)) = word.text.split_once('/') else {
        return wrong("a pool and an image are needed, such as rbd:rbd/vm1");
    };
    if image.contains('/') {
        return wrong("write a namespace as an option: rbd:POOL/IMAGE?namespace=NAME");
    }
    let (image, snapshot) = match image.split_once('@') {
        Some((image, snapshot)) => (image, Some(part(&token(snapshot))?)),
        None => (image, None),
    };
    Ok((part(&token(pool))?, part(&token(image))?, snapshot))
}

/// Parses a Ceph name, or a path.
fn part(word: &Token) -> Result<String, Problem> {
    let wrong = |sentence: &str| Problem::new(word.at.clone(), sentence);
    let text = String::from_utf8(decode(word)?).map_err(|_| wrong("names in Ceph are UTF-8"))?;
    match text.contains('\0') || text.is_empty() {
        true => Err(wrong(
            "a name is missing, or contains the character %00; write one such as rbd:rbd/vm1@monday",
        )),
        false => Ok(text),
    }
}

fn queue(written: &Written<'_>) -> Result<usize, Problem> {
    let Some(word) = written.value("queue")? else {
        return Ok(QUEUE);
    };
    let count = word
        .text
        .parse()
        .ok()
        .filter(|count| (1..=QUEUE_MAX).contains(count));
    count.ok_or_else(|| {
        Problem::new(
            word.at.clone(),
            format!("the number of requests is 1 to {QUEUE_MAX}"),
        )
    })
}

fn wait(written: &Written<'_>, key: &str, usual: Duration) -> Result<Duration, Problem> {
    let Some(Time(time)) = written.parsed(key)? else {
        return Ok(usual);
    };
    let at = || {
        written
            .value(key)
            .ok()
            .flatten()
            .map_or(0..0, |word| word.at.clone())
    };
    match time <= WAIT_MAX {
        true => Ok(time),
        false => Err(Problem::new(at(), format!("at most {}", Time(WAIT_MAX)))),
    }
}

impl Backend for Rbd {
    fn kind(&self) -> &'static Kind {
        &RBD
    }

    fn argument(&self) -> String {
        let RbdOptions {
            pool,
            image,
            snapshot,
            ..
        } = &self.options;
        let name = |name: &str| escaped(name).replace('/', "%2F").replace('@', "%40");
        let snapshot = snapshot
            .as_ref()
            .map(|snapshot| format!("@{}", name(snapshot)))
            .unwrap_or_default();
        format!("{}/{}{snapshot}", name(pool), name(image))
    }

    /// Includes the options `conf`, `cluster` and `namespace`: another cluster or namespace may have images
    /// of the same name.
    fn place(&self) -> String {
        peers::place_with(self, &["conf", "cluster", "namespace"])
    }

    fn options(&self) -> Vec<String> {
        let RbdOptions {
            cluster,
            conf,
            user,
            namespace,
            queue,
            timeout,
            lock_wait,
            ..
        } = &self.options;
        let mut options: Vec<String> = self
            .size
            .iter()
            .map(|size| format!("size={size}"))
            .collect();
        options.extend(self.blocks.options());
        let named = [
            ("conf", conf.as_deref()),
            (
                "cluster",
                Some(cluster.as_str()).filter(|cluster| *cluster != CLUSTER),
            ),
            ("id", Some(user.as_str()).filter(|user| *user != USER)),
            ("namespace", namespace.as_deref()),
        ];
        let named = named
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)));
        options.extend(named.map(|(key, value)| format!("{key}={}", escaped(value))));
        options.extend((*queue != QUEUE).then(|| format!("queue={queue}")));
        let waits = [
            ("timeout", *timeout, TIMEOUT),
            ("lock-wait", *lock_wait, LOCK_WAIT),
        ];
        let waits = waits.into_iter().filter(|(_, time, usual)| time != usual);
        options.extend(waits.map(|(key, time, _)| format!("{key}={}", Time(time))));
        options
    }

    fn logical_block(&self) -> Option<BlockSize> {
        Some(self.blocks.logical)
    }

    fn keeps_data(&self) -> bool {
        true
    }

    /// Returns true: acknowledged data is in the cluster, and survives the end of this process.
    fn cache_outlives_process(&self) -> bool {
        true
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async {
            let options = RbdOptions {
                read_only: opening.read_only,
                ..self.options.clone()
            };
            let limit = options.timeout + options.lock_wait;
            let name = format!("rbd:{}", self.argument());
            let opened = peers::announced(
                &name,
                ("timeout and lock-wait", limit),
                RbdDevice::open(options),
            );
            let device = opened
                .await
                .map_err(|error| Failure::new(kind_of(&error), error))?;
            Ok(Arc::new(device) as _)
        })
    }
}

fn escaped(text: &str) -> String {
    encode(text.as_bytes())
}

fn kind_of(error: &RbdError) -> failure::FailureKind {
    match error {
        RbdError::NoLibrary { .. }
        | RbdError::NotAName
        | RbdError::Configuration { .. }
        | RbdError::NoExclusiveLock { .. }
        | RbdError::Setting { .. }
        | RbdError::TooShort { .. }
        | RbdError::Ragged { .. } => failure::FailureKind::Refused,
        RbdError::Unreachable { .. } | RbdError::TimedOut { .. } => {
            failure::FailureKind::Unreachable
        }
        RbdError::NotAllowed { .. } => failure::FailureKind::LoginRefused,
        RbdError::NoPool { .. } | RbdError::NoImage { .. } | RbdError::NoSnapshot { .. } => {
            failure::FailureKind::NotFound
        }
        RbdError::Locked { .. } => failure::FailureKind::Reserved,
        RbdError::Io { .. } => failure::FailureKind::Failed,
    }
}
