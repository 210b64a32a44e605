//! Opens a set for use, runs its upkeep task, and restarts a set that has stopped. Once none of its requests
//! can reach a member, the set is assembled again, in the same way as when the server starts. Attempts repeat
//! until one succeeds. Automatic attempts require all former members; an order to assemble the set does not.
//! Neither overrides a refusal to start.

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
    /// Opens the set for use, and starts its upkeep. The upkeep ends after the device has been dropped.
    pub(super) async fn in_use(&self, opening: &Opening) -> Result<Arc<dyn BlockDevice>, Failure> {
        let place = opening.layers.place();
        let Assembled {
            set,
            records,
            spares,
            names,
        } = self.assembled(opening).await?;
        let record = records.as_ref().map(|records| records.set());
        let facts = Facts {
            kind: self.kind.name,
            argument: self.argument(),
            level: self.level,
            uuid: record.as_ref().map(|record| record.uuid.to_string()),
            name: record.map(|record| record.name).unwrap_or_default(),
        };
        let parts = Parts { set, records };
        let (running, current, device) =
            Running::new(facts, names, parts.clone(), !opening.read_only);
        opening.layers.put(place, &running);
        // A set opened read-only has no upkeep.
        if !opening.read_only {
            // Devices that the upkeep opens later are not waited for, and their creation is not undone
            // together with the creation of the set.
            let opening = Opening {
                start: None,
                undo: Undo::default(),
                ..opening.clone()
            };
            let throttle = Throttle::new(self.rebuild.map(|rate| rate.0));
            let upkeep = Upkeep::new(
                parts,
                running,
                Arc::downgrade(&current),
                spares,
                throttle,
                opening,
            );
            upkeep.opening.spawner.clone().spawn(Box::pin(run(upkeep)));
        }
        Ok(device)
    }
}

/// The upkeep task. Ends after the set's last user is dropped, or after an order closes the set. A step of
/// the upkeep can wait for an unresponsive member, so orders to remove members are executed concurrently.
pub(super) async fn run(upkeep: Upkeep) {
    let exit = upkeep.exit();
    let (mut keeping, mut taking_out) = (pin!(keep(upkeep)), pin!(take_out(exit)));
    poll_fn(|cx| {
        let _never = taking_out.as_mut().poll(cx);
        keeping.as_mut().poll(cx)
    })
    .await;
}

/// Executes orders to remove a member.
async fn take_out(exit: Exit) -> Infallible {
    loop {
        let ordered = exit.running.next_to_take_out().await;
        if let Order::Fail { member } = ordered.order {
            let result = exit.fail(member).await;
            ordered.end(result);
        }
    }
}

/// Alternates between the upkeep of a running set and attempts to restart it.
async fn keep(mut upkeep: Upkeep) {
    let _ending = Ending(Arc::clone(&upkeep.running));
    let mut pauses = Pauses::default();
    loop {
        let begun = upkeep.opening.sleeper.now();
        if upkeep.keep_up().await == UpkeepEnd::Ended {
            return;
        }
        if upkeep
            .opening
            .sleeper
            .now()
            .saturating_duration_since(begun)
            > WELL_AGAIN
        {
            pauses = Pauses::default();
        }
        match assembled_again(upkeep, &mut pauses).await {
            Some(next) => upkeep = next,
            None => return,
        }
    }
}

/// If a set has run for longer than this when it stops, the pauses start again at the shortest.
const WELL_AGAIN: Duration = Duration::from_mins(5);

