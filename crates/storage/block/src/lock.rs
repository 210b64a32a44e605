//! A mutex for state that several cores share and lock only briefly.

#[cfg(feature = "interleave")]
use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mutex that ignores poisoning, because every critical section leaves the value valid if it panics. It
/// must never be held across an await.
///
/// With the feature `interleave`, every `lock` is a point at which another core may run
/// ([`set_interleaving`]). Simulations use this to run several cores on one thread.
#[derive(Default)]
pub struct Lock<T: ?Sized>(Mutex<T>);

impl<T> Lock<T> {
    /// Creates a lock around `value`.
    pub const fn new(value: T) -> Lock<T> {
        Lock(Mutex::new(value))
    }
}

impl<T: ?Sized> Lock<T> {
    /// Waits until the lock is free, and takes it.
    pub fn lock(&self) -> LockGuard<'_, T> {
        interleave();
        let guard = LockGuard(self.0.lock().unwrap_or_else(PoisonError::into_inner));
        #[cfg(feature = "interleave")]
        HELD.set(HELD.get() + 1);
        guard
    }
}

impl<T: ?Sized> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lock")
    }
}

/// The guard of a [`Lock`].
pub struct LockGuard<'a, T: ?Sized>(MutexGuard<'a, T>);

impl<T: ?Sized> Deref for LockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for LockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(feature = "interleave")]
impl<T: ?Sized> Drop for LockGuard<'_, T> {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}

/// In a simulation, lets another core run; otherwise does nothing. Does nothing while this thread holds a
/// [`Lock`], because the other core could wait for that lock forever.
#[inline]
pub(crate) fn interleave() {
    #[cfg(feature = "interleave")]
    if HELD.get() == 0
        && let Some(others_first) = OTHERS_FIRST.get()
    {
        others_first();
    }
}

#[cfg(feature = "interleave")]
thread_local! {
    /// Number of locks that this thread holds.
    static HELD: Cell<u32> = const { Cell::new(0) };
    static OTHERS_FIRST: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Sets the function that this thread calls before it takes a lock. The function may let other cores run
/// before it returns.
#[cfg(feature = "interleave")]
pub fn set_interleaving(others_first: Option<fn()>) {
    OTHERS_FIRST.set(others_first);
}
