//! The `linerate` program.
fn main() {}
