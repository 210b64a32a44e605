//! Who may log in to what.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use front_end_core::{AddressBlock, HostAddress};
use hyperscsi::Refusal;
use hyperscsi::target::{Admission, Directory};

use crate::config::Config;
use crate::interface::Place;

/// The directory of the machine.
pub(crate) struct Door {
    pub(crate) config: Arc<Config>,
}

impl Directory<Place> for Door {
    fn admit(&self, initiator: &str, target: &str, from: &Place) -> Result<Admission, Refusal> {
        let target = self.config.target(target).ok_or(Refusal::UnknownTarget)?;
        if !target.admits(initiator, from.address.into()) {
            return Err(Refusal::UnknownTarget);
        }
        match target.keys.get(initiator) {
            Some(key) => Ok(Admission::Key(key.clone())),
            None if target.keys.is_empty() => Ok(Admission::Open),
            None => Err(Refusal::Authentication),
        }
    }

    fn origin(&self, from: &Place) -> u64 {
        let mut hasher = DefaultHasher::new();
        AddressBlock::from(HostAddress::from(from.address)).hash(&mut hasher);
        hasher.finish()
    }

    /// The question has no name of an initiator in it.
    fn targets(&self, from: &Place) -> Vec<String> {
        let targets = self.config.targets.iter();
        let known = targets.filter(|target| target.access.admits_address(from.address.into()));
        known.map(|target| target.name.clone()).collect()
    }
}