/// A guard: when it is dropped, it marks the set as ended and fails the set's outstanding orders. This works
/// even if the upkeep task is dropped.
struct Ending(Arc<Running>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Pauses between attempts, doubled each time, so that the members of a set that stops repeatedly are not
/// read continuously.
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

/// The time for which an attempt waits for outstanding requests to members. If they take longer, the attempt
/// fails, and the next one waits for them again.
const END_TIME: Duration = Duration::from_secs(10);

/// Stops the set, attempts to assemble it until this succeeds, and returns the upkeep of the next assembly.
/// Returns `None` if the last user was dropped, or the set was closed. An order to assemble the set skips the
/// pause, and receives the outcome of the next attempt. [`take_out`] handles orders to remove members, and
/// other orders fail.
pub(super) async fn assembled_again(upkeep: Upkeep, pauses: &mut Pauses) -> Option<Upkeep> {
    let mut kept = Kept(devices(&upkeep));
    let Upkeep {
        set,
        running,
        throttle,
        opening,
        current,
        ..
    } = upkeep;
    // Without this call, a flush or read that completes later would overwrite the next assembly's record with
    // this assembly's member states.
    set.retire();
    current.upgrade()?.stop();
    let mut ending = Some(set);
    let mut asked: Option<Ordered> = None;
    loop {
        let outcome = async {
            if let Some(set) = &ending {
                let ended = first(set.quiesced(), opening.sleeper.as_ref(), END_TIME).await;
                let ended = ended.ok_or_else(|| {
                    Failure::failed("requests to its members are still outstanding")
                })?;
                ended.map_err(Failure::failed)?;
            }
            ending = None;
            current
                .upgrade()
                .into_iter()
                .for_each(|current| current.stopped());
            let raid = named(&crate::parse(&running.written()).map_err(Failure::refused)?)?;
            let again = Again {
                running: &running,
                kept: &mut kept,
                is_by_itself: asked.is_none(),
            };
            raid.assembled_so(
                &opening,
                Manner {
                    again: Some(again),
                    ..Manner::default()
                },
            )
            .await
        };
        let outcome = outcome.await;
        let started = outcome.and_then(
            |Assembled {
                 set,
                 records,
                 spares,
                 names,
             }| {
                let parts = Parts { set, records };
                let current_now = current
                    .upgrade()
                    .ok_or_else(|| Failure::failed("the set has ended"))?;
                current_now.start(parts.clone())?;
                {
                    let mut state = running.state();
                    (state.names, state.stopped) = (names, None);
                }
                Ok((parts, spares))
            },
        );
        match started {
            Ok((parts, spares)) => {
                tracing::info!(set = running.label(), "a RAID set has restarted");
                if let Some(ordered) = asked.take() {
                    ordered.end(Ok("the set has restarted".to_owned()));
                }
                return Some(Upkeep::new(
                    parts, running, current, spares, throttle, opening,
                ));
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
                    Order::Assemble => {
                        if let Some(earlier) = asked.replace(ordered) {
                            earlier.end(Err(Failure::failed(
                                "a later request to assemble the set superseded this one",
                            )));
                        }
                    }
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

/// Resolves once no request of the set can reach a member, so that another assembly may use the members.
/// There is no time limit.
async fn ended(set: Option<&RaidDevice>) {
    if let Some(set) = set {
        // Ignore an error: if a member cannot report the end of its requests, there is no other way to
        // determine it.
        let _ = set.quiesced().await;
    }
}

/// Returns the open devices of the set (members, journal, spares), with the names of their volumes. The list
/// is empty for a set without records.
fn devices(upkeep: &Upkeep) -> Vec<Disk> {
    let Some(records) = &upkeep.records else {
        return Vec::new();
    };
    let (record, state) = (records.set(), upkeep.running.state());
    let members = record
        .members
        .iter()
        .map(|member| member.uuid)
        .zip(&state.names.members);
    let members = members.filter_map(|(uuid, name)| Some((uuid, name.clone()?)));
    let journal = record.journal_device.zip(state.names.journal.clone());
    let beside = upkeep
        .spares
        .iter()
        .map(|spare| (spare.uuid, spare.name.clone()));
    let disk = |(uuid, name)| {
        Some(Disk {
            name,
            device: records.disk(uuid)?,
        })
    };
    members
        .chain(journal)
        .chain(beside)
        .filter_map(disk)
        .collect()
}

/// Returns the result of a future; `None` if it takes longer than this time.
async fn first<T>(
    future: impl Future<Output = T>,
    sleeper: &dyn Sleeper,
    time: Duration,
) -> Option<T> {
    let (mut future, mut sleep) = (pin!(future), sleeper.sleep(time));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        std::task::Poll::Ready(ended) => std::task::Poll::Ready(Some(ended)),
        std::task::Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
    })
    .await
}
