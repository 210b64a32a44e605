//! The pages themselves: their defaults and what of them may change, one entry a page.

/// A page's address: PAGE CODE and SUBPAGE CODE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageCode {
    /// 00h to 3Eh.
    pub(crate) page: u8,
    /// 00h, or 01h to FEh for pages in the sub_page format.
    pub(crate) subpage: u8,
}

/// What of the medium shows in mode pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Writes may be lost in a crash until a flush: there is a write cache to speak of.
    pub(crate) volatile_cache: bool,
}

pub(super) const COUNT: usize = 6;
/// The longest page, control extension.
pub(super) const BYTES_MAX: usize = 32;

/// Positions in [`TABLE`].
pub(super) const CACHING: usize = 2;
pub(super) const CONTROL: usize = 3;

/// Write cache enabled: byte 2 of the caching page.
pub(super) const WCE: u8 = 0x04;
/// Descriptor format sense data: byte 2 of the control page.
pub(super) const D_SENSE: u8 = 0x04;
/// Software write protect: byte 4 of the control page.
pub(super) const SWP: u8 = 0x08;

const SUB_PAGE_FORMAT: u8 = 0x40;

pub(super) struct Definition {
    pub(super) code: PageCode,
    /// All of the page, header included.
    default: &'static [u8],
    /// (byte, bits) that MODE SELECT may change.
    changeable: &'static [(usize, u8)],
}

/// In ascending order, as 3Fh returns them (SPC-4 6.11.1).
pub(super) const TABLE: [Definition; COUNT] = [
    // Read-write error recovery (SBC-3 6.5.8): AWRE and ARRE, since media under us relocate by themselves.
    page(0x01, &[0x01, 0x0a, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
    // Disconnect-reconnect (SPC-4 7.5.11): no limits of its own; RFC 7143 negotiates bursts.
    page(0x02, &[0x02, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
    // Caching (SBC-3 6.5.5): WCE follows the medium.
    page(0x08, &[0x08, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[(2, WCE)]),
    // Control (SPC-4 7.5.8): GLTSD, there is no log to save; QUEUE ALGORITHM MODIFIER 1, simple commands may be
    // reordered; QERR 0, other commands go on after a CHECK CONDITION; TAS, a command that another initiator's reset
    // ends is told so, for its own initiator would else wait for it until it lost patience (30 s in Linux); BUSY
    // TIMEOUT PERIOD without limit.
    page(0x0a, &[0x0a, 0x0a, 0x02, 0x10, 0, 0x40, 0, 0, 0xff, 0xff, 0, 0], &[(2, D_SENSE), (4, SWP)]),
    // Control extension (SPC-4 7.5.9): all zero.
    Definition {
        code: PageCode { page: 0x0a, subpage: 0x01 },
        default: &[
            0x0a | SUB_PAGE_FORMAT,
            0x01,
            0,
            0x1c,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ],
        changeable: &[],
    },
    // Informational exceptions control (SBC-3 6.5.6): DEXCPT, none are reported.
    page(0x1c, &[0x1c, 0x0a, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]),
];

const fn page(code: u8, default: &'static [u8], changeable: &'static [(usize, u8)]) -> Definition {
    Definition { code: PageCode { page: code, subpage: 0 }, default, changeable }
}

/// The position of a page in [`TABLE`].
pub(super) fn find(code: PageCode) -> Option<usize> {
    TABLE.iter().position(|page| page.code == code)
}

impl Definition {
    /// The length of the page in bytes, header included.
    pub(super) fn length(&self) -> usize {
        self.default.len()
    }

    /// The length of its header in bytes (page_0 or sub_page format, SPC-4 7.5.7).
    pub(super) fn header(&self) -> usize {
        if self.code.subpage == 0 { 2 } else { 4 }
    }

    pub(super) fn default_for(&self, facts: Facts) -> [u8; BYTES_MAX] {
        let mut bytes = [0; BYTES_MAX];
        bytes[..self.length()].copy_from_slice(self.default);
        if self.code == TABLE[CACHING].code && facts.volatile_cache {
            bytes[2] |= WCE;
        }
        bytes
    }

    /// The header of a changeable page is the page's own (SPC-4 6.11.3); the bits follow.
    pub(super) fn changeable_for(&self, facts: Facts) -> [u8; BYTES_MAX] {
        let mut bytes = [0; BYTES_MAX];
        bytes[..self.header()].copy_from_slice(&self.default[..self.header()]);
        for &(at, bits) in self.changeable {
            bytes[at] |= bits;
        }
        // A medium without a volatile cache has nothing to switch on: WCE=1 would be a lie.
        if self.code == TABLE[CACHING].code && !facts.volatile_cache {
            bytes[2] &= !WCE;
        }
        bytes
    }
}
