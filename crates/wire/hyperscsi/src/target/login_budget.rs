//! How many requests to log in are looked at: a flood of them takes no more than a part of a core's time, and keeps nobody out who has a
//! key, or asks from elsewhere.
//!
//! In each period a fixed number of requests is looked at, in the order in which they arrive. After that, requesters are divided into parts, and
//! the first request of each part is looked at. The parts are drawn anew in each period, so that nobody can choose one, and a requester that a
//! flood displaces in one period is not displaced in the next. A requester whose code shows that it knows its key is counted by its name, which
//! nobody else can use up. All others are counted by their origin, which hosts of an Ethernet can invent. The two groups have a budget each.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use super::config::{Admission, Directory};
use super::{Chance, Target};
use crate::frame::{Header, Opcode};
use crate::login::{LoginRequest, body};

/// A login that is not answered is sent again after 250 ms, 500 ms and so on, of which this is no part: one that met the rush at the
/// beginning of a period does not meet it again.
const PERIOD: Duration = Duration::from_millis(200);
/// Requests of a period. One with a right key costs 0.1 to 0.25 ms of arithmetic, one to an open target or with a wrong key some µs.
const FIRST_COME: u32 = 200;
const PARTS: usize = 256;

/// A budget of requests.
#[derive(Debug)]
struct Budget {
    began: Option<Instant>,
    seed: u64,
    taken: u32,
    /// Those parts of which one has asked in this period.
    heard: [bool; PARTS],
}

/// The budgets of those that have proven a key, and of all others.
#[derive(Debug)]
pub(super) struct LoginBudget {
    proven: Budget,
    others: Budget,
}

impl Budget {
    const NEW: Budget = Budget { began: None, seed: 0, taken: 0, heard: [false; PARTS] };

    fn admits(&mut self, now: Instant, chance: &mut Chance, requester: &[&[u8]]) -> bool {
        if self.began.is_none_or(|began| now.saturating_duration_since(began) >= PERIOD) {
            *self = Budget { began: Some(now), seed: chance.u64(), ..Budget::NEW };
        }
        let mut hasher = DefaultHasher::new();
        (self.seed, requester).hash(&mut hasher);
        let part = hasher.finish() % PARTS as u64;
        let was_heard = std::mem::replace(&mut self.heard[part as usize], true);
        self.taken = self.taken.saturating_add(1);
        self.taken <= FIRST_COME || !was_heard
    }
}

impl LoginBudget {
    pub(super) const NEW: LoginBudget = LoginBudget { proven: Budget::NEW, others: Budget::NEW };
}

impl<A: Clone + PartialEq, D: Directory<A>> Target<A, D> {
    /// Whether there is time for a frame that has arrived, which is to be asked before [`Target::handle_frame`] of this machine, or of
    /// another one at its place: only requests to log in are ever refused. What is damaged, or shorter than a login may be, takes
    /// nothing from others.
    pub fn has_time_for(&mut self, now: Instant, from: &A, header: &Header, frame: &mut [u8]) -> bool {
        if header.opcode != Opcode::LoginRequest {
            return true;
        }
        let received = frame.len();
        let Some(body) = body(header, frame) else { return false };
        let Some((request, _)) = LoginRequest::parse(body) else { return false };
        if received < usize::from(request.frame_bytes) {
            return false;
        }
        let (initiator, target) = (&request.initiator, &request.target);
        match self.directory.admit(initiator, target, from) {
            Ok(Admission::Key(psk)) if request.is_proven(&psk, body) => {
                let name = [initiator.as_bytes(), target.as_bytes()];
                self.login_budget.proven.admits(now, &mut self.chance, &name)
            }
            _ => {
                let origin = self.directory.origin(from).to_be_bytes();
                self.login_budget.others.admits(now, &mut self.chance, &[&origin])
            }
        }
    }
}
