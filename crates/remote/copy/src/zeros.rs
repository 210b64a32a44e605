//! Detection of zeros in data.

use std::ops::Range;

/// The unit of detection: shorter runs of zeros are copied with the data around them, since one request of 1
/// MiB costs less than sixteen for half of it.
const GRAIN_BYTES: usize = 64 << 10;

/// A part of some data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataRun {
    pub(crate) range: Range<usize>,
    pub(crate) is_zero: bool,
}

/// The data cut into runs that are zero and runs that are not.
pub(crate) fn runs(data: &[u8]) -> Vec<DataRun> {
    let mut runs: Vec<DataRun> = Vec::new();
    for (index, grain) in data.chunks(GRAIN_BYTES).enumerate() {
        let start = index * GRAIN_BYTES;
        let (end, is_zero) = (start + grain.len(), is_zero(grain));
        match runs.last_mut().filter(|last| last.is_zero == is_zero) {
            Some(last) => last.range.end = end,
            None => runs.push(DataRun { range: start..end, is_zero }),
        }
    }
    runs
}

/// Most data differ from zero in their first bytes; the rest is folded in strides that the compiler
/// vectorizes.
fn is_zero(bytes: &[u8]) -> bool {
    const STRIDE: usize = 1024;
    bytes.chunks(STRIDE).all(|stride| stride.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_makes_a_grain_data() {
        let mut bytes = vec![0; 4 * GRAIN_BYTES + 5];
        bytes[2 * GRAIN_BYTES - 1] = 1;
        let expected = [
            (0..GRAIN_BYTES, true),
            (GRAIN_BYTES..2 * GRAIN_BYTES, false),
            (2 * GRAIN_BYTES..bytes.len(), true),
        ];
        let expected = expected.map(|(range, is_zero)| DataRun { range, is_zero });
        assert_eq!(runs(&bytes), expected);
    }

    #[test]
    fn no_data_have_no_parts() {
        assert_eq!(runs(&[]), []);
    }
}
