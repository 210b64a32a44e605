use iscsi::keys::{self, Key};
use iscsi::negotiate::Offers;

use super::*;
use crate::front_ends::iscsi::target::Account;

fn mistakes(text: &str) -> String {
    Config::parse("x.toml", text)
        .expect_err("mistakes")
        .to_string()
}

/// Expects one error, at this place and with this text.
#[track_caller]
fn refused(text: &str, place: &str, says: &str) {
    let shown = mistakes(text);
    let heads: Vec<&str> = shown
        .lines()
        .filter(|line| line.starts_with("x.toml:"))
        .collect();
    let [head] = heads.as_slice() else {
        panic!("more than one mistake:\n{shown}")
    };
    assert!(
        head.starts_with(&format!("x.toml:{place}: ")),
        "not at {place}:\n{shown}"
    );
    assert!(head.contains(says), "not {says}:\n{shown}");
}

/// Expects one error for each row: a text whose lines `\n` separates, the place, and a part of the message. `whole`
/// completes the text.
#[track_caller]
fn each_refused(whole: impl Fn(&str) -> String, rows: &str) {
    for row in rows.trim_matches('\n').lines() {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [text, place, says] = cells[..] else {
            panic!("not three cells: {row}")
        };
        refused(&whole(&text.replace("\\n", "\n")), place, says);
    }
}

/// Surrounds the lines under test with a volume and a target.
fn with_target(lines: &str) -> String {
    format!(
        "[volume.vm1]\nspec = \"ram:1GiB\"\n[[target]]\nname = \"iqn.2026-01.com.example:t\"\n\
         lun = [{{ lun = 0, volume = \"vm1\" }}]\n{lines}"
    )
}

#[test]
fn an_empty_file_is_a_configuration() {
    let config = Config::parse("x.toml", "").expect("nothing wrong");
    assert!(
        config.iscsi().portals.is_empty()
            && config.volumes.is_empty()
            && config.iscsi().targets.is_empty()
    );
}

#[test]
fn all_mistakes_are_told_at_once_in_the_order_of_the_file() {
    let shown = mistakes("reactors = 0\nstaate = \"/x\"\n[volume.vm1]\nspec = \"ram:1gb\"\n");
    let heads: Vec<&str> = shown
        .lines()
        .filter(|line| line.starts_with("x.toml:"))
        .collect();
    assert_eq!(heads.len(), 3, "{shown}");
    assert!(
        heads[0].starts_with(
            "x.toml:1:12: `reactors`: 0 is out of range; write a number from 1 to 1024"
        )
    );
    assert!(
        heads[1].starts_with("x.toml:2:1: unknown key `staate` in the file; did you mean `state`?")
    );
    assert!(
        heads[2].starts_with("x.toml:4:13: unknown unit `gb`; write 1GB"),
        "{shown}"
    );
    assert!(
        shown.ends_with("4 | spec = \"ram:1gb\"\n  |             ^^^"),
        "{shown}"
    );
}

#[test]
fn what_is_not_toml_is_shown_at_its_place() {
    let shown = mistakes("[volume.vm1\nspec = 1");
    assert!(shown.starts_with("x.toml:1:12: invalid TOML"), "{shown}");
}

#[test]
fn values_of_the_wrong_kind_are_refused_with_an_example() {
    each_refused(
        str::to_owned,
        r#"
reactors = "two" | 1:12 | write a number from 1 to 1024
state = 1 | 1:9 | write a string in quotes
limits = 1 | 1:10 | write it as a table, [limits]
[portal]\nlisten = "127.0.0.1" | 1:1 | write [[portal]] with two brackets
poll = "50m" | 1:8 | a number and a unit
gather = "1s" | 1:10 | the maximum is 10 ms
io-engine = "urin" | 1:13 | the engine must be auto, uring or threads
[log]\nformat = "xml" | 2:10 | known are `text` and `json`
[log]\nfilter = "a=b=c" | 2:10 | warn,audit=info
[volume]\nvm1 = 1 | 2:1 | write [volume.NAME]
[limits]\nconnections-per-session = 9 | 2:27 | from 1 to 8
[volume.vm1]\nspec = "ram:1GiB"\nread-only = 1 | 3:13 | true or false
"#,
    );
}

