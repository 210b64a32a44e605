//! How a server ends: at the first SIGTERM or SIGINT in good order and within ten seconds, at the second one
//! at once.

use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use target::Server;

use crate::failure::Failure;

/// For commands in flight, after initiators have been asked to log out. The flush that follows has its own
/// limit in `target`, and both together stay below [`LIMIT`].
const GRACE: Duration = Duration::from_secs(5);
/// Whatever hangs, the process is gone by then: what is promised is 10 s.
const LIMIT: Duration = Duration::from_millis(9500);

/// Waits for signals on a thread of its own.
pub(super) fn on_signals(server: Arc<Server>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(Failure::failed)?;
    let watch = move || {
        let mut signals = signals.forever();
        if signals.next().is_some() {
            tracing::info!("asked to end: initiators are asked to log out");
            server.shutdown(GRACE);
            give_up_later();
        }
        if signals.next().is_some() {
            die("asked to end twice: commands in flight are lost");
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(watch).map(drop).map_err(Failure::failed)
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
