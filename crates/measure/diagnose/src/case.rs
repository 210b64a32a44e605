//! A load, and what the model makes of it: as it is, and as it would be with something changed.

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

/// A load that moved something.
pub(super) struct Case<'a> {
    pub(super) evidence: &'a Evidence,
    pub(super) layers: &'a Layers,
    pub(super) ceiling: &'a Ceiling,
    /// Its place in [`Evidence::loads`].
    pub(super) index: usize,
    pub(super) run: &'a LoadRun,
    /// Bytes a second.
    pub(super) rate: Estimate,
    pub(super) symptoms: Symptoms,
    /// Everything as it is.
    pub(super) setting: Setting,
    pub(super) modelled: Prediction,
}

/// What a prediction is made from.
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

    /// With TCP windows that hold nobody back. What one long command took alone, it took with those there are: without them
    /// its data take what the link takes.
    pub(super) fn open_windows(&mut self) {
        self.path.window_bytes = None;
        self.path.copy_per_s = self.path.payload_per_s;
    }
}

/// What the model leaves open even where all measurements are exact.
const MODEL_ERROR: f64 = 0.1;

impl<'a> Case<'a> {
    /// `None` if the load moved nothing: then there is no rate to compare with.
    pub(super) fn of(
        evidence: &'a Evidence,
        layers: &'a Layers,
        ceiling: &'a Ceiling,
        index: usize,
    ) -> Option<Case<'a>> {
        let run = &evidence.loads[index];
        let rate = ceiling::achieved_rate(evidence, run)?;
        let connections = u16::try_from(evidence.paths.len()).unwrap_or(u16::MAX).max(1);
        let mut path = layers.path(&run.load, &evidence.keys(), connections);
        let symptoms = Symptoms::of(evidence, layers, run, rate);
        ceiling.limit(&mut path, run, rate, &symptoms);
        let mut setting = Setting { path, keys: evidence.keys(), load: run.load };
        let medium_full = medium_full(run, rate, &symptoms, setting.predict().alone_s);
        setting.path.medium_per_s = medium_full.then_some(rate.value);
        let modelled = setting.predict();
        let symptoms = Symptoms { medium_full, ..symptoms };
        Some(Case { evidence, layers, ceiling, index, run, rate, symptoms, setting, modelled })
    }

    pub(super) fn explained(&self) -> Explained {
        Explained {
            bytes_per_s: self.rate.value,
            modelled_per_s: self.modelled.bytes_per_s,
            terms: self.modelled.terms.clone(),
        }
    }

    /// How long a request would take that is alone, in seconds.
    pub(super) fn modelled_alone_s(&self) -> f64 {
        self.modelled.alone_s
    }

    /// The shortest request that was asked, at the beginning of a sentence.
    pub(super) fn shortest(&self) -> &'static str {
        match &self.evidence.nbd {
            None => "A NOP",
            Some(session) if session.base_allocation => "A BLOCK_STATUS",
            Some(_) => "A read of one block",
        }
    }

    /// The other end, as its protocol calls it.
    pub(super) fn server(&self) -> &'static str {
        if self.evidence.nbd.is_some() { "server" } else { "target" }
    }

    pub(super) fn load(&self) -> &'a Load {
        &self.run.load
    }

    /// How long a request takes on average, by Little's law, in seconds.
    pub(super) fn service_s(&self) -> f64 {
        self.run.under_way.max(f64::MIN_POSITIVE) * f64::from(self.load().block_bytes) / self.rate.value
    }

    /// What changing something that the model knows of would bring.
    ///
    /// Requests that are many at once take longer than they do alone, by the same factor before and after: what the model
    /// says of the depth is taken times what it came to. Limits that were measured as such are taken as they are.
    pub(super) fn gain_of(&self, change: impl FnOnce(&mut Setting)) -> Gain {
        let mut changed = self.setting.clone();
        change(&mut changed);
        let truth = match self.modelled.binding() {
            Some(Term::Depth) => (self.rate.value / self.modelled.bytes_per_s).clamp(TRUTH_MIN, TRUTH_MAX),
            _ => 1.0,
        };
        let limit = |(term, bytes_per_s): &(Term, f64)| match term {
            Term::Depth => bytes_per_s * truth,
            _ => *bytes_per_s,
        };
        self.gain_to(changed.predict().terms.iter().map(limit).fold(f64::INFINITY, f64::min))
    }

    /// What removing something would bring that the model does not know of: then it is as the model says.
    pub(super) fn gain_without(&self, change: impl FnOnce(&mut Setting)) -> Gain {
        let mut changed = self.setting.clone();
        change(&mut changed);
        self.gain_to(changed.predict().bytes_per_s)
    }

    /// The share of the time for which this machine let loads of single requests wait for a CPU; `None` if there are none.
    pub(super) fn waited_alone(&self) -> Option<f64> {
        let single = self.evidence.loads.iter().filter(|run| run.load.depth == 1 && run.service.count() > 0);
        let waited: Vec<f64> = single.map(symptoms::starved).collect();
        (!waited.is_empty()).then(|| stats::median(&waited))
    }

    /// What it would bring if the times that are many times as long as usual were as usual.
    pub(super) fn without_waits(&self) -> f64 {
        match patterns::spread(&self.run.service) {
            Some(spread) if self.load().depth == 1 => spread.mean_s / spread.usual_s,
            _ => 1.0 / (1.0 - self.symptoms.target_away).max(f64::MIN_POSITIVE),
        }
    }

    /// What it would bring if nobody held an acknowledgement back.
    pub(super) fn without_stalls(&self, stalls: Stalls) -> f64 {
        let sent_s = self
            .setting
            .path
            .payload_per_s
            .map_or(0.0, |payload| f64::from(self.load().block_bytes) / payload);
        // Longer requests took what they took with stalls as well; a NOP has no data that could be held back.
        let least_s = self.layers.exchange_s() + self.layers.dispatch_s() + sent_s;
        stalls.mean_s() / stalls.others_s.unwrap_or(least_s)
    }

    /// The gain of another rate over the one that was measured.
    pub(super) fn gain_to(&self, bytes_per_s: f64) -> Gain {
        self.gain(bytes_per_s / self.rate.value)
    }

    /// A gain, with what the measurements behind it leave open.
    pub(super) fn gain(&self, ratio: f64) -> Gain {
        // As far as the load's time consists of exchanges.
        let exchanges_s = f64::from(self.modelled.exchanges) * self.layers.exchange_s();
        let of_nop = self.layers.nop.map_or(0.0, Estimate::relative_error);
        let of_layers = of_nop * (exchanges_s / self.service_s()).min(1.0);
        let error =
            1.0 + (MODEL_ERROR.powi(2) + self.rate.relative_error().powi(2) + of_layers.powi(2)).sqrt();
        Gain {
            predicted: ratio.is_finite().then_some(ratio),
            low: ratio.min(f64::MAX) / error,
            high: ratio.min(f64::MAX) * error,
            confirmed: None,
        }
    }
}