/// Interface 1 is the loopback interface.
#[test]
fn metrics_are_served_on_a_link_local_address_with_its_interface() {
    let listen = |address: &str| format!("[metrics]\nlisten = \"{address}\"");
    for zone in ["%1", "%251"] {
        let config =
            Config::parse("x.toml", &listen(&format!("[fe80::1{zone}]:9260"))).expect("an address");
        assert_eq!(
            config.metrics.map(|address| address.to_string()).as_deref(),
            Some("[fe80::1%1]:9260")
        );
    }
    refused(
        &listen("[fe80::1]:9260"),
        "2:10",
        "add the interface, as in fe80::1%eth0",
    );
    refused(
        &listen("[fe80::1%no-such]:9260"),
        "2:10",
        "this machine has no interface `no-such`",
    );
}

#[test]
fn portals_are_checked() {
    refused("[[portal]]", "1:1", "has no `listen`");
    refused("[[portal]]\nlisten = \"::1\"", "2:10", "write [::1]:3260");
    let twice = "[[portal]]\nlisten = \"127.0.0.1:3260\"\n";
    refused(&format!("{twice}{twice}"), "3:1", "used twice");
    refused(
        "[[portal]]\nlisten = \"127.0.0.1\"\nlissen = 1",
        "3:1",
        "did you mean `listen`?",
    );
}

#[test]
fn volumes_are_checked() {
    each_refused(
        str::to_owned,
        r#"
[volume.VM1]\nspec = "ram:1GiB" | 1:9 | such as `vm1`
[volume.vm1] | 1:9 | [volume.vm1] has no `spec`
[volume.vm1]\nspec = "ram:1GiB?blok=512" | 2:18 | did you mean `block`?
[volume.vm1]\nspec = "ram:\u0031gb" | 2:8 | write 1GB
[volume.vm1]\nspec = "ram:1GiB"\nuuid = "1" | 3:8 | is not a UUID
[volume.vm1]\nspec = "ram:1GiB"\ndeadline = "0s" | 3:12 | must not be 0
"#,
    );
    let uuid = "spec = \"ram:1GiB\"\nuuid = \"6f2d4c1e8a3b4f5d9c7e1b2a3c4d5e6f\"\n";
    refused(
        &format!("[volume.b]\n{uuid}[volume.a]\n{uuid}"),
        "6:8",
        "`a` and `b` have the same UUID",
    );
    let renamed = "spec = \"ram:1GiB\"\nprevious-name = \"x\"\n";
    refused(
        &format!("[volume.b]\n{renamed}[volume.a]\n{renamed}"),
        "6:17",
        "`b` has the same previous name",
    );
    for (bad, at, sentence) in [
        ("serial = \"\"", "3:10", "it has 0 characters; use 1 to 251"),
        ("serial = \"ä\"", "3:10", "not a printable ASCII"),
        (
            "vendor = \"more-than-8\"",
            "3:10",
            "it has 11 characters; use 1 to 8",
        ),
        ("product = \"more than sixteen\"", "3:11", "use 1 to 16"),
        ("revision = \"4.0.1\"", "3:12", "use 1 to 4"),
        ("t10-id = \"LIO-ORG\"", "3:10", "use 9 to 255"),
        (
            "naa = \"0x6001405\"",
            "3:7",
            "write 0x and 32 hexadecimal digits that begin with 6",
        ),
        ("nna = \"0x6001405\"", "3:1", "did you mean `naa`?"),
    ] {
        refused(
            &format!("[volume.vm1]\nspec = \"ram:1GiB\"\n{bad}"),
            at,
            sentence,
        );
    }
}

