//! What has to be known of the machines and the way between them.

use serde::{Deserialize, Serialize};

/// What is known, in the order in which people read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Facts(pub Vec<Fact>);

/// One thing that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Where it belongs.
    pub group: Group,
    /// What it is: `kernel`, `MTU`, `FirstBurstLength`.
    pub name: String,
    /// Its value, with its unit.
    pub value: String,
    /// What would be better, if it is below what is recommended, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub better: Option<String>,
}

/// What a fact is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// This machine: kernel, CPUs, memory, clock source.
    Client,
    /// The way: interface, link speed, MTU, congestion control, round trip.
    Network,
    /// What initiator and target agreed on.
    Negotiated,
    /// The storage: vendor, capacity, write cache, provisioning.
    Storage,
    /// What measured.
    Tool,
}

impl Facts {
    /// Adds one that is as it should be.
    pub fn add(&mut self, group: Group, name: impl Into<String>, value: impl Into<String>) {
        self.0.push(Fact { group, name: name.into(), value: value.into(), better: None });
    }

    /// The value of one, if it is known.
    pub fn value(&self, group: Group, name: &str) -> Option<&str> {
        let fact = self.0.iter().find(|fact| fact.group == group && fact.name == name);
        fact.map(|fact| fact.value.as_str())
    }
}
