//! The names that PDUs carry: task tags, LUNs, and the parts of a session's identity.

use std::fmt;

/// The reserved tag.
const RESERVED_TAG: u32 = 0xffff_ffff;

/// Initiator Task Tag (RFC 7143 section 11.2.1.8): the initiator's name for a task, unique in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Itt(u32);

impl Itt {
    /// A valid tag, for users that need only one.
    pub const ZERO: Itt = Itt(0);

    /// A tag; `None` for 0xffffffff, which is reserved.
    pub fn new(value: u32) -> Option<Itt> {
        (value != RESERVED_TAG).then_some(Itt(value))
    }

    /// The tag's value.
    pub fn get(self) -> u32 {
        self.0
    }

    /// How a field that may be without a tag is written.
    pub(super) fn wire(tag: Option<Itt>) -> u32 {
        tag.map_or(RESERVED_TAG, Itt::get)
    }
}

impl fmt::Display for Itt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Target Transfer Tag: the target's name for a transfer it asked for, or for a question it put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ttt(u32);

impl Ttt {
    /// A tag; `None` for 0xffffffff, which is reserved.
    pub fn new(value: u32) -> Option<Ttt> {
        (value != RESERVED_TAG).then_some(Ttt(value))
    }

    /// The tag's value.
    pub fn get(self) -> u32 {
        self.0
    }

    /// How a field that may be without a tag is written.
    pub(super) fn wire(tag: Option<Ttt>) -> u32 {
        tag.map_or(RESERVED_TAG, Ttt::get)
    }
}

impl fmt::Display for Ttt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A LUN: eight bytes by the format of SAM-5, opaque to iSCSI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lun(pub u64);

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Initiator part of the session identifier (section 11.12.5): six bytes that the initiator chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Isid(pub [u8; 6]);

impl fmt::Display for Isid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Target Session Identifying Handle (section 11.12.6): the target's name for a session. Zero asks for a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tsih(pub u16);

impl Tsih {
    /// "A new session, please"; never the handle of one that exists.
    pub const NEW: Tsih = Tsih(0);
}

impl fmt::Display for Tsih {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Connection identifier (section 11.12.7): the initiator's name for a connection within its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cid(pub u16);

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A tag for the log, or a dash where there is none.
pub(super) fn or_dash<T: fmt::Display>(tag: Option<T>) -> String {
    tag.map_or_else(|| "-".to_owned(), |tag| tag.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserved_tag_has_no_name() {
        assert_eq!((Itt::new(RESERVED_TAG), Ttt::new(RESERVED_TAG)), (None, None));
        assert_eq!(Itt::wire(Itt::new(7)), 7);
        assert_eq!(Ttt::wire(None), 0xffff_ffff);
    }
}
