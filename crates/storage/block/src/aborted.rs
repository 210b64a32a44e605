//! State kept for aborted requests until the device can no longer carry them out.

/// Entries of aborted requests, in the order of the aborts. Take [`Aborted::count`] before calling
/// [`BlockDevice::quiesced`]; when that has ended, [`Aborted::settle`] returns the entries from before.
/// Requests aborted in between keep theirs.
///
/// [`BlockDevice::quiesced`]: crate::BlockDevice::quiesced
pub struct Aborted<T> {
    count: u64,
    entries: Vec<(u64, T)>,
}

impl<T> Default for Aborted<T> {
    fn default() -> Aborted<T> {
        Aborted { count: 0, entries: Vec::new() }
    }
}

impl<T> Aborted<T> {
    /// Adds the entry of an aborted request that may still be outstanding at the device.
    pub fn push(&mut self, entry: T) {
        self.entries.push((self.count, entry));
        self.count += 1;
    }

    /// Number of aborted requests so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The device has completed or cancelled the first `count` of them: returns their entries, for the caller
    /// to drop.
    #[must_use]
    pub fn settle(&mut self, count: u64) -> Vec<T> {
        self.entries.extract_if(.., |(number, _)| *number < count).map(|(_, entry)| entry).collect()
    }

    /// Entries of requests that may still be outstanding at the device.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_aborted_while_the_device_is_quiesced_stays() {
        let mut aborted = Aborted::default();
        aborted.push('a');
        let before = aborted.count();
        aborted.push('b');
        assert_eq!(aborted.settle(before), ['a']);
        assert_eq!(aborted.iter().collect::<Vec<_>>(), [&'b']);
        assert_eq!(aborted.settle(before), []);
    }
}