/// A volume may be a LUN of several targets, but two volumes must not appear as one disk.
#[test]
fn two_volumes_with_one_designator_are_refused() {
    let two = |one: &str, other: &str| {
        let volume = |name, keys| format!("[volume.{name}]\nspec = \"ram:1GiB\"\n{keys}\n");
        volume("a", one) + &volume("b", other)
    };
    let naa = "naa = \"0x6001405a1b2c3d4e5f60718293a4b5c6\"";
    refused(
        &two(
            naa,
            &naa.replace("0x", "naa.")
                .to_uppercase()
                .replace("NAA", "naa"),
        ),
        "6:7",
        "`b` and `a` have the same NAA identifier",
    );
    let id = "t10-id = \"IET     00010001\"";
    refused(
        &two(id, id),
        "6:10",
        "`b` and `a` have the same T10 identifier",
    );
    // An identifier derived from one volume's UUID must not be used by another volume either.
    let uuid = "uuid = \"30313233-3435-3637-3839-616263646566\"";
    refused(
        &two(uuid, "naa = \"0x3e373913e5ad677d\""),
        "6:7",
        "`b` and `a` have the same NAA identifier",
    );
    for fine in [
        two(naa, &naa.replace("b5c6", "b5c7")),
        two("serial = \"A\"", "serial = \"A\""),
    ] {
        Config::parse("x.toml", &fine).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn options_of_a_volume_beside_its_specification_win() {
    let text = "[volume.a]\nspec = \"ram:1GiB?readonly\"\nread-only = false\nremovable = true\ndeadline = \"5s\"";
    let config = Config::parse("x.toml", text).expect("nothing wrong");
    let [volume] = config.volumes.as_slice() else {
        panic!("one volume")
    };
    assert!(!volume.spec.readonly && volume.spec.removable);
    assert_eq!(volume.deadline, Duration::from_secs(5));
}

const ACCOUNT: &str =
    "[[target.chap.account]]\nuser = \"joe\"\nsecret = \"another-twelve-bytes\"\n";

#[test]
fn text_that_a_protocol_cannot_carry_is_refused() {
    refused(&with_target("alias = \"\""), "6:9", "it is empty");
    refused(
        &with_target("alias = \"a\\u0000b=c\""),
        "6:9",
        "a control character",
    );
    refused(
        &with_target(&format!("alias = \"{}\"", "x".repeat(256))),
        "6:9",
        "it has 256 bytes",
    );
    refused(
        &with_target("[target.redirect]\naddress = \"127.0.0.1:99999\""),
        "7:11",
        "must be a number",
    );
    refused(
        &with_target("[target.redirect]\naddress = \"\""),
        "7:11",
        "the host must be an IPv4 address",
    );
    refused(
        "[[portal]]\nlisten = \"127.0.0.1\"\nadvertise = \":3260\"",
        "3:13",
        "the host must be an IPv4 address",
    );
    let long = "x".repeat(300);
    for (user, why) in [
        ("", "it is empty"),
        ("a\\nb", "a control character"),
        ("a\\u0000b", "a control character"),
        (&*long, "it has 300 bytes"),
    ] {
        let account = format!("user = \"{user}\"\nsecret = \"twelve-bytes-and-more\"");
        refused(
            &with_target(&format!("[[target.chap.account]]\n{account}")),
            "7:8",
            why,
        );
        refused(
            &with_target(&format!("{ACCOUNT}[target.chap.mutual]\n{account}")),
            "10:8",
            why,
        );
    }
    let export = "[volume.a]\nspec = \"ram:1MiB\"\n[nbd]\nlisten = [\"127.0.0.1\"]\n[[nbd.export]]\nvolume = \"a\"\n";
    let long = "x".repeat(nbd::STRING_BYTES_MAX + 1);
    for text in ["", "a\\u0000b", "a\\nb", &long] {
        refused(
            &format!("{export}name = \"{text}\""),
            "7:8",
            "1 to 4096 bytes, without control characters",
        );
        if !text.is_empty() {
            let description = format!("{export}description = \"{text}\"");
            refused(
                &description,
                "7:15",
                "at most 4096 bytes, without control characters",
            );
        }
    }
}

#[test]
fn targets_are_checked() {
    refused(
        "[[target]]\nname = \"iqn.2026-01.com.example:t\"",
        "1:1",
        "has no LUN",
    );
    each_refused(
        with_target,
        r#"
networks = ["10.0.0.0/33"] | 6:13 | not a network
initiators = ["debian"] | 6:15 | must start with iqn.
initiators = "debian" | 6:14 | write strings in brackets
groups = [2] | 6:11 | no [[portal]] has group = 2
[target.redirect]\npermanent = true | 6:1 | has no `address`
color = 1 | 6:1 | unknown key `color` in [[target]]
"#,
    );
    let again =
        "[[target]]\nname = \"iqn.2026-01.com.example:t\"\nlun = [{ lun = 0, volume = \"vm1\" }]";
    refused(&with_target(again), "7:8", "is defined twice");
    let bad = with_target("").replace("iqn.2026-01", "iqn.2026");
    refused(&bad, "4:8", "a year, a month and a domain");
}

#[test]
fn what_a_target_may_agree_on_is_checked() {
    let session = |lines: &str| with_target(&format!("[target.session]\n{lines}"));
    each_refused(
        session,
        r#"
max-burst = "511B" | 7:13 | write 512B to 16777215B
max-segment = "16MiB" | 7:15 | write 512B to 16777215B
first-burst = "16KiB"\nmax-burst = "8KiB" | 7:15 | larger than `max-burst`, which is 8KiB
initial-r2t = "yes" | 7:15 | true or false
max-outstanding-r2t = 0 | 7:23 | from 1 to 65535
data-digest = ["crc32"] | 7:16 | did you mean `crc32c`?
maxburst = "8KiB" | 7:1 | did you mean `max-burst`?
"#,
    );
}

#[test]
fn a_shorter_burst_brings_the_first_one_down_with_it() {
    let config = Config::parse(
        "x.toml",
        &with_target("[target.session]\nmax-burst = \"8KiB\""),
    );
    let config = config.expect("nothing wrong");
    let offers = &config.iscsi().targets[0].offers;
    assert_eq!(
        (offers.max_burst_length, offers.first_burst_length),
        (8192, 8192)
    );
}

#[test]
fn a_target_without_a_session_s_section_likes_what_makes_it_fast() {
    for text in [with_target(""), with_target("[target.session]")] {
        let config = Config::parse("x.toml", &text).expect("nothing wrong");
        assert_eq!(config.iscsi().targets[0].offers, Offers::of_target());
    }
}

/// A new negotiated key must be in the reference text, or in the list of keys that cannot be configured.
#[test]
fn a_target_s_section_has_every_negotiated_key_but_these() {
    let section = "[target.session]\nheader-digest = [\"crc32c\"]\ndata-digest = [\"crc32c\"]\ninitial-r2t = true\n\
                   immediate-data = false\nmax-burst = \"8KiB\"\nfirst-burst = \"4KiB\"\nmax-outstanding-r2t = 2";
    let config = Config::parse("x.toml", &with_target(section)).expect("nothing wrong");
    let (set, usual) = (&config.iscsi().targets[0].offers, Offers::of_target());
    let is_fixed = |key: &Key| {
        usual
            .settings(*key)
            .is_some_and(|usual| set.settings(*key) == Some(usual))
    };
    let fixed: Vec<Key> = keys::TABLE
        .iter()
        .map(|entry| entry.key)
        .filter(is_fixed)
        .collect();
    let of_limits = Key::MaxConnections;
    let always_so = [
        Key::DefaultTime2Wait,
        Key::DefaultTime2Retain,
        Key::DataPduInOrder,
        Key::DataSequenceInOrder,
        Key::ErrorRecoveryLevel,
        Key::TaskReporting,
        Key::IscsiProtocolLevel,
    ];
    assert_eq!(fixed, [&[of_limits], always_so.as_slice()].concat());
}

#[test]
fn luns_are_checked() {
    let lun = |lines: &str| with_target("").replace("lun = [{ lun = 0, volume = \"vm1\" }]", lines);
    each_refused(
        lun,
        r#"
[[target.lun]]\nlun = 0\nvolume = "vm2" | 7:10 | unknown volume `vm2`; did you mean `vm1`?
[[target.lun]]\nlun = 0\nvolume = "backup" | 7:10 | add [volume.backup]
[[target.lun]]\nlun = 16384\nvolume = "vm1" | 6:7 | from 0 to 16383
[[target.lun]]\nvolume = "vm1" | 5:1 | has no `lun`
"#,
    );
    let twice = "[[target.lun]]\nlun = 0\nvolume = \"vm1\"\n".repeat(2);
    refused(
        &lun(&twice),
        "9:7",
        "LUN 0 is defined twice in this target; LUN 1 is free",
    );
}

#[test]
fn chap_is_checked() {
    let chap = |lines: &str| with_target(&format!("[target.chap]\n{lines}"));
    refused(&chap(""), "6:1", "write [[target.chap.account]]");
    let account = "[[target.chap.account]]\nuser = \"alice\"\n";
    refused(
        &chap(&format!("{account}secret = \"short\"")),
        "9:10",
        "has 5 bytes; a CHAP secret needs 12 to 255",
    );
    refused(&chap(account), "7:1", "has no `secret`");
    refused(
        &chap(&format!("{account}secret-file = \"/nonexistent\"")),
        "9:15",
        "cannot read the secret in",
    );
    let both = "secret = \"123456789012\"\nsecret-file = \"/x\"";
    refused(
        &chap(&format!("{account}{both}")),
        "10:15",
        "keep one of them",
    );
    let good = format!("{account}secret = \"123456789012\"\n");
    refused(&chap(&format!("{good}{good}")), "11:8", "has two secrets");
    let other = good.replace("alice", "bob");
    let named = format!("{other}initiators = [\"iqn.2026-01.com.example:bob\"]\n");
    refused(
        &chap(&format!("{good}{named}")),
        "8:8",
        "`alice` could log in under the initiator names of",
    );
    refused(
        &chap(&format!("{good}initiators = [\"alice\"]")),
        "10:15",
        "must start with iqn.",
    );
    let mutual = "[target.chap.mutual]\nuser = \"target\"\nsecret = \"123456789012\"\n";
    refused(
        &chap(&format!("{good}{mutual}")),
        "11:8",
        "use a different secret for the target",
    );
    let with_names =
        format!("{mutual}initiators = [\"*\"]\n").replace("123456789012", "another-12-bytes");
    refused(
        &chap(&format!("{good}{with_names}")),
        "13:1",
        "unknown key `initiators`",
    );
    refused(
        &chap(&format!("algorithms = [\"sha2\"]\n{good}")),
        "7:15",
        "unknown algorithm `sha2`",
    );
    refused(
        "[discovery.chap]\nalgorithms = [\"md5\"]",
        "1:1",
        "write [[discovery.chap.account]]",
    );
}

/// An administrator who removes the last name from a list wants to admit no initiator. The empty list must
/// not admit all initiators.
#[test]
fn an_empty_list_is_refused_wherever_it_stands() {
    let chap = |lines: &str| with_target(&format!("[target.chap]\n{lines}"));
    let account = "account = [{ user = \"alice\", secret = \"123456789012\" }]\n";
    for (text, place) in [
        (with_target("initiators = []"), "6:14"),
        (with_target("networks = []"), "6:12"),
        (with_target("groups = []"), "6:10"),
        (
            with_target("").replace("\"vm1\" }]", "\"vm1\", initiators = [] }]"),
            "5:48",
        ),
        (
            with_target("").replace("[{ lun = 0, volume = \"vm1\" }]", "[]"),
            "5:7",
        ),
        (with_target("[target.session]\ndata-digest = []"), "7:15"),
        (with_target("[target.session]\nheader-digest = [ ]"), "7:17"),
        (chap(&format!("algorithms = []\n{account}")), "7:14"),
        (chap("account = []"), "7:11"),
        (
            chap(&account.replace(" }]", ", initiators = [] }]")),
            "7:68",
        ),
        (
            format!("discovery.chap.algorithms = []\ndiscovery.chap.{account}"),
            "1:29",
        ),
        ("discovery.chap.account = []".to_owned(), "1:26"),
        ("portal = []".to_owned(), "1:10"),
        ("target = []".to_owned(), "1:10"),
    ] {
        refused(&text, place, "the list is empty");
    }
}

#[test]
fn a_user_is_bound_to_its_initiator_names() {
    let account = |user: &str, names: &str| {
        format!(
            "[[target.chap.account]]\nuser = \"{user}\"\nsecret = \"secret of {user}\"\ninitiators = {names}\n"
        )
    };
    let (alice, bob) = (
        account("alice", "[\"iqn.2026-01.com.example:a\"]"),
        account("bob", "[\"*\"]"),
    );
    let config =
        Config::parse("x.toml", &with_target(&format!("{alice}{bob}"))).expect("nothing wrong");
    let [alice, bob] = config.iscsi().targets[0]
        .chap
        .as_ref()
        .expect("CHAP")
        .accounts
        .as_slice()
    else {
        panic!("two")
    };
    let may = |account: &Account, name: &str| {
        account
            .initiators
            .as_ref()
            .is_none_or(|names| names.iter().any(|pattern| pattern.matches(name)))
    };
    assert!(may(alice, "iqn.2026-01.com.example:a") && !may(alice, "iqn.2026-01.com.example:b"));
    assert!(may(bob, "iqn.2026-01.com.example:b"), "by its own word");
}

#[test]
fn a_secret_can_stand_in_a_file_and_never_shows_itself() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), "correct horse battery\n").expect("written");
    let lines = format!(
        "[target.chap]\n[[target.chap.account]]\nuser = \"alice\"\nsecret-file = \"{}\"",
        file.path().display()
    );
    let config = Config::parse("x.toml", &with_target(&lines)).expect("nothing wrong");
    let chap = config.iscsi().targets[0].chap.as_ref().expect("CHAP");
    assert_eq!(
        chap.accounts[0].credentials.secret,
        iscsi::chap::Secret::new(b"correct horse battery")
    );
    assert!(!format!("{config:?}").contains("horse"));
}

