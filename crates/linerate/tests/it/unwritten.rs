//! Tests of output that cannot be written. Every command in clap's list is run with its standard output on a
//! full device. A new command cannot be forgotten, because [`Stage::commands`] must contain every command.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use tempfile::TempDir;

use crate::program::{LINERATE, PATIENCE, end_of, run, signal, until};
use crate::server::Server;
use crate::{attach, lab};

const NO_SPACE: i32 = 11;

/// The use of standard output by a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// The command prints its result.
    Prints,
    /// The command prints nothing on success.
    Nothing,
    /// The command prints that it is ready, and runs until a signal ends it.
    Announces,
    /// The command prints the server's events until the server ends.
    Follows,
}

use Output::{Announces, Follows, Nothing, Prints};

/// The resources that commands need to succeed.
struct Stage {
    server: Server,
    folder: TempDir,
}

impl Stage {
    fn set() -> Option<Stage> {
        let server = Server::serving(&[
            "disk=ram:16MiB",
            "other=fault:[ram:16MiB]",
            "grows=file:{state}/grows?size=1MiB",
        ]);
        if !server.is_ours() {
            return None;
        }
        let stage = Stage {
            server,
            folder: tempfile::tempdir().expect("a temporary folder"),
        };
        let sector = [0; 512];
        for (name, bytes) in [
            ("sector", &sector[..]),
            ("secret", b"correct horse battery staple"),
            ("plan.toml", b"[host.only]"),
            ("saveconfig.json", br#"{"storage_objects": [{"plugin": "ramdisk", "name": "r", "size": 1048576}], "targets": []}"#),
            ("image", &[0; 1 << 20]),
        ] {
            fs::write(stage.path(name), bytes).expect("a temporary file");
        }
        fs::set_permissions(stage.path("secret"), fs::Permissions::from_mode(0o600))
            .expect("our file");
        let result = stage.text("result");
        let bench = ["bench", "ram:1MiB", "--seconds", "0.5", "--out", &result];
        run(LINERATE, &bench).expect_success();
        let (log, image) = (stage.text("log"), stage.text("image"));
        let promises = [
            "bench",
            &image,
            "--allow-write",
            "--seconds",
            "0.5",
            "--block",
            "4KiB",
        ];
        run(
            LINERATE,
            &[
                &promises[..],
                &["--read", "50", "--verify", "--verify-log", &log],
            ]
            .concat(),
        )
        .expect_success();
        let other = stage.server.url("other");
        run(LINERATE, &["scsi", "register", &other, "--key", "abc"]).expect_success(); // will be cleared
        let set = stage.set_of(&["a", "b", "c"]);
        run(LINERATE, &["raid", "create", &set]).expect_success();
        run(LINERATE, &["copy", &image, &set, "--yes"]).expect_success();
        fs::remove_file(stage.path("b")).expect("a member");
        let lengthen = |mib: u64| {
            for name in ["h", "i", "j"] {
                let file = File::options()
                    .create(true)
                    .append(true)
                    .open(stage.path(name));
                file.and_then(|file| file.set_len(mib << 20))
                    .expect("a member");
            }
        };
        lengthen(96);
        run(LINERATE, &["raid", "create", &stage.whole_set()]).expect_success();
        lengthen(128);
        Some(stage)
    }

    /// A RAID set of these files.
    fn set_of(&self, members: &[&str]) -> String {
        let members: Vec<_> = members.iter().map(|name| self.member(name)).collect();
        format!("raid5:[{}]", members.join(","))
    }

    /// A set whose members are all present, and have new space.
    fn whole_set(&self) -> String {
        let members = ["h", "i", "j"].map(|name| self.text(name));
        format!("raid5:[{}]", members.join(","))
    }

    fn member(&self, name: &str) -> String {
        format!("file:{}?size=80MiB", self.text(name))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Every command, with arguments with which it succeeds, and its kind of output.
    fn commands(&self) -> Vec<(&'static str, Vec<String>, Output)> {
        let (disk, other) = (self.server.url("disk"), self.server.url("other"));
        let (portal, state) = (
            self.server.portal(),
            self.server.state().display().to_string(),
        );
        let control = format!("{state}/control");
        let [sector, result, attached, plan, foreign] = [
            "sector",
            "result",
            "attached",
            "plan.toml",
            "saveconfig.json",
        ]
        .map(|name| self.text(name));
        let (log, image, secret) = (self.text("log"), self.text("image"), self.text("secret"));
        let (own_state, proof) = (self.text("state"), self.text("proof"));
        let (copied, own_control) = (self.text("copied"), self.text("own-control"));
        let volume = "disk=ram:1MiB";
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let key = "--key abc";
        vec![
            (
                "bench agent",
                words(&format!("--listen 127.0.0.1:0 --secret-file {secret}")),
                Announces,
            ),
            ("attach", words(&format!("ram:1MiB {attached}")), Prints),
            ("attach --list", vec![], Prints),
            ("detach", words(&attached), Nothing),
            ("bench", words("ram:1MiB --seconds 0.5"), Prints),
            ("compare", words(&format!("{result} {result}")), Prints),
            ("completions", words("bash"), Prints),
            (
                "copy",
                words(&format!("ram:1MiB {copied} --yes --restart")),
                Prints,
            ),
            ("diagnose", words(&format!("{disk} --seconds 1")), Prints),
            ("discover", words(&portal), Prints),
            (
                "server fault",
                words(&format!("other pass --control {control}")),
                Nothing,
            ),
            ("import", words(&foreign), Prints),
            ("info", words(&disk), Prints),
            ("lab run", words(&format!("{plan} -- true")), Nothing),
            ("diagnose limits", vec![], Prints),
            ("man", vec![], Prints),
            ("lab peer", words("--listen 127.0.0.1:0"), Announces),
            (
                "selftest",
                words(&format!("--seconds 0.2 --out {proof}")),
                Prints,
            ),
            ("report published", vec![], Prints),
            ("reproduce", words("002 --plan"), Prints),
            (
                "raid create",
                words(&format!("{} --yes", self.set_of(&["e", "f", "g"]))),
                Prints,
            ),
            ("raid status", vec![self.whole_set()], Prints),
            (
                "raid assemble",
                ["h", "i", "j"].map(|name| self.text(name)).to_vec(),
                Prints,
            ),
            (
                "raid add",
                vec![
                    self.whole_set(),
                    format!("file:{}?size=96MiB", self.text("k")),
                    "--yes".to_owned(),
                ],
                Prints,
            ),
            ("raid grow", vec![self.whole_set()], Prints),
            (
                "raid fail",
                words(&format!("{} 1", self.whole_set())),
                Prints,
            ),
            ("raid scrub", words("raid1:[ram:8MiB,ram:8MiB]"), Prints),
            (
                "raid replace",
                words(&format!(
                    "{} 1 {} --yes",
                    self.set_of(&["a", "c"]),
                    self.member("d")
                )),
                Prints,
            ),
            ("read", words(&disk), Prints),
            ("report", words(&result), Prints),
            (
                "serve",
                words(&format!(
                    "--volume {volume} --listen 127.0.0.1:0 --state {own_state} --control {own_control}"
                )),
                Announces,
            ),
            (
                "server reload",
                words(&format!("--control {control}")),
                Prints,
            ),
            (
                "server events",
                words(&format!("--control {control}")),
                Follows,
            ),
            (
                "server volumes",
                words(&format!("--control {control}")),
                Prints,
            ),
            (
                "server targets",
                words(&format!("--control {control}")),
                Prints,
            ),
            (
                "server drop",
                words(&format!("65535 --control {control}")),
                Nothing,
            ),
            (
                "server metrics",
                words(&format!("--control {control}")),
                Prints,
            ),
            (
                "server usage",
                words(&format!("--control {control}")),
                Prints,
            ),
            (
                "server add",
                words(&format!("more=ram:1MiB --dry-run --control {control}")),
                Prints,
            ),
            (
                "server resize",
                words(&format!("grows 3MiB --dry-run --control {control}")),
                Prints,
            ),
            (
                "server remove",
                words(&format!("grows --dry-run --control {control}")),
                Prints,
            ),
            (
                "server sessions",
                words(&format!("--control {control}")),
                Prints,
            ),
            ("bench verify", words(&format!("{log} {image}")), Prints),
            ("write", words(&format!("{other} --yes")), Nothing),
            ("scsi inquiry", words(&disk), Prints),
            ("scsi vpd", words(&disk), Prints),
            ("scsi ready", words(&disk), Prints),
            ("scsi sense", words(&disk), Prints),
            ("scsi modes", words(&disk), Prints),
            ("scsi capacity", words(&disk), Prints),
            ("scsi lba-status", words(&disk), Prints),
            ("scsi luns", words(&disk), Prints),
            ("scsi port-groups", words(&disk), Prints),
            ("scsi opcodes", words(&disk), Prints),
            ("scsi registrations", words(&disk), Prints),
            ("scsi register", words(&format!("{disk} {key}")), Nothing),
            ("scsi reserve", words(&format!("{disk} {key}")), Nothing),
            ("scsi release", words(&format!("{disk} {key}")), Nothing),
            (
                "scsi preempt",
                words(&format!("{disk} {key} --victim abc")),
                Nothing,
            ),
            ("scsi unregister", words(&format!("{disk} {key}")), Nothing),
            ("scsi clear", words(&format!("{other} {key}")), Nothing),
            ("scsi unmap", words(&format!("{other} 0 8 --yes")), Nothing),
            (
                "scsi write-same",
                words(&format!("{other} 0 8 --yes")),
                Nothing,
            ),
            (
                "scsi compare-and-write",
                words(&format!("{other} 0 --expect {sector} --write {sector}")),
                Nothing,
            ),
            (
                "scsi sanitize",
                words(&format!("{other} --block-erase --yes")),
                Nothing,
            ),
            ("scsi sync", words(&disk), Nothing),
            ("scsi stop", words(&disk), Nothing),
            ("scsi start", words(&disk), Nothing),
            ("scsi abort-task-set", words(&disk), Nothing),
            ("scsi clear-task-set", words(&disk), Nothing),
            ("scsi reset-lun", words(&disk), Nothing),
            ("scsi reset-target", words(&disk), Nothing),
            (
                "scsi raw",
                words(&format!("{disk} --cdb 120000002400 --in 36")),
                Prints,
            ),
        ]
    }
}

/// Every command with an action, according to clap: `linerate man` writes a page for each.
fn known_commands() -> BTreeSet<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    run(LINERATE, &["man", &folder.path().display().to_string()]).expect_success();
    let pages = fs::read_dir(folder.path())
        .expect("pages")
        .map(|page| page.expect("a page").path());
    let pages = pages.filter(|page| page.extension().is_some_and(|section| section == "1"));
    let name = |page: &PathBuf| {
        page.file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    };
    let (groups, commands): (Vec<_>, Vec<_>) = pages.partition(|page| {
        fs::read_to_string(page)
            .is_ok_and(|text| text.lines().any(|line| line == ".SH SUBCOMMANDS"))
    });
    let groups: Vec<String> = groups.iter().map(name).collect();
    let words = |page: &PathBuf| {
        // A hyphen separates a group from its command, and also occurs in the names of some.
        let name = name(page);
        let group = groups
            .iter()
            .filter(|group| name.starts_with(&format!("{group}-")))
            .max_by_key(|it| it.len());
        let group = group.expect("linerate itself");
        let command = &name[group.len() + 1..];
        format!(
            "{} {command}",
            group.replace("linerate", "").trim_start_matches('-')
        )
        .trim()
        .to_owned()
    };
    // Hidden commands have no page, and these also have an action.
    let others = [
        "bench",
        "report",
        "diagnose",
        "completions",
        "man",
        "attach --list",
    ]
    .map(str::to_owned);
    commands.iter().map(words).chain(others).collect()
}

/// A command to run with this standard output.
fn linerate(name: &str, arguments: &[String], stdout: Stdio) -> Command {
    let mut command = Command::new(LINERATE);
    command
        .args(["--log", "error"])
        .args(name.split_whitespace())
        .args(arguments);
    command
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::piped());
    command
}

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .expect("a device that is always full")
        .into()
}

