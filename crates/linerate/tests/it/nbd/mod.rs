//! Tests of NBD: with other clients, with a test client that sends arbitrary messages, and with SCSI on the
//! same volumes.

mod cern;
mod client;
mod hostile;
mod long_writes;
mod mixed;
mod model;
mod programs;
pub(crate) mod tls;
mod together;
mod unix;

use crate::program::Ended;
use crate::server::{Server, free_port};

/// A server that exports its volumes over NBD and over iSCSI.
pub(crate) struct Both {
    server: Server,
    port: u16,
    /// The content of the server's configuration file.
    text: String,
}

impl Both {
    /// Serves volumes, given as `NAME=SPEC`. Each has an export and a target with its name. The export
    /// `protected` is the first volume, read-only. `more` is put at the start of the configuration file.
    pub(crate) fn serving(volumes: &[&str], more: &str) -> Option<Both> {
        let port = free_port();
        let mut text = format!("{more}\n[nbd]\nlisten = [\"127.0.0.1:{port}\"]\n");
        let volumes = volumes
            .iter()
            .map(|volume| volume.split_once('=').expect("NAME=SPEC"));
        for (index, (name, spec)) in volumes.enumerate() {
            text += &export_of(name);
            if index == 0 {
                text += &format!(
                    "[[nbd.export]]\nvolume = \"{name}\"\nname = \"protected\"\nread-only = true\n"
                );
            }
            text += &format!(
                "[volume.{name}]\nspec = \"{spec}\"\n[[target]]\nname = \"iqn.2026-01.io.linerate:{name}\"\n\
                 lun = [{{ lun = 0, volume = \"{name}\" }}]\n"
            );
        }
        Both::configured(text, port)
    }

    fn configured(text: String, port: u16) -> Option<Both> {
        Server::configured(&text).map(|server| Both { server, port, text })
    }

    pub(crate) fn url(&self, export: &str) -> String {
        format!("nbd://127.0.0.1:{}/{export}", self.port)
    }

    /// `linerate server …`.
    fn command(&self, arguments: &[&str]) -> Ended {
        self.server.ask(&[&["server"], arguments].concat())
    }
}

fn export_of(volume: &str) -> String {
    format!("[[nbd.export]]\nvolume = \"{volume}\"\ndescription = \"it is {volume}\"\n")
}