const WITH_SECRETS: [&str; 3] = [
    r#"[[target]]
name = "iqn.2026-01.com.example:t"
[target.chap]
algorithms = ["sha256"]
[[target.chap.account]]
user = "alice"
secret = "hush-hush-hush"
initiators = ["iqn.2026-01.com.example:a"]
[target.chap.mutual]
secret = 'hush-hush-hush'
user = "disk"
"#,
    r#"[[target]]
name = "iqn.2026-01.com.example:t"
chap.account = [
  { user = "alice", secret = "hush-hush-hush", initiators = ["iqn.2026-01.com.example:a"] },
  { secret = '''
hush-hush-hush''', user = "bob" },
]
"#,
    r#"discovery.chap.account = [{ user = "alice", secret = "hush-hush-hush" }]
[volume.a]
spec = "iscsi://joe%hush-hush-hush@host/iqn.2026-01.com.example:t/0"
"#,
];

#[test]
fn a_mistake_in_the_line_of_a_secret_does_not_show_it() {
    let account = "[[target.chap.account]]\nuser = \"alice\"\n";
    let (behind, key, all) = (
        "8 | secret = (not shown)\n  |          ^^^^^^^^^^^",
        "9 | secret = (not shown)\n  | ^^^^^^",
        "8 | (not shown)\n  | ^^^^^^^^^^^",
    );
    for (line, shown) in [
        ("secret = \"hush\"", behind),
        ("secret = \"hush", behind),
        ("secret = hush", behind),
        ("secrt = \"hush-hush-hush\"", all),
        (
            "secret = \"hush-hush-hush\"\nsecret = \"hush-hush-hush\"",
            key,
        ),
    ] {
        let said = mistakes(&with_target(&format!("{account}{line}")));
        assert!(
            said.contains(shown) && !said.contains("hush"),
            "not {shown}\n{said}"
        );
    }
    let inline = "chap.account = [{ user = \"a\", secret = \"hush-hush-hush\", x = 1 }]";
    let said = mistakes(&with_target(inline));
    assert!(
        said.contains("unknown key `x`") && !said.contains("hush"),
        "{said}"
    );
}

