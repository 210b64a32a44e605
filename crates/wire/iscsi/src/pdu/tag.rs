//! The names that PDUs carry: task tags, LUNs, and the parts of a session's identity.

use derive_more::Display;

const RESERVED_TAG: u32 = 0xffff_ffff;

/// Initiator Task Tag (RFC 7143 section 11.2.1.8): the initiator's name for a task, unique in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Display)]
#[display("{_0:#x}")]
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

/// Target Transfer Tag: the target's name for a transfer it asked for, or for a question it put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Display)]
#[display("{_0:#x}")]
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

/// A LUN: eight bytes by the format of SAM-5, opaque to iSCSI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Display)]
#[display("{_0:016x}")]
pub struct Lun(pub u64);

/// Initiator part of the session identifier (section 11.12.5): six bytes that the initiator chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Isid(pub [u8; 6]);

/// Target Session Identifying Handle (section 11.12.6): the target's name for a session. Zero asks for a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Display)]
pub struct Tsih(pub u16);

impl Tsih {
    /// "A new session, please"; never the handle of one that exists.
    pub const NEW: Tsih = Tsih(0);
}

/// Connection identifier (section 11.12.7): the initiator's name for a connection within its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Display)]
pub struct Cid(pub u16);

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
