//! A measured load, and the model's predictions for it, without and with a change.

use super::layers::Layers;
use super::patterns::{self, Stalls};
use super::{Evidence, Explained, Gain, LoadRun};
use crate::ceiling;
use crate::ceiling::Ceiling;
use crate::finding::GAIN_MIN;
use crate::patterns::Estimate;
use crate::symptoms;
use crate::symptoms::Symptoms;
use model::{Keys, Load, Path, Prediction, Term, predict};

/// A load that moved data, with everything that is known about it.
pub(super) struct Case<'a> {
    pub(super) evidence: &'a Evidence,
    pub(super) layers: &'a Layers,
    pub(super) ceiling: &'a Ceiling,
    /// The index of the load in [`Evidence::loads`].
    pub(super) index: usize,
    pub(super) run: &'a LoadRun,
    /// The achieved rate, in bytes per second.
    pub(super) rate: Estimate,
    pub(super) symptoms: Symptoms,
    /// The current setting.
    pub(super) setting: Setting,
    pub(super) modelled: Prediction,
}

/// The inputs of a prediction.
#[derive(Clone)]
pub(super) struct Setting {
    pub(super) path: Path,
    pub(super) keys: Keys,
    pub(super) load: Load,
}

impl Setting {
    pub(super) fn predict(&self) -> Prediction {
        predict(&self.path, &self.keys, &self.load)
    }

    /// Removes the limit of TCP windows. The measured time of a single long command includes the effect of
    /// the windows. Without windows, its data takes the time that the link needs.
    pub(super) fn open_windows(&mut self) {
        self.path.window_bytes = None;
        self.path.copy_per_s = self.path.payload_per_s;
    }
}

/// The relative error of the model if all measurements were exact.
const MODEL_ERROR: f64 = 0.1;

