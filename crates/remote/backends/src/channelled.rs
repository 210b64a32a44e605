//! The devices with channels that this process has opened, by the names of their stores: whatever layers lie over them, what is
//! known of their channels is found here.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use volume::backend::Backend;
use volume::spec::Spec;

pub use channels::{ChannelStatus, Channelled, Status};

static OPENED: Mutex<Vec<(String, Weak<dyn Channelled>)>> = Mutex::new(Vec::new());

/// The device that was opened last as the store of this volume, if it has channels and is open.
pub fn opened(spec: &Spec) -> Option<Arc<dyn Channelled>> {
    let (name, opened) = (name(spec.store()), OPENED.lock().unwrap_or_else(PoisonError::into_inner));
    opened.iter().rev().filter(|(other, _)| *other == name).find_map(|(_, device)| device.upgrade())
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
