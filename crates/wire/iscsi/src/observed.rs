//! Observation of the state machines: which event reached a task in which state. With the feature `observed`,
//! a simulation records these observations to measure its coverage. Without the feature, nothing is reported.

/// An event, and the state of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Observation {
    /// The side of the state machine: target or initiator.
    pub side: &'static str,
    /// The task's state, one of `target::TASK_STATES` or `initiator::TASK_STATES`.
    pub state: &'static str,
    /// One of `target::TASK_EVENTS` or `initiator::TASK_EVENTS`.
    pub event: &'static str,
}

/// Sets the observer of all state machines of this process. Only the first call has an effect.
#[cfg(feature = "observed")]
pub fn observe(with: fn(Observation)) {
    let _ = OBSERVER.set(with); // an error means that an observer is already set
}

#[cfg(feature = "observed")]
static OBSERVER: std::sync::OnceLock<fn(Observation)> = std::sync::OnceLock::new();

/// Reports an event to the observer, before it takes effect.
#[cfg(feature = "observed")]
pub(crate) fn report(
    side: &'static str,
    event: &'static str,
    state: impl FnOnce() -> &'static str,
) {
    if let Some(observer) = OBSERVER.get() {
        observer(Observation {
            side,
            state: state(),
            event,
        });
    }
}

#[cfg(not(feature = "observed"))]
#[inline(always)]
pub(crate) fn report(_: &'static str, _: &'static str, _: impl FnOnce() -> &'static str) {}
