//! The echo disk as a front end of a configured server: `[echo]`, and `[[echo.export]]` for each volume. It
//! is an entry in a table that the test provides, and is used nowhere else.

use std::net::SocketAddr;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use daemon::config::{Addition, Config, Section, Tables, Unfit, VolumeName, not_editable, text_of};
use daemon::control;
use daemon::front_ends::exposed::{Contents, Exposed, Lun, portal_changes};
use daemon::front_ends::{
    Configured, Document, FrontEndKind, RunningFrontEnd, Serving, listen_address,
};
use front_end_core::{ListenAddress, Portal, RunningCore, Server, Traffic};
use toml_edit::{Item, Table, TableLike};

use crate::front_end::{CoreEchoes, ECHO, EchoDisk};

pub(crate) const KIND: FrontEndKind = FrontEndKind {
    name: ECHO,
    listen: |text| Ok(listen_address(text, ECHO, 7)?.into()),
    heading: "[echo]",
    read: |document| Box::new(EchoConfig::read(document)),
    add,
    remove,
};

/// The front end's section of the configuration.
#[derive(Debug, Default)]
struct EchoConfig {
    listen: Option<SocketAddr>,
    exports: Vec<EchoExport>,
}

/// An exported volume, which any host may use.
#[derive(Debug, PartialEq)]
struct EchoExport(VolumeName);

impl Exposed for EchoExport {
    fn name(&self) -> String {
        self.0.to_string()
    }

    fn words(&self) -> [&'static str; 2] {
        ["echo of ", ""]
    }

    fn contents(&self) -> Contents<'_> {
        Contents::Volume(&self.0)
    }

    fn audience(&self, _: Option<&Lun>) -> String {
        "any client".to_owned()
    }

    fn differences(&self, _: &dyn Exposed) -> Vec<&'static str> {
        Vec::new()
    }
}

struct Listen(SocketAddr);

impl FromStr for Listen {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Listen, Unfit> {
        listen_address(text, ECHO, 7).map(Listen)
    }
}

impl EchoConfig {
    fn read(document: &Document<'_>) -> EchoConfig {
        let Some(section) = document.root.section("echo", "[echo]") else {
            return EchoConfig::default();
        };
        let listen = section.required(
            "listen",
            section.parsed::<Listen>("listen"),
            "\"127.0.0.1:7\"",
        );
        let export = |export: &Section<'_>| {
            let name = export.required("volume", export.text("volume"), "\"vm1\"");
            export.done();
            document.volume(export, &name?).map(EchoExport)
        };
        let exports = section
            .sections("export", "[[echo.export]]")
            .iter()
            .filter_map(export)
            .collect();
        section.done();
        EchoConfig {
            listen: listen.map(|listen| listen.value.0),
            exports,
        }
    }

    fn of(config: &Config) -> &EchoConfig {
        config.front_end().expect("the table has it")
    }

    fn names(&self) -> Vec<String> {
        self.exports.iter().map(EchoExport::name).collect()
    }
}

impl Configured for EchoConfig {
    fn kind(&self) -> &'static FrontEndKind {
        &KIND
    }

    fn is_empty(&self) -> bool {
        self.exports.is_empty()
    }

    fn exposed(&self) -> Vec<&dyn Exposed> {
        self.exports
            .iter()
            .map(|export| export as &dyn Exposed)
            .collect()
    }

    fn portals(&self) -> Vec<Portal> {
        let portal = |listen| Portal {
            front_end: ECHO,
            listen,
            tag: 1,
            advertise: None,
            stream: Default::default(),
        };
        self.listen
            .map(ListenAddress::from)
            .map(portal)
            .into_iter()
            .collect()
    }

    /// Describes the changes in the front end's own terms.
    fn changes(
        &self,
        wanted: &dyn Configured,
        renamed: &[(VolumeName, VolumeName)],
    ) -> Vec<String> {
        let exports: Vec<String> = wanted.exposed().into_iter().map(Exposed::name).collect();
        let name_now = |export: &EchoExport| {
            let found = renamed.iter().find(|(from, _)| *from == export.0);
            found.map_or(export.name(), |(_, to)| to.to_string())
        };
        let before: Vec<String> = self.exports.iter().map(name_now).collect();
        let new = exports
            .iter()
            .filter(|name| !before.contains(name))
            .map(|name| format!("+ echo of {name}"));
        let gone = before
            .iter()
            .filter(|name| !exports.contains(name))
            .map(|name| format!("- echo of {name}"));
        let portals = portal_changes(&self.portals(), &wanted.portals(), |portal| {
            self.describe(portal)
        });
        new.chain(gone).chain(portals).collect()
    }

    fn start(&self, _: Serving<'_>, _: usize) -> Arc<dyn RunningFrontEnd> {
        EchoDisk::new(self.names())
    }
}

impl RunningFrontEnd for EchoDisk {
    fn adopt(&self, wanted: Serving<'_>) {
        *self.exports() = EchoConfig::of(wanted.config).names();
    }

    fn losses(&self, server: &Server, wanted: Serving<'_>, _: &[Portal]) -> Vec<String> {
        let stays = EchoConfig::of(wanted.config).names();
        let sessions = self.sessions(server).into_iter();
        let loss = |session: control::ServedSession| {
            let lost = session.target.filter(|volume| !stays.contains(volume))?;
            Some(format!("{} uses the echo of {lost}", session.initiator))
        };
        sessions.filter_map(loss).collect()
    }

    fn sessions(&self, server: &Server) -> Vec<control::ServedSession> {
        let users =
            |local: &Rc<RunningCore>| local.front_end::<CoreEchoes>().map(|echoes| echoes.users());
        let by_core = server
            .ask_cores(Duration::from_secs(60), users)
            .into_iter()
            .enumerate();
        let heard = by_core.map(|(core, users)| {
            users
                .flatten()
                .unwrap_or_default()
                .into_iter()
                .map(move |user| (core, user))
        });
        let session = |(core, (peer, local, target, traffic)): (
            usize,
            (SocketAddr, SocketAddr, Option<String>, Traffic),
        )| {
            control::ServedSession {
                front_end: ECHO.to_owned(),
                initiator: peer.ip().to_string(),
                user: None,
                isid: None,
                tsih: None,
                target,
                age_seconds: 0.0,
                core,
                connections: vec![control::Connection {
                    cid: None,
                    peer: peer.into(),
                    local: local.to_string(),
                }],
                parameters: Vec::new(),
                in_flight: 0,
                commands: traffic.commands,
                read_bytes: traffic.read_bytes,
                written_bytes: traffic.written_bytes,
            }
        };
        heard.flatten().map(session).collect()
    }
}

fn exports(root: &mut Table) -> Option<&mut dyn TableLike> {
    root.get_mut("echo").and_then(Item::as_table_like_mut)
}

fn add(root: &mut Table, addition: &Addition<'_>) -> Result<(), String> {
    let echo =
        exports(root).ok_or("the file has no [echo]; add one with listen = \"127.0.0.1:7\"")?;
    Tables::under(echo, "export")?.push([("volume", addition.volume.as_str().into())]);
    Ok(())
}

fn remove(root: &mut Table, volume: &VolumeName) -> Result<(), String> {
    let Some(echo) = exports(root) else {
        return Ok(());
    };
    if !echo.contains_key("export") {
        return Ok(());
    }
    let mut exports = Tables::under(echo, "export")?;
    exports.retain(|export| text_of(export, "volume") != Some(volume.as_str()));
    match exports.any(|_| true) {
        true => Ok(()),
        false => echo.remove("export").map(drop).ok_or_else(not_editable),
    }
}
