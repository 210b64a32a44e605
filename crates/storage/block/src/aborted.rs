//! What has to stay as it is for requests that were aborted, until the device cannot carry them out any more.

/// Entries of aborted requests, in the order in which these were aborted. Before [`BlockDevice::quiesced`] is asked for,
/// [`Aborted::count`] is taken; when it has ended, [`Aborted::settle`] gives back the entries from before that. Requests that
/// are aborted in between keep theirs.
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
    /// A request was aborted, and the device may have it still.
    pub fn push(&mut self, entry: T) {
        self.entries.push((self.count, entry));
        self.count += 1;
    }

    /// How many requests were aborted so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The device has completed or cancelled the first `count` of them: their entries, for the caller to drop.
    #[must_use]
    pub fn settle(&mut self, count: u64) -> Vec<T> {
        self.entries.extract_if(.., |(number, _)| *number < count).map(|(_, entry)| entry).collect()
    }

    /// The entries of those that the device may have still.
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
