//! `fault:[…]`.

use std::slice;
use std::sync::Arc;

use block::Fault;

use crate::backend::{Backend, Kind, Opened, Opening, Options};
use crate::spec::{Problem, Spec, Written};

/// Injects faults on command of the control socket: requests hang, fail or are slow, or writes are lost.
pub(super) static FAULT: Kind = Kind {
    name: "fault",
    usage: "fault:[VOLUME]",
    about: "another volume, which hangs, fails or is slow when told so (`linerate server fault`)",
    is_layer: true,
    options: Options::Known(&[]),
    read,
};

#[derive(Debug)]
struct FaultBackend {
    inner: Spec,
}

fn read(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    written.nothing_before_brackets("a fault layer", "fault:[ram:1GiB]")?;
    Ok(Arc::new(FaultBackend { inner: written.member()? }))
}

impl Backend for FaultBackend {
    fn kind(&self) -> &'static Kind {
        &FAULT
    }

    fn argument(&self) -> String {
        String::new()
    }

    fn members(&self) -> &[Spec] {
        slice::from_ref(&self.inner)
    }

    fn has_fault_layer(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async {
            let inner = self.inner.open(opening).await?;
            Ok(Arc::new(Fault::new(inner, Arc::clone(&opening.sleeper), opening.faults.clone())) as _)
        })
    }
}
