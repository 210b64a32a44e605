//! The gate: one generation counter for everything that could forbid a request.
//!
//! A front end reads the generation first, then asks [`Volume::permits`], and caches the result. The cached
//! result is valid while the generation is unchanged. A change of any of these takes effect first and
//! advances the generation afterwards, so that a cached result can be stale but is never taken for a newer
//! state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::Volume;

#[derive(Default)]
pub(crate) struct Gate {
    generation: AtomicU64,
    fences: AtomicUsize,
    /// Fences that there were.
    fenced: AtomicU64,
    /// Its storage has fenced this server.
    is_taken_over: AtomicBool,
}

/// Fences the volume until it is dropped. Several may exist at once; the volume is fenced while there is any.
pub struct Fence {
    volume: Arc<Volume>,
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.volume.gate.fences.fetch_sub(1, Ordering::Release);
        self.volume.advance_generation();
    }
}

impl Volume {
    /// Advances with each change that could affect whether a request is permitted; never `u64::MAX`.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.gate.generation.load(Ordering::Acquire)
    }

    /// To be called after a change that could affect whether a request is permitted.
    pub fn advance_generation(&self) {
        self.gate.generation.fetch_add(1, Ordering::Release);
    }

    /// Fences the volume because its device does not answer: requests fail at once as not ready instead of
    /// waiting.
    pub fn fence(self: &Arc<Self>) -> Fence {
        self.gate.fences.fetch_add(1, Ordering::Release);
        self.gate.fenced.fetch_add(1, Ordering::Relaxed);
        self.advance_generation();
        Fence { volume: Arc::clone(self) }
    }

    /// How often it was taken out of service since it was opened.
    pub fn fences_made(&self) -> u64 {
        self.gate.fenced.load(Ordering::Relaxed)
    }

    /// Whether there is a [`Fence`], or another host has taken the device over.
    pub fn is_fenced(&self) -> bool {
        self.gate.fences.load(Ordering::Acquire) > 0
    }

    /// Whether another host has taken the device over ([`DeviceError::Fenced`](block::DeviceError::Fenced)): no request of it
    /// succeeds until it is opened again.
    pub fn is_taken_over(&self) -> bool {
        self.gate.is_taken_over.load(Ordering::Acquire)
    }

    /// The device has said so. The volume stays fenced.
    pub(crate) fn fence_for_good(&self) {
        if !self.gate.is_taken_over.swap(true, Ordering::AcqRel) {
            self.gate.fences.fetch_add(1, Ordering::Release);
            self.gate.fenced.fetch_add(1, Ordering::Relaxed);
            self.advance_generation();
        }
    }
}
