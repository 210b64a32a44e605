//! Sessions that a configuration change would affect: checked before the change, so that nothing in use is removed by mistake.

use std::sync::Arc;

use crate::config::Config;
use crate::status::SessionStatus;

/// What these sessions would lose if `wanted` were served instead of `now`, a sentence each.
pub(crate) fn losses(sessions: &[SessionStatus], now: &Config, wanted: &Config) -> Vec<String> {
    sessions.iter().filter_map(|session| lost(session, now, wanted)).collect()
}

fn lost(session: &SessionStatus, now: &Config, wanted: &Config) -> Option<String> {
    let SessionStatus { initiator, target: name, .. } = session;
    let target = wanted.target(name);
    let Some(target) = target.filter(|target| target.keeps(initiator, session.peer, session.is_encrypted))
    else {
        return Some(format!("{initiator} uses the HyperSCSI target {name}"));
    };
    let unit_now = |lun: u16| {
        let exports = &now.target(name)?.exports;
        exports.iter().find(|export| export.lun == lun).map(|export| &export.unit)
    };
    let stays = |lun: u16| {
        let export = target.exports.iter().find(|export| export.lun == lun)?;
        (Arc::ptr_eq(&export.unit, unit_now(lun)?) && export.is_seen_by(initiator)).then_some(())
    };
    let gone = session.luns.iter().filter(|lun| stays(**lun).is_none());
    let gone: Vec<String> = gone.map(u16::to_string).collect();
    (!gone.is_empty())
        .then(|| format!("{initiator} uses LUN {} of the HyperSCSI target {name}", gone.join(", ")))
}
