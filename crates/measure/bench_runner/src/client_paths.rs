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
    /// A LUN of a HyperSCSI target, likewise.
    HyperScsi(Box<hyperscsi::Url>),
    /// A device of this machine, open once.
    Local {
        /// The NBD export that it is, if it is one.
        export: Option<Box<nbd::Url>>,
        /// The device.
        device: Arc<dyn BlockDevice>,
        /// The device's channels, if it has any.
        channels: Option<Arc<dyn Channelled>>,
        /// The same through the page cache, if it is a file or a block device opened with direct I/O.
        cached: Option<Arc<SingleUser<FileDevice>>>,
    },
}

/// Open paths. They belong to the thread that opened them.
pub struct StoragePaths {
    source: Source,
    devices: Vec<Arc<dyn BlockDevice>>,
    targets: Vec<Arc<RemoteTarget>>,
    /// Of a HyperSCSI target.
    sessions: Vec<hyperscsi::SessionHandle>,
}

impl StoragePaths {
    /// None yet.
    pub fn none(source: &Source) -> StoragePaths {
        StoragePaths {
            source: source.clone(),
            devices: Vec::new(),
            targets: Vec::new(),
            sessions: Vec::new(),
        }
    }

    /// Opens the missing paths. Surplus sessions stay open: the next role may need them.
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

    /// The first of them.
    pub fn first(&self) -> Option<&Arc<dyn BlockDevice>> {
        self.devices.first()
    }

    /// The devices of a role: direct, or through an empty cache.
    pub async fn devices(&self, role: &Role) -> Result<Vec<Arc<dyn BlockDevice>>, Failure> {
        let count = usize::from(role.sessions).min(self.devices.len());
        let straight = self.devices[..count].iter().map(Arc::clone);
        let Some(bytes) = role.read_ahead_bytes else { return Ok(straight.collect()) };
        if let Source::Local { cached: Some(cached), .. } = &self.source {
            settle(&**cached).await?;
            cached.inner().forget_cached().map_err(Failure::failed)?;
            return Ok(straight.map(|_| Arc::clone(cached) as Arc<dyn BlockDevice>).collect());
        }
        let window = Window::new(u64::from(bytes));
        let behind =
            |device| Arc::new(Buffered::new(device, window, Arc::new(ReactorTasks))) as Arc<dyn BlockDevice>;
        Ok(straight.map(behind).collect())
    }

    /// Reads a block over each path.
    ///
    /// # Errors
    /// `Unreachable` for a lost target; otherwise the device's error.
    pub async fn look_alive(&self) -> Result<(), Failure> {
        for (index, device) in self.devices.iter().enumerate() {
            let buffer = Buffer::zeroed(device.geometry().block_size.bytes() as usize);
            let Err(error) = device.read(Extent::new(0, 1), buffer).await else { continue };
            if let (Source::Lun(url), Some(target)) = (&self.source, self.targets.get(index))
                && let Some(lost) = remote::lost(&target.unit(url.lun)).await
            {
                return Err(lost.context(url));
            }
            let failure = Failure::device("cannot read block 0", error);
            let lost = match &self.source {
                Source::Local { export: Some(url), .. } => nbd::unreachable(url).await,
                Source::Local { channels: Some(channels), .. } => peers::unreachable(&**channels).await,
                Source::Local { .. } | Source::Lun(_) | Source::HyperScsi(_) => None,
            };
            return Err(match lost {
                Some(lost) => failure.since(&lost),
                None => failure,
            });
        }
        Ok(())
    }

    /// The channels of the device, if it has any.
    pub fn channels(&self) -> Option<&Arc<dyn Channelled>> {
        match &self.source {
            Source::Local { channels, .. } => channels.as_ref(),
            Source::Lun(_) | Source::HyperScsi(_) => None,
        }
    }

    /// Its sessions, if there are any.
    pub fn targets(&self) -> &[Arc<RemoteTarget>] {
        &self.targets
    }

    /// Its HyperSCSI sessions, if there are any.
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

/// Flushes caches, which would otherwise write back during the next measurement.
pub async fn settle(device: &dyn BlockDevice) -> Result<(), Failure> {
    device.flush().await.map_err(|error| Failure::device("cannot flush the written data", error))
}

/// The statistics of sessions.
pub async fn statistics_of(targets: &[Arc<RemoteTarget>]) -> Vec<Statistics> {
    let mut told = Vec::new();
    for target in targets {
        told.extend(target.statistics().await);
    }
    told
}
