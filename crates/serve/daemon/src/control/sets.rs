//! RAID sets of a running server, for those who ask it.

use std::path::Path;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use backends::raid::{Scrub, SetState};
use backends::{Failure, FailureKind};

use super::{RaidOrder, Reply, Request, ask, unexpected};
use crate::config::VolumeName;

/// A set of a volume of a running server, written `VOLUME`, or `VOLUME/N` where it is made of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedSet {
    volume: VolumeName,
    /// From the outermost on; `None` for the only one.
    number: Option<usize>,
}

impl FromStr for ServedSet {
    type Err = String;

    fn from_str(text: &str) -> Result<ServedSet, String> {
        let (volume, number) =
            text.split_once('/').map_or((text, None), |(name, number)| (name, Some(number)));
        let number = number.map(str::parse).transpose();
        let number =
            number.map_err(|_| format!("write the number of a set behind the slash, as in {volume}/0"))?;
        Ok(ServedSet { volume: volume.parse().map_err(|error| format!("{error}"))?, number })
    }
}

/// How often a server is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl ServedSet {
    /// How it is; all sets of the volume if none is named.
    ///
    /// # Errors
    /// There is no server, or no such set.
    pub fn states(&self, socket: &Path) -> Result<Vec<SetState>, Failure> {
        let volumes = match ask(socket, &Request::Volumes).map_err(Failure::from)? {
            Reply::Volumes { volumes } => volumes,
            other => return Err(unexpected(other)),
        };
        let volume = volumes.into_iter().find(|volume| volume.name == self.volume.as_str());
        let not_found = |why: String| Failure::new(FailureKind::NotFound, why);
        let volume = volume.ok_or_else(|| not_found(format!("no volume named {} is served", self.volume)))?;
        let sets: Vec<SetState> = match self.number {
            None => volume.raid,
            Some(number) => volume.raid.into_iter().skip(number).take(1).collect(),
        };
        match sets.is_empty() {
            true => Err(not_found(format!("volume {} has no such RAID set", self.volume))),
            false => Ok(sets),
        }
    }

    /// Has it do something.
    ///
    /// # Errors
    /// There is no server.
    pub fn order(&self, socket: &Path, order: RaidOrder) -> Result<Reply, Failure> {
        let request = Request::Raid { volume: self.volume.to_string(), set: self.number, order };
        ask(socket, &request).map_err(Failure::from)
    }

    /// Has it scrubbed, and waits for that: the server goes on if this process ends. `tells` hears how many stripes are done, and
    /// of how many.
    ///
    /// # Errors
    /// There is no server, or no such set, or it is scrubbed already.
    pub fn scrub(
        &self,
        socket: &Path,
        repair: bool,
        tells: &mut dyn FnMut(u64, u64),
    ) -> Result<Scrub, Failure> {
        match self.order(socket, RaidOrder::Scrub { repair })? {
            Reply::Reloaded { .. } => {}
            Reply::Refused { reason } => return Err(Failure::refused(reason)),
            other => return Err(unexpected(other)),
        }
        loop {
            let scrub = self.states(socket)?.into_iter().find_map(|set| set.scrub);
            match scrub {
                None => {
                    return Err(Failure::failed("the scrub was cancelled"));
                }
                Some(scrub) if scrub.has_ended => return Ok(scrub.found),
                Some(scrub) => tells(scrub.progress.done, scrub.progress.total),
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_named_by_its_volume() {
        let set = |text: &str| text.parse::<ServedSet>();
        assert_eq!(set("vm1").map(|set| set.number), Ok(None));
        assert_eq!(set("vm1/2").map(|set| set.number), Ok(Some(2)));
        assert!(set("vm1/x").expect_err("a mistake").contains("vm1/0"));
        assert!(set("VM").expect_err("a mistake").contains("cannot name a volume"));
    }
}