/// Positions where an edit would only change the secret, or remove every word that indicates a secret.
fn is_spared(text: &str, at: usize) -> bool {
    let spared = ["hush-hush-hush", "chap", "iscsi://joe%"];
    let mut places = spared.iter().flat_map(|word| {
        text.match_indices(word)
            .map(|(begin, _)| begin..begin + word.len())
    });
    places.any(|place| place.contains(&at))
}

proptest::proptest! {
    /// However a file is damaged, its error messages do not contain its secrets.
    #[test]
    fn no_mistake_shows_a_secret(
        file in 0..WITH_SECRETS.len(),
        mut edits in proptest::collection::vec((0usize..300, proptest::bool::ANY, "[\\[\\]\"'=#{},.\n ]?"), 1..4),
    ) {
        let mut text = WITH_SECRETS[file].to_owned();
        edits.sort_unstable_by_key(|(at, ..)| std::cmp::Reverse(*at));
        for (at, removes, put) in edits {
            if at < text.len() && !is_spared(WITH_SECRETS[file], at) {
                text.replace_range(at..at + usize::from(removes), &put);
            }
        }
        if let Err(error) = Config::parse("x.toml", &text) {
            let said = error.to_string();
            proptest::prop_assert!(!said.contains("hush"), "{}\n---\n{}", said, text);
        }
    }

    #[test]
    fn no_file_makes_it_panic(text in "(\\[+(portal|volume|target|chap|lun)(\\.[a-z]{1,3})?\\]+|[a-z]{1,6} = (\"[a-zä:/.]{0,9}\"|[0-9]{1,3}|\\[\\]|\\{\\})|\n){0,12}") {
        let _ = Config::parse("x.toml", &text);
    }
}