impl<'a> Case<'a> {
    /// Returns `None` if the load moved no data, since there is then no rate to compare with.
    pub(super) fn of(
        evidence: &'a Evidence,
        layers: &'a Layers,
        ceiling: &'a Ceiling,
        index: usize,
    ) -> Option<Case<'a>> {
        let run = &evidence.loads[index];
        let rate = ceiling::achieved_rate(evidence, run)?;
        let connections = u16::try_from(evidence.paths.len())
            .unwrap_or(u16::MAX)
            .max(1);
        let mut path = layers.path(&run.load, &evidence.keys(), connections);
        let symptoms = Symptoms::of(evidence, layers, run, rate);
        ceiling.limit(&mut path, run, rate, &symptoms);
        let mut setting = Setting {
            path,
            keys: evidence.keys(),
            load: run.load,
        };
        let medium_full = medium_full(run, rate, &symptoms, setting.predict().alone_s);
        setting.path.medium_per_s = medium_full.then_some(rate.value);
        let modelled = setting.predict();
        let symptoms = Symptoms {
            medium_full,
            ..symptoms
        };
        Some(Case {
            evidence,
            layers,
            ceiling,
            index,
            run,
            rate,
            symptoms,
            setting,
            modelled,
        })
    }

    pub(super) fn explained(&self) -> Explained {
        Explained {
            bytes_per_s: self.rate.value,
            modelled_per_s: self.modelled.bytes_per_s,
            terms: self.modelled.terms.clone(),
        }
    }

    /// Returns the modelled time of a single request, in seconds.
    pub(super) fn modelled_alone_s(&self) -> f64 {
        self.modelled.alone_s
    }

    /// Returns the name of the protocol's shortest request, for the start of a sentence.
    pub(super) fn shortest(&self) -> &'static str {
        match &self.evidence.nbd {
            None => "A NOP",
            Some(session) if session.base_allocation => "A BLOCK_STATUS",
            Some(_) => "A read of one block",
        }
    }

    /// Returns the name of the peer in the protocol's terms.
    pub(super) fn server(&self) -> &'static str {
        if self.evidence.nbd.is_some() {
            "server"
        } else {
            "target"
        }
    }

    pub(super) fn load(&self) -> &'a Load {
        &self.run.load
    }

    /// Returns the average time of a request, in seconds, by Little's law.
    pub(super) fn service_s(&self) -> f64 {
        self.run.under_way.max(f64::MIN_POSITIVE) * f64::from(self.load().block_bytes)
            / self.rate.value
    }

    /// Returns the predicted gain of a change that the model covers.
    ///
    /// Concurrent requests take longer than single ones. This factor is assumed to be the same before and
    /// after the change. The model's prediction for the depth is therefore scaled by the ratio of the measured
    /// to the modelled rate. Limits that were themselves measured are not scaled.
    pub(super) fn gain_of(&self, change: impl FnOnce(&mut Setting)) -> Gain {
        let mut changed = self.setting.clone();
        change(&mut changed);
        let truth = match self.modelled.binding() {
            Some(Term::Depth) => {
                (self.rate.value / self.modelled.bytes_per_s).clamp(TRUTH_MIN, TRUTH_MAX)
            }
            _ => 1.0,
        };
        let limit = |(term, bytes_per_s): &(Term, f64)| match term {
            Term::Depth => bytes_per_s * truth,
            _ => *bytes_per_s,
        };
        let gain = self.gain_with_cpu(
            changed
                .predict()
                .terms
                .iter()
                .map(limit)
                .fold(f64::INFINITY, f64::min),
        );
        // A rate far below the limit of the depth has another cause, which remains after the change.
        match self.is_explained() {
            true => gain,
            false => Gain {
                low: gain.low.min(1.0),
                ..gain
            },
        }
    }

    /// Returns the predicted gain of a change that saves each request some waits for the peer. The saved time is at most
    /// that of these exchanges, however long a request takes for another reason.
    pub(super) fn gain_of_exchanges(&self, waits: u32, change: impl FnOnce(&mut Setting)) -> Gain {
        let saved_s = EXCHANGE_UNDER_LOAD * f64::from(waits) * self.layers.exchange_s();
        let most = self.service_s() / (self.service_s() - saved_s).max(f64::MIN_POSITIVE);
        let gain = self.gain_of(change);
        match gain.predicted {
            Some(predicted) if predicted > most => self.gain(most),
            Some(_) | None => gain,
        }
    }

    /// Whether the model explains most of the rate, with the time in which the ends had no CPU.
    pub(super) fn is_explained(&self) -> bool {
        let there = (1.0 - self.symptoms.target_away) * (1.0 - self.symptoms.starved);
        self.rate.value >= EXPLAINED_MIN * self.modelled.bytes_per_s * there
    }

    /// Returns the predicted gain of removing a cause that the model does not cover. Without the cause, the
    /// model applies unscaled.
    pub(super) fn gain_without(&self, change: impl FnOnce(&mut Setting)) -> Gain {
        let mut changed = self.setting.clone();
        change(&mut changed);
        self.gain_with_cpu(changed.predict().bytes_per_s * (1.0 - self.symptoms.target_away))
    }

    /// Returns the median share of the time for which loads of single requests waited for a CPU of this
    /// machine; `None` if there are no such loads.
    pub(super) fn waited_alone(&self) -> Option<f64> {
        let single = self
            .evidence
            .loads
            .iter()
            .filter(|run| run.load.depth == 1 && run.service.count() > 0);
        let waited: Vec<f64> = single.map(symptoms::starved).collect();
        (!waited.is_empty()).then(|| stats::median(&waited))
    }

    /// Returns the gain if the unusually long times became normal.
    pub(super) fn without_waits(&self) -> f64 {
        match patterns::spread(&self.run.service) {
            Some(spread) if self.load().depth == 1 => spread.mean_s / spread.usual_s,
            _ => 1.0 / (1.0 - self.symptoms.target_away).max(f64::MIN_POSITIVE),
        }
    }

    /// Returns the gain without delayed acknowledgements.
    pub(super) fn without_stalls(&self, stalls: Stalls) -> f64 {
        let sent_s = self
            .setting
            .path
            .payload_per_s
            .map_or(0.0, |payload| f64::from(self.load().block_bytes) / payload);
        // Measured times of longer requests also include stalls, so they cannot serve as a reference. A NOP
        // carries no data that could be delayed.
        let least_s = self.layers.exchange_s() + self.layers.dispatch_s() + sent_s;
        stalls.mean_s() / stalls.others_s.unwrap_or(least_s)
    }

    /// Returns the gain of another rate over the measured rate.
    pub(super) fn gain_to(&self, bytes_per_s: f64) -> Gain {
        self.gain(bytes_per_s / self.rate.value)
    }

    /// Returns the predicted gain of another rate, up to the rate for which the busier end has CPU time.
    fn gain_with_cpu(&self, bytes_per_s: f64) -> Gain {
        let busy = self
            .run
            .client_busy
            .max(self.run.server_busy.unwrap_or(0.0))
            .max(f64::MIN_POSITIVE);
        self.gain_to(bytes_per_s.min(self.rate.value * (CPU_SAVED_MAX / busy).max(1.0)))
    }

    /// Returns a gain with the uncertainty of its measurements.
    pub(super) fn gain(&self, ratio: f64) -> Gain {
        // The error of the NOP's time matters only to the extent that the load's time consists of exchanges.
        let exchanges_s = f64::from(self.modelled.exchanges) * self.layers.exchange_s();
        let of_nop = self.layers.nop.map_or(0.0, Estimate::relative_error);
        let of_layers = of_nop * (exchanges_s / self.service_s()).min(1.0);
        let error = 1.0
            + (MODEL_ERROR.powi(2) + self.rate.relative_error().powi(2) + of_layers.powi(2)).sqrt();
        Gain {
            predicted: ratio.is_finite().then_some(ratio),
            low: ratio.min(f64::MAX) / error,
            high: ratio.min(f64::MAX) * error,
            confirmed: None,
        }
    }
}

