//! `limit:1000iops:[…]`.

use std::slice;
use std::sync::Arc;

use block::Limit;

use crate::backend::{Backend, Kind, Opened, Opening, Options};
use crate::spec::{AtMost, Problem, Spec, Written};

/// Limits the rate of requests and bytes.
pub(super) static LIMIT: Kind = Kind {
    name: "limit",
    usage: "limit:RATE:[VOLUME]",
    about: "another volume, which does no more than this a second, one request after the other: `1000iops`, \
            `100MB/s`, or both as `1000iops+100MB/s`",
    is_layer: true,
    options: Options::Known(&[]),
    read,
};

#[derive(Debug)]
struct LimitBackend {
    rate: AtMost,
    inner: Spec,
}

fn read(written: &Written<'_>) -> Result<Arc<dyn Backend>, Problem> {
    let rate = written.before_brackets("a limit wants a rate", "limit:1000iops:[ram:1GiB]")?;
    Ok(Arc::new(LimitBackend { rate, inner: written.member()? }))
}

impl Backend for LimitBackend {
    fn kind(&self) -> &'static Kind {
        &LIMIT
    }

    fn argument(&self) -> String {
        self.rate.to_string()
    }

    fn members(&self) -> &[Spec] {
        slice::from_ref(&self.inner)
    }

    fn open<'a>(&'a self, opening: &'a Opening) -> Opened<'a> {
        Box::pin(async {
            let inner = self.inner.open(opening).await?;
            Ok(Arc::new(Limit::new(inner, self.rate.0, Arc::clone(&opening.sleeper))) as _)
        })
    }
}
