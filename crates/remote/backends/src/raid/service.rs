//! Restarting a stopped set. Once none of its requests can reach a member, the set restarts with its members
//! when they are well, as it would when the server starts. It restarts automatically only with all former
//! members; no refusal is overruled.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use block::{BlockDevice, Sleeper};
use raid::RaidDevice;
use raid::disks::Disk;
use volume::backend::{Backend, Opening, Undo};

use super::open::{Again, Assembled, Kept, Manner};
use super::running::{Facts, Order, Ordered, Parts, Running};
use super::state::Throttle;
use super::upkeep::{Exit, Upkeep, UpkeepEnd, has_stopped};
use super::{Raid, named};
use crate::failure::Failure;

impl Raid {
    /// Opens the set for use, and starts its upkeep.
    pub(super) async fn in_use(&self, opening: &Opening) -> Result<Arc<dyn BlockDevice>, Failure> {
        let place = opening.layers.place();
        let Assembled { set, records, spares, names } = self.assembled(opening).await?;
        let record = records.as_ref().map(|records| records.set());
        let facts = Facts {
            kind: self.kind.name,
            argument: self.argument(),
            level: self.level,
            uuid: record.as_ref().map(|record| record.uuid.to_string()),
            name: record.map(|record| record.name).unwrap_or_default(),
        };
        let parts = Parts { set, records };
        let (running, current, device) = Running::new(facts, names, parts.clone(), !opening.read_only);
        opening.layers.put(place, &running);
        // A set opened read-only has no upkeep.
        if !opening.read_only {
            // Devices opened later wait for nothing, and are not undone together with the set.
            let opening = Opening { start: None, undo: Undo::default(), ..opening.clone() };
            let throttle = Throttle::new(self.rebuild.map(|rate| rate.0));
            let upkeep = Upkeep::new(parts, running, Arc::downgrade(&current), spares, throttle, opening);
            upkeep.opening.spawner.clone().spawn(Box::pin(run(upkeep)));
        }
        Ok(device)
    }
}

/// Resolves when the set's last user is gone. A step can wait for a hanging member, so members are removed
/// concurrently.
pub(super) async fn run(upkeep: Upkeep) {
    let exit = upkeep.exit();
    let (mut keeping, mut taking_out) = (pin!(keep(upkeep)), pin!(take_out(exit)));
    poll_fn(|cx| {
        let _never = taking_out.as_mut().poll(cx);
        keeping.as_mut().poll(cx)
    })
    .await;
}

async fn take_out(exit: Exit) -> Infallible {
    loop {
        let ordered = exit.running.next_to_take_out().await;
        if let Order::Fail { member } = ordered.order {
            let result = exit.fail(member).await;
            ordered.end(result);
        }
    }
}

async fn keep(mut upkeep: Upkeep) {
    let _ending = Ending(Arc::clone(&upkeep.running));
    let mut pauses = Pauses::default();
    loop {
        let begun = upkeep.opening.sleeper.now();
        if upkeep.keep_up().await == UpkeepEnd::Ended {
            return;
        }
        if upkeep.opening.sleeper.now().saturating_duration_since(begun) > WELL_AGAIN {
            pauses = Pauses::default();
        }
        match assembled_again(upkeep, &mut pauses).await {
            Some(next) => upkeep = next,
            None => return,
        }
    }
}

/// A set that has run for this long since its last stop counts as well.
const WELL_AGAIN: Duration = Duration::from_mins(5);

/// Ends the set when dropped.
struct Ending(Arc<Running>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Growing pauses between attempts, so that a set that stops repeatedly is not read all the time.
pub(super) struct Pauses(Duration);

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses(FIRST_PAUSE)
    }
}

impl Pauses {
    fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (2 * pause).min(LONGEST_PAUSE);
        pause
    }
}

/// How long to wait for requests to members; the next attempt waits for the rest.
const END_TIME: Duration = Duration::from_secs(10);

