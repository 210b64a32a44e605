//! Sense data: why a command failed, in the two formats of SPC-4 4.5.
//!
//! A logical unit reports a [`Condition`], which is encoded as [`SenseData`]. An initiator parses the sense
//! data of any target as [`Sense`].

pub use condition::{Condition, SenseData, SenseFormat, SenseKey, Specific, asc};

mod condition;
mod words;

/// The parts of sense data (SPC-4 4.5) that Linerate uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sense {
    /// SENSE KEY.
    pub key: u8,
    /// ADDITIONAL SENSE CODE.
    pub code: u8,
    /// ADDITIONAL SENSE CODE QUALIFIER.
    pub qualifier: u8,
    /// INFORMATION, if valid: for medium errors, the faulty block.
    pub information: Option<u64>,
    /// SENSE KEY SPECIFIC, if it is valid and of a supported type.
    pub specific: Specific,
    /// The sense data refers to an earlier command, which had already completed (SPC-4 4.5.5).
    pub deferred: bool,
}

impl Sense {
    /// Parses fixed or descriptor format; `None` if `bytes` is neither.
    pub fn parse(bytes: &[u8]) -> Option<Sense> {
        match bytes.first()? & 0x7f {
            form @ (0x70 | 0x71) => Some(Sense {
                deferred: form == 0x71,
                ..Sense::fixed(bytes)
            }),
            form @ (0x72 | 0x73) => Some(Sense {
                deferred: form == 0x73,
                ..Sense::descriptor(bytes)
            }),
            _ => None,
        }
    }

    /// Progress of a long operation, in 65,536ths (SPC-4 4.5.2.4.4).
    pub fn progress(self) -> Option<u16> {
        match self.specific {
            Specific::Progress(progress) => Some(progress),
            Specific::Nothing | Specific::Field { .. } => None,
        }
    }

    /// Whether this is a unit attention, which reports an event on the LUN once to each initiator (SAM-5
    /// 5.14).
    pub fn is_unit_attention(self) -> bool {
        self.key == 0x6
    }

    /// Whether this is the unit attention CAPACITY DATA HAS CHANGED.
    pub fn tells_of_capacity(self) -> bool {
        self.is_unit_attention() && (self.code, self.qualifier) == (0x2a, 0x09)
    }

    /// Whether the LUN may now refer to another logical unit. True for the unit attentions of a reset (29h),
    /// INQUIRY DATA HAS CHANGED (3Fh/03h) and REPORTED LUNS DATA HAS CHANGED (3Fh/0Eh), and for LOGICAL UNIT
    /// NOT SUPPORTED (25h).
    pub fn may_be_of_another_unit(self) -> bool {
        match (self.code, self.qualifier) {
            (0x29, _) | (0x3f, 0x03 | 0x0e) => self.is_unit_attention(),
            (0x25, _) => self.key == 0x5 && !self.deferred,
            _ => false,
        }
    }

    /// Whether this is the unit attention MODE PARAMETERS CHANGED.
    pub fn tells_of_modes(self) -> bool {
        self.is_unit_attention() && (self.code, self.qualifier) == (0x2a, 0x01)
    }

    /// Whether the access state of the port (ALUA) has changed, or prevents the command: transitioning,
    /// standby, or unavailable (SPC-4 5.16.2.4).
    pub fn tells_of_access(self) -> bool {
        match (self.code, self.qualifier) {
            (0x2a, 0x06 | 0x07) => self.is_unit_attention(),
            (0x04, 0x0a..=0x0c) => self.key == 0x2 && !self.deferred,
            _ => false,
        }
    }

    /// Whether the logical unit needs manual intervention before it is ready: a retry does not help.
    pub fn is_out_of_service(self) -> bool {
        (self.key, self.code, self.qualifier) == (0x2, 0x04, 0x03) && !self.deferred
    }

    /// Whether the sense data reports the failure of an earlier command that had completed with GOOD.
    pub fn tells_of_lost_write(self) -> bool {
        self.deferred && !self.is_no_error()
    }

    /// Whether the storage behind the LUN has failed: MEDIUM ERROR, HARDWARE ERROR, or no space left. Cached
    /// data may have been discarded.
    pub fn is_storage_error(self) -> bool {
        matches!(
            (self.key, self.code, self.qualifier),
            (0x3 | 0x4, _, _) | (0x7, 0x27, 0x07)
        )
    }

