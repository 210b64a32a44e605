//! The program `simulate`, built by `cargo xtask simulate` with optimised crates.

use std::process::ExitCode;

#[path = "../src/bin/simulate.rs"]
mod simulate;

fn main() -> ExitCode {
    simulate::main()
}
