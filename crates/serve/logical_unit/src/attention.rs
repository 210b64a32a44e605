//! Unit attentions: conditions that are reported to an initiator before its next command is carried out
//! (SAM-5 5.14).

use scsi::{Condition, SenseKey, asc};

/// A cause of a unit attention. They are reported in the order of this list, not of their arrival: resets
/// come before changes of a single property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Attention {
    PowerOn,
    BusDeviceReset,
    MediumChanged,
    ReportedLunsChanged,
    InquiryChanged,
    CapacityChanged,
    ModeParametersChanged,
    ReservationsPreempted,
    ReservationsReleased,
    RegistrationsPreempted,
}

impl Attention {
    pub(crate) fn condition(self) -> Condition {
        let code = match self {
            Attention::PowerOn => asc::POWER_ON_OR_RESET,
            Attention::BusDeviceReset => asc::BUS_DEVICE_RESET,
            Attention::MediumChanged => asc::MEDIUM_MAY_HAVE_CHANGED,
            Attention::ReportedLunsChanged => asc::REPORTED_LUNS_DATA_CHANGED,
            Attention::InquiryChanged => asc::INQUIRY_DATA_CHANGED,
            Attention::CapacityChanged => asc::CAPACITY_DATA_CHANGED,
            Attention::ModeParametersChanged => asc::MODE_PARAMETERS_CHANGED,
            Attention::ReservationsPreempted => asc::RESERVATIONS_PREEMPTED,
            Attention::ReservationsReleased => asc::RESERVATIONS_RELEASED,
            Attention::RegistrationsPreempted => asc::REGISTRATIONS_PREEMPTED,
        };
        Condition::new(SenseKey::UnitAttention, code)
    }
}

/// The pending unit attentions of one I_T nexus. Each cause is pending at most once.
#[derive(Debug, Default)]
pub(crate) struct Attentions {
    waiting: Vec<Attention>,
}

impl Attentions {
    pub(crate) fn raise(&mut self, attention: Attention) {
        if let Err(place) = self.waiting.binary_search(&attention) {
            self.waiting.insert(place, attention);
        }
    }

    /// Takes the next one to report.
    pub(crate) fn take(&mut self) -> Option<Attention> {
        (!self.waiting.is_empty()).then(|| self.waiting.remove(0))
    }

    pub(crate) fn clear(&mut self, attention: Attention) {
        self.waiting.retain(|waiting| *waiting != attention);
    }

    pub(crate) fn has(&self, attention: Attention) -> bool {
        self.waiting.contains(&attention)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_importance_and_repetitions_are_dropped() {
        let mut attentions = Attentions::default();
        for attention in [Attention::CapacityChanged, Attention::PowerOn, Attention::CapacityChanged] {
            attentions.raise(attention);
        }
        assert_eq!(attentions.take(), Some(Attention::PowerOn));
        assert_eq!(attentions.take(), Some(Attention::CapacityChanged));
        assert_eq!(attentions.take(), None);
    }
}
