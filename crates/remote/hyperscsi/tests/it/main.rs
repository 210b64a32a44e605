//! Client and server: on a simulated Ethernet in virtual time (`lossy`), over UDP and on a real interface (`real`).

#[path = "../../../aoe/tests/lossy/ethernet.rs"]
#[allow(dead_code)] // what only the tests of AoE use
mod ethernet;

mod disk;
mod load;
mod lossy;
mod real;
mod server;
