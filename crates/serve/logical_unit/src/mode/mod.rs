//! Mode pages (SPC-4 6.11 to 6.14, 7.5).
//!
//! [`Pages`] contains every page three times (current, saved, default), and one mask of changeable bits.
//! [`sense`] turns them into mode parameter data; [`select`] applies a parameter list to the pages,
//! completely or not at all. The logical unit queries their effect with [`Pages::write_cache`],
//! [`Pages::write_protect`] and [`Pages::descriptor_sense`].
//!
//! TST is 0: all I_T nexuses share one set of pages, so a change by one raises the unit attention MODE
//! PARAMETERS CHANGED for all others.

use scsi::{
    Caching, Control, ControlExtension, DisconnectReconnect, ErrorRecovery,
    InformationalExceptions, ModePageHeader, ModeValues,
};
use volume::Damaged;

pub(crate) mod select;
pub(crate) mod sense;

/// Every mode page of a logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    current: [Page; COUNT],
    saved: [Page; COUNT],
    default: [Page; COUNT],
    changeable: [Page; COUNT],
}

/// A page as in mode parameter data, with the PS bit clear; bytes after its end are zero.
type Page = [u8; BYTES_MAX];

impl Pages {
    /// Creates the default pages of a logical unit.
    pub(crate) fn new(facts: Facts) -> Pages {
        let padded = |page: &Vec<u8>| std::array::from_fn(|at| page.get(at).copied().unwrap_or(0));
        let pages = pages(facts);
        let (default, changeable) = (
            pages.each_ref().map(|[page, _]| padded(page)),
            pages.map(|[_, mask]| padded(&mask)),
        );
        Pages {
            current: default,
            saved: default,
            default,
            changeable,
        }
    }

    /// WCE of the caching page: a write may be acknowledged before it is on stable storage.
    pub(crate) fn write_cache(&self) -> bool {
        Caching::parse(&self.current[CACHING]).wce
    }

    /// SWP of the control page: commands that would change the medium fail with WRITE PROTECTED.
    pub(crate) fn write_protect(&self) -> bool {
        Control::parse(&self.current[CONTROL]).swp
    }

    /// D_SENSE of the control page: sense data is in descriptor format.
    pub(crate) fn descriptor_sense(&self) -> bool {
        Control::parse(&self.current[CONTROL]).d_sense
    }

    /// Handles a hard reset or logical unit reset: the saved values replace the current values (SPC-4 6.14).
    pub(crate) fn reset(&mut self) {
        self.current = self.saved;
    }

    /// Saves the current values (MODE SELECT with SP=1).
    pub(crate) fn save(&mut self) {
        self.saved = self.current;
    }

    /// The saved values for a file: per page its code, subpage code, length and bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(COUNT * (3 + BYTES_MAX));
        for (saved, header) in self.saved.iter().zip(self.headers()) {
            bytes.extend([header.code, header.subpage, header.bytes as u8]);
            bytes.extend(&saved[..header.bytes]);
        }
        bytes
    }

    /// Restores both the saved and the current values from a file. A page unknown to this version, or a bit
    /// that it does not allow to be changed, keeps its default: the file may be from another version or
    /// another device.
    pub(crate) fn restore(&mut self, bytes: &[u8]) -> Result<(), Damaged> {
        let mut rest = bytes;
        while let [page, subpage, length, tail @ ..] = rest {
            let (body, tail) = tail.split_at_checked(usize::from(*length)).ok_or(Damaged)?;
            self.restore_page((*page, *subpage), body);
            rest = tail;
        }
        self.current = self.saved;
        if rest.is_empty() {
            Ok(())
        } else {
            Err(Damaged)
        }
    }

    fn restore_page(&mut self, code: (u8, u8), body: &[u8]) {
        let Some((index, _)) = self
            .find(code)
            .filter(|(_, header)| header.bytes == body.len())
        else {
            return;
        };
        let (defaults, mask) = (&self.default[index], &self.changeable[index]);
        for (at, byte) in self.saved[index]
            .iter_mut()
            .zip(body)
            .map(|(to, from)| (to, *from))
            .enumerate()
        {
            let (to, from) = byte;
            *to = defaults[at] & !mask[at] | from & mask[at];
        }
    }

    fn values(&self, values: ModeValues) -> &[Page; COUNT] {
        match values {
            ModeValues::Current => &self.current,
            ModeValues::Changeable => &self.changeable,
            ModeValues::Default => &self.default,
            ModeValues::Saved => &self.saved,
        }
    }

    /// The codes and lengths of the pages.
    fn headers(&self) -> impl Iterator<Item = ModePageHeader> {
        self.default
            .iter()
            .filter_map(|page| ModePageHeader::parse(page))
    }

    /// Returns the position and the header of the page with this code and subpage code.
    fn find(&self, code: (u8, u8)) -> Option<(usize, ModePageHeader)> {
        self.headers()
            .enumerate()
            .find(|(_, header)| (header.code, header.subpage) == code)
    }
}

/// Properties of the medium that affect mode pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Whether there is a volatile write cache, so that a crash may lose writes that have not been flushed.
    pub(crate) volatile_cache: bool,
}

const COUNT: usize = 6;
/// The longest page, control extension.
const BYTES_MAX: usize = 32;

