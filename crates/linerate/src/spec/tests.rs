use std::num::NonZeroU64;
use std::time::Duration;

use block::{Rate, Stalls, Tail};
use proptest::prelude::*;

use super::*;

fn spec(text: &str) -> Spec {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// The sentence about `text`, and the part of it that is marked.
fn refusal(text: &str) -> (String, String) {
    let error = text.parse::<Spec>().expect_err(text);
    (error.sentence().to_owned(), text[error.at()].to_owned())
}

#[track_caller]
fn refused(text: &str, marked: &str, says: &str) {
    let (sentence, at) = refusal(text);
    assert_eq!(at, marked, "{text}: {sentence}");
    assert!(sentence.contains(says), "{text}: {sentence}");
}

#[test]
fn mistakes_are_pointed_at_with_the_remedy() {
    refused("ram:1G", "1G", "write 1GiB for 2^30 bytes or 1GB for 10^9");
    refused("rom:1GiB", "rom", "unknown kind of volume `rom`; did you mean `ram`?");
    refused("ram:1GiB?blok=4096", "blok", "did you mean `block`?");
    refused(
        "ram:1GiB?compress",
        "compress",
        "known are `block`, `physical`, `readonly`, `removable`, `small-pages` and `thick`",
    );
    refused("ram:1GiB?block=513", "513", "512 or 4096");
    refused("ram:1GiB?block=4096&physical=512", "512", "power of two of bytes, 4096");
    refused("ram:1GiB?readonly&readonly", "readonly", "twice");
    refused("ram:1GiB?readonly=yes", "yes", "readonly=on, readonly=off or just readonly");
    refused("ram:1GiB?block", "block", "wants a value");
    refused("ram:1GiB?", "", "an option is missing");
    refused("ram:0B", "0B", "at least one block");
    refused("ram:1000B", "1000B", "1kB is not a whole number of 512-byte blocks; 512B is");
    refused("ram:15EiB", "15EiB", "less than 8 EiB");
    refused("ram", "ram", "wants a colon");
    refused("", "", "a volume is missing");
    refused("file:", "", "a path is missing");
    refused("file://host/a", "//host/a", "write one slash");
    refused("file:/a%2", "%", "write %25");
    refused("file:/a,b", ",", "write it as %2C");
    refused("file:/a[1]", "[", "write `[` as %5B");
    refused("file:/a%00", "/a%00", "%00");
    refused("ram:1GiB]", "]", "%5D");
    refused("delay:5ms", "5ms", "delay:5ms:[ram:1GiB]");
    refused("delay:5ms:", "", "a volume in brackets is missing");
    refused("delay:5:[ram:1GiB]", "5", "a whole number and a unit");
    refused("delay:5ms:[ram:1GiB", "[", "never closed");
    refused("fault:hang:[ram:1GiB]", "hang:", "nothing before them");
    refused("fault:[ram:1GiB, ram:1GiB]", "[ram:1GiB, ram:1GiB]", "one volume");
    refused("fault:[ram:1GiB?removable]", "removable", "behind the last bracket");
    refused("fault:[ram:1GiB?thick]", "thick", "behind the last bracket");
    refused("iscsi://host/iqn.a/0", "iscsi", "not in this version");
    refused("raid5:64KiB:[ram:1GiB, ram:1GiB]", "raid5", "not in this version");
}

#[test]
fn a_mistake_shows_the_column() {
    let error = "delay:5ms:[ram:1G]".parse::<Spec>().expect_err("no such size");
    let shown = error.to_string();
    assert!(shown.contains("(column 16)\n  delay:5ms:[ram:1G]\n                 ^^"), "{shown}");
}

#[test]
fn the_examples_of_the_documents_are_understood() {
    let ram = spec("ram:1GiB?block=4096&readonly");
    let blocks = BlockShape { logical: BlockSize::B4096, physical: BlockSize::B4096 };
    assert_eq!(
        ram,
        Spec {
            layer: Layer::Ram { size: Bytes(1 << 30), blocks, small_pages: false },
            readonly: true,
            removable: false,
            thick: false
        }
    );
    let file = spec("file:/data/vm1.img?size=50GiB&direct=on");
    let layer = Layer::File {
        path: "/data/vm1.img".into(),
        size: Some(Bytes(50 << 30)),
        blocks: BlockShape::USUAL,
        direct: true,
    };
    assert_eq!(file, Spec { layer, readonly: false, removable: false, thick: false });
    let Layer::Delay { times, inner } = spec("delay:5ms:[ram:1GiB]").layer else { panic!("no delay") };
    assert_eq!((times, *inner), (ServiceTime::fixed(Duration::from_millis(5)), spec("ram:1GiB")));
}

#[test]
fn a_delay_may_have_a_tail_and_stalls() {
    let text = "delay:1ms:[null:1TiB]?tail=20ms&tail-share=1%&stall=1s&stall-every=30s&seed=7";
    let Layer::Delay { times, .. } = spec(text).layer else { panic!("no delay") };
    assert_eq!(times.tail, Some(Tail { time: Duration::from_millis(20), per_million: 10_000 }));
    assert_eq!(times.stalls, Stalls::new(Duration::from_secs(1), Duration::from_secs(30)));
    assert_eq!(times.seed, 7);
    assert_eq!(spec(text).to_string(), text);
    refused("delay:1ms:[null:1TiB]?tail=20ms", "20ms", "`tail` wants `tail-share` beside it");
    refused("delay:1ms:[null:1TiB]?stall-every=20ms", "20ms", "`stall-every` wants `stall` beside it");
    refused("delay:1ms:[null:1TiB]?flush=20", "20", "a whole number and a unit");
    refused("delay:1ms:[null:1TiB]?stall=1s&stall-every=1s", "1s", "above `stall`");
    refused("delay:1ms:[null:1TiB]?tail=2s&tail-share=2", "2", "such as 1% or 0.05%");
}

#[test]
fn a_delay_may_make_flushes_slow() {
    let text = "delay:0s:[null:1TiB]?flush=20ms";
    let Layer::Delay { times, .. } = spec(text).layer else { panic!("no delay") };
    assert_eq!((times.usual, times.flush), (Duration::ZERO, Some(Duration::from_millis(20))));
    assert_eq!(spec(text).to_string(), text);
}

#[test]
fn short_blocks_want_longer_ones_below_them() {
    let text = "512e:[delay:1ms:[ram:1GiB?block=4096]]";
    assert_eq!((spec(text).logical_block(), spec(text).to_string()), (BlockSize::B512, text.to_owned()));
    refused("512e:[delay:1ms:[ram:1GiB]]", "[delay:1ms:[ram:1GiB]]", "512e:[ram:1GiB?block=4096]");
    refused("512e:4096:[ram:1GiB]", "4096:", "nothing before them");
}

#[test]
fn a_limit_wants_a_rate() {
    let Layer::Limit { rate, inner } = spec("limit:1000iops+100MB/s:[null:1TiB]").layer else {
        panic!("no limit")
    };
    assert_eq!(rate.0.requests_per_s, NonZeroU64::new(1000));
    assert_eq!(rate.0.bytes_per_s, NonZeroU64::new(100_000_000));
    assert_eq!(*inner, spec("null:1TiB"));
    refused("limit:fast:[ram:1MiB]", "fast", "such as 1000iops or 100MB/s");
    refused("limit:[ram:1MiB]", "", "a limit wants a rate");
}

#[test]
fn a_path_may_stand_without_its_kind() {
    assert_eq!(spec("/dev/sdb?readonly"), spec("file:/dev/sdb?readonly"));
    assert_eq!(spec("./disk.img?size=1MiB"), spec("file:./disk.img?size=1MiB"));
}

#[test]
fn what_has_a_meaning_is_escaped_in_paths() {
    let Layer::File { path, .. } = spec("file:/a%5B1%5D%3f%25 b").layer else { panic!("no file") };
    assert_eq!(path, PathBuf::from("/a[1]?% b"));
    assert_eq!(spec("file:/a%5B1%5D%3f%25 b").to_string(), "file:/a%5B1%5D%3F%25%20b");
}

#[test]
fn blanks_around_volumes_do_not_matter() {
    assert_eq!(spec(" delay:5ms:[ ram:1GiB ]?removable "), spec("delay:5ms:[ram:1GiB]?removable"));
}

#[test]
fn read_only_holds_through_all_layers() {
    assert!(spec("fault:[delay:1s:[ram:1MiB?readonly]]").is_readonly());
    assert!(!spec("fault:[delay:1s:[ram:1MiB?readonly=off]]").is_readonly());
}

#[test]
fn nesting_without_end_is_refused() {
    let text = "fault:[".repeat(100_000);
    let (sentence, _) = refusal(&text);
    assert!(sentence.contains("16 deep"), "{sentence}");
}

#[test]
fn a_window_has_a_size_that_makes_sense() {
    let Layer::Buffered { window, .. } = spec("buffered:1MiB:[ram:1GiB]").layer else { panic!("no window") };
    assert_eq!(window, Bytes(1 << 20));
    refused("buffered:1KiB:[ram:1GiB]", "1KiB:", "4KiB to 64MiB");
    refused("buffered:[ram:1GiB]", "", "wants the size of its window");
}

fn blocks() -> impl Strategy<Value = BlockShape> {
    let size = |shift: u32| BlockSize::new(1 << shift).expect("a power of two in range");
    (prop_oneof![Just(9u32), Just(12)], 0u32..5).prop_map(move |(logical, more)| BlockShape {
        logical: size(logical),
        physical: size((logical + more).min(16)),
    })
}

fn size() -> impl Strategy<Value = Bytes> {
    (1u64..1 << 40).prop_map(|blocks| Bytes(blocks * 4096))
}

fn store() -> impl Strategy<Value = Layer> {
    let path = "/[ -~äß]{1,20}".prop_filter("a host", |path| !path.starts_with("//"));
    prop_oneof![
        (size(), blocks(), any::<bool>()).prop_map(|(size, blocks, small_pages)| Layer::Ram {
            size,
            blocks,
            small_pages
        }),
        (size(), blocks()).prop_map(|(size, blocks)| Layer::Null { size, blocks }),
        (path, proptest::option::of(size()), blocks(), any::<bool>()).prop_map(
            |(path, size, blocks, direct)| { Layer::File { path: path.into(), size, blocks, direct } }
        ),
    ]
}

fn times() -> impl Strategy<Value = ServiceTime> {
    let time = || any::<u64>().prop_map(Duration::from_nanos);
    let tail = (time(), 0u32..=1_000_000).prop_map(|(time, per_million)| Tail { time, per_million });
    let stalls = (time(), time()).prop_map(|(length, every)| Stalls::new(length, every));
    let flush = proptest::option::of(time());
    (time(), proptest::option::of(tail), flush, stalls, any::<u64>())
        .prop_map(|(usual, tail, flush, stalls, seed)| ServiceTime { usual, tail, flush, stalls, seed })
}

fn rate() -> impl Strategy<Value = AtMost> {
    (any::<u64>(), 1u64..).prop_map(|(requests, bytes)| {
        AtMost(Rate { requests_per_s: NonZeroU64::new(requests), bytes_per_s: NonZeroU64::new(bytes) })
    })
}

fn any_spec() -> impl Strategy<Value = Spec> {
    let bare = |layer| Spec { layer, readonly: false, removable: false, thick: false };
    let inner = store().prop_map(bare).prop_recursive(6, 6, 1, move |inner| {
        prop_oneof![
            (times(), inner.clone())
                .prop_map(move |(times, inner)| bare(Layer::Delay { times, inner: Box::new(inner) })),
            (rate(), inner.clone())
                .prop_map(move |(rate, inner)| bare(Layer::Limit { rate, inner: Box::new(inner) })),
            ((4u64 << 10)..=(64 << 20), inner.clone()).prop_map(move |(window, inner)| {
                bare(Layer::Buffered { window: Bytes(window), inner: Box::new(inner) })
            }),
            inner
                .clone()
                .prop_filter("short blocks", |inner| inner.logical_block() != BlockSize::B512)
                .prop_map(move |inner| bare(Layer::Emulated512 { inner: Box::new(inner) })),
            inner.prop_map(move |inner| bare(Layer::Fault { inner: Box::new(inner) })),
        ]
    });
    (inner, any::<[bool; 3]>()).prop_map(|(spec, [readonly, removable, thick])| Spec {
        readonly,
        removable,
        thick,
        ..spec
    })
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(spec in any_spec()) {
        prop_assert_eq!(spec.to_string().parse(), Ok(spec));
    }

    #[test]
    fn no_text_makes_it_panic(text in "(ram|null|file|delay|limit|buffered|fault)?[:/a-z0-9?&=%\\[\\], ä]{0,40}") {
        if let Err(error) = text.parse::<Spec>() {
            prop_assert!(text.get(error.at()).is_some(), "{error} points between letters");
        }
    }

    #[test]
    fn a_text_that_is_understood_is_printed_with_the_same_meaning(
        text in "(ram:[0-9]{1,4}[KMG]iB|/[a-z%0-9]{1,8})(\\?(readonly|removable|thick|block=4096|direct=off))?"
    ) {
        if let Ok(spec) = text.parse::<Spec>() {
            prop_assert_eq!(spec.to_string().parse(), Ok(spec));
        }
    }
}
