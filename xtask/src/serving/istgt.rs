//! istgt, another target for comparison: a daemon with one file-backed LUN.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::image::Image;
use super::{Placement, Serving, free_port};
use crate::process::{self, Background};
use crate::workspace;

/// An istgt that serves one LUN.
#[derive(Debug)]
pub struct Istgt {
    server: Background,
    port: u16,
    /// The directory of its configuration and its other files.
    folder: PathBuf,
    /// Deleted after the server has stopped.
    _image: Image,
}

const BASE: &str = "iqn.2026-01.io.linerate";

impl Istgt {
    /// Serves a fully written file of this size in memory (/dev/shm).
    pub fn start(size_bytes: u64, placement: &Placement) -> Result<Istgt> {
        let port = free_port()?;
        let folder = workspace::target_directory()
            .join(format!("xtask/istgt-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let image = Image::in_memory(&format!("istgt-{port}")).written(size_bytes)?;
        let path = folder.join("istgt.conf");
        fs::write(
            &path,
            configuration(&folder, image.path(), port, size_bytes),
        )?;
        let mut command = placement.command("istgt");
        command.args(["-D", "-q", "-c"]).arg(&path);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let server = Background::start(&mut command)?;
        let istgt = Istgt {
            server,
            port,
            folder,
            _image: image,
        };
        istgt.await_listener(placement)?;
        Ok(istgt)
    }

    /// Returns the server's version and configuration, for reports.
    pub fn version() -> String {
        let version = process::run("istgt", &["-V"]).unwrap_or_default();
        format!("{}, one file on /dev/shm", version.trim())
    }

    /// Waits until the server accepts connections. The probe must run in the placement's namespace.
    fn await_listener(&self, placement: &Placement) -> Result<()> {
        let probe = Placement {
            core: None,
            ..placement.clone()
        };
        for _ in 0..200 {
            let mut command = probe.command("bash");
            command
                .args(["-c", &format!("exec 3<>/dev/tcp/127.0.0.1/{}", self.port)])
                .stderr(Stdio::null());
            if command.status().is_ok_and(|status| status.success()) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("istgt does not listen on port {}", self.port)
    }
}

impl Serving for Istgt {
    fn url(&self) -> String {
        format!("iscsi://127.0.0.1:{}/{BASE}:istgt/0", self.port)
    }

    fn process(&self) -> &Background {
        &self.server
    }
}

impl Drop for Istgt {
    fn drop(&mut self) {
        self.server.kill(); // an orderly exit can take seconds, and none of its state is kept
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns istgt's example configuration, with a deeper queue and without NOP-Ins during a run. istgt does
/// not support InitialR2T=No, but accepts immediate data.
fn configuration(folder: &Path, image: &Path, port: u16, size_bytes: u64) -> String {
    format!(
        "[Global]\n  NodeBase \"{BASE}\"\n  PidFile {folder}/pid\n  MediaDirectory {folder}\n  LogFacility \"local7\"\n\
         \x20 Timeout 30\n  NopInInterval 3600\n  DiscoveryAuthMethod None\n  MaxSessions 64\n  MaxConnections 8\n\
         \x20 MaxR2T 32\n  MaxOutstandingR2T 16\n  DefaultTime2Wait 2\n  DefaultTime2Retain 20\n\
         \x20 FirstBurstLength 262144\n  MaxBurstLength 1048576\n  MaxRecvDataSegmentLength 262144\n\
         \x20 InitialR2T Yes\n  ImmediateData Yes\n  DataPDUInOrder Yes\n  DataSequenceInOrder Yes\n\
         \x20 ErrorRecoveryLevel 0\n\
         [UnitControl]\n  AuthMethod None\n  AuthGroup None\n\
         [PortalGroup1]\n  Portal DA1 127.0.0.1:{port}\n\
         [InitiatorGroup1]\n  InitiatorName \"ALL\"\n  Netmask 127.0.0.0/8\n\
         [LogicalUnit1]\n  TargetName istgt\n  Mapping PortalGroup1 InitiatorGroup1\n  AuthMethod None\n\
         \x20 UseDigest Auto\n  UnitType Disk\n  QueueDepth 64\n  LUN0 Storage {image} {size}MB\n",
        folder = folder.display(),
        image = image.display(),
        size = size_bytes >> 20,
    )
}
