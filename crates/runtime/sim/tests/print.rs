//! Checks that the output of a simulation depends only on its seed.

use std::process::Command;

#[test]
fn the_beginning_of_a_world_is_the_same_again() {
    let print = || {
        let output = Command::new(env!("CARGO_BIN_EXE_simulate"))
            .args(["print", "300", "7"])
            .output();
        let output = output.expect("the simulation runs");
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let first = print();
    assert!(!first.is_empty());
    assert_eq!(first, print());
}