/// An exchange under load takes up to this multiple of an exchange on an idle path.
const EXCHANGE_UNDER_LOAD: f64 = 1.5;

/// The minimum share of the model's prediction. A lower rate has another cause.
const EXPLAINED_MIN: f64 = 0.6;

/// The maximum factor by which a request takes less CPU time at a higher rate, because several requests share a wake-up.
/// In the lab, a target with a command window of 1 gained 30 times at 7 % of a CPU.
const CPU_SAVED_MAX: f64 = 3.0;

/// Limits of the scale. A load that achieves less than a quarter of the model's prediction is limited by
/// something that the depth does not affect.
const TRUTH_MIN: f64 = 0.25;
const TRUTH_MAX: f64 = 1.5;

/// Whether requests wait for each other where a NOP does not wait: behind the target, at the medium.
fn medium_full(run: &LoadRun, rate: Estimate, symptoms: &Symptoms, alone_s: f64) -> bool {
    let service_s = run.under_way * f64::from(run.load.block_bytes) / rate.value;
    let quick = symptoms
        .nop_queue_s
        .is_some_and(|queue_s| queue_s <= service_s * NOP_SHARE_MAX);
    let ends_idle = run.client_busy < BUSY_MAX && run.server_busy.unwrap_or(0.0) < BUSY_MAX;
    // A target that is away for half of the time takes twice as long.
    let there_s = service_s * (1.0 - symptoms.target_away);
    let waits = there_s >= alone_s * WAITS_MIN && there_s - alone_s >= WAITS_MIN_S;
    let elsewhere = symptoms.window.is_some()
        || symptoms.stalls.is_some()
        || symptoms.lossy()
        || symptoms.starved();
    let elsewhere = elsewhere || run.by_connections().is_some_and(|ratio| ratio >= GAIN_MIN);
    run.load.depth > 1 && quick && waits && ends_idle && !elsewhere
}

/// The maximum delay of a NOP, as a share of the requests' time, that allows the conclusion that the NOP
/// waits for none of the resources that requests wait for.
const NOP_SHARE_MAX: f64 = 0.2;
const BUSY_MAX: f64 = 0.9;
/// Requests wait if they take twice as long as a single request, and the difference is more than a
/// scheduler's time slice.
const WAITS_MIN: f64 = 2.0;
const WAITS_MIN_S: f64 = 0.001;
