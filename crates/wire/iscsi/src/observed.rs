//! What a machine has met: in which state of a task which event. With the feature `observed` a simulation is told, and knows in
//! the end what it has never shown; without it nothing of this is there.

/// An event that a machine has met, and the state of the task that it concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Met {
    /// Whose machine: that of the target or that of the initiator.
    pub side: &'static str,
    /// The task's state, out of `target::TASK_STATES` or `initiator::TASK_STATES`.
    pub state: &'static str,
    /// Out of `target::TASK_EVENTS` or `initiator::TASK_EVENTS`.
    pub event: &'static str,
}

/// Has this function told of everything that machines meet from now on. The first that is given counts.
#[cfg(feature = "observed")]
pub fn observe(with: fn(Met)) {
    let _ = OBSERVER.set(with); // another one is there already
}

#[cfg(feature = "observed")]
static OBSERVER: std::sync::OnceLock<fn(Met)> = std::sync::OnceLock::new();

/// Something is about to happen.
#[cfg(feature = "observed")]
pub(crate) fn met(side: &'static str, event: &'static str, state: impl FnOnce() -> &'static str) {
    if let Some(observer) = OBSERVER.get() {
        observer(Met { side, state: state(), event });
    }
}

#[cfg(not(feature = "observed"))]
#[inline(always)]
pub(crate) fn met(_: &'static str, _: &'static str, _: impl FnOnce() -> &'static str) {}
