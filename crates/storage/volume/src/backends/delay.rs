//! `delay:5ms:[…]?tail=20ms&tail-share=1%`.

use std::slice;
use std::sync::Arc;

use block::{Delay, ServiceTime, Stalls, Tail};

use crate::backend::{Backend, Kind, Opened, Opening, Options};
use crate::spec::{PerMillion, Problem, Spec, Time, Token, Written};

/// Adds a delay to every request.
pub(super) static DELAY: Kind = Kind {
    name: "delay",
    usage: "delay:TIME:[VOLUME]",
    about: "another volume, every request that much slower; requests overlap",
    is_layer: true,
    options: Options::Known(&["tail", "tail-share", "flush", "stall", "stall-every", "seed"]),
    read,
};

#[derive(Debug)]
struct DelayBackend {
    times: ServiceTime,
    inner: Spec,
}

fn read(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    let usual: Time = written.before_brackets("a delay wants a time", "delay:5ms:[ram:1GiB]")?;
    let tail = written.both("tail", "tail-share")?.map(|(time, share)| tail(time, share)).transpose()?;
    let stalls =
        written.both("stall", "stall-every")?.map(|(length, every)| stalls(length, every)).transpose()?;
    let flush = written.parsed::<Time>("flush")?.map(|time| time.0);
    let seed = written.value("seed")?.map_or(Ok(0), seed)?;
    let times = ServiceTime { usual: usual.0, tail, flush, stalls, seed };
    Ok(Arc::new(DelayBackend { times, inner: written.member()? }))
}

fn tail(time: &Token, share: &Token) -> Result<Tail, Problem> {
    let (time, share): (Time, PerMillion) = (time.parsed()?, share.parsed()?);
    Ok(Tail { time: time.0, per_million: share.0 })
}

fn stalls(length: &Token, every: &Token) -> Result<Stalls, Problem> {
    let (time, period): (Time, Time) = (length.parsed()?, every.parsed()?);
    Stalls::new(time.0, period.0).ok_or_else(|| {
        let sentence =
            "stalls that leave no time between them are a hang; write a `stall-every` above `stall`";
        Problem::new(every.at.clone(), sentence)
    })
}

fn seed(word: &Token) -> Result<u64, Problem> {
    word.text.parse().map_err(|_| Problem::new(word.at.clone(), "a seed is a whole number below 2^64"))
}

impl Backend for DelayBackend {
    fn kind(&self) -> &'static Kind {
        &DELAY
    }

    fn argument(&self) -> String {
        Time(self.times.usual).to_string()
    }

    fn options(&self) -> Vec<String> {
        let times = &self.times;
        let tail = times
            .tail
            .map(|tail| format!("tail={}&tail-share={}", Time(tail.time), PerMillion(tail.per_million)));
        let stalls = times
            .stalls
            .map(|stalls| format!("stall={}&stall-every={}", Time(stalls.length()), Time(stalls.every())));
        let flush = times.flush.map(|time| format!("flush={}", Time(time)));
        let seed = (times.seed != 0).then(|| format!("seed={}", times.seed));
        tail.into_iter().chain(flush).chain(stalls).chain(seed).collect()
    }

    fn members(&self) -> &[Spec] {
        slice::from_ref(&self.inner)
    }

    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async {
            let inner = self.inner.open(opening).await?;
            Ok(Arc::new(Delay::new(inner, self.times, Arc::clone(&opening.sleeper))) as _)
        })
    }
}