/// A depth that came to less than a quarter of what the model says is limited by something else.
const TRUTH_MIN: f64 = 0.25;
const TRUTH_MAX: f64 = 1.5;

/// Whether requests wait for each other where a NOP does not: behind the target, at the medium.
fn medium_full(run: &LoadRun, rate: Estimate, symptoms: &Symptoms, alone_s: f64) -> bool {
    let service_s = run.under_way * f64::from(run.load.block_bytes) / rate.value;
    let quick = symptoms.nop_queue_s.is_some_and(|queue_s| queue_s <= service_s * NOP_SHARE_MAX);
    let ends_idle = run.client_busy < BUSY_MAX && run.server_busy.unwrap_or(0.0) < BUSY_MAX;
    let waits = service_s >= alone_s * WAITS_MIN && service_s - alone_s >= WAITS_MIN_S;
    let elsewhere =
        symptoms.window.is_some() || symptoms.stalls.is_some() || symptoms.lossy() || symptoms.starved();
    let elsewhere = elsewhere || run.by_connections().is_some_and(|ratio| ratio >= GAIN_MIN);
    run.load.depth > 1 && quick && waits && ends_idle && symptoms.waiting < 0.1 && !elsewhere
}

/// A NOP that has to wait for none of what the requests wait for.
const NOP_SHARE_MAX: f64 = 0.2;
const BUSY_MAX: f64 = 0.9;
/// Twice as long as alone, and by more than a scheduler's time slice.
const WAITS_MIN: f64 = 2.0;
const WAITS_MIN_S: f64 = 0.001;
