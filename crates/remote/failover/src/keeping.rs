//! The task of each channel, which keeps a connection.
//!
//! ```text
//!            connect, with the numbers of lost connections that the server is to end
//!   ┌──► no connection ──────────────► connected ── one at a time ──┐
//!   │        ▲  │ refused: back-off                                 ▼
//!   │        └──┘            it tells that its cache is as it was, or another connection answers ──► in use
//!   │                        neither: see to the journal (`replay`) ────────────────────────────────► in use
//!   └──── ended, or silent although requests are outstanding ◄──────────────────────────┘
//! ```

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::balance::Estimate;
use crate::claims::Claim;
use crate::replay::{Evidence, Replayed};
use crate::session::{InUse, Shared, Slot, State};
use crate::transport::{Connected, Failed, Link, Loss, Name, Transport};

/// A channel on another path than its own tries to go back to it this often.
const RETURN: Duration = Duration::from_secs(10);
/// A connection that was lost sooner does not count as one that was made.
const BRIEF: Duration = Duration::from_secs(1);
/// So long after all connections were ended for a replay, they are not ended for another one: what is connected anew waits.
const PARTED: Duration = Duration::from_secs(5);
/// Lost connections that one connection names.
const ENDED_MAX: usize = 64;

impl<T: Transport> State<T> {
    /// No request of this lost connection can reach the medium any more: its claims.
    fn fenced(&mut self, number: u64) -> Option<Vec<Claim>> {
        self.quarantined.remove(&number);
        self.replay_after.remove(&number);
        self.unfenced.remove(&number)
    }
}

/// A connection that is not used yet: without a use it takes leave, also when its task is aborted meanwhile.
struct Unused<L: Link>(Option<Rc<L>>);

impl<L: Link> Drop for Unused<L> {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|link| link.leave());
    }
}

impl<T: Transport> Shared<T> {
    /// Connects a channel, its own path first, until that has succeeded.
    async fn connected(self: &Rc<Self>, slot: usize, backoff: &mut Backoff) -> (InUse<T::Link>, usize) {
        let paths = self.settings.paths.max(1);
        loop {
            for path in (0..paths).map(|step| (slot + step) % paths) {
                match self.connect(path).await {
                    Ok(in_use) => return (in_use, path),
                    Err(why) => {
                        let mut state = self.state.borrow_mut();
                        let Some(slot) = state.slots.get_mut(slot) else { break };
                        let path = self.transport.path_name(path);
                        let is_news = slot.last_error.as_ref() != Some(&why);
                        if is_news {
                            tracing::warn!(path, why, "a channel has no connection");
                        }
                        slot.last_error = Some(why);
                    }
                }
            }
            if let Some(slot) = self.state.borrow_mut().slots.get_mut(slot) {
                slot.was_tried = true;
            }
            self.wake();
            reactor::sleep(backoff.delay()).await;
        }
    }

    /// One connection by this path, which may be used: what was lost is fenced, and what a restarted server has
    /// lost is written again.
    async fn connect(self: &Rc<Self>, path: usize) -> Result<InUse<T::Link>, String> {
        let losses = self.ledger.borrow().losses();
        let doubts = losses.doubts();
        let (number, ended) = {
            let mut state = self.state.borrow_mut();
            state.next_number += 1;
            // First those whose claims keep others waiting.
            let (with, without): (Vec<_>, Vec<_>) =
                state.unfenced.iter().partition(|(_, claims)| !claims.is_empty());
            let ended = with.into_iter().chain(without).map(|(number, _)| *number).take(ENDED_MAX);
            let ended: Vec<u64> = ended.collect();
            (state.next_number - 1, ended)
        };
        let name = Name { session: self.settings.session, number };
        let connected = self.transport.connect(path, name, &ended).await?;
        let Connected { link, fences, not_ended, start } = connected;
        let in_use = InUse { link, number, fences };
        let mut unused = Unused(Some(Rc::clone(&in_use.link)));
        let of_ended = |state: &mut State<T>| {
            let fenced = ended.iter().filter(|lost| !not_ended.contains(lost));
            fenced.filter_map(|lost| state.fenced(*lost)).collect()
        };
        let fenced: Vec<Vec<Claim>> = of_ended(&mut self.state.borrow_mut());
        match fences {
            true => drop(fenced),
            // Another server than the one that has fenced before.
            false => self.bury(fenced.into_iter().flatten().collect()),
        }
        self.quarantine(&not_ended).await;
        let is_unnamed =
            |(number, claims): (&u64, &Vec<Claim>)| !claims.is_empty() && !ended.contains(number);
        if self.state.borrow().unfenced.iter().any(is_unnamed) {
            // More than one connection can name: a replay could be overtaken by what is not fenced yet.
            return Err("more lost connections are to be ended first".to_owned());
        }
        let turn = self.admission.take().await;
        if losses.doubts() != doubts {
            // Its start may be that of a cache that is gone: it is evidence neither of a loss nor of none.
            return Err("the server may have lost its cache since this connection was begun".to_owned());
        }
        let has_changed = self.state.borrow().has_changed;
        let evidence = Evidence::of(self.start.get(), start);
        if has_changed && evidence == Evidence::Loss && self.has_live() {
            // What the other connections read from now on may lack changes that were acknowledged.
            losses.doubt();
            // A disk that loses writes again and again is not to end all connections each time.
            let lately = self.parted.get().is_some_and(|at| reactor::now() < at + PARTED);
            if !lately {
                self.part_from_all();
            }
            return Err(
                "the server has lost writes, and connections from before are to be ended first".to_owned()
            );
        }
        let replayed = match has_changed {
            true => {
                let is_as_before = match (self.start.get(), start) {
                    (Some(before), Some(now)) if self.settings.is_coherent => before == now,
                    _ => self.is_as_before().await,
                };
                match is_as_before {
                    true => Some(Replayed::Whole),
                    false => self.replay(&in_use.link, evidence).await,
                }
            }
            false => Some(Replayed::Whole),
        };
        unused.0 = None;
        if let Some(replayed) = replayed {
            self.connections.set(self.connections.get() + 1);
            if self.start.replace(start) != start {
                losses.doubt(); // other handshakes may have begun before
            }
            losses.resolve(losses.doubts()); // no other handshake can have raised one meanwhile
            if replayed == Replayed::Whole {
                self.verified();
            }
            drop(turn);
            return Ok(in_use);
        }
        self.retire(in_use, &Loss::Ended(String::new()));
        // Nothing else may be sent while a part of the replay could still come.
        match fences {
            true => drop(self.state.borrow_mut().replay_after.insert(number)),
            false => reactor::sleep(self.settings.quarantine).await,
        }
        Err("lost while the journal was replayed".to_owned())
    }

