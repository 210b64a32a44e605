//! Commands on the whole medium: TEST UNIT READY, START STOP UNIT, SYNCHRONIZE CACHE, VERIFY, SANITIZE.

use scsi::{
    Sense, StartStop,
    cdb::{self, Cdb},
};

use super::{VerbError, parameters};
use crate::unit::Unit;

/// What SANITIZE does (SBC-4 5.31).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sanitize {
    /// OVERWRITE: writes a pattern over everything.
    Overwrite {
        /// Repeated to fill a block; of up to a block's length.
        pattern: Vec<u8>,
        /// How often, 1 to 31.
        passes: u8,
        /// INVERT: every other pass writes the pattern's complement.
        invert: bool,
    },
    /// BLOCK ERASE: by the medium's own means.
    BlockErase,
    /// CRYPTOGRAPHIC ERASE: changes the key.
    CryptographicErase,
    /// EXIT FAILURE MODE: gives a medium back whose sanitizing failed, if that was allowed.
    ExitFailureMode,
}

/// How SANITIZE goes about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SanitizeManner {
    /// IMMED: the answer comes at once, and REQUEST SENSE tells how far it is. Without, it comes at the end,
    /// for which a command's time is seldom enough.
    pub immediate: bool,
    /// AUSE: should it fail, EXIT FAILURE MODE may give the medium back.
    pub unrestricted_exit: bool,
}

impl Sanitize {
    /// The command and its parameters.
    fn encode(&self, manner: SanitizeManner) -> Option<(Cdb, Vec<u8>)> {
        let (action, list) = match self {
            Sanitize::Overwrite { pattern, passes, invert } => {
                let length = u16::try_from(pattern.len()).ok().filter(|length| *length > 0)?;
                let passes = (1..=31).contains(passes).then_some(*passes)?;
                let [high, low] = length.to_be_bytes();
                let header = [u8::from(*invert) << 7 | passes, 0, high, low];
                (1, [&header[..], pattern].concat())
            }
            Sanitize::BlockErase => (2, Vec::new()),
            Sanitize::CryptographicErase => (3, Vec::new()),
            Sanitize::ExitFailureMode => (0x1f, Vec::new()),
        };
        let flags = u8::from(manner.immediate) << 7 | u8::from(manner.unrestricted_exit) << 5;
        Some((cdb::sanitize(flags | action, u16::try_from(list.len()).ok()?), list))
    }
}

impl Unit {
    /// TEST UNIT READY: no error if the unit can read and write.
    pub async fn test_unit_ready(&self) -> Result<(), VerbError> {
        self.carry_out("TEST UNIT READY", cdb::test_unit_ready()).await
    }

    /// REQUEST SENSE: what the unit has to say of its own accord, such as how far an operation is; `None` if
    /// the answer is no sense data.
    pub async fn request_sense(&self) -> Result<Option<Sense>, VerbError> {
        let data = self.ask("REQUEST SENSE", cdb::request_sense(252), 252).await?;
        Ok(Sense::parse(&data))
    }

    /// START STOP UNIT, and its answer when it is done.
    pub async fn start_stop(&self, what: StartStop) -> Result<(), VerbError> {
        self.carry_out("START STOP UNIT", cdb::start_stop(what)).await
    }

    /// SYNCHRONIZE CACHE of the whole medium.
    pub async fn synchronize_cache(&self) -> Result<(), VerbError> {
        self.carry_out("SYNCHRONIZE CACHE", cdb::synchronize_cache()).await
    }

    /// VERIFY: that the medium can be read, without a look at what is there.
    pub async fn verify(&self, lba: u64, blocks: u32) -> Result<(), VerbError> {
        self.carry_out("VERIFY", cdb::verify_16(lba, blocks)).await
    }

    /// SANITIZE: makes everything that was ever written unreadable, for good. Nothing is asked here.
    pub async fn sanitize(&self, what: &Sanitize, manner: SanitizeManner) -> Result<(), VerbError> {
        let name = "SANITIZE";
        let (cdb, list) = what.encode(manner).ok_or(VerbError::OutOfRange(name))?;
        if list.is_empty() {
            return self.carry_out(name, cdb).await;
        }
        self.tell(name, cdb, parameters(&list)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overwrite_carries_its_pattern() {
        let overwrite = Sanitize::Overwrite { pattern: vec![0xa5, 0x5a], passes: 3, invert: true };
        let manner = SanitizeManner { immediate: true, unrestricted_exit: true };
        let (cdb, list) = overwrite.encode(manner).unwrap();
        assert_eq!((cdb[..2].to_vec(), cdb[7..9].to_vec()), (vec![0x48, 0xa1], vec![0, 6]));
        assert_eq!(list, [0x83, 0, 0, 2, 0xa5, 0x5a]);
    }

    #[test]
    fn an_overwrite_without_a_pattern_or_a_pass_cannot_be_said() {
        let overwrite = |pattern: &[u8], passes| {
            Sanitize::Overwrite { pattern: pattern.to_vec(), passes, invert: false }
                .encode(SanitizeManner::default())
        };
        assert!(overwrite(&[], 1).is_none());
        assert!(overwrite(&[0], 0).is_none());
        assert!(overwrite(&[0], 32).is_none());
        assert!(overwrite(&vec![0; 70_000], 1).is_none());
    }
}
