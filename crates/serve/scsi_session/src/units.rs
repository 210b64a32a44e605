//! Operations on several logical units.

use std::sync::{Arc, Weak};

use front_end_core::{AbortOrder, Owners, Server};
use logical_unit::{LogicalUnit, NexusId};

/// Adds the units that are not in the list yet.
pub fn add_units(units: &mut Vec<Arc<LogicalUnit>>, more: &[Arc<LogicalUnit>]) {
    for unit in more {
        if !units.iter().any(|known| Arc::ptr_eq(known, unit)) {
            units.push(Arc::clone(unit));
        }
    }
}

/// The units of a session whose devices may still execute commands that the session has aborted. Each must
/// quiesce before the session ends. A unit that has since been closed has quiesced, because a volume is
/// closed only after its last command has ended. The list therefore keeps no unit open.
#[derive(Default)]
pub(crate) struct AbortedUnits(Vec<Weak<LogicalUnit>>);

impl AbortedUnits {
    /// Adds the units that are not in the list yet.
    pub(crate) fn add(&mut self, more: &[Arc<LogicalUnit>]) {
        self.0.retain(|known| known.strong_count() > 0);
        for unit in more {
            if !self.0.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(unit))) {
                self.0.push(Arc::downgrade(unit));
            }
        }
        debug_assert!(
            more.iter().all(|unit| self.open().iter().any(|known| Arc::ptr_eq(known, unit))),
            "all are there"
        );
    }

    /// Those that are still open.
    pub(crate) fn open(&self) -> Vec<Arc<LogicalUnit>> {
        self.0.iter().filter_map(Weak::upgrade).collect()
    }

    /// Empties the list, and returns the units that are still open.
    pub(crate) fn take(&mut self) -> Vec<Arc<LogicalUnit>> {
        std::mem::take(self).open()
    }
}

/// Waits until the devices of these units have no aborted requests left, or the volumes are fenced until
/// then.
pub async fn quiesce(server: &Arc<Server>, units: Vec<Arc<LogicalUnit>>) {
    server.quiesce(units.iter().map(|unit| Arc::clone(unit.volume())).collect()).await;
}

/// Aborts all commands for `unit` in all sessions of all front ends, except those of the spared nexus: it has
/// aborted its own already, and its later ones are executed.
pub async fn abort_everybodys(server: &Server, unit: &Arc<LogicalUnit>, spared: Option<NexusId>) {
    server.abort(AbortOrder { volume: Arc::clone(unit.volume()), owners: Owners::All, spared }).await;
}
