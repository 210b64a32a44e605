//! Facts about the environment on which the results of a measurement depend: the machine, the path to the
//! storage, the negotiated keys, the storage, and the measuring program. Each has a separate file.
//!
//! Unknown facts are omitted. A fact that degrades a measurement or makes it less reliable has a
//! recommendation with a reason. [`server`] finds the server of the storage on this machine, whose CPU time
//! is part of the cost.
//!
//! ```
//! use bench::record::Group;
//!
//! let facts = environment::machine();
//! assert!(facts.value(Group::Client, "kernel").is_some_and(|kernel| kernel.starts_with("Linux ")));
//! ```

pub mod network;
pub mod server;
mod storage;
pub mod system;

use backends::location::Location;
use bench::record::{Fact, Facts, Group, Limit};
use block::BlockDevice;
use iscsi_client::Unit;
use system::System;

pub use network::{congestion, system_congestion};

/// Returns all known facts about a measurement of `place`, which is open as `device`. `unit` is the logical
/// unit behind the device, if there is one. Call this before the measurement, because it also records the
/// machine's current load.
pub async fn facts(place: &Location, device: &dyn BlockDevice, unit: Option<&Unit>) -> Facts {
    let system = System::this();
    let mut facts = system::machine_facts(&system);
    if let (Location::Lun(url), Some(unit)) = (place, unit) {
        let connections = unit
            .target()
            .statistics()
            .await
            .map(|all| all.connections)
            .unwrap_or_default();
        facts.extend(network::facts(&system, &connections));
        facts.extend(network::negotiated_facts(
            &url.settings.offers,
            &unit.target().parameters(),
        ));
    }
    facts.extend(storage::facts(&system, place, device, unit).await);
    facts.extend(tool());
    Facts(facts)
}

/// Returns facts about the machine and the program only, for a measurement whose path does not start on this
/// machine.
pub fn machine() -> Facts {
    let mut facts = system::machine_facts(&System::this());
    facts.extend(tool());
    Facts(facts)
}

/// Returns the maximum throughput of the link to the unit's target, for requests of these lengths. Empty if
/// the link is not a limit.
pub async fn ceilings(unit: &Unit, block_bytes: &[u32]) -> Vec<Limit> {
    let connections = unit
        .target()
        .statistics()
        .await
        .map(|all| all.connections)
        .unwrap_or_default();
    let link = connections
        .first()
        .and_then(|first| network::ethernet(&System::this(), first));
    let parameters = unit.target().parameters();
    let segment = parameters
        .local_max_recv_data_segment_length
        .min(parameters.peer_max_recv_data_segment_length);
    link.map(|link| link.limits(block_bytes, segment))
        .unwrap_or_default()
}

fn tool() -> [Fact; 1] {
    let optimized = !cfg!(debug_assertions);
    let better =
        (!optimized).then(|| "a release build: a debug build is several times slower".to_owned());
    let build = if optimized { "" } else { ", debug build" };
    [fact(
        Group::Tool,
        "linerate",
        format!("{}{build}", env!("CARGO_PKG_VERSION")),
        better,
    )]
}

fn fact(group: Group, name: &str, value: impl Into<String>, better: Option<String>) -> Fact {
    Fact {
        group,
        name: name.to_owned(),
        value: value.into(),
        better,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts_of(text: &str) -> Facts {
        let place = Location::parse(text).unwrap_or_else(|failure| panic!("{failure}"));
        backends::remote::run(async {
            let opened = place.open(true).await?;
            Ok(facts(&place, &*opened.device, None).await)
        })
        .unwrap_or_else(|failure| panic!("{failure}"))
    }

    #[test]
    fn this_machine_and_a_volume_are_known() {
        let facts = facts_of("delay:1ms:[ram:1MiB]");
        assert!(
            facts
                .value(Group::Client, "kernel")
                .is_some_and(|kernel| kernel.starts_with("Linux "))
        );
        assert!(facts.value(Group::Client, "CPUs").is_some());
        assert_eq!(
            facts.value(Group::Storage, "volume"),
            Some("delay:1ms:[ram:1MiB]")
        );
        assert!(
            facts
                .value(Group::Storage, "capacity")
                .is_some_and(|size| size.starts_with("1MiB, "))
        );
        assert!(facts.0.iter().all(|fact| fact.group != Group::Network));
    }

    #[test]
    fn the_file_system_of_a_file_is_known() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(1 << 20).expect("long enough");
        let facts = facts_of(file.path().to_str().expect("text"));
        assert!(
            facts.value(Group::Storage, "file system").is_some(),
            "{facts:?}"
        );
    }
}
