//! The paths of one client to the storage: its own sessions with a LUN, or a device that all clients share.

use std::sync::Arc;

use backends::peers::{self, Channelled};
use backends::{Failure, hyperscsi, nbd, remote};
use bench::plan::Role;
use block::{BlockDevice, Buffer, Buffered, Extent, SingleUser, Window};
use host::{FileDevice, ReactorTasks};
use iscsi_client::{RemoteTarget, Statistics, Url};

/// The measured storage, as each client opens it.
#[derive(Clone)]
pub enum Source {
    /// A LUN: every session logs in separately.
    Lun(Box<Url>),
    /// A LUN of a HyperSCSI target; every session logs in separately.
    HyperScsi(Box<hyperscsi::Url>),
    /// A device of this machine, opened once and shared by all clients.
    Local {
        /// The URL of the NBD export, if the device is one.
        export: Option<Box<nbd::Url>>,
        /// The device.
        device: Arc<dyn BlockDevice>,
        /// The device's channels, if it has any.
        channels: Option<Arc<dyn Channelled>>,
        /// The same device through the page cache, if it is a file or a block device opened with direct I/O.
        cached: Option<Arc<SingleUser<FileDevice>>>,
    },
}

/// The open paths of a client. They belong to the thread that opened them.
pub struct StoragePaths {
    source: Source,
    devices: Vec<Arc<dyn BlockDevice>>,
    targets: Vec<Arc<RemoteTarget>>,
    /// The sessions with a HyperSCSI target.
    sessions: Vec<hyperscsi::SessionHandle>,
}

impl StoragePaths {
    /// Creates an empty set of paths.
    pub fn none(source: &Source) -> StoragePaths {
        StoragePaths {
            source: source.clone(),
            devices: Vec::new(),
            targets: Vec::new(),
            sessions: Vec::new(),
        }
    }

    /// Opens the missing paths. Surplus sessions stay open, since the next role may need them.
    pub async fn prepare(&mut self, count: u16) -> Result<(), Failure> {
        while self.devices.len() < usize::from(count) {
            let device = match &self.source {
                Source::Local { device, .. } => Arc::clone(device),
                Source::Lun(url) => {
                    let lun = remote::open(url).await?;
                    self.targets.push(Arc::clone(lun.target()));
                    Arc::new(lun)
                }
                Source::HyperScsi(url) => {
                    let (lun, session) = hyperscsi::open_with_session(url).await?;
                    self.sessions.push(session);
                    self.targets.push(Arc::clone(lun.target()));
                    Arc::new(lun)
                }
            };
            self.devices.push(device);
        }
        Ok(())
    }

    /// Returns the device of the first path.
    pub fn first(&self) -> Option<&Arc<dyn BlockDevice>> {
        self.devices.first()
    }

    /// Returns the devices for a role: direct, or each through an empty cache.
    pub async fn devices(&self, role: &Role) -> Result<Vec<Arc<dyn BlockDevice>>, Failure> {
        let count = usize::from(role.sessions).min(self.devices.len());
        let straight = self.devices[..count].iter().map(Arc::clone);
        let Some(bytes) = role.read_ahead_bytes else {
            return Ok(straight.collect());
        };
        if let Source::Local {
            cached: Some(cached),
            ..
        } = &self.source
        {
            settle(&**cached).await?;
            cached.inner().forget_cached().map_err(Failure::failed)?;
            return Ok(straight
                .map(|_| Arc::clone(cached) as Arc<dyn BlockDevice>)
                .collect());
        }
        let window = Window::new(u64::from(bytes));
        let behind = |device| {
            Arc::new(Buffered::new(device, window, Arc::new(ReactorTasks))) as Arc<dyn BlockDevice>
        };
        Ok(straight.map(behind).collect())
    }

    /// Reads a block over each path.
    ///
    /// # Errors
    /// `Unreachable` for a lost target; otherwise the device's error.
    pub async fn look_alive(&self) -> Result<(), Failure> {
        for (index, device) in self.devices.iter().enumerate() {
            let buffer = Buffer::zeroed(device.geometry().block_size.bytes() as usize);
            let Err(error) = device.read(Extent::new(0, 1), buffer).await else {
                continue;
            };
            if let (Source::Lun(url), Some(target)) = (&self.source, self.targets.get(index))
                && let Some(lost) = remote::lost(&target.unit(url.lun)).await
            {
                return Err(lost.context(url));
            }
            let failure = Failure::device("cannot read block 0", error);
            let lost = match &self.source {
                Source::Local {
                    export: Some(url), ..
                } => nbd::unreachable(url).await,
                Source::Local {
                    channels: Some(channels),
                    ..
                } => peers::unreachable(&**channels).await,
                Source::Local { .. } | Source::Lun(_) | Source::HyperScsi(_) => None,
            };
            return Err(match lost {
                Some(lost) => failure.since(&lost),
                None => failure,
            });
        }
        Ok(())
    }

    /// Returns the channels of the device, if it has any.
    pub fn channels(&self) -> Option<&Arc<dyn Channelled>> {
        match &self.source {
            Source::Local { channels, .. } => channels.as_ref(),
            Source::Lun(_) | Source::HyperScsi(_) => None,
        }
    }

    /// Returns the targets, one for each session with a LUN.
    pub fn targets(&self) -> &[Arc<RemoteTarget>] {
        &self.targets
    }

    /// Returns the HyperSCSI sessions.
    pub fn sessions(&self) -> &[hyperscsi::SessionHandle] {
        &self.sessions
    }

    /// Logs out of all sessions.
    pub async fn close(self) {
        for target in self.targets {
            target.close().await;
        }
    }
}

/// Flushes the device's caches, which would otherwise be written back during the next measurement.
pub async fn settle(device: &dyn BlockDevice) -> Result<(), Failure> {
    device
        .flush()
        .await
        .map_err(|error| Failure::device("cannot flush the written data", error))
}

/// Returns the statistics of all sessions.
pub async fn statistics_of(targets: &[Arc<RemoteTarget>]) -> Vec<Statistics> {
    let mut told = Vec::new();
    for target in targets {
        told.extend(target.statistics().await);
    }
    told
}
