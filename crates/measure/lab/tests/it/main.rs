//! Tests with real labs. They need the right to create network namespaces and /dev/net/tun; without it, each
//! test is skipped with a message.

mod scene;

mod ending;
mod path;
