//! The identity of a logical unit, by which it is recognised after a reconnect.

use std::collections::BTreeSet;
use std::fmt;

use scsi::{Association, Designator, Name, VpdContent};

use super::VerbError;
use crate::unit::Unit;

/// What a logical unit is known by. Two that are equal are one, as far as anybody can tell; one that has got
/// another name is another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The names of the logical unit in its Device Identification page.
    Designators(BTreeSet<Name>),
    /// Its serial number, for want of better.
    Serial(String),
    /// It tells nothing.
    Unknown,
}

impl Identity {
    fn from_designators(designators: Vec<Designator>) -> Option<Identity> {
        let unit = designators.into_iter().filter(|one| one.association == Association::LogicalUnit);
        // A group is no name: other logical units are in it.
        let names: BTreeSet<Name> =
            unit.map(|one| one.name).filter(|name| !matches!(name, Name::LogicalUnitGroup(_))).collect();
        (!names.is_empty()).then_some(Identity::Designators(names))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Designators(names) => {
                let words: Vec<String> = names.iter().map(Name::to_string).collect();
                f.write_str(&words.join(", "))
            }
            Identity::Serial(serial) => write!(f, "serial number {serial}"),
            Identity::Unknown => write!(f, "a device without a name"),
        }
    }
}

impl Unit {
    /// Asks who is there: the unit's names, else its serial number. A target that has neither is no error.
    pub async fn identity(&self) -> Result<Identity, VerbError> {
        let pages = self.vpd_pages().await.or_else(unless_refused)?;
        self.identity_by(&pages).await
    }

    /// The same, by the list of vital product data pages there are.
    pub(crate) async fn identity_by(&self, pages: &[u8]) -> Result<Identity, VerbError> {
        if pages.contains(&0x83)
            && let VpdContent::Designators(designators) = self.content(0x83).await?
            && let Some(identity) = Identity::from_designators(designators)
        {
            return Ok(identity);
        }
        if pages.contains(&0x80)
            && let VpdContent::SerialNumber(serial) = self.content(0x80).await?
            && !serial.is_empty()
        {
            return Ok(Identity::Serial(serial));
        }
        Ok(Identity::Unknown)
    }

    /// What a page says; nothing if it is refused.
    async fn content(&self, page: u8) -> Result<VpdContent, VerbError> {
        self.vpd(page).await.map(|page| page.content).or_else(unless_refused)
    }
}

/// A refusal says that there is nothing; a lost connection says nothing.
fn unless_refused<T: Default>(error: VerbError) -> Result<T, VerbError> {
    match error {
        VerbError::Refused { .. } | VerbError::Orphaned(_) | VerbError::Nonsense(_) => Ok(T::default()),
        VerbError::Lost(_) | VerbError::OutOfRange(_) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn designator(association: Association, name: Name) -> Designator {
        Designator { association, protocol: None, name }
    }

    #[test]
    fn a_unit_is_known_by_its_own_names_and_not_by_its_port() {
        let naa = Name::Naa(vec![0x60; 16]);
        let by_port = |port| {
            Identity::from_designators(vec![
                designator(Association::LogicalUnit, naa.clone()),
                designator(Association::TargetPort, Name::RelativeTargetPort(port)),
            ])
        };
        assert_eq!(by_port(1), by_port(2));
        assert!(
            Identity::from_designators(vec![designator(
                Association::TargetPort,
                Name::RelativeTargetPort(1)
            )])
            .is_none()
        );
    }

    #[test]
    fn the_order_of_names_does_not_matter_and_their_number_does() {
        let known = |names: &[u8]| {
            let of_unit = |name: &u8| designator(Association::LogicalUnit, Name::Eui64(vec![*name; 8]));
            Identity::from_designators(names.iter().map(of_unit).collect())
        };
        assert_eq!(known(&[1, 2]), known(&[2, 1]));
        assert_ne!(known(&[1]), known(&[1, 2]));
    }
}
