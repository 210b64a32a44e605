//! A new record.

use bench::plan::Suite;
use bench::record::{FORMAT, Facts, Record, Subject};

use super::timestamp;

/// A record of nothing yet.
pub fn record(subject: Subject, suite: Suite, environment: Facts, notes: Vec<String>) -> Record {
    Record {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args().map(|argument| without_user(&argument)).collect(),
        begun: timestamp::now(),
        ended: None,
        subject,
        environment,
        suite,
        runs: Vec::new(),
        limits: Vec::new(),
        notes,
    }
}

/// The same argument without a user and what a secret might be, if it is a URL: a record is shown to others.
fn without_user(argument: &str) -> String {
    match argument.split_once("://") {
        // A secret may hold an @, so that the last one before the path counts; a target's name has none.
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, behind)) => format!("{scheme}://{behind}"),
            None => argument.to_owned(),
        },
        None => argument.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_names_no_user() {
        assert_eq!(without_user("iscsi://joe%a@b@san1/iqn.x/0?mtu=1"), "iscsi://san1/iqn.x/0?mtu=1");
        assert_eq!(without_user("ram:1GiB"), "ram:1GiB");
        assert_eq!(without_user("--depth"), "--depth");
    }
}
