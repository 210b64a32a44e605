//! The logical unit that was opened, to which every path must lead.

use block::{Geometry, Profile};

use crate::verbs::Identity;

/// What a logical unit is known by when it is reached by another path.
#[derive(Clone, Debug)]
pub(crate) struct LunReference {
    pub(crate) identity: Identity,
    pub(crate) geometry: Geometry,
    pub(crate) profile: Profile,
}

impl LunReference {
    /// Why this cannot be the unit that `self` was, which may have grown.
    pub(crate) fn difference(&self, now: &LunReference) -> Option<String> {
        if self.identity == Identity::Unknown {
            return Some("it has no name by which it could be recognised".to_owned());
        }
        if now.identity != self.identity {
            return Some(format!("it is {} instead of {}", now.identity, self.identity));
        }
        let (old, new) = (self.geometry, now.geometry);
        if new.block_size != old.block_size || new.blocks < old.blocks {
            let (old, new) = (old.bytes(), new.bytes());
            return Some(format!(
                "its capacity is {new} bytes instead of {old}, or its blocks have another size"
            ));
        }
        (now.profile.read_only && !self.profile.read_only).then(|| "it is write-protected".to_owned())
    }
}
