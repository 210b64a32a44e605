//! RAID sets of a running server: orders to them. What a set is made of afterwards is written to the configuration file.

use std::sync::Arc;
use std::time::Duration;

use backends::raid::{Order, without_overruling};
use backends::{Failure, parse};
use front_end_core::AUDIT;
use volume::spec::Spec;

use crate::change::read;
use crate::config::{Volume, VolumeName};
use crate::control::RaidOrder;
use crate::live::{CLOSE_TIME, Live, Now, Reloaded, block_on};

/// A set that takes longer is said not to answer: less than the client of the control socket waits.
const ANSWER_TIME: Duration = Duration::from_secs(240);

impl Live {
    /// Has a RAID set of a volume do something, and the configuration file say of which volumes it is made then. The audit says
    /// `by` whom.
    ///
    /// # Errors
    /// It is not done, and why.
    pub fn raid(
        &self,
        volume: &str,
        set: Option<usize>,
        order: &RaidOrder,
        by: &str,
    ) -> Result<Reloaded, Failure> {
        let outcome = self.raid_unnoted(volume, set, order);
        let order = serde_json::to_string(order).unwrap_or_default();
        match &outcome {
            Ok(Reloaded { failed, .. }) => {
                tracing::info!(target: AUDIT, by, volume, order, "raid");
                failed.iter().for_each(|why| tracing::error!(target: AUDIT, by, volume, why, "not changed"));
            }
            Err(why) => tracing::error!(target: AUDIT, by, volume, order, %why, "raid refused"),
        }
        outcome
    }

    fn raid_unnoted(&self, volume: &str, set: Option<usize>, order: &RaidOrder) -> Result<Reloaded, Failure> {
        let order = order_of(order).map_err(Failure::refused)?;
        let is_assembly = matches!(order, Order::Assemble);
        let mut now = self.now();
        // Each order rewrites the specification that the one before has left.
        while !is_assembly && now.ordered.iter().any(|name| name.as_str() == volume) {
            now = self.order_ended(now);
        }
        let opened = now
            .volumes
            .named(volume)
            .ok_or_else(|| Failure::refused(format_args!("no volume named {volume} is served")))?;
        let set = match (&opened.sets()[..], set) {
            ([], _) => return Err(Failure::refused(format_args!("volume {volume} is no RAID set"))),
            ([only], None) => Arc::clone(only),
            (sets, Some(number)) if number < sets.len() => Arc::clone(&sets[number]),
            (sets, _) => {
                return Err(Failure::refused(format_args!(
                    "volume {volume} is made of {} RAID sets: name one, {volume}/0 to {volume}/{}",
                    sets.len(),
                    sets.len() - 1
                )));
            }
        };
        let ask = |order| {
            let asked = block_on(async { reactor::timeout(ANSWER_TIME, set.ask(order)).await });
            asked.map_err(|_| {
                Failure::failed(format_args!("the set of volume {volume} does not answer; see its log"))
            })?
        };
        // Members may be waited for: nobody who wants the configuration waits with them.
        if is_assembly {
            drop(now);
            return Ok(Reloaded { changes: vec![ask(order)?], ..Reloaded::default() });
        }
        now.check_served(now.desired.file()?.as_ref())?;
        let claim = Claim::new(self, &mut now, volume);
        let before = set.written();
        drop(now);
        let mut reloaded = Reloaded { changes: vec![ask(order)?], ..Reloaded::default() };
        let mut now = self.now();
        debug_assert!(
            now.ordered.contains(&claim.volume),
            "the claim lasts until the outcome is written down"
        );
        debug_assert!(now.volumes.get(&claim.volume).is_some(), "a claimed volume is not taken away");
        if set.written() != before {
            now.write_down(volume, &before, &set.written(), &mut reloaded);
        }
        // Dropped before the claim, which takes the lock again.
        drop(now);
        Ok(reloaded)
    }
}

