//! Several logical units at once.

use std::sync::Arc;

use server::{AbortOrder, Owners, Server};
use unit::{LogicalUnit, NexusId};

/// Adds the units that are not in the list yet.
pub fn add_units(units: &mut Vec<Arc<LogicalUnit>>, more: &[Arc<LogicalUnit>]) {
    for unit in more {
        if !units.iter().any(|known| Arc::ptr_eq(known, unit)) {
            units.push(Arc::clone(unit));
        }
    }
}

/// Waits until the devices of these units have quiesced what was aborted, or are fenced until then.
pub async fn quiesce(server: &Arc<Server>, units: Vec<Arc<LogicalUnit>>) {
    server.quiesce(units.iter().map(|unit| Arc::clone(unit.volume())).collect()).await;
}

/// Aborts all commands for `unit` in all sessions of all front ends, but those of the spared nexus: it has aborted its
/// own already, and its later ones are carried out.
pub async fn abort_everybodys(server: &Server, unit: &Arc<LogicalUnit>, spared: Option<NexusId>) {
    server.abort(AbortOrder { volume: Arc::clone(unit.volume()), owners: Owners::All, spared }).await;
}
