//! Registrations of reservation keys made by a session. A registration belongs to one I_T nexus (SPC-4 5.13):
//! when the session has moved to another portal group, its keys are not registered there, and its user must
//! be informed.

use block::Lock;
use iscsi::pdu::Lun;

use crate::effect::Effect;

/// The registrations of a session, as far as they were made through it.
#[derive(Debug, Default)]
pub(crate) struct Registrations(Lock<Lists>);

#[derive(Debug, Default)]
struct Lists {
    /// By the present nexus.
    present: Vec<Lun>,
    /// By nexuses that the session has left.
    orphaned: Vec<Lun>,
}

impl Registrations {
    /// Records an executed command.
    pub(crate) fn note(&self, lun: Lun, effect: Effect) {
        if !matches!(effect, Effect::Registers | Effect::Unregisters) {
            return;
        }
        let Lists { present, orphaned } = &mut *self.0.lock();
        present.retain(|registered| *registered != lun);
        orphaned.retain(|registered| *registered != lun);
        present.extend((effect == Effect::Registers).then_some(lun));
    }

    /// The session has another nexus. Returns the units whose registrations are no longer valid.
    pub(crate) fn moved(&self) -> Vec<Lun> {
        let Lists { present, orphaned } = &mut *self.0.lock();
        orphaned.extend(&*present);
        std::mem::take(present)
    }

    /// Whether a registration with this unit is no longer valid.
    pub(crate) fn is_orphaned(&self, lun: Lun) -> bool {
        self.0.lock().orphaned.contains(&lun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_is_orphaned_until_it_is_made_again() {
        let (registrations, lun) = (Registrations::default(), Lun(0));
        registrations.note(lun, Effect::Registers);
        assert!(!registrations.is_orphaned(lun));
        assert_eq!(registrations.moved(), [lun]);
        assert!(registrations.is_orphaned(lun));
        assert_eq!(registrations.moved(), [], "it was told");
        registrations.note(lun, Effect::Registers);
        assert!(!registrations.is_orphaned(lun));
    }

    #[test]
    fn who_has_unregistered_leaves_no_orphan() {
        let (registrations, lun) = (Registrations::default(), Lun(0));
        registrations.note(lun, Effect::Registers);
        registrations.note(lun, Effect::Cached);
        registrations.note(lun, Effect::Unregisters);
        assert_eq!(registrations.moved(), []);
    }
}
