//! The `linerate` program.
mod nearest;
mod spec;
fn main() {}
