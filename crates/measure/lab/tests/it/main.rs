//! Labs that are really built. They need the right to make network namespaces and /dev/net/tun; without, each
//! test says so and does nothing.

mod scene;

mod ending;
mod path;
