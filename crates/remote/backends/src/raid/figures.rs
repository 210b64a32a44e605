//! Metrics of a set in use. The first labels of all figures are the volume and the number of the set.

use volume::figures::Add;

use crate::raid::state::{Condition, MemberCondition, Progress, SetState};
use crate::secrets::masked;

volume::figures! { pub(crate) FIGURES of SetState:
    Gauge "linerate_raid_members_lacking" ["volume", "set", "level"] "Members without all of their data; 0 if the set is healthy."
        => |set, add| add(&[&set.level], &set.lacking());
    Gauge "linerate_raid_failed" ["volume", "set"] "1 if requests to the set fail, because data or the journal is missing."
        => |set, add| add(&[], &u8::from(set.state == Condition::Failed));
    Gauge "linerate_raid_spares" ["volume", "set"] "Spares of the set."
        => |set, add| add(&[], &set.spares.len());
    Gauge "linerate_raid_member_state" ["volume", "set", "member", "disk", "state"] "1 if the member is in this state: in sync, rebuilding, failed or missing."
        => members;
    Gauge "linerate_raid_rebuild_ratio" ["volume", "set", "member"] "Rebuilt share of the member; absent when no rebuild is running."
        => |set, add| for (number, member) in set.members.iter().enumerate() {
            member.percent.iter().for_each(|percent| add(&[&number.to_string()], &(*percent as f64 / 100.0)));
        };
    Gauge "linerate_raid_synchronising" ["volume", "set"] "1 while the set resynchronises after an unclean shutdown."
        => |set, add| add(&[], &u8::from(set.state == Condition::Synchronising));
    Gauge "linerate_raid_work_bytes_per_second" ["volume", "set"] "Rate of the rebuild or resync per member."
        => |set, add| set.work.iter().for_each(|work| add(&[], &work.bytes_per_s));
    Gauge "linerate_raid_work_seconds_left" ["volume", "set"] "Estimated time remaining of the rebuild or resync."
        => |set, add| set.work.iter().filter_map(|work| work.seconds_left).for_each(|seconds| add(&[], &seconds));
    Gauge "linerate_raid_scrub_ratio" ["volume", "set"] "Completed share of the latest scrub."
        => |set, add| set.scrub.iter().for_each(|scrub| {
            add(&[], &(scrub.progress.done as f64 / scrub.progress.total.max(1) as f64));
        });
    Gauge "linerate_raid_scrub_bytes_per_second" ["volume", "set"] "Scrub rate per member; absent when no scrub is running."
        => |set, add| scrubbing(set).iter().for_each(|scrub| add(&[], &scrub.bytes_per_s));
    Gauge "linerate_raid_scrub_seconds_left" ["volume", "set"] "Estimated time remaining of the scrub."
        => |set, add| scrubbing(set).iter().filter_map(|scrub| scrub.seconds_left).for_each(|seconds| add(&[], &seconds));
    Gauge "linerate_raid_scrub_wrong_stripes" ["volume", "set"] "Inconsistent or unreadable stripes found by the latest scrub and not repaired."
        => |set, add| set.scrub.iter().map(|scrub| &scrub.found).for_each(|found| {
            add(&[], &(found.unreadable + found.mismatches).saturating_sub(found.repaired));
        });
}

fn scrubbing(set: &SetState) -> Option<Progress> {
    set.scrub.as_ref().filter(|scrub| !scrub.has_ended).map(|scrub| scrub.progress)
}

fn members(set: &SetState, add: &mut Add<'_>) {
    for (number, member) in set.members.iter().enumerate() {
        let (number, disk) = (number.to_string(), member.volume.as_deref().map(masked).unwrap_or_default());
        for state in MemberCondition::ALL {
            add(&[&number, &disk, &state.to_string()], &u8::from(state == member.state));
        }
    }
}
