//! A Ceph cluster of one node on the loopback, whose object server keeps its data on the disk.

use std::ops::{Deref, DerefMut};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use xtask::serving::ceph;

use crate::program::{installed, run_command};

/// A real object store of minimal size. Watches time out after half of the default, so that tests wait less.
const OPTIONS: &str = "\
osd objectstore = bluestore
bluestore block size = 4294967296
bluestore cache autotune = false
bluestore cache size = 67108864
osd client watch timeout = 15
";

/// A running cluster with the pool `rbd`.
pub(crate) struct Ceph(ceph::Ceph);

impl Ceph {
    /// A cluster shared by concurrent tests that do not modify it; it ends with the last of them.
    pub(crate) fn shared() -> Option<Arc<Ceph>> {
        static SHARED: Mutex<Weak<Ceph>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ceph) = shared.upgrade() {
            return Some(ceph);
        }
        let ceph = Arc::new(Ceph::start()?);
        *shared = Arc::downgrade(&ceph);
        Some(ceph)
    }

    /// Starts a cluster; `None`, with the reason, if its programs are not installed.
    pub(crate) fn start() -> Option<Ceph> {
        let ceph = installed(ceph::PROGRAMS).then(|| ceph::Ceph::start(OPTIONS))?;
        Some(Ceph(ceph.expect("a Ceph cluster")))
    }

    /// Whether to run tests that take minutes on a busy machine. If not, prints why they are skipped.
    pub(crate) fn is_asked_for_all() -> bool {
        let is_asked = std::env::var_os("LINERATE_CEPH_LONG").is_some();
        if !is_asked {
            eprintln!("skipped: it takes minutes; set LINERATE_CEPH_LONG=1");
        }
        is_asked
    }

    /// Starts a program with this cluster's configuration in the background.
    pub(crate) fn start_program(&self, program: &str, arguments: &str) -> Child {
        let mut command = self.command(program);
        let child = command
            .args(arguments.split(' '))
            .stdin(Stdio::null())
            .spawn();
        child.unwrap_or_else(|error| panic!("{program}: {error}"))
    }

    /// The output of a successful `rbd …`.
    pub(crate) fn rbd(&self, arguments: &str) -> String {
        run_command(self.command("rbd").args(arguments.split(' '))).expect_success()
    }
}

impl Deref for Ceph {
    type Target = ceph::Ceph;
    fn deref(&self) -> &ceph::Ceph {
        &self.0
    }
}

impl DerefMut for Ceph {
    fn deref_mut(&mut self) -> &mut ceph::Ceph {
        &mut self.0
    }
}
