//! What layers over a volume mean: how they are written between their name and the brackets, and their options.

use std::ops::RangeInclusive;

use block::{BlockSize, ServiceTime, Stalls, Tail};

use super::Layer;
use super::error::Problem;
use super::meaning::{Meant, Options, member, parsed};
use super::rate::AtMost;
use super::share::PerMillion;
use super::size::Bytes;
use super::syntax::{Node, Word};
use super::time::Time;

/// `delay:5ms:[…]?tail=20ms&tail-share=1%`.
pub(super) fn delay(node: &Node, options: &Options<'_>) -> Meant<Layer> {
    let usual: Time = before_brackets(&node.argument, "a delay wants a time", "delay:5ms:[ram:1GiB]")?;
    let pair = |what, share| both(options, what, share);
    let tail = pair("tail", "tail-share")?.map(|(time, share)| tail(time, share)).transpose()?;
    let stalls = pair("stall", "stall-every")?.map(|(length, every)| stalls(length, every)).transpose()?;
    let flush = options.value("flush")?.map(parsed::<Time>).transpose()?.map(|time| time.0);
    let seed = options.value("seed")?.map_or(Ok(0), seed)?;
    let times = ServiceTime { usual: usual.0, tail, flush, stalls, seed };
    Ok(Layer::Delay { times, inner: member(node)? })
}

fn tail(time: &Word, share: &Word) -> Meant<Tail> {
    let (time, share): (Time, PerMillion) = (parsed(time)?, parsed(share)?);
    Ok(Tail { time: time.0, per_million: share.0 })
}

fn stalls(length: &Word, every: &Word) -> Meant<Stalls> {
    let (time, period): (Time, Time) = (parsed(length)?, parsed(every)?);
    Stalls::new(time.0, period.0).ok_or_else(|| {
        let sentence =
            "stalls that leave no time between them are a hang; write a `stall-every` above `stall`";
        Problem::new(every.at.clone(), sentence)
    })
}

fn seed(word: &Word) -> Meant<u64> {
    word.text.parse().map_err(|_| Problem::new(word.at.clone(), "a seed is a whole number below 2^64"))
}

/// Two options of which neither has a meaning without the other.
fn both<'a>(options: &Options<'a>, one: &str, other: &str) -> Meant<Option<(&'a Word, &'a Word)>> {
    match (options.value(one)?, options.value(other)?) {
        (Some(first), Some(second)) => Ok(Some((first, second))),
        (None, None) => Ok(None),
        (Some(word), None) => {
            Err(Problem::new(word.at.clone(), format!("`{one}` wants `{other}` beside it")))
        }
        (None, Some(word)) => {
            Err(Problem::new(word.at.clone(), format!("`{other}` wants `{one}` beside it")))
        }
    }
}

/// `limit:1000iops:[…]`.
pub(super) fn limit(node: &Node) -> Meant<Layer> {
    let rate: AtMost = before_brackets(&node.argument, "a limit wants a rate", "limit:1000iops:[ram:1GiB]")?;
    Ok(Layer::Limit { rate, inner: member(node)? })
}

/// `buffered:1MiB:[…]`.
pub(super) fn buffered(node: &Node) -> Meant<Layer> {
    let size = "a buffered volume wants the size of its window";
    let window: Bytes = before_brackets(&node.argument, size, "buffered:1MiB:[ram:1GiB]")?;
    if !WINDOW_BYTES.contains(&window.0) {
        let sentence = "a window has 4KiB to 64MiB: what is read ahead and not wanted is read in vain";
        return Err(Problem::new(node.argument.at.clone(), sentence));
    }
    Ok(Layer::Buffered { window, inner: member(node)? })
}

/// From a page to what 17 of (for so many readers and writers) a small machine has memory for.
const WINDOW_BYTES: RangeInclusive<u64> = 4 << 10..=64 << 20;

/// `fault:[…]`.
pub(super) fn fault(node: &Node) -> Meant<Layer> {
    nothing_before_brackets(&node.argument, "a fault layer", "fault:[ram:1GiB]")?;
    Ok(Layer::Fault { inner: member(node)? })
}

/// `512e:[…]`.
pub(super) fn emulated(node: &Node) -> Meant<Layer> {
    let example = "512e:[ram:1GiB?block=4096]";
    nothing_before_brackets(&node.argument, "512e", example)?;
    let inner = member(node)?;
    match inner.logical_block() {
        BlockSize::B512 => {
            let at = node.members.as_ref().map_or(node.argument.at.clone(), |members| members.at.clone());
            let sentence =
                format!("this volume has 512-byte blocks already; write longer ones, as in {example}");
            Err(Problem::new(at, sentence))
        }
        _ => Ok(Layer::Emulated512 { inner }),
    }
}

fn nothing_before_brackets(argument: &Word, layer: &str, example: &str) -> Meant<()> {
    match argument.text.is_empty() {
        true => Ok(()),
        false => Err(Problem::new(
            argument.at.clone(),
            format!("{layer} wants a volume in brackets and nothing before them, as in {example}"),
        )),
    }
}

/// What stands between the layer's name and its brackets, which begins and ends with a colon.
fn before_brackets<T: std::str::FromStr<Err: ToString>>(
    argument: &Word,
    wants: &str,
    example: &str,
) -> Meant<T> {
    match argument.text.strip_suffix(':') {
        Some(text) => parsed(&Word { text: text.to_owned(), at: argument.at.start..argument.at.end - 1 }),
        None => Err(Problem::new(
            argument.at.clone(),
            format!("{wants}, a colon and a volume in brackets, as in {example}"),
        )),
    }
}
