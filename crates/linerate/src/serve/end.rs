//! What signals do to a server: the first SIGTERM or SIGINT ends it in good order and within ten seconds, the second one
//! at once; SIGHUP has it read its configuration again.

use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use daemon::{Live, ReloadOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// For commands in flight, after initiators have been asked to log out.
const GRACE: Duration = Duration::from_secs(5);
/// Whatever hangs, the process is gone by then: what is promised is 10 s.
const LIMIT: Duration = Duration::from_millis(9500);
/// A volume that could not be flushed has been recorded by then, with a margin for a busy machine.
const _: () = assert!(
    GRACE.as_millis() + daemon::AFTER_GRACE.as_millis() + 500 <= LIMIT.as_millis(),
    "the process would end before a loss is recorded"
);

/// Waits for signals on a thread of its own.
pub(super) fn on_signals(live: Arc<Live>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Failure::failed)?;
    let watch = move || {
        let mut is_asked_to_end = false;
        for signal in signals.forever() {
            match (signal, is_asked_to_end) {
                // On a thread of its own: whoever wants the server to end does not wait for it.
                (SIGHUP, false) => reload(&live),
                (SIGHUP, true) => {}
                (_, false) => {
                    is_asked_to_end = true;
                    live.shutdown(GRACE);
                    give_up_later();
                }
                (_, true) => die("asked to end twice: commands in flight are lost"),
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(watch).map(drop).map_err(Failure::failed)
}

/// What is in use is not taken away: nobody is there to say that it is meant.
fn reload(live: &Arc<Live>) {
    let live = Arc::clone(live);
    // The audit has how it went.
    let work = move || drop(live.reload(ReloadOptions::default(), "SIGHUP"));
    if let Err(error) = thread::Builder::new().name("reload".to_owned()).spawn(work) {
        tracing::error!(%error, "no thread to be had to read the configuration again");
    }
}

fn give_up_later() {
    let wait = || {
        thread::sleep(LIMIT);
        die("a volume does not let go: commands in flight are lost");
    };
    if let Err(error) = thread::Builder::new().name("limit".to_owned()).spawn(wait) {
        tracing::warn!(%error, "nothing limits the time of this shutdown");
    }
}

fn die(why: &str) -> ! {
    tracing::error!("{why}");
    process::exit(1)
}
