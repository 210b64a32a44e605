//! Shell completion, in the shell itself.

use std::path::Path;
use std::process::Command;

use tempfile::NamedTempFile;

use crate::program::{installed, linerate, run_command};

/// The script for a shell as a file, because it is too long for an argument.
fn script(shell: &str) -> NamedTempFile {
    let file = NamedTempFile::new().expect("a file");
    std::fs::write(
        file.path(),
        linerate(&["completions", shell]).expect_success(),
    )
    .expect("a file");
    file
}

/// The completions of bash for the last of these words.
fn bash(script: &Path, words: &[&str]) -> Vec<String> {
    let list = words
        .iter()
        .map(|word| format!("'{word}'"))
        .collect::<Vec<_>>()
        .join(" ");
    let (at, last, before) = (
        words.len() - 1,
        words[words.len() - 1],
        words[words.len() - 2],
    );
    let asked = format!(
        ". {}; COMP_WORDS=({list}); COMP_CWORD={at}; _linerate linerate '{last}' '{before}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display()
    );
    let said = run_command(Command::new("bash").args(["--noprofile", "--norc", "-c", &asked]))
        .expect_success();
    said.lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn bash_completes_the_words_that_are_known() {
    needs!(installed(&["bash"]));
    let script = script("bash");
    let bash = |words: &[&str]| bash(script.path(), words);
    assert_eq!(
        bash(&["linerate", "bench", "--suite", "vm"]),
        ["vmware4", "vmware4-aligned"]
    );
    assert_eq!(bash(&["linerate", "bench", "--suite", "w"]), ["wan"]);
    // Nothing matches: bash completes files (`complete -o default`).
    assert_eq!(bash(&["linerate", "bench", "--suite", "./mine"]), [""; 0]);
    assert_eq!(bash(&["linerate", "bench", "--rw", "randw"]), ["randwrite"]);
    assert_eq!(bash(&["linerate", "bench", "--align", "n"]), ["natural"]);
    assert_eq!(bash(&["linerate", "bench", "--beside", "00"]).len(), 5);
    assert_eq!(
        bash(&[
            "linerate",
            "scsi",
            "reserve",
            "--type",
            "exclusive-access-r"
        ]),
        ["exclusive-access-registrants-only"]
    );
    assert_eq!(
        bash(&["linerate", "server", "add", "--front-end", ""]),
        ["iscsi", "nbd", "aoe", "hyperscsi"]
    );
    assert_eq!(bash(&["linerate", "--log", "de"]), ["debug"]);
}

#[test]
fn zsh_and_fish_offer_suites_and_files() {
    let [zsh, fish] = ["zsh", "fish"].map(script);
    let text = |file: &NamedTempFile| std::fs::read_to_string(file.path()).expect("a script");
    let files = r#"pts wan)" "files\:file\:_files""#;
    let in_zsh = text(&zsh);
    assert!(
        in_zsh.contains(r#":SUITE: _alternative "suites\:suite\:(quick "#)
            && in_zsh.contains(files)
    );
    let in_fish = text(&fish);
    let suite = in_fish
        .lines()
        .find(|line| line.contains(" -l suite "))
        .expect("the option");
    assert!(suite.contains(" -r -F -a \"quick"), "{suite}");
    if installed(&["zsh"]) {
        run_command(Command::new("zsh").args(["-f", "-n"]).arg(zsh.path())).expect_success();
    }
    if installed(&["fish"]) {
        let asked = format!(
            ". {}; complete -C 'linerate bench --suite vm'",
            fish.path().display()
        );
        let said =
            run_command(Command::new("fish").args(["--no-config", "-c", &asked])).expect_success();
        assert!(said.lines().any(|line| line.trim() == "vmware4"), "{said}");
    }
}
