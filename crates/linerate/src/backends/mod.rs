//! The back ends of this program: a table with a line for each kind of volume, and those that need a system or a network.

mod file;
mod iscsi;
mod ram;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use block::{BlockDevice, FaultControl, SingleUser};
use host::{ReactorClock, ReactorTasks};
use volume::backend::{OpenError, Opening};
use volume::backends::{BUFFERED, DELAY, EMULATED_512, FAULT, LIMIT, NULL};

use crate::secrets;
use crate::spec::{Grammar, Spec, SpecError};

/// All kinds of volumes, in the order of the document.
pub(crate) const GRAMMAR: Grammar = Grammar(&[
    &ram::RAM,
    &file::FILE,
    &iscsi::ISCSI,
    &NULL,
    &DELAY,
    &LIMIT,
    &BUFFERED,
    &EMULATED_512,
    &FAULT,
]);

/// Reads a volume specification. An error shows no secrets.
pub(crate) fn parse(text: &str) -> Result<Spec, SpecError> {
    GRAMMAR.parse(text).map_err(|error| error.masked(secrets::masked_url))
}

/// Opens the volume that `spec` describes, for one user.
pub(crate) async fn open(spec: &Spec) -> Result<Arc<dyn BlockDevice>, OpenError> {
    Ok(Arc::new(SingleUser::new(spec.open(&opening(FaultControl::default())).await?)))
}

/// The same for serving: each of its users is told of lost writes by its logical unit. `faults` makes all its `fault:` layers
/// misbehave.
pub(crate) async fn open_with_faults(
    spec: &Spec,
    faults: FaultControl,
) -> Result<Arc<dyn BlockDevice>, OpenError> {
    spec.open(&opening(faults)).await
}

/// The same on a thread without a reactor, where nothing of it is remote.
pub(crate) fn open_local(spec: &Spec, faults: FaultControl) -> Result<Arc<dyn BlockDevice>, OpenError> {
    match pin!(open_with_faults(spec, faults)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(opened) => opened,
        Poll::Pending => Err(format!("{spec} is remote").into()),
    }
}

fn opening(faults: FaultControl) -> Opening {
    Opening { read_only: false, faults, sleeper: Arc::new(ReactorClock), spawner: Arc::new(ReactorTasks) }
}

/// A volume of a test's own, for one user.
#[cfg(test)]
pub(crate) fn memory(text: &str) -> Arc<dyn BlockDevice> {
    let spec = parse(text).unwrap_or_else(|error| panic!("{error}"));
    Arc::new(SingleUser::new(open_local(&spec, FaultControl::default()).expect("memory")))
}

#[cfg(test)]
mod tests;
