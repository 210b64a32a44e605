//! Header fields, each with its position in the forty-eight bytes, and the macro that builds PDUs from them.

use std::num::NonZeroU32;

use super::bhs::{Bhs, Cid, Isid, Itt, Lun, Malformed, RESERVED_TAG, TargetNumbers, Tsih, Ttt};
use crate::pdu::bhs::Sn;

/// The position of a field. A `usize` is the offset of the field's first byte.
pub(super) trait Place<T> {
    fn read(&self, bhs: &Bhs) -> Result<T, Malformed>;
    fn write(&self, value: T, bhs: &mut Bhs);
}

/// A value that starts at a byte boundary.
pub(super) trait Field: Copy {
    fn read(bhs: &Bhs, at: usize) -> Result<Self, Malformed>;
    fn write(self, bhs: &mut Bhs, at: usize);
}

/// Defines PDUs. Each field is listed once, with its position, and becomes part of the type, its `parse` and
/// its `emit`. Two functions follow the name of the PDU: the first checks a header before its fields are read
/// in order, and the second creates an empty header.
macro_rules! pdus {
    ($(
        $(#[$doc:meta])*
        $pdu:ident($expect:path, $blank:path) { $($(#[$field_doc:meta])* $field:ident: $type:ty = $place:expr,)* }
    )*) => {$(
        $(#[$doc])*
        #[allow(missing_docs, reason = "of fields whose names are the standard's")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $pdu {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $pdu {
            /// Parses the header.
            #[inline]
            pub fn parse(bhs: &Bhs) -> Result<$pdu, Malformed> {
                $expect(bhs, Opcode::$pdu)?;
                Ok($pdu { $($field: Place::<$type>::read(&$place, bhs)?,)* })
            }

            /// Builds the header.
            #[inline]
            pub fn emit(&self) -> Bhs {
                let mut bhs = $blank(Opcode::$pdu);
                $(Place::<$type>::write(&$place, self.$field, &mut bhs);)*
                bhs
            }
        }
    )*};
}

/// Implements [`Field`] for enumerations of codes. For each, it takes the mask of the code's bits in their
/// byte, and the error for an undefined code, if there are any.
macro_rules! codes {
    (@reserved $never:ident) => { match $never {} };
    (@reserved $error:ident $reserved:expr) => { $reserved };
    ($($code:ty: $mask:literal $(else $reserved:expr)?,)*) => {$(
        impl Field for $code {
            #[inline]
            fn read(bhs: &Bhs, at: usize) -> Result<$code, Malformed> {
                <$code>::try_from(bhs.u8(at) & $mask).map_err(|_error| codes!(@reserved _error $($reserved)?))
            }

            #[inline]
            fn write(self, bhs: &mut Bhs, at: usize) {
                bhs.set_u8(at, bhs.u8(at) & !$mask | u8::from(self) & $mask);
            }
        }
    )*};
}

pub(super) use {codes, pdus};

/// A single bit of a header.
#[derive(Clone, Copy)]
pub(super) struct Bit {
    byte: usize,
    pub(super) mask: u8,
}

/// I: immediate delivery. Initiator PDUs only.
pub(super) const IMMEDIATE: Bit = Bit {
    byte: 0,
    mask: 0x40,
};
/// F: the last, or only, PDU of its sequence.
pub(super) const FINAL: Bit = Bit::flag(0x80);
/// C of text and login PDUs: the text continues in the next PDU.
pub(super) const CONTINUE: Bit = Bit::flag(0x40);

impl Bit {
    /// A bit of byte 1.
    pub(super) const fn flag(mask: u8) -> Bit {
        Bit { byte: 1, mask }
    }
}

impl Bhs {
    pub(super) fn has(&self, bit: Bit) -> bool {
        self.u8(bit.byte) & bit.mask != 0
    }

    pub(super) fn set(&mut self, bit: Bit, on: bool) {
        let others = self.u8(bit.byte) & !bit.mask;
        self.set_u8(bit.byte, if on { others | bit.mask } else { others });
    }
}

impl Place<bool> for Bit {
    #[inline]
    fn read(&self, bhs: &Bhs) -> Result<bool, Malformed> {
        Ok(bhs.has(*self))
    }

    #[inline]
    fn write(&self, value: bool, bhs: &mut Bhs) {
        bhs.set(*self, value);
    }
}

/// DataSegmentLength.
pub(super) struct DataLength;
pub(super) const DATA_LENGTH: DataLength = DataLength;

impl Place<u32> for DataLength {
    #[inline]
    fn read(&self, bhs: &Bhs) -> Result<u32, Malformed> {
        Ok(bhs.data_segment_length())
    }

    #[inline]
    fn write(&self, length: u32, bhs: &mut Bhs) {
        bhs.set_data_segment_length(length);
    }
}

/// TotalAHSLength.
pub(super) struct AhsLength;
pub(super) const AHS_LENGTH: AhsLength = AhsLength;

impl Place<usize> for AhsLength {
    #[inline]
    fn read(&self, bhs: &Bhs) -> Result<usize, Malformed> {
        Ok(bhs.total_ahs_length())
    }

    #[inline]
    fn write(&self, length: usize, bhs: &mut Bhs) {
        debug_assert!(
            length.is_multiple_of(4) && length <= 1020,
            "AHS of {length} bytes"
        );
        bhs.set_u8(4, (length / 4) as u8);
    }
}

impl<T: Field> Place<T> for usize {
    #[inline]
    fn read(&self, bhs: &Bhs) -> Result<T, Malformed> {
        T::read(bhs, *self)
    }

    #[inline]
    fn write(&self, value: T, bhs: &mut Bhs) {
        value.write(bhs, *self);
    }
}

macro_rules! fields {
    ($($type:ty: |$bhs:ident, $at:ident| $read:expr, |$value:ident| $write:expr;)*) => {$(
        impl Field for $type {
            #[inline]
            fn read($bhs: &Bhs, $at: usize) -> Result<$type, Malformed> {
                $read
            }

            #[inline]
            fn write(self, $bhs: &mut Bhs, $at: usize) {
                let $value = self;
                $write;
            }
        }
    )*};
}

fields! {
    u8: |bhs, at| Ok(bhs.u8(at)), |value| bhs.set_u8(at, value);
    u16: |bhs, at| Ok(bhs.u16(at)), |value| bhs.set_u16(at, value);
    u32: |bhs, at| Ok(bhs.u32(at)), |value| bhs.set_u32(at, value);
    NonZeroU32: |bhs, at| NonZeroU32::new(bhs.u32(at)).ok_or(Malformed::EmptyR2t), |value| bhs.set_u32(at, value.get());
    Sn: |bhs, at| Ok(Sn(bhs.u32(at))), |value| bhs.set_u32(at, value.0);
    Lun: |bhs, at| Ok(Lun(bhs.u64(at))), |value| bhs.set_u64(at, value.0);
    Isid: |bhs, at| Ok(Isid(bhs.bytes(at))), |value| bhs.set_bytes(at, &value.0);
    Tsih: |bhs, at| Ok(Tsih(bhs.u16(at))), |value| bhs.set_u16(at, value.0);
    Cid: |bhs, at| Ok(Cid(bhs.u16(at))), |value| bhs.set_u16(at, value.0);
    Itt: |bhs, at| Itt::new(bhs.u32(at)).ok_or(Malformed::ReservedItt), |value| bhs.set_u32(at, value.get());
    Ttt: |bhs, at| Ttt::new(bhs.u32(at)).ok_or(Malformed::ReservedTtt), |value| bhs.set_u32(at, value.get());
    Option<Itt>: |bhs, at| Ok(Itt::new(bhs.u32(at))), |value| bhs.set_u32(at, value.map_or(RESERVED_TAG, Itt::get));
    Option<Ttt>: |bhs, at| Ok(Ttt::new(bhs.u32(at))), |value| bhs.set_u32(at, value.map_or(RESERVED_TAG, Ttt::get));
    [u8; 16]: |bhs, at| Ok(bhs.bytes(at)), |value| bhs.set_bytes(at, &value);
    [u16; 3]: |bhs, at| Ok([bhs.u16(at), bhs.u16(at + 2), bhs.u16(at + 4)]), |value| {
        (0..3).for_each(|i| bhs.set_u16(at + 2 * i, value[i]))
    };
    TargetNumbers: |bhs, at| {
        let [stat_sn, exp_cmd_sn, max_cmd_sn] = [0, 4, 8].map(|offset| Sn(bhs.u32(at + offset)));
        Ok(TargetNumbers { stat_sn, exp_cmd_sn, max_cmd_sn })
    }, |value| {
        bhs.set_u32(at, value.stat_sn.0);
        bhs.set_u32(at + 4, value.exp_cmd_sn.0);
        bhs.set_u32(at + 8, value.max_cmd_sn.0);
    };
}