    /// Whether this is a unit attention after which a volatile cache may be empty: a power-on or device reset
    /// (29h), or a changed medium (28h/00h). Three qualifiers of 29h are excluded: 05h and 06h (another
    /// transceiver mode), and 07h (I_T NEXUS LOSS, from a target that kept running).
    pub fn tells_of_reset(self) -> bool {
        let reset =
            matches!((self.code, self.qualifier), (0x28, 0x00) | (0x29, 0x00..=0x04 | 0x08..=0xff));
        self.is_unit_attention() && !self.deferred && reset
    }

    /// Whether the command was executed nevertheless. A command that ends with a deferred error was not
    /// (SPC-4 4.5.5).
    pub fn was_carried_out(self) -> bool {
        self.is_no_error() && !self.deferred
    }

    /// Whether the sense key is NO SENSE or RECOVERED ERROR.
    fn is_no_error(self) -> bool {
        matches!(self.key, 0x0 | 0x1)
    }

    /// Fixed format (SPC-4 4.5.3). A target may truncate it: missing bytes read as zero.
    fn fixed(bytes: &[u8]) -> Sense {
        let valid = byte(bytes, 0) & 0x80 != 0;
        let information = bytes.get(3..7).map(big_endian).filter(|_| valid);
        Sense {
            key: byte(bytes, 2) & 0x0f,
            code: byte(bytes, 12),
            qualifier: byte(bytes, 13),
            information,
            specific: Specific::parse(byte(bytes, 2) & 0x0f, bytes.get(15..).unwrap_or_default()),
            deferred: false,
        }
    }

    /// Descriptor format (SPC-4 4.5.2).
    fn descriptor(bytes: &[u8]) -> Sense {
        let descriptors = bytes.get(8..).unwrap_or_default();
        let valid = |body: &&[u8]| byte(body, 0) & 0x80 != 0;
        Sense {
            key: byte(bytes, 1) & 0x0f,
            code: byte(bytes, 2),
            qualifier: byte(bytes, 3),
            information: find(descriptors, 0)
                .filter(valid)
                .and_then(|body| body.get(2..10))
                .map(big_endian),
            specific: Specific::parse(
                byte(bytes, 1) & 0x0f,
                find(descriptors, 2)
                    .and_then(|body| body.get(2..))
                    .unwrap_or_default(),
            ),
            deferred: false,
        }
    }
}

/// The body of the descriptor of this type (SPC-4 table 29) in a list.
fn find(mut descriptors: &[u8], wanted: u8) -> Option<&[u8]> {
    while let [kind, length, rest @ ..] = descriptors {
        let body = rest.get(..usize::from(*length))?;
        if *kind == wanted {
            return Some(body);
        }
        descriptors = &rest[body.len()..];
    }
    None
}

fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_reset_may_have_lost_a_cache_and_a_lost_nexus_has_not() {
        let loses = |code, qualifier| {
            Sense {
                key: 6,
                code,
                qualifier,
                ..Sense::default()
            }
            .tells_of_reset()
        };
        assert!((0..=4).all(|qualifier| loses(0x29, qualifier)));
        assert!(
            ![5, 6, 7]
                .into_iter()
                .any(|qualifier| loses(0x29, qualifier))
        );
        assert!(loses(0x28, 0) && !loses(0x2a, 9) && !loses(0x3f, 0x0e));
    }

    fn key() -> impl Strategy<Value = SenseKey> {
        use SenseKey::*;
        prop::sample::select(vec![
            NotReady,
            MediumError,
            IllegalRequest,
            UnitAttention,
            DataProtect,
            Miscompare,
        ])
    }

    proptest! {
        #[test]
        fn what_a_unit_says_an_initiator_reads(
            key in key(),
            asc: u16,
            information in prop::option::of(any::<u64>()),
            number: u16,
            bit in prop::option::of(0u8..8),
            in_cdb: bool,
            is_fixed: bool,
        ) {
            let mut condition = Condition { information, ..Condition::new(key, asc) };
            match key {
                SenseKey::NotReady => condition = condition.with_progress(number),
                SenseKey::IllegalRequest => condition = condition.at_field(in_cdb, number, bit),
                _ => {}
            }
            let format = if is_fixed { SenseFormat::Fixed } else { SenseFormat::Descriptor };
            let data = condition.encode(format);
            let read = Sense::parse(data.bytes()).expect("sense data");
            let [code, qualifier] = asc.to_be_bytes();
            let fits = |wide: &u64| !is_fixed || u32::try_from(*wide).is_ok();
            let said = Sense {
                key: key as u8,
                code,
                qualifier,
                information: information.filter(fits),
                specific: condition.specific,
                deferred: false,
            };
            prop_assert_eq!(read, said);
            prop_assert_eq!((data.key(), data.asc()), (key as u8, asc));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(sense) = Sense::parse(&bytes) {
                prop_assert!(!sense.to_string().is_empty());
            }
        }
    }
}