    /// The server has all that the journal file holds.
    fn verified(&self) {
        if let Some(file) = &mut *self.file.borrow_mut() {
            let _ = file.set_start(self.start.get()); // a failure fails the next change
        }
    }

    /// Whether a connection from before answers, so that the server has not been restarted. Connections that
    /// do not are given up.
    async fn is_as_before(&self) -> bool {
        if !self.settings.is_coherent {
            return false; // what one connection has written is another's after a flush only
        }
        // All at once: idle ones may have been forgotten on the way, and each takes its time to be silent.
        let live: Vec<InUse<T::Link>> =
            self.state.borrow().slots.iter().filter_map(|slot| slot.live().cloned()).collect();
        let deadline = reactor::now() + self.settings.timeout;
        let mut probes: Vec<_> = live
            .into_iter()
            .map(|InUse { link, .. }| {
                let probe = link.exchange(&self.transport.probe(), None, deadline, None);
                reactor::spawn(async move {
                    let answers = matches!(probe.await, Ok(_) | Err(Failed::Server(_)));
                    if !answers {
                        link.reset();
                    }
                    answers
                })
            })
            .collect();
        poll_fn(|cx| {
            let mut is_one = false;
            probes.retain_mut(|probe| match Pin::new(probe).poll(cx) {
                Poll::Ready(answers) => {
                    is_one |= answers;
                    false
                }
                Poll::Pending => true,
            });
            if is_one || probes.is_empty() { Poll::Ready(is_one) } else { Poll::Pending }
        })
        .await
    }

    /// The connections in use, and those that leave.
    fn live(&self) -> Vec<InUse<T::Link>> {
        let state = self.state.borrow();
        let leaving = state.leaving.iter().filter(|away| !away.link.is_lost());
        state.slots.iter().filter_map(Slot::live).chain(leaving).cloned().collect()
    }

    fn has_live(&self) -> bool {
        !self.live().is_empty()
    }

    /// Ends all connections, before a replay: a server that has lost writes without a restart still carries out what was sent by them,
    /// and the replay must not overtake that.
    fn part_from_all(&self) {
        self.parted.set(Some(reactor::now()));
        let live = self.live();
        self.state.borrow_mut().replay_after.extend(live.iter().map(|in_use| in_use.number));
        live.iter().for_each(|in_use| in_use.link.reset());
    }

    /// A connection is lost: the claims of its changes wait until none of them can be carried out.
    fn retire(self: &Rc<Self>, lost: InUse<T::Link>, loss: &Loss) {
        let InUse { link, number, fences } = lost;
        match (fences, loss) {
            (true, _) => {
                link.reset();
                // Named even without claims: the server may not know yet that it is lost, and keeps it.
                let claims = link.take_unanswered();
                self.state.borrow_mut().unfenced.insert(number, claims);
            }
            (false, Loss::Ended(_)) => {
                link.reset();
                self.bury(link.take_unanswered());
            }
            // Its answers, if they come, say that nothing is on its way any more.
            (false, Loss::Silent) => {
                let quarantine = self.settings.quarantine;
                drop(reactor::spawn(async move {
                    let _ = reactor::timeout(quarantine, link.settled()).await;
                    link.reset();
                    let claims = link.take_unanswered();
                    if !claims.is_empty() {
                        reactor::sleep(quarantine).await;
                    }
                }));
            }
        }
    }

