//! If there is an error anywhere in the configuration file, a reload is rejected, and the message contains
//! the line and column, as with `linerate serve --check`. The server continues as before.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use daemon::{Config, Live, ReloadOptions, StartOptions, start};
use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestRunner};

/// Every section, and most keys.
const TEXT: &str = r#"
reactors = 1
poll = "50us"
gather = "0us"
io-engine = "auto"

[log]
filter = "warn,audit=info" # --log
format = "json"

[[portal]]
listen = "iscsi://127.0.0.1:0"
group = 1
advertise = "san.example.com:3260"
send-buffer = "4MiB"

[[portal]]
listen = "127.0.0.2:0"
group = 2

[volume.vm1]
spec = "delay:1us:[ram:1MiB?block=4096]?removable"
uuid = "6f2d4c1e-8a3b-4f5d-9c7e-1b2a3c4d5e6f"
previous-name = "virtual-machine-1"
deadline = "30s"

[volume.iso]
spec = "ram:2MiB"
read-only = true
thick = false

[[target]]
name = "iqn.2026-01.com.example:disks"
alias = "the disks"
groups = [1, 2]
initiators = ["iqn.1993-08.org.debian:*", "iqn.1991-05.com.microsoft:host1"]
networks = ["192.0.2.0/24", "2001:db8::/32"]

[[target.lun]]
lun = 0
volume = "vm1"

[[target.lun]]
lun = 1
volume = "iso"
initiators = ["iqn.1993-08.org.debian:*"]

[target.session]
initial-r2t = false
first-burst = "256KiB"
max-burst = "16776192B"
max-outstanding-r2t = 8
header-digest = ["none", "crc32c"]

[target.chap]
algorithms = ["sha3-256", "sha256", "md5"]

[[target.chap.account]]
user = "alice"
secret = "twelve-bytes-and-more"
initiators = ["iqn.1993-08.org.debian:*"]

[target.chap.mutual]
user = "disks"
secret = "another-long-secret"

[[target]]
name = "iqn.2026-01.com.example:moved"

[target.redirect]
address = "192.0.2.2:3260"
permanent = false

[discovery.chap]
algorithms = ["sha256"]

[[discovery.chap.account]]
user = "alice"
secret = "twelve-bytes-and-more"

[limits]
sessions = 4096
login-time = "15s"
connections-per-session = 8
staging = "1GiB"
"#;

/// Splits a text into words, numbers, single marks and white space.
fn tokens(text: &str) -> Vec<&str> {
    let is_word = |letter: char| letter.is_alphanumeric();
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
        let length = if is_word(first) {
            word
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after;
    }
    tokens
}

/// A mutation of a token.
#[derive(Clone, Debug)]
enum Mutation {
    Gone,
    Twice,
    Like(prop::sample::Index),
    Written(String),
    Cut(prop::sample::Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let words = [
        "",
        "0",
        "-1",
        "99999999999999999999",
        "1e9",
        "nan",
        "true",
        "\u{0}",
        "\n",
        "é",
        "\"",
        "[",
        "{",
        "}",
        "'''",
    ];
    prop_oneof![
        Just(Mutation::Gone),
        Just(Mutation::Twice),
        any::<prop::sample::Index>().prop_map(Mutation::Like),
        prop::sample::select(words.to_vec()).prop_map(|word| Mutation::Written(word.to_owned())),
        "\\PC{1,3}".prop_map(Mutation::Written),
        any::<prop::sample::Index>().prop_map(Mutation::Cut),
    ]
}

fn mutated(at: &prop::sample::Index, mutation: &Mutation) -> String {
    let mut tokens = tokens(TEXT);
    let at = at.index(tokens.len());
    let written;
    match mutation {
        Mutation::Gone => drop(tokens.remove(at)),
        Mutation::Twice => tokens.insert(at, tokens[at]),
        Mutation::Like(other) => tokens[at] = tokens[other.index(tokens.len())],
        Mutation::Written(text) => {
            written = text.clone();
            tokens[at] = &written;
        }
        Mutation::Cut(end) => tokens.truncate(end.index(tokens.len())),
    }
    tokens.concat()
}

/// Whether the sentence begins with a position in that file.
fn names_a_place(sentence: &str, path: &Path, text: &str) -> bool {
    let Some(rest) = sentence.strip_prefix(&format!("{}:", path.display())) else {
        return false;
    };
    let mut numbers = rest.splitn(3, ':').map(str::parse::<usize>);
    let (Some(Ok(line)), Some(Ok(column))) = (numbers.next(), numbers.next()) else {
        return false;
    };
    (1..=text.split('\n').count()).contains(&line) && column >= 1
}

fn serves(live: &Live) -> (String, Vec<(String, String)>) {
    let targets = live.with_config(daemon::announce::summary);
    let volumes = live
        .volumes()
        .into_iter()
        .map(|volume| (volume.name, volume.spec));
    (targets, volumes.collect())
}

#[test]
fn a_file_with_a_mistake_anywhere_is_refused_at_its_place_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("linerate.toml");
    fs::write(&path, TEXT).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("our own file"); // it holds secrets
    let start_options = StartOptions {
        path: Some(path.clone()),
        state: Some(folder.path().join("state")),
        ..StartOptions::default()
    };
    let config = start_options.safe_config().expect("nothing wrong");
    let mut server = start(start_options.clone(), config).expect("started");
    server.open().expect("threads");
    let live = server.live();
    let before = serves(live);
    let (accepted, refused) = (Cell::new(0), Cell::new(0));
    let runs = Runs {
        cases: 400,
        failure_persistence: None,
        ..Runs::default()
    };
    let outcome = TestRunner::new(runs).run(
        &(any::<prop::sample::Index>(), mutation()),
        |(at, mutation)| {
            let text = mutated(&at, &mutation);
            fs::write(&path, &text).expect("a file");
            // The check that `linerate serve --check` makes.
            let check = start_options.safe_config();
            let is_good = Config::parse(&path.display().to_string(), &text).is_ok();
            let options = ReloadOptions {
                dry_run: check.is_ok(),
                force: true,
            };
            match (check, live.reload(options, "test")) {
                (Ok(_), Ok(_)) => accepted.set(accepted.get() + 1),
                (Err(check), Err(reload)) => {
                    refused.set(refused.get() + 1);
                    let sentence = reload.to_string();
                    prop_assert_eq!(&check.to_string(), &sentence);
                    // A valid file without a target is rejected as a whole.
                    let is_whole = is_good && sentence.contains("nothing to serve");
                    prop_assert!(
                        is_whole || names_a_place(&sentence, &path, &text),
                        "{}",
                        sentence
                    );
                }
                (check, reload) => prop_assert!(false, "{check:?} and {reload:?}"),
            }
            prop_assert_eq!(serves(live), before.clone());
            Ok(())
        },
    );
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(
        accepted.get() > 20 && refused.get() > 100,
        "{accepted:?} accepted, {refused:?} refused"
    );
    live.shutdown(Duration::ZERO);
    server.join().expect("flushed");
}
