//! `linerate fault`: makes a volume with a `fault:` layer hang, fail, be slow or lose writes, to see what initiators do.

use std::path::PathBuf;

use crate::failure::Failure;
use manage::VolumeName;
use manage::control::{FaultMode, Reply, Request, ask, unexpected};

/// Makes a volume with a fault: layer hang, fail, be slow or lose writes
#[derive(Debug, clap::Args)]
pub(crate) struct FaultArguments {
    /// The volume; its specification has a fault: layer, as in fault:[ram:1GiB]
    volume: VolumeName,
    /// pass, hang, fail, lose (flushes fail as if acknowledged writes were lost), or slow=TIME such as slow=5ms
    mode: FaultMode,
    /// The control socket of the server [default: control.sock in the state directory]
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

pub(crate) fn run(arguments: &FaultArguments) -> Result<(), Failure> {
    let socket = manage::state::control_socket(arguments.control.as_deref())?;
    let request = Request::Fault { volume: arguments.volume.to_string(), mode: arguments.mode };
    match ask(&socket, &request).map_err(Failure::failed)? {
        Reply::Done => Ok(()),
        other => Err(unexpected(other)),
    }
}