/// A volume with an order to one of its RAID sets. Until this is dropped, other orders to its sets wait, and so do changes of the
/// configuration that touch the volume ([`Live::lock_for`]).
struct Claim<'a> {
    live: &'a Live,
    volume: VolumeName,
}

impl Claim<'_> {
    fn new<'a>(live: &'a Live, now: &mut Now, volume: &str) -> Claim<'a> {
        let volume: VolumeName = volume.parse().expect("a volume of this name is served");
        debug_assert!(!now.ordered.contains(&volume), "one order at a time");
        now.ordered.push(volume.clone());
        Claim { live, volume }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.live.now().ordered.retain(|volume| *volume != self.volume);
        self.live.orders.notify_all();
    }
}

impl Live {
    /// Closes all RAID sets, which nobody uses any more. One that does not answer is synchronised by the next start.
    pub(crate) fn close_sets(&self) {
        // Not what a change may hold for long.
        let sets = self.probe().sets();
        let close = async {
            for set in sets {
                if let Err(failure) = set.close().await {
                    tracing::warn!("a RAID set was not closed: {failure}");
                }
            }
        };
        let closed = block_on(async { reactor::timeout(CLOSE_TIME, close).await });
        if closed.is_err() {
            tracing::warn!("RAID sets were not closed: they do not answer");
        }
    }
}

impl Now {
    /// A set of the volume is written otherwise from now on.
    fn write_down(&mut self, volume: &str, before: &str, after: &str, reloaded: &mut Reloaded) {
        let named = |known: &Volume| known.name.as_str() == volume;
        let Some(at) = self.config.volumes.iter().position(named) else { return };
        let rewritten = |spec: &Spec| {
            let text = spec.to_string();
            match text.contains(before) {
                true => parse(&without_overruling(&text.replacen(before, after, 1)))
                    .map_err(|error| error.to_string()),
                false => Err("the set is written otherwise there".to_owned()),
            }
        };
        let outcome = rewritten(&self.config.volumes[at].spec).and_then(|spec| {
            let name = self.config.volumes[at].name.clone();
            self.config.volumes[at].spec = spec.clone();
            self.volumes.describe(&self.config);
            self.written(&name, &spec, &rewritten)
        });
        match outcome {
            Ok(note) => reloaded.notes.push(note),
            Err(why) => reloaded.failed.push(format!(
                "it is done, and the configuration does not say so ({why}): write {after} there instead of {before}"
            )),
        }
    }

    /// Has the configuration say so, where that is a file, and tells how long that lasts.
    fn written(
        &mut self,
        name: &VolumeName,
        spec: &Spec,
        rewritten: &dyn Fn(&Spec) -> Result<Spec, String>,
    ) -> Result<String, String> {
        if self.desired.has_volume(name) {
            self.desired = self.desired.with_spec(name, spec);
            return Ok(format!(
                "volume {name} is not in a configuration file: start the server with --volume '{name}={spec}' next time"
            ));
        }
        let file = self.desired.file().map_err(|failure| failure.to_string())?;
        let file = file.ok_or("there is none")?;
        let other = |text: &str| {
            let spec = parse(text).map_err(|error| error.to_string())?;
            rewritten(&spec).map(|spec| spec.to_string())
        };
        let changed = file.with_spec(name, other)?;
        changed.replace(&file).map_err(|error| error.to_string())?;
        Ok(format!("{} is updated, too", file.path().display()))
    }
}

fn order_of(order: &RaidOrder) -> Result<Order, String> {
    Ok(match order {
        RaidOrder::Fail { member } => Order::Fail { member: *member },
        RaidOrder::Replace { member, with, overwrite } => {
            Order::Replace { member: *member, with: read(with)?, overwrites: *overwrite }
        }
        RaidOrder::Add { spare, overwrite } => Order::Add { spare: read(spare)?, overwrites: *overwrite },
        RaidOrder::Scrub { repair } => Order::Scrub { repairs: *repair },
        RaidOrder::CancelScrub => Order::CancelScrub,
        RaidOrder::Grow => Order::Grow,
        RaidOrder::Assemble => Order::Assemble,
    })
}
