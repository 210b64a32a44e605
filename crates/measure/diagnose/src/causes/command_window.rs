//! The target lets fewer commands be under way than are asked of it: its MaxCmdSN, or a queue that answers TASK SET FULL.

use super::Found;
use crate::case::Case;
use crate::{Cause, Where, words};
use model::Term;

/// Refusals out of all requests from which a queue is too short, and not full for once.
const REFUSED_MIN: f64 = 0.01;
/// The share of the time without room in the window from which it is the window.
const STALLED_MIN: f64 = 0.2;

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
    let (run, load) = (case.run, case.load());
    let requests = run.service.count().max(1) as f64;
    let refused = run.busy_answers as f64 / requests >= REFUSED_MIN;
    let stalled = run.window_stalled >= STALLED_MIN && case.setting.path.commands_at_once.is_some();
    if load.depth < 2 || !(refused || stalled) || case.modelled.binding() != Some(Term::Depth) {
        return None;
    }
    let depth = load.depth;
    let gain = case.gain_of(|setting| setting.path.commands_at_once = None);
    let mut because = vec![format!(
        "Of {depth} requests at once, {} were under way at the target on average; the others waited for {} \
         of their time.",
        words::number(case.signs.at_once),
        words::share(case.signs.waiting),
    )];
    if stalled {
        because.push(format!(
            "For {} of the time the target's command window (MaxCmdSN) had no room.",
            words::share(run.window_stalled)
        ));
    }
    if refused {
        because.push(format!("The target answered BUSY or TASK SET FULL {} times.", run.busy_answers));
    }
    let window = depth.clamp(128, 65_536);
    let remedies = vec![
        Where::Linerate.remedy(format!("[limits] window = {}", window.max(256))),
        Where::Lio.remedy(format!(
            "targetcli /iscsi/IQN/tpg1 set attribute default_cmdsn_depth={window}, and for initiators \
                 with an ACL of their own acls/INITIATOR set attribute … cmdsn_depth={window}"
        )),
        Where::Tgt.remedy(format!(
            "tgtadm --lld iscsi --mode target --op update --tid 1 --name MaxQueueCmd --value {window}"
        )),
        Where::Target.remedy(
            "its queue depth or command window for each session or host; until that is larger, use several \
             sessions (multipath)",
        ),
        Where::OpenIscsi.remedy(format!(
            "node.session.cmds_max = {window} and node.session.queue_depth = {depth}, and \
                 node.session.nr_sessions = 4 if the target cannot be changed"
        )),
    ];
    Some(Found { cause: Cause::CommandWindow, because, gain, remedies, trial: None })
}