/// A pipe whose reading end is closed.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// Runs a command, and returns its exit code and its standard error.
fn ended(mut command: Command) -> (Option<i32>, String) {
    let mut child = command.spawn().expect("the linerate binary");
    let mut stderr = child.stderr.take().expect("a pipe");
    let said = std::thread::spawn(move || {
        let mut said = String::new();
        stderr
            .read_to_string(&mut said)
            .map(|_| said)
            .unwrap_or_default()
    });
    let status = end_of(&mut child);
    // A background process of the command has a different standard error.
    (status.code(), said.join().expect("text"))
}

fn complaints(said: &str) -> usize {
    said.lines()
        .filter(|line| line.starts_with("linerate: cannot write to standard output: "))
        .count()
}

#[test]
fn every_command_is_tried_with_an_output_that_is_full() {
    let Some(stage) = Stage::set() else { return };
    let tried: BTreeSet<String> = stage
        .commands()
        .iter()
        .map(|(name, ..)| (*name).to_owned())
        .collect();
    assert_eq!(
        tried,
        known_commands(),
        "a command is missing here, or is no more"
    );
    let (can_attach, can_build) = (attach::possible(), lab::can_build());
    let mut wrong = Vec::new();
    for (name, arguments, output) in stage.commands() {
        match name {
            "attach" | "detach" if !can_attach => continue,
            "lab run" if !can_build => continue,
            _ => {}
        }
        let expected = match output {
            _ if name == "server drop" => (Some(2), 0), // there is no such session
            Prints => (Some(NO_SPACE), 1),
            Nothing => (Some(0), 0),
            Announces => {
                let (code, said) = announces_to_a_full_device(name, &arguments);
                // Only a server shuts down in order; a signal ends the others.
                let expected = if name == "serve" {
                    Some(NO_SPACE)
                } else {
                    None
                };
                if (code, complaints(&said)) != (expected, 1) {
                    wrong.push(format!("{name}: {code:?} {said}"));
                }
                continue;
            }
            Follows => {
                let (code, said) = stage.follows_to_a_full_device(name, &arguments);
                if (code, complaints(&said)) != (Some(NO_SPACE), 1) {
                    wrong.push(format!("{name}: {code:?} {said}"));
                }
                continue;
            }
        };
        let mut ways = vec![arguments.clone()];
        if name != "attach" && offers_json(name) {
            ways.push([&arguments[..], &["--json".to_owned()]].concat());
        }
        for arguments in ways {
            let (code, said) = ended(linerate(name, &arguments, full()));
            // With `--json`, a command always prints a result, even for a failure.
            let answers = expected.1 == 0 && arguments.ends_with(&["--json".to_owned()]);
            let is_told = answers && code.is_some_and(|code| code != 0) && complaints(&said) == 1;
            if (code, complaints(&said)) != expected && !is_told {
                wrong.push(format!("{name} {arguments:?}: {code:?} {said}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} commands:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn offers_json(name: &str) -> bool {
    let words: Vec<&str> = name.split_whitespace().chain(["--help"]).collect();
    run(LINERATE, &words).expect_success().contains("--json")
}

/// Checks a command that cannot announce that it is ready: it must report this, and run until a signal ends
/// it.
fn announces_to_a_full_device(name: &str, arguments: &[String]) -> (Option<i32>, String) {
    let mut child = linerate(name, arguments, full())
        .spawn()
        .expect("the linerate binary");
    let lines = BufReader::new(child.stderr.take().expect("a pipe"))
        .lines()
        .map_while(Result::ok);
    let (sender, told) = mpsc::channel();
    std::thread::spawn(move || lines.for_each(|line| drop(sender.send(line + "\n"))));
    let mut said = String::new();
    while complaints(&said) == 0 {
        let Ok(line) = told.recv_timeout(PATIENCE) else {
            break;
        };
        said += &line;
    }
    signal(&child, "TERM");
    let status = end_of(&mut child);
    said.extend(told);
    (status.code(), said)
}

impl Stage {
    /// Checks the command that prints events. Its subscription starts at an unknown time, so sessions are
    /// started until one of them is printed.
    fn follows_to_a_full_device(&self, name: &str, arguments: &[String]) -> (Option<i32>, String) {
        let mut child = linerate(name, arguments, full())
            .spawn()
            .expect("the linerate binary");
        until("an event that cannot be printed", || {
            run(LINERATE, &["discover", &self.server.portal()]).expect_success();
            child.try_wait().expect("a child").is_some()
        });
        let mut said = String::new();
        child
            .stderr
            .take()
            .expect("a pipe")
            .read_to_string(&mut said)
            .expect("text");
        (child.wait().expect("a child").code(), said)
    }
}

#[test]
fn help_and_version_of_every_command_say_when_they_cannot_be_written() {
    let none = String::new();
    for name in known_commands().iter().chain([&none]) {
        for option in ["--help", "-h", "--version"] {
            let (code, said) = ended(linerate(name, &[option.to_owned()], full()));
            assert_eq!(
                (code, complaints(&said)),
                (Some(NO_SPACE), 1),
                "{name} {option}: {said}"
            );
        }
    }
    let (code, _) = ended(linerate("help", &["serve".to_owned()], full()));
    assert_eq!(code, Some(NO_SPACE));
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let Some(stage) = Stage::set() else { return };
    let prints = stage.commands().into_iter().filter(|(name, _, output)| {
        // `selftest` takes long, and `attach` leaves a file in use.
        *output == Prints && !["selftest", "attach"].contains(name)
    });
    for (name, arguments, _) in
        prints.chain([("help", vec![], Prints), ("--version", vec![], Prints)])
    {
        let (code, said) = ended(linerate(name, &arguments, closed()));
        assert_eq!((code, complaints(&said)), (Some(0), 0), "{name}: {said}");
    }
}

#[test]
fn files_that_cannot_be_written_for_want_of_space_have_the_same_code() {
    let Some(stage) = Stage::set() else { return };
    let disk = stage.server.url("disk");
    for arguments in [
        &["--record", "/dev/full", "scsi", "ready", &disk][..],
        &[
            "scsi",
            "raw",
            &disk,
            "--cdb",
            "120000002400",
            "--in",
            "36",
            "--save",
            "/dev/full",
        ],
        &[
            "diagnose",
            &disk,
            "--seconds",
            "1",
            "--evidence",
            "/dev/full",
        ],
    ] {
        let ended = run(LINERATE, arguments);
        assert_eq!(
            ended.status.code(),
            Some(NO_SPACE),
            "{arguments:?}: {}",
            ended.said
        );
    }
}
