//! Which lost writes were reported to which client.
//!
//! Only a client with a [named connection](crate::channels) can be recognised, and such a client detects losses
//! itself when it reconnects. Another client that reconnects may be any client of its [`AddressBlock`]. To it, the
//! server reports every loss that was not reported to one of these clients:
//!
//! ```text
//!   it may be a client                              the loss count that was reported to it
//!   whose connection broke                          the count at its end, without reports whose reply may be lost
//!   whose connection broke, and is not closed yet   the current count
//!   of an earlier server process                    `Volume::presumed_reported`
//! ```
//!
//! A client that disconnected (NBD_CMD_DISC) does not return.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use block::Lock;
use front_end_core::AddressBlock;
use volume::{Departed, Volume};

/// A reply that was sent within this time before the end of its connection may not have arrived.
const DELIVERED: Duration = Duration::from_secs(60);

/// The loss counts of all clients without a named connection, by the opening of their volume.
#[derive(Default)]
pub(crate) struct Accounts(Lock<BTreeMap<u64, OfVolume>>);

#[derive(Default)]
struct OfVolume {
    present: Vec<(ClientAddress, Arc<AtomicU64>)>,
    departed: Departed<ClientAddress>,
}

/// The address of a client, which may return with another address of the block. Its record is nevertheless only
/// removed by a report to the exact address: other hosts may share the block, and a record that is left causes a
/// spurious error, but a missing one hides a loss.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ClientAddress {
    block: AddressBlock,
    exact: IpAddr,
}

impl ClientAddress {
    fn new(address: IpAddr) -> ClientAddress {
        ClientAddress {
            block: AddressBlock::containing(address),
            exact: address.to_canonical(),
        }
    }

    fn shares_block(self, other: &ClientAddress) -> bool {
        self.block == other.block
    }
}

/// The losses reported to one client.
pub(crate) struct Account {
    /// The loss count last reported to the client.
    told: Arc<AtomicU64>,
    /// `None` for a named connection.
    unnamed: Option<Unnamed>,
}

struct Unnamed {
    accounts: Arc<Accounts>,
    opening: u64,
    address: ClientAddress,
    /// Whether the client may be a departed one, to which its next report is then also the report.
    may_have_returned: Cell<bool>,
    /// The count before the last report, and the time of that report.
    last_report: Cell<Option<(u64, Instant)>>,
}

impl Accounts {
    /// Opens the account of a client without a named connection.
    pub(crate) fn open(
        self: &Arc<Self>,
        volume: &Volume,
        address: IpAddr,
        now: Instant,
    ) -> Account {
        let (opening, address) = (volume.opening(), ClientAddress::new(address));
        let mut accounts = self.0.lock();
        let of_volume = accounts.entry(opening).or_default();
        let departed = of_volume
            .departed
            .lowest(|departed| address.shares_block(departed));
        let present = of_volume
            .present
            .iter()
            .filter(|(present, _)| address.shares_block(present));
        let present = present.map(|(_, told)| told.load(SeqCst)).min();
        let forgotten = of_volume
            .departed
            .forgotten(now, |departed| address.shares_block(departed));
        let known = [departed, present, forgotten].into_iter().flatten().min();
        let presumed = volume.presumed_reported(now);
        let told = Arc::new(AtomicU64::new(
            known.map_or(presumed, |known| known.min(presumed)),
        ));
        of_volume.present.push((address, Arc::clone(&told)));
        let unnamed = Unnamed {
            accounts: Arc::clone(self),
            opening,
            address,
            may_have_returned: Cell::new(departed.is_some()),
            last_report: Cell::default(),
        };
        Account {
            told,
            unnamed: Some(unnamed),
        }
    }

    /// Drops the accounts of all other volumes.
    pub(crate) fn keep(&self, openings: &[u64]) {
        self.0
            .lock()
            .retain(|opening, _| openings.contains(opening));
    }
}

impl Account {
    /// Creates the account of a named connection whose client knows of this number of losses.
    pub(crate) fn of_named(told: u64) -> Account {
        Account {
            told: Arc::new(AtomicU64::new(told)),
            unnamed: None,
        }
    }

    /// The loss count last reported to the client.
    pub(crate) fn told(&self) -> u64 {
        self.told.load(SeqCst)
    }

    /// Records a report of all losses up to this count.
    pub(crate) fn report(&self, losses: u64, now: Instant) {
        let before = self.told.swap(losses, SeqCst);
        debug_assert!(before <= losses, "losses only grow");
        let Some(unnamed) = self.unnamed.as_ref().filter(|_| before < losses) else {
            return;
        };
        unnamed.last_report.set(Some((before, now)));
        if unnamed.may_have_returned.take() {
            let mut accounts = unnamed.accounts.0.lock();
            if let Some(of_volume) = accounts.get_mut(&unnamed.opening) {
                let _ = of_volume
                    .departed
                    .take(|departed| *departed == unnamed.address);
            }
        }
    }

    /// Records the end of a connection whose requests have ended. A client that has not disconnected may return.
    pub(crate) fn end(&self, has_disconnected: bool, now: Instant) {
        let Some(unnamed) = &self.unnamed else { return };
        if has_disconnected {
            return;
        }
        let may_be_lost = |(_, at): &(u64, Instant)| now.saturating_duration_since(*at) < DELIVERED;
        let undelivered = unnamed.last_report.get().filter(may_be_lost);
        let told = undelivered.map_or_else(|| self.told(), |(before, _)| before);
        if let Some(of_volume) = unnamed.accounts.0.lock().get_mut(&unnamed.opening) {
            let address = unnamed.address;
            // If this may be a departed client, its record may still be there. Another connection may also have
            // removed it.
            let recorded = of_volume.departed.lowest(|departed| *departed == address);
            if unnamed.may_have_returned.get() && recorded.is_some_and(|lowest| lowest <= told) {
                return;
            }
            of_volume.departed.note(address, told, now, |departed| {
                address.shares_block(departed)
            });
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if let Some(Unnamed {
            accounts, opening, ..
        }) = &self.unnamed
            && let Some(of_volume) = accounts.0.lock().get_mut(opening)
        {
            of_volume
                .present
                .retain(|(_, told)| !Arc::ptr_eq(told, &self.told));
        }
    }
}
