//! A set that has stopped: nothing of it reaches its members any more, and it starts again with them when they are well, as it would
//! with the server. By itself it starts only with all members that it had; nothing is overruled.

use std::time::Duration;

use block::{BlockDevice, Sleeper};
use raid::RaidDevice;
use raid::disks::Disk;

use super::named;
use super::open::{Again, Assembled, Kept, Manner};
use super::running::{Order, Ordered, Parts};
use super::upkeep::{Upkeep, has_stopped};
use crate::failure::Failure;

/// Between attempts, the longer the more of them there were: a set that stops again and again is not read all the time.
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

/// Requests to members that take longer to end are waited for by the next attempt.
const END_TIME: Duration = Duration::from_secs(10);

/// Waits until the set can start again, and starts it. `None` once nobody uses it any more, or it was closed.
pub(super) async fn assembled_again(upkeep: Upkeep, pauses: &mut Pauses) -> Option<Upkeep> {
    let mut kept = Kept(devices(&upkeep));
    let Upkeep { set, running, throttle, opening, current, .. } = upkeep;
    // A flush or a read that ends later would otherwise record the states of this assembly over those of the next.
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
                tracing::info!(set = running.label(), "a RAID set has started again");
                if let Some(ordered) = asked.take() {
                    ordered.end(Ok("the set has started again".to_owned()));
                }
                return Some(Upkeep::new(parts, running, current, spares, throttle, opening));
            }
            Err(failure) => {
                if let Some(stopped) = &mut running.state().stopped {
                    stopped.why = format!("its requests fail; it does not start again: {failure}");
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

/// Ends once no request of the set can reach a member: another opening may use them then.
async fn ended(set: Option<&RaidDevice>) {
    if let Some(set) = set {
        // It fails for a member that cannot tell, which is all that there is to know.
        let _ = set.quiesced().await;
    }
}

/// The devices of the set, by the names of their volumes.
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

/// What a future ends with, unless that takes longer.
async fn first<T>(future: impl Future<Output = T>, sleeper: &dyn Sleeper, time: Duration) -> Option<T> {
    let (mut future, mut sleep) = (std::pin::pin!(future), sleeper.sleep(time));
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        std::task::Poll::Ready(ended) => std::task::Poll::Ready(Some(ended)),
        std::task::Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
    })
    .await
}
