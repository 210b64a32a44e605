//! Peers that accept a connection and say nothing: the wait for them is announced once, since a login may take as long as its
//! time limit without a word.

use std::fmt::Display;
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use volume::spec::Time;

/// Shorter waits are ordinary: a server that starts, a path that fails over.
const TOLD_AFTER: Duration = Duration::from_secs(2);

static TELL: OnceLock<fn(&str)> = OnceLock::new();
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Sets the function that tells people of a wait, once per process. Without it nothing is told.
pub fn tell_by(tell: fn(&str)) {
    let _ = TELL.set(tell); // who was named first stays
}

/// Awaits the answer of a peer, which may take `limit`, the value of the URL's key of this name.
pub(crate) async fn announced<T>(
    peer: impl Display,
    (key, limit): (&str, Duration),
    answer: impl Future<Output = T>,
) -> T {
    let tell = || {
        if let Some(tell) = TELL.get()
            && !IS_TOLD.swap(true, Ordering::Relaxed)
        {
            tell(&format!("waiting for an answer from {peer}, for up to {} ({key})", Time(limit)));
        }
    };
    slow(answer, tell).await
}

/// Awaits `work`, and calls `tell` if it takes long.
async fn slow<T>(work: impl Future<Output = T>, tell: impl FnOnce()) -> T {
    let mut work = pin!(work);
    match reactor::timeout(TOLD_AFTER, work.as_mut()).await {
        Ok(output) => output,
        Err(_) => {
            tell();
            work.await
        }
    }
}

#[cfg(test)]
mod tests {
    use reactor::Alone;

    use super::*;

    #[test]
    fn a_wait_is_announced_after_two_seconds() {
        for (milliseconds, expected) in [(1900, 0), (2100, 1), (15_000, 1)] {
            let mut told = 0;
            reactor::block_on(Alone::virtual_time(), async {
                slow(reactor::sleep(Duration::from_millis(milliseconds)), || told += 1).await;
            });
            assert_eq!(told, expected, "{milliseconds} ms");
        }
    }
}
