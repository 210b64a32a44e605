//! The volumes that the first core looks after, by the names that they have.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use volume::{Snapshot, Volume};

/// What a volume that is served is called; it may get another name meanwhile.
pub(crate) struct Name(RefCell<String>);

impl Name {
    /// What it is called now, or was when it was served last.
    pub(crate) fn now(&self) -> String {
        self.0.borrow().clone()
    }
}

/// Volumes that are looked after.
#[derive(Default)]
pub(crate) struct Watched(Vec<(Weak<Volume>, Rc<Name>)>);

impl Watched {
    /// Goes by what is served now. Returns the volumes that are new.
    pub(crate) fn adapt(&mut self, served: &Snapshot) -> Vec<(Weak<Volume>, Rc<Name>)> {
        self.0.retain(|(volume, _)| volume.strong_count() > 0);
        let mut new = Vec::new();
        for (name, volume) in served.iter() {
            match self.0.iter().find(|(known, _)| known.as_ptr() == Arc::as_ptr(volume)) {
                Some((_, known)) => name.clone_into(&mut known.0.borrow_mut()),
                None => new.push((Arc::downgrade(volume), Rc::new(Name(RefCell::new(name.to_owned()))))),
            }
        }
        self.0.extend(new.iter().cloned());
        new
    }
}

#[cfg(test)]
mod tests {
    use block::{BlockSize, Blocks, Geometry, Null};
    use volume::Registry;

    use super::*;

    #[test]
    fn a_volume_that_gets_another_name_is_the_same_one() {
        let geometry = Geometry { block_size: BlockSize::B512, blocks: Blocks(8), physical_exponent: 0 };
        let volume = Volume::new(Arc::new(Null::new(geometry)), Default::default()).expect("a volume");
        let registry = Registry::new(vec![("old".to_owned(), Arc::clone(&volume))]);
        let mut watched = Watched::default();
        let new = watched.adapt(&registry.snapshot());
        let [(_, name)] = &new[..] else { panic!("one is new") };
        assert_eq!(name.now(), "old");
        registry.replace(vec![("new".to_owned(), volume)]);
        assert!(watched.adapt(&registry.snapshot()).is_empty());
        assert_eq!(name.now(), "new");
        registry.replace(Vec::new());
        watched.adapt(&registry.snapshot());
        assert_eq!(name.now(), "new", "what it was called last");
    }
}