/// Waits until the set can start again, and starts it. `None` if its last user is gone or it was closed.
pub(super) async fn assembled_again(upkeep: Upkeep, pauses: &mut Pauses) -> Option<Upkeep> {
    let mut kept = Kept(devices(&upkeep));
    let Upkeep { set, running, throttle, opening, current, .. } = upkeep;
    // Otherwise a flush or read that ends later would overwrite the next assembly's record with the states of
    // this one.
    set.retire();
    current.upgrade()?.stop();
    let mut ending = Some(set);
    let mut asked: Option<Ordered> = None;
    loop {
        let outcome = async {
            if let Some(set) = &ending {
                let ended = first(set.quiesced(), opening.sleeper.as_ref(), END_TIME).await;
                let ended =
                    ended.ok_or_else(|| Failure::failed("requests to its members have not ended yet"))?;
                ended.map_err(Failure::failed)?;
            }
            ending = None;
            current.upgrade().into_iter().for_each(|current| current.stopped());
            let raid = named(&crate::parse(&running.written()).map_err(Failure::refused)?)?;
            let again = Again { running: &running, kept: &mut kept, is_by_itself: asked.is_none() };
            raid.assembled_so(&opening, Manner { again: Some(again), ..Manner::default() }).await
        };
        let outcome = outcome.await;
        let started = outcome.and_then(|Assembled { set, records, spares, names }| {
            let parts = Parts { set, records };
            let current_now = current.upgrade().ok_or_else(|| Failure::failed("the set has ended"))?;
            current_now.start(parts.clone())?;
            {
                let mut state = running.state();
                (state.names, state.stopped) = (names, None);
            }
            Ok((parts, spares))
        });
        match started {
            Ok((parts, spares)) => {
                tracing::info!(set = running.label(), "a RAID set has restarted");
                if let Some(ordered) = asked.take() {
                    ordered.end(Ok("the set has restarted".to_owned()));
                }
                return Some(Upkeep::new(parts, running, current, spares, throttle, opening));
            }
            Err(failure) => {
                if let Some(stopped) = &mut running.state().stopped {
                    stopped.why = format!("its requests fail; it cannot restart: {failure}");
                }
                if let Some(ordered) = asked.take() {
                    ordered.end(Err(failure));
                }
            }
        }
        let next = opening.sleeper.now() + pauses.next();
        while asked.is_none() {
            let left = next.saturating_duration_since(opening.sleeper.now());
            if left.is_zero() {
                break;
            }
            running.woken(opening.sleeper.as_ref(), left).await;
            if !running.is_used() {
                ended(ending.as_deref()).await;
                return None;
            }
            while let Some(ordered) = running.next_order() {
                match ordered.order {
                    Order::Assemble => asked = Some(ordered),
                    Order::Close => {
                        ended(ending.as_deref()).await;
                        ordered.end(Ok("the set is closed".to_owned()));
                        return None;
                    }
                    _ => ordered.end(Err(has_stopped())),
                }
            }
        }
    }
}

/// Resolves once no request of the set can reach a member: another assembly may use them then.
async fn ended(set: Option<&RaidDevice>) {
    if let Some(set) = set {
        // Fails for a member that cannot report this; nothing more can be determined.
        let _ = set.quiesced().await;
    }
}

/// The devices of the set, with the names of their volumes.
fn devices(upkeep: &Upkeep) -> Vec<Disk> {
    let Some(records) = &upkeep.records else { return Vec::new() };
    let (record, state) = (records.set(), upkeep.running.state());
    let members = record.members.iter().map(|member| member.uuid).zip(&state.names.members);
    let members = members.filter_map(|(uuid, name)| Some((uuid, name.clone()?)));
    let journal = record.journal_device.zip(state.names.journal.clone());
    let beside = upkeep.spares.iter().map(|spare| (spare.uuid, spare.name.clone()));
    let disk = |(uuid, name)| Some(Disk { name, device: records.disk(uuid)? });
    members.chain(journal).chain(beside).filter_map(disk).collect()
}

/// The result of a future, unless it takes longer than this time.
async fn first<T>(future: impl Future<Output = T>, sleeper: &dyn Sleeper, time: Duration) -> Option<T> {
    let (mut future, mut sleep) = (pin!(future), sleeper.sleep(time));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        std::task::Poll::Ready(ended) => std::task::Poll::Ready(Some(ended)),
        std::task::Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
    })
    .await
}
