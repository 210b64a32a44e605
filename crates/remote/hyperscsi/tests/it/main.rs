//! Tests of client and server: on a simulated Ethernet in virtual time (`lossy`), and over UDP and on a real
//! interface (`real`).

mod load;
mod lossy;
mod real;
mod server;
