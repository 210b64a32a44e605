//! The devices with channels that this process has opened, by the names of their stores: whatever layers lie over them, what is
//! known of their channels is found here.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use volume::backend::Backend;
use volume::spec::Spec;

use crate::failure::{self, Failure};

pub use failover::{ChannelStatus, Channelled, Status};

static OPENED: Mutex<Vec<(String, Weak<dyn Channelled>)>> = Mutex::new(Vec::new());

/// The device that was opened last as the store of this volume, if it has channels and is open.
pub fn opened(spec: &Spec) -> Option<Arc<dyn Channelled>> {
    let (name, opened) = (name(spec.store()), OPENED.lock().unwrap_or_else(PoisonError::into_inner));
    opened.iter().rev().filter(|(other, _)| *other == name).find_map(|(_, device)| device.upgrade())
}

/// Why a device cannot be reached, if none of its channels has a connection.
pub async fn unreachable(device: &dyn Channelled) -> Option<Failure> {
    let channels = device.status().await?.channels;
    let is_lost = channels.iter().all(|channel| !channel.is_connected);
    let why = channels.into_iter().find_map(|channel| channel.last_error).filter(|_| is_lost)?;
    Some(Failure::new(failure::FailureKind::Unreachable, format_args!("no path leads to it: {why}")))
}

pub(crate) fn keep(store: &dyn Backend, device: &Arc<impl Channelled + 'static>) {
    let device: Weak<dyn Channelled> = Arc::downgrade(device) as _;
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    opened.retain(|(_, device)| device.strong_count() > 0);
    opened.push((name(store), device));
}

fn name(store: &dyn Backend) -> String {
    format!("{}:{}?{}", store.kind().name, store.argument(), store.options().join("&"))
}
