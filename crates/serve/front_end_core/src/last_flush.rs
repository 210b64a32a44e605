//! The last flush of a volume that is closed. The device that is opened next may never hear that the kernel could not write what this
//! one has acknowledged, so that a last flush without success counts as a loss, whatever the reason.

use std::fmt;
use std::time::Duration;

use block::DeviceError;
use volume::Volume;

/// Why a volume could not be flushed before it was closed.
#[derive(Debug)]
pub enum Unflushed {
    /// Its device said so.
    Failed(DeviceError),
    /// Its device did not answer within this time.
    Unanswered(Duration),
}

impl fmt::Display for Unflushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unflushed::Failed(error) => write!(f, "{error}"),
            Unflushed::Unanswered(limit) => {
                write!(f, "the device has not answered for {:.1} s", limit.as_secs_f64())
            }
        }
    }
}

/// Flushes a volume within a time. If that fails, a loss has been counted and is recorded for the next start.
///
/// # Errors
/// Acknowledged writes may be lost.
pub async fn last_flush(volume: &Volume, limit: Duration) -> Result<(), Unflushed> {
    let unflushed = match reactor::timeout(limit, volume.flush()).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) if error.is_loss() => return Err(Unflushed::Failed(error)), // counted by the flush
        Ok(Err(error)) => Unflushed::Failed(error),
        Err(_) => Unflushed::Unanswered(limit),
    };
    // A state directory on the same disk may hang as well.
    let _ = reactor::timeout(RECORD_TIME, volume.abandon_unflushed()).await;
    Err(unflushed)
}

/// How long the end of a volume waits for the record of a loss.
pub(crate) const RECORD_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
pub(crate) mod tests {
    use std::pin::Pin;
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use block::{BlockDevice, BlockSize, Blocks, Fault, FaultControl, Geometry, Null, Pending, Sleeper};
    use volume::{LossMark, PersistentState, VolumeOptions};

    use super::*;

    /// Remembers the mark of the last loss, after a time.
    #[derive(Default)]
    pub(crate) struct Paper {
        mark: Mutex<Option<LossMark>>,
        time: Duration,
    }

    impl Paper {
        pub(crate) fn slow(time: Duration) -> Paper {
            Paper { time, ..Paper::default() }
        }

        pub(crate) fn mark(&self) -> Option<LossMark> {
            *self.mark.lock().expect("not poisoned")
        }
    }

    impl PersistentState for Paper {
        fn save<'a>(&'a self, _: Vec<u8>) -> Pending<'a, ()> {
            Box::pin(async { Ok(()) })
        }

        fn load(&self) -> Option<Vec<u8>> {
            None
        }

        fn loss_mark(&self) -> LossMark {
            self.mark().unwrap_or_default()
        }

        fn new_loss_mark(&self) -> LossMark {
            [7; 16]
        }

        fn record_loss(&self, mark: LossMark) -> Pending<'_, ()> {
            Box::pin(async move {
                reactor::sleep(self.time).await;
                *self.mark.lock().expect("not poisoned") = Some(mark);
                Ok(())
            })
        }
    }

    pub(crate) struct ReactorSleep;

    impl Sleeper for ReactorSleep {
        fn now(&self) -> Instant {
            reactor::now()
        }

        fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(reactor::sleep(duration))
        }
    }

    /// What the last flush said, and what the next start finds recorded.
    fn closed(misbehave: impl FnOnce(&FaultControl)) -> (Option<String>, Option<LossMark>) {
        let (faults, paper) = (FaultControl::default(), Arc::new(Paper::default()));
        let geometry = Geometry { block_size: BlockSize::B512, blocks: Blocks(8), physical_exponent: 0 };
        let device = Fault::new(Null::new(geometry), Arc::new(ReactorSleep), faults.clone());
        let options = VolumeOptions {
            persistent_state: Some(Arc::clone(&paper) as Arc<dyn PersistentState>),
            ..VolumeOptions::default()
        };
        let volume = Volume::new(Arc::new(device) as Arc<dyn BlockDevice>, options).expect("nothing is kept");
        misbehave(&faults);
        let flushed = last_flush(&volume, Duration::from_secs(4));
        let outcome = reactor::block_on(reactor::Alone::virtual_time(), flushed);
        (outcome.err().map(|why| why.to_string()), paper.mark())
    }

    #[test]
    fn a_last_flush_without_success_is_a_loss_for_the_next_start() {
        assert_eq!(closed(|_| {}), (None, None));
        let (why, mark) = closed(FaultControl::hang);
        assert_eq!(why.as_deref(), Some("the device has not answered for 4.0 s"));
        assert_eq!(mark, Some([7; 16]), "what the device does with it later has no witness");
        let (_, mark) = closed(|faults| faults.fail(DeviceError::NotReady));
        assert_eq!(mark, Some([7; 16]));
        let (_, mark) = closed(FaultControl::lose);
        assert_eq!(mark, Some([7; 16]));
    }
}
