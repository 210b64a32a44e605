//! Negotiated keys as facts, with the recommendations of `linerate info`.

use bench::record::{Fact, Group};
use inspect::negotiation::negotiated;
use iscsi::negotiate::{Offers, Parameters};

use super::fact;

/// A fact for each key.
pub(super) fn facts(offers: &Offers, got: &Parameters) -> Vec<Fact> {
    let keys = negotiated(offers, got);
    keys.iter().map(|key| fact(Group::Negotiated, key.name(), key.value(), key.better())).collect()
}

#[cfg(test)]
mod tests {
    use iscsi::negotiate::SessionType;
    use iscsi_client::Settings;

    use super::*;

    #[test]
    fn a_key_that_costs_something_says_what_would_be_better_and_why() {
        let got = Parameters::defaults(SessionType::Normal);
        let facts = facts(&Settings::default().offers(), &got);
        let key = |name| facts.iter().find(|fact| fact.name == name).expect("a key");
        assert_eq!(key("InitialR2T").value, "Yes");
        assert!(key("InitialR2T").better.as_ref().is_some_and(|better| better.starts_with("No: ")));
        assert_eq!(key("HeaderDigest").better, None);
    }
}
