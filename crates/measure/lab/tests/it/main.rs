//! Tests with real labs. They require the permission to create network namespaces and to use /dev/net/tun.
//! Without it, each test is skipped with a message.

mod scene;

mod ending;
mod path;