/// Positions in [`pages`].
const CACHING: usize = 2;
const CONTROL: usize = 3;

/// Two arrays for each page: its default, and the mask of bits that MODE SELECT may change. Pages are in
/// ascending order, as page code 3Fh returns them (SPC-4 6.11.1).
fn pages(facts: Facts) -> [[Vec<u8>; 2]; COUNT] {
    // WCE=1 would be wrong for a medium without a volatile cache.
    let caching = Caching {
        wce: facts.volatile_cache,
        ..Caching::default()
    };
    [
        // AWRE and ARRE are set, because the underlying media relocate blocks themselves.
        fixed(
            &ErrorRecovery {
                awre: true,
                arre: true,
                ..ErrorRecovery::default()
            }
            .write(),
        ),
        // No limits: iSCSI negotiates burst lengths at login (RFC 7143).
        fixed(&DisconnectReconnect::default().write()),
        [caching.write().to_vec(), caching.write().to_vec()],
        // GLTSD: there is no log to save. QUEUE ALGORITHM MODIFIER 1: simple commands may be reordered. QERR
        // 0: other commands continue after a CHECK CONDITION. TAS: a command aborted by another initiator's
        // reset is reported to its own initiator, which would otherwise wait for its timeout (30 s in Linux).
        // BUSY TIMEOUT PERIOD: unlimited.
        // BUSY TIMEOUT PERIOD: unlimited.
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
            Control {
                d_sense: true,
                swp: true,
                ..Control::default()
            }
            .write()
            .to_vec(),
        ],
        fixed(&ControlExtension::default().write()),
        // DEXCPT: no informational exceptions are reported.
        fixed(
            &InformationalExceptions {
                dexcpt: true,
                ..InformationalExceptions::default()
            }
            .write(),
        ),
    ]
}

/// Creates a page that cannot be changed. The mask has the same header as the page (SPC-4 6.11.3), and no
/// bits after it.
fn fixed(page: &[u8]) -> [Vec<u8>; 2] {
    let header = if page[0] & 0x40 == 0 { 2 } else { 4 };
    let mut changeable = page.to_vec();
    changeable[header..].fill(0);
    [page.to_vec(), changeable]
}

#[cfg(test)]
mod tests {
    use scsi::ModeForm;

    use super::*;
    use crate::mode::select::Select;

    const CACHED: Facts = Facts {
        volatile_cache: true,
    };

    fn pages_with_swp_saved() -> Pages {
        let mut pages = Pages::new(CACHED);
        let list = [
            0, 0, 0, 0, 0x0a, 0x0a, 0x02, 0x10, 0x08, 0x40, 0, 0, 0xff, 0xff, 0, 0,
        ];
        let select = Select {
            form: ModeForm::Six,
            save: true,
        };
        assert_eq!(
            select.apply(&mut pages, &list, crate::mode::sense::tests::MEDIUM),
            Ok(true)
        );
        pages.save();
        pages
    }

    #[test]
    fn a_medium_with_a_volatile_cache_starts_with_the_write_cache_on() {
        assert!(Pages::new(CACHED).write_cache());
        assert!(
            !Pages::new(Facts {
                volatile_cache: false
            })
            .write_cache()
        );
    }

    #[test]
    fn a_reset_brings_the_saved_values_back() {
        let mut pages = pages_with_swp_saved();
        let list = [
            0, 0, 0, 0, 0x0a, 0x0a, 0x02, 0x10, 0, 0x40, 0, 0, 0xff, 0xff, 0, 0,
        ];
        Select {
            form: ModeForm::Six,
            save: false,
        }
        .apply(&mut pages, &list, crate::mode::sense::tests::MEDIUM)
        .expect("clearing SWP is legal");
        assert!(!pages.write_protect());
        pages.reset();
        assert!(pages.write_protect());
    }

    #[test]
    fn saved_values_survive_a_restart() {
        let before = pages_with_swp_saved();
        let mut after = Pages::new(CACHED);
        assert_eq!(after.restore(&before.to_bytes()), Ok(()));
        assert_eq!(after, before);
    }

    #[test]
    fn a_saved_file_changes_nothing_that_may_not_change() {
        let mut bytes = pages_with_swp_saved().to_bytes();
        bytes
            .iter_mut()
            .skip(3)
            .take(9)
            .for_each(|byte| *byte = 0xff);
        let mut pages = Pages::new(CACHED);
        assert_eq!(pages.restore(&bytes), Ok(()));
        assert_eq!(pages.current[0], pages.default[0]);
    }

    #[test]
    fn a_saved_file_cut_anywhere_is_told_apart_or_shorter() {
        let bytes = pages_with_swp_saved().to_bytes();
        for length in 0..bytes.len() {
            let mut pages = Pages::new(CACHED);
            let outcome = pages.restore(&bytes[..length]);
            assert!(
                outcome == Err(Damaged) || length == 0 || pages_end_at(&bytes, length),
                "{length}"
            );
        }
    }

    fn pages_end_at(bytes: &[u8], length: usize) -> bool {
        let mut at = 0;
        while at < length {
            at += 3 + usize::from(bytes[at + 2]);
        }
        at == length
    }
}
