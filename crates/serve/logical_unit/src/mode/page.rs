//! The pages themselves: their defaults and what of them may change, one entry a page.

use scsi::{Caching, Control, ControlExtension, DisconnectReconnect, ErrorRecovery, InformationalExceptions};

/// What of the medium shows in mode pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Writes may be lost in a crash until a flush: there is a write cache to speak of.
    pub(crate) volatile_cache: bool,
}

pub(super) const COUNT: usize = 6;
/// The longest page, control extension.
pub(super) const BYTES_MAX: usize = 32;

/// Positions in [`pages`].
pub(super) const CACHING: usize = 2;
pub(super) const CONTROL: usize = 3;

/// Each page twice: its default, and the mask of bits that MODE SELECT may change.
/// In ascending order, as 3Fh returns them (SPC-4 6.11.1).
pub(super) fn pages(facts: Facts) -> [[Vec<u8>; 2]; COUNT] {
    // A medium without a volatile cache has nothing to switch on: WCE=1 would be a lie.
    let caching = Caching { wce: facts.volatile_cache, ..Caching::default() };
    [
        // AWRE and ARRE, since media under us relocate by themselves.
        fixed(&ErrorRecovery { awre: true, arre: true, ..ErrorRecovery::default() }.write()),
        // No limits of its own; RFC 7143 negotiates bursts.
        fixed(&DisconnectReconnect::default().write()),
        [caching.write().to_vec(), caching.write().to_vec()],
        // GLTSD, there is no log to save; QUEUE ALGORITHM MODIFIER 1, simple commands may be reordered; QERR
        // 0, other commands go on after a CHECK CONDITION; TAS, a command that another initiator's reset ends
        // is told so, for its own initiator would else wait for it until it lost patience (30 s in Linux);
        // BUSY TIMEOUT PERIOD without limit.
        [
            Control {
                gltsd: true,
                queue_algorithm: 1,
                tas: true,
                busy_timeout_period: u16::MAX,
                ..Control::default()
            }
            .write()
            .to_vec(),
            Control { d_sense: true, swp: true, ..Control::default() }.write().to_vec(),
        ],
        fixed(&ControlExtension::default().write()),
        // DEXCPT, no informational exceptions are reported.
        fixed(&InformationalExceptions { dexcpt: true, ..InformationalExceptions::default() }.write()),
    ]
}

/// A page of which nothing may change. The header of a changeable page is the page's own (SPC-4 6.11.3).
fn fixed(page: &[u8]) -> [Vec<u8>; 2] {
    let header = if page[0] & 0x40 == 0 { 2 } else { 4 };
    let mut changeable = page.to_vec();
    changeable[header..].fill(0);
    [page.to_vec(), changeable]
}
