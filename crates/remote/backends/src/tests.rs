use std::path::Path;

use block::BlockSize;
use proptest::prelude::*;
use volume::spec::encode;

use super::*;

fn spec(text: &str) -> Spec {
    parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the error message for `text`, and the part of `text` that it marks.
fn refusal(text: &str) -> (String, String) {
    let error = parse(text).expect_err(text);
    (error.sentence().to_owned(), text[error.at()].to_owned())
}

#[track_caller]
fn refused(text: &str, marked: &str, says: &str) {
    let (sentence, at) = refusal(text);
    assert_eq!(at, marked, "{text}: {sentence}");
    assert!(sentence.contains(says), "{text}: {sentence}");
}

/// Expects an error for each row: a text, the part that is marked, and a part of the message.
#[track_caller]
fn each_refused(rows: &str) {
    for row in rows.trim_matches('\n').lines() {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [text, marked, says] = cells[..] else {
            panic!("not three cells: {row}")
        };
        refused(text, marked, says);
    }
}

#[test]
fn mistakes_are_pointed_at_with_the_remedy() {
    each_refused(
        r#"
ram:1X | 1X | unknown unit `X`; known are `B`, `kB`
rom:1GiB | rom | unknown kind of volume `rom`; did you mean `ram`?
disk.img?size=1GiB | disk.img | for a file, write `file:./disk.img`
images/disk | images/disk | for a file, write `file:./images/disk`
vm1.img:1GiB | vm1.img | known are `ram`
ram:1GiB?blok=4096 | blok | did you mean `block`?
ram:1GiB?compress | compress | known are `block`, `physical`, `read-only`, `removable`, `small-pages` and `thick`
ram:1GiB?block=513 | 513 | 512 or 4096
ram:1GiB?block=4096&physical=512 | 512 | power of two from 4096
ram:1GiB?read-only&read-only | read-only | twice
"#,
    );
    assert_eq!(spec("ram:1GiB?readonly").to_string(), "ram:1GiB?read-only");
    each_refused(
        r#"
ram:1GiB?read-only=yes | yes | read-only=on, read-only=off or just read-only
ram:1GiB?block | block | needs a value
ram:1GiB? |  | an option is missing
ram:0B | 0B | at least one block
ram:1000B | 1000B | 1kB is not a whole number of 512-byte blocks; 512B is
ram:58 | 58 | write 58MiB for 58 MiB
ram:15EiB | 15EiB | smaller than 8 EiB
ram | ram | needs a colon
 |  | a volume is missing
file: |  | a path is missing
file://host/a | //host/a | write one slash
file:/a%2 | % | write %25
file:/a,b | , | write it as %2C
file:/a[1] | [ | write `[` as %5B
file:/a%00 | /a%00 | %00
ram:1GiB] | ] | %5D
delay:5ms | 5ms | delay:5ms:[ram:1GiB]
delay:5ms: |  | a volume in brackets is missing
delay:5m:[ram:1GiB] | 5m | a number and a unit
delay:5ms:[ram:1GiB | [ | is not closed
fault:hang:[ram:1GiB] | hang: | nothing before them
fault:[ram:1GiB, ram:1GiB] | [ram:1GiB, ram:1GiB] | a single volume
fault:[ram:1GiB?removable] | removable | after the last bracket
fault:[ram:1GiB?thick] | thick | after the last bracket
iscsi://host/iqn.a | //host/iqn.a | LUN
iscsi://user%secret@host/iqn.a/0 | //user%secret@host/iqn.a/0 | put it into a file
delay:5ms:[iscsi://host/iqn.a/0?conections=4] | //host/iqn.a/0 | did you mean `connections`?
raid5:60KiB:[ram:1GiB, ram:1GiB] | 60KiB: | use a power of two from 4KiB to 1MiB
hyperscsi://eth0/iqn.a | //eth0/iqn.a | has no LUN
delay:5ms:[hyperscsi+udp:host/iqn.a/0] | host/iqn.a/0 | did you mean hyperscsi+udp://host/iqn.a/0?
rbd:image | image | such as rbd:rbd/vm1
rbd:pool/space/image | pool/space/image | ?namespace=NAME
rbd:pool/image@ | pool/image@ | a name is missing
rbd:pool/image@a?size=1GiB | 1GiB | omit `size`
rbd:pool/image?queue=0 | 0 | 1 to 1024
rbd:pool/image?lock-wait=2h | 2h | at most 1h
"#,
    );
}

#[test]
fn a_mistake_shows_the_column() {
    let error = parse("delay:5ms:[ram:1gb]").expect_err("no such size");
    let shown = error.to_string();
    testkit::says(
        &shown,
        &["(column 16)\n  delay:5ms:[ram:1gb]\n                 ^^^"],
    );
}

/// Printing a parsed specification returns the text, except for defaults.
#[test]
fn the_examples_of_the_documents_are_understood() {
    for text in [
        "ram:1GiB?block=4096&read-only",
        "ram:1GiB?small-pages&thick",
        "file:/data/vm1.img?size=50GiB&direct",
        "delay:5ms:[ram:1GiB]",
        "delay:1ms:[null:1TiB]?tail=20ms&tail-share=1%&stall=1s&stall-every=30s&seed=7",
        "delay:0s:[null:1TiB]?flush=20ms",
        "limit:1000iops+100MB/s:[null:1TiB]",
        "disk:sata2009:[ram:1GiB]",
        "disk:sas15k:[ram:1GiB]?seek=4ms&rpm=10000&rate=90MB/s&cache=0B&per-request=420us&write-through",
        "buffered:1MiB:[ram:1GiB]",
        "fault:[ram:1GiB]?removable",
        "512e:[delay:1ms:[ram:1GiB?block=4096]]",
        "iscsi://san1:3260/iqn.2026-01.com.example:a/3?connections=4&initial-r2t=yes&read-only",
        "buffered:1MiB:[iscsi://user@[2001:db8::1]:3261/iqn.a/0]?thick",
        "rbd:pool/vm1?size=50GiB&conf=/etc/ceph/west.conf&id=linerate&namespace=a&queue=64&lock-wait=0s",
        "rbd:pool/vm1@monday",
        "rbd:pool/a%40b%2Fc@d",
    ] {
        assert_eq!(spec(text).to_string(), text);
    }
    assert_eq!(spec("ram:1GiB?block=512&physical=4096"), spec("ram:1GiB"));
}

#[test]
fn options_that_belong_together_are_asked_for() {
    each_refused(
        r#"
delay:1ms:[null:1TiB]?tail=20ms | 20ms | `tail` needs `tail-share`
delay:1ms:[null:1TiB]?stall-every=20ms | 20ms | `stall-every` needs `stall`
delay:1ms:[null:1TiB]?flush=20m | 20m | a number and a unit
delay:1ms:[null:1TiB]?stall=1s&stall-every=1s | 1s | longer than `stall`
delay:1ms:[null:1TiB]?tail=2s&tail-share=2 | 2 | such as 1% or 0.05%
"#,
    );
}

#[test]
fn short_blocks_want_longer_ones_below_them() {
    assert_eq!(
        spec("512e:[ram:1GiB?block=4096]").logical_block(),
        Some(BlockSize::B512)
    );
    refused(
        "512e:[delay:1ms:[ram:1GiB]]",
        "[delay:1ms:[ram:1GiB]]",
        "512e:[ram:1GiB?block=4096]",
    );
    refused("512e:4096:[ram:1GiB]", "4096:", "nothing before them");
}

#[test]
fn a_limit_wants_a_rate() {
    refused(
        "limit:fast:[ram:1MiB]",
        "fast",
        "such as 1000iops or 100MB/s",
    );
    refused("limit:[ram:1MiB]", "", "a limit needs a rate");
}

#[test]
fn a_disk_wants_a_model() {
    each_refused(
        r#"
disk:[ram:1MiB] |  | a disk needs a model
disk:sata2008:[ram:1MiB] | sata2008 | did you mean `sata2009`?
disk:sata2009:[ram:1MiB]?rpm=0 | 0 | such as 7200
disk:sata2009:[ram:1MiB]?rate=100iops | 100iops | such as 100MB/s
disk:sata2009:[ram:1MiB]?seek=11s | 11s | at most 10s
"#,
    );
    assert_eq!(
        spec("disk:sata2009:[ram:1GiB]?seek=8.5ms&rpm=7200"),
        spec("disk:sata2009:[ram:1GiB]")
    );
}

#[test]
fn what_is_open_is_as_it_was_written() {
    let opened = |text| {
        let device = memory(text);
        let (geometry, profile) = (device.geometry(), device.profile());
        (
            geometry.block_size.bytes(),
            geometry.bytes(),
            profile.read_only,
        )
    };
    assert_eq!(opened("ram:1MiB"), (512, 1 << 20, false));
    assert_eq!(
        opened("delay:1ms:[ram:1MiB?block=4096&read-only]"),
        (4096, 1 << 20, true)
    );
    assert_eq!(
        opened("512e:[limit:9iops:[ram:1MiB?block=4096]]"),
        (512, 1 << 20, false)
    );
    assert_eq!(
        opened("fault:[buffered:1MiB:[null:2MiB]]?read-only").1,
        2 << 20
    );
}

#[test]
fn what_outlives_this_process_is_known() {
    let known = |text| {
        (
            spec(text).keeps_data(),
            spec(text).cache_outlives_process(),
            spec(text).is_remote(),
        )
    };
    assert_eq!(known("delay:1ms:[ram:1MiB]"), (false, false, false));
    assert_eq!(known("delay:1ms:[/dev/sdb]"), (true, true, false));
    assert_eq!(known("buffered:1MiB:[/dev/sdb]"), (true, false, false));
    assert_eq!(
        known("limit:9iops:[iscsi://san1/iqn.a/0]"),
        (true, false, true)
    );
    assert_eq!(
        known("delay:1ms:[raid1:[/dev/sdb, /dev/sdc]]"),
        (true, true, false)
    );
    assert!(known("raid1:[/dev/sdb, iscsi://san1/iqn.a/0]").2);
}

#[test]
fn a_volume_that_needs_a_reactor_opens_later() {
    for later in [
        "limit:9iops:[iscsi://san1/iqn.a/0]",
        "delay:1ms:[raid1:[/dev/sdb, /dev/sdc]]",
    ] {
        assert!(spec(later).opens_later(), "{later}");
    }
    assert!(!spec("delay:1ms:[/dev/sdb]").opens_later());
}

#[test]
fn a_file_has_the_blocks_of_the_layers_over_it_and_not_of_a_set() {
    assert_eq!(
        spec("delay:1ms:[fault:[/dev/sdb]]").file(),
        Some(Path::new("/dev/sdb"))
    );
    assert_eq!(spec("delay:1ms:[/dev/sdb]").cannot_shrink(), None);
    assert_eq!(spec("ram:1MiB").file(), None);
    let of_set = spec("delay:1ms:[raid1:[/dev/sdb, /dev/sdc]]");
    assert_eq!(
        (of_set.file(), of_set.path()),
        (None, Some(Path::new("/dev/sdb")))
    );
    assert_eq!(of_set.cannot_shrink(), Some("a RAID set cannot be shrunk"));
}

/// The document's table must have a row for each kind. Files with a size have an additional row.
#[test]
fn the_document_has_every_kind_of_volume() {
    const SIZED_FILE: &str = "| `file:PATH?size=SIZE` | a file, created sparse at the volume's \
        [first start](volume-state.md#first-start) if it is missing or empty. A larger `size` than at the last start \
        extends it; UNMAP punches holes |";
    let mut rows = Vec::new();
    for kind in GRAMMAR.kinds() {
        rows.push(format!("| `{}` | {} |", kind.usage, kind.about));
        rows.extend((kind.name == "file").then(|| SIZED_FILE.to_owned()));
    }
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/volumes.md");
    testkit::assert_table(document, "| specification | what it is |", &rows);
}

#[test]
fn a_path_may_stand_without_its_kind() {
    assert_eq!(spec("/dev/sdb?read-only"), spec("file:/dev/sdb?read-only"));
    assert_eq!(
        spec("./disk.img?size=1MiB"),
        spec("file:./disk.img?size=1MiB")
    );
}

#[test]
fn what_has_a_meaning_is_escaped_in_paths() {
    let escaped = spec("file:/a%5B1%5D%3f%25 b");
    assert_eq!(escaped.path(), Some(Path::new("/a[1]?% b")));
    assert_eq!(escaped.to_string(), "file:/a%5B1%5D%3F%25%20b");
}

#[test]
fn blanks_around_volumes_do_not_matter() {
    assert_eq!(
        spec(" delay:5ms:[ ram:1GiB ]?removable "),
        spec("delay:5ms:[ram:1GiB]?removable")
    );
}

#[test]
fn read_only_holds_through_all_layers() {
    assert!(spec("fault:[delay:1s:[ram:1MiB?read-only]]").is_readonly());
    assert!(!spec("fault:[delay:1s:[ram:1MiB?read-only=off]]").is_readonly());
}

#[test]
fn nesting_without_end_is_refused() {
    let text = "fault:[".repeat(100_000);
    let (sentence, _) = refusal(&text);
    assert!(sentence.contains("16 levels deep"), "{sentence}");
}

#[test]
fn a_window_has_a_size_that_makes_sense() {
    refused("buffered:1KiB:[ram:1GiB]", "1KiB:", "4KiB to 64MiB");
    refused("buffered:[ram:1GiB]", "", "needs a window size");
}

fn blocks() -> impl Strategy<Value = String> {
    (prop_oneof![Just(512u32), Just(4096)], 0u32..5).prop_map(|(logical, more)| {
        format!(
            "block={logical}&physical={}",
            (logical << more).min(1 << 16)
        )
    })
}

fn time() -> impl Strategy<Value = String> {
    (1u64.., prop_oneof![Just("ns"), Just("us"), Just("ms")])
        .prop_map(|(number, unit)| format!("{}{unit}", number >> 24))
}

fn store() -> impl Strategy<Value = String> {
    let path = "/[ -~äß]{1,20}".prop_filter("a host", |path| !path.starts_with("//"));
    let size = || (1u64..1 << 40).prop_map(|blocks| format!("{}B", blocks * 4096));
    let host = prop_oneof![
        Just("san1"),
        Just("10.0.0.1:3261"),
        Just("user@[2001:db8::1]:860"),
        Just("[::1]")
    ];
    prop_oneof![
        (size(), blocks(), any::<bool>()).prop_map(|(size, blocks, small)| format!(
            "ram:{size}?{blocks}&small-pages={}",
            on(small)
        )),
        (size(), blocks()).prop_map(|(size, blocks)| format!("null:{size}?{blocks}")),
        (path, size(), blocks(), any::<bool>()).prop_map(|(path, size, blocks, direct)| {
            format!(
                "file:{}?size={size}&{blocks}&direct={}",
                encode(path.as_bytes()),
                on(direct)
            )
        }),
        (host, 0u16..16_384, 1u16..9).prop_map(|(host, lun, count)| format!(
            "iscsi://{host}/iqn.x/{lun}?connections={count}"
        )),
    ]
}

fn on(yes: bool) -> &'static str {
    if yes { "on" } else { "off" }
}

fn any_spec() -> impl Strategy<Value = String> {
    let inner = store().prop_recursive(6, 6, 1, |inner| {
        prop_oneof![
            (time(), time(), inner.clone()).prop_map(|(time, tail, inner)| format!(
                "delay:{time}:[{inner}]?tail={tail}&tail-share=0.5%"
            )),
            (1u64.., inner.clone()).prop_map(|(rate, inner)| format!("limit:{rate}iops:[{inner}]")),
            ((4u64 << 10)..=(64 << 20), inner.clone())
                .prop_map(|(window, inner)| format!("buffered:{window}B:[{inner}]")),
            inner.prop_map(|inner| format!("fault:[ {inner} ]")),
        ]
    });
    (inner, any::<[bool; 3]>()).prop_map(|(inner, flags)| {
        let [readonly, removable, thick] = flags.map(on);
        format!("fault:[{inner}]?read-only={readonly}&removable={removable}&thick={thick}")
    })
}

#[test]
fn a_path_that_begins_with_two_slashes_reads_back() {
    let printed = spec("/%2fdata").to_string();
    assert_eq!(printed, "file:/%2fdata");
    assert_eq!(parse(&printed), Ok(spec("/%2fdata")));
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(text in any_spec()) {
        let meant = spec(&text);
        let printed = meant.to_string();
        prop_assert_eq!(spec(&printed).to_string(), printed);
        prop_assert_eq!(
            (meant.readonly, meant.removable, meant.thick),
            (text.contains("read-only=on"), text.contains("removable=on"), text.contains("thick=on"))
        );
    }

    #[test]
    fn no_text_makes_it_panic(text in "(ram|null|file|delay|limit|buffered|fault|iscsi)?[:/a-z0-9?&=%\\[\\], ä]{0,40}") {
        if let Err(error) = parse(&text) {
            prop_assert!(text.get(error.at()).is_some(), "{error} points between letters");
        }
    }

    #[test]
    fn a_text_that_is_understood_is_printed_with_the_same_meaning(
        text in "(ram:[0-9]{1,4}[KMG]iB|/[a-z%0-9]{1,8})(\\?(read-only|removable|thick|block=4096|direct=off))?"
    ) {
        if let Ok(spec) = parse(&text) {
            prop_assert_eq!(parse(&spec.to_string()), Ok(spec));
        }
    }
}