    /// Connections that the server could not end by the path of the present one: their claims wait until they are ended by
    /// another, or the quarantine is over.
    async fn quarantine(self: &Rc<Self>, not_ended: &[u64]) {
        let quarantine = self.settings.quarantine;
        for number in not_ended.iter().copied() {
            let mut state = self.state.borrow_mut();
            if !state.unfenced.contains_key(&number) || !state.quarantined.insert(number) {
                continue;
            }
            let shared = Rc::clone(self);
            drop(reactor::spawn(async move {
                reactor::sleep(quarantine).await;
                let settled = shared.state.borrow_mut().fenced(number);
                drop(settled);
            }));
        }
        let is_awaited = not_ended.iter().any(|number| self.state.borrow().replay_after.contains(number));
        if is_awaited {
            reactor::sleep(quarantine).await;
        }
    }

    /// Has the server end a connection that no channel replaces, by one that is made for it.
    async fn fence(self: &Rc<Self>, path: usize, number: u64) {
        while self.has_claims_of(number) {
            match self.connect(path).await {
                Ok(extra) => extra.link.leave(),
                Err(_) => reactor::sleep(RETURN).await,
            }
        }
    }

    fn has_claims_of(&self, number: u64) -> bool {
        let state = self.state.borrow();
        let has_ended = state.slots.is_empty(); // `leave` has taken them
        !has_ended && state.unfenced.get(&number).is_some_and(|claims| !claims.is_empty())
    }

    /// Keeps claims until the quarantine is over.
    fn bury(&self, claims: Vec<Claim>) {
        if claims.is_empty() {
            return;
        }
        let quarantine = self.settings.quarantine;
        drop(reactor::spawn(async move {
            reactor::sleep(quarantine).await;
            drop(claims);
        }));
    }

    /// Waits until the connection of a channel is lost. Meanwhile, a channel that is on another path than its own
    /// tries that again.
    async fn watch(
        self: &Rc<Self>,
        slot: usize,
        mut in_use: InUse<T::Link>,
        mut path: usize,
    ) -> (InUse<T::Link>, Loss) {
        let own = slot % self.settings.paths.max(1);
        loop {
            if path == own || !self.settings.is_coherent {
                let loss = in_use.link.lost().await;
                return (in_use, loss);
            }
            match reactor::timeout(RETURN, in_use.link.lost()).await {
                Ok(loss) => return (in_use, loss),
                Err(_) => {
                    let Ok(back) = self.connect(own).await else { continue };
                    let away = std::mem::replace(&mut in_use, back);
                    path = own;
                    self.publish(slot, path, in_use.clone());
                    tracing::info!(path = self.transport.path_name(path), "a channel is back on its path");
                    away.link.leave();
                    self.state.borrow_mut().leaving.push(away.clone());
                    let shared = Rc::clone(self);
                    drop(reactor::spawn(async move {
                        let (loss, number) = (away.link.lost().await, away.number);
                        shared.state.borrow_mut().leaving.retain(|other| other.number != number);
                        shared.retire(away, &loss);
                        shared.fence(own, number).await;
                    }));
                }
            }
        }
    }
}

/// The task of a channel.
pub(crate) async fn attend<T: Transport>(shared: Rc<Shared<T>>, slot: usize, first: Option<InUse<T::Link>>) {
    let mut backoff =
        Backoff::new(shared.settings.seed ^ (slot as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut connected = match first {
        Some(first) => {
            let path = shared.state.borrow().slots.first().map_or(0, |slot| slot.path);
            Some((first, path))
        }
        None => None,
    };
    let mut since = None;
    loop {
        let (in_use, path) = match connected.take() {
            Some(connected) => connected,
            None => {
                let (in_use, path) = shared.connected(slot, &mut backoff).await;
                shared.publish(slot, path, in_use.clone());
                (in_use, path)
            }
        };
        if let Some(since) = since {
            let outage = reactor::now().saturating_duration_since(since);
            let mut state = shared.state.borrow_mut();
            if let Some(slot) = state.slots.get_mut(slot) {
                slot.reconnects += 1;
                slot.longest_outage = slot.longest_outage.max(outage);
            }
            let path = shared.transport.path_name(path);
            tracing::info!(path, outage_ms = outage.as_millis() as u64, "a channel is connected again");
        }
        let connected_at = reactor::now();
        let (lost, loss) = shared.watch(slot, in_use, path).await;
        let lived = reactor::now().saturating_duration_since(connected_at);
        if lived > RETURN {
            backoff.reset();
        }
        since = Some(reactor::now());
        let path = {
            let mut state = shared.state.borrow_mut();
            let Some(slot) = state.slots.get_mut(slot) else { return };
            slot.in_use = None;
            slot.estimate = Estimate::default();
            slot.last_error = Some(loss.to_string());
            shared.transport.path_name(slot.path)
        };
        tracing::warn!(path, why = %loss, "a channel is lost");
        shared.retire(lost, &loss);
        if lived < BRIEF {
            // A server that takes every connection and ends it at once is not asked as fast as it can answer.
            reactor::sleep(backoff.delay()).await;
        }
    }
}
