//! NBD as a front end of a configured server: `[nbd]`, and `[[nbd.export]]` for each volume.
//!
//! If the command line has an address for NBD (`--listen nbd://…`), each volume of the command line is
//! exported under the volume's name, to any client.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use backends::secrets;
use front_end_core::{ListenAddress, Network, Portal, Server};
use nbd::STRING_BYTES_MAX;
use nbd_server::{ClientStatus, Limits, NBD, Nbd, Requester};
use tls::CredentialsError;
use toml_edit::{Item, Table, TableLike};
use volume::spec::{Bytes, Time};

use super::exposed::{
    self, AccessLists, Contents, Exposed, Lun, announced, before, differing, portal_changes, texts,
};
use super::sections::{
    Listening, add_export, each_once, labelled, remove_exports, section_to_edit,
};
use crate::config::file::text_of;
use crate::config::section::{Placed, Section};
use crate::config::values::{Unfit, VolumeName, listen_address_or_path, one_of};
use crate::config::{
    Addition, Beside, Config, Configured, Document, FrontEndKind, RunningFrontEnd, Serving,
};
use crate::control;

/// The entry of NBD in the front-end table.
pub const KIND: FrontEndKind = FrontEndKind {
    name: NBD,
    listen: |text| listen_address_or_path(text, NBD, PORT),
    heading: "[[nbd.export]]",
    read: |document| Box::new(NbdConfig::read(document)),
    add,
    remove,
};

/// The port that IANA assigned to NBD.
const PORT: u16 = 10809;

/// The NBD part of a configuration.
#[derive(Debug, Default)]
pub struct NbdConfig {
    section: Listening<Export>,
    tls: Option<Tls>,
    limits: Limits,
}

/// A volume exported under a name, and its access lists.
#[derive(Clone, Debug, PartialEq)]
struct Export {
    /// The export name; by default its volume's name.
    name: String,
    volume: VolumeName,
    /// A human-readable description; empty if there is none.
    description: String,
    read_only: bool,
    /// The networks from which clients may connect; `None` for any.
    networks: Option<Vec<Network>>,
    /// The names that clients may have in their certificates; `None` for any client.
    clients: Option<Vec<String>>,
}

impl NbdConfig {
    fn read(document: &Document<'_>) -> NbdConfig {
        let limits = document.limits.map(limits).unwrap_or_default();
        let Some(section) = document.root.section("nbd", "[nbd]") else {
            return NbdConfig {
                limits,
                ..NbdConfig::default()
            };
        };
        let tls = read_tls(&section);
        let exports = exports(&section, document, tls.as_ref());
        let listening = Listening::read(&section, &KIND, "[\"0.0.0.0:10809\"]", exports);
        section.done();
        NbdConfig {
            section: listening,
            tls,
            limits,
        }
    }

    /// Returns the NBD part of a configuration; `None` if it was read by a table of front ends without NBD.
    fn of(config: &Config) -> Option<&NbdConfig> {
        config.front_end()
    }

    /// Returns the configuration for `nbd_server`. An export whose volume is not open, as happens during a
    /// change, is omitted.
    fn served(&self, serving: Serving<'_>) -> nbd_server::Config {
        let served = |export: &Export| {
            let unit = serving.unit(&export.volume)?;
            Some(Arc::new(nbd_server::Export {
                name: export.name.clone(),
                description: export.description.clone(),
                volume: Arc::clone(unit.volume()),
                identity: Some(u128::from_be_bytes(unit.identity().uuid)),
                read_only: export.read_only,
                networks: export.networks.clone(),
                clients: export.clients.clone(),
                deadline: serving.config.volume(&export.volume)?.deadline,
            }))
        };
        nbd_server::Config {
            exports: self.section.exports.iter().filter_map(served).collect(),
            tls: self.tls.as_ref().map(|tls| tls.served.clone()),
            limits: self.limits,
        }
    }
}

impl Export {
    fn admits(&self, from: &Requester) -> bool {
        let networks = self.networks.as_ref();
        networks.is_none_or(|networks| {
            networks
                .iter()
                .any(|network| network.contains(from.address))
        }) && from.is_one_of(self.clients.as_deref())
    }
}

fn exports(nbd: &Section<'_>, document: &Document<'_>, tls: Option<&Tls>) -> Vec<Export> {
    // An unreadable certificate or key is reported as a separate error.
    let is_unread = tls.is_none() && nbd.has("tls-certificate") && nbd.has("tls-client-ca");
    let is_off = nbd.text("tls").is_some_and(|mode| mode.value == "off");
    let asks_clients = tls.map_or(is_unread && !is_off, |tls| tls.served.server.asks_clients());
    let sections = nbd.sections("export", "[[nbd.export]]");
    let exports = sections.iter().filter_map(|section| {
        let export = export(section, document)?;
        if section.has("clients") && !asks_clients {
            let sentence =
                "client names need certificates: in [nbd], set tls-client-ca and enable tls";
            section.mistakes.add(section.placed("clients"), sentence);
        }
        Some(export)
    });
    each_once(exports, nbd.mistakes, |name, _| {
        format!("two exports are named `{name}`; give one of them a different `name`")
    })
}

/// Reads an export, which may have no volume, its name, and its position in the file.
fn export(
    section: &Section<'_>,
    document: &Document<'_>,
) -> Option<(String, Range<usize>, Option<Export>)> {
    // NBD's strings are UTF-8 without NUL; clients print them, so line breaks are refused as well.
    let is_printable =
        |text: &str| text.len() <= STRING_BYTES_MAX && !text.contains(char::is_control);
    let volume = section.required("volume", section.text("volume"), "\"vm1\"");
    let name = section.text("name");
    if let Some(name) = name
        .as_ref()
        .filter(|name| name.value.is_empty() || !is_printable(name.value))
    {
        let sentence = format!(
            "an export name must have 1 to {STRING_BYTES_MAX} bytes, without control characters"
        );
        section.mistakes.add(name.at.clone(), sentence);
    }
    let description = section.text("description");
    if let Some(text) = description
        .as_ref()
        .filter(|text| !is_printable(text.value))
    {
        let sentence = format!(
            "a description must have at most {STRING_BYTES_MAX} bytes, without control characters"
        );
        section.mistakes.add(text.at.clone(), sentence);
    }
    let (read_only, networks) = (
        section.flag("read-only").unwrap_or(false),
        section.list("networks"),
    );
    let clients = section.list("clients");
    section.done();
    let volume = volume?;
    if volume.value.is_empty() && name.is_none() {
        section.mistakes.add(
            volume.at.clone(),
            "an export without a volume needs a `name`".to_owned(),
        );
    }
    let name = name.map_or(volume.value, |name| name.value).to_owned();
    let description = description
        .map(|text| text.value.to_owned())
        .unwrap_or_default();
    let of_volume = |volume| Export {
        name: name.clone(),
        volume,
        description,
        read_only,
        networks,
        clients,
    };
    let export = document.volume(section, &volume).map(of_volume);
    Some((name, section.at(), export))
}

impl Exposed for Export {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn words(&self) -> [&'static str; 2] {
        ["NBD export ", ""]
    }

    fn contents(&self) -> Contents<'_> {
        Contents::Volume(&self.volume)
    }

    fn audience(&self, _: Option<&Lun>) -> String {
        let who = match (&self.clients, &self.networks) {
            (None, None) => "any client",
            (None, Some(_)) => "listed networks",
            (Some(_), None) => "listed clients",
            (Some(_), Some(_)) => "listed clients in listed networks",
        };
        format!("{who}{}", if self.read_only { ", read-only" } else { "" })
    }

    fn access(&self) -> AccessLists {
        AccessLists {
            alias: Some(self.description.clone()).filter(|text| !text.is_empty()),
            initiators: self.clients.clone(),
            networks: texts(self.networks.as_ref()),
            ..AccessLists::default()
        }
    }

    fn differences(&self, old: &dyn Exposed) -> Vec<&'static str> {
        let Export {
            name: _,
            volume: _,
            description,
            read_only,
            networks,
            clients,
        } = self;
        let old: &Export = before(old);
        differing(&[
            (old.description != *description, "description"),
            (old.read_only != *read_only, "read-only"),
            (old.networks != *networks, "networks"),
            (old.clients != *clients, "clients"),
        ])
    }
}

impl Configured for NbdConfig {
    fn kind(&self) -> &'static FrontEndKind {
        &KIND
    }

    fn take_over(&mut self, beside: &Beside<'_>) -> Result<(), String> {
        self.section
            .take_over(beside, &KIND, "NBD", |exports, volume| {
                if exports.iter().any(|export| export.name == volume.as_str()) {
                    return Err(format!(
                        "the file already has an export {volume}; rename the volume"
                    ));
                }
                let (name, description) = (volume.to_string(), String::new());
                Ok(Export {
                    name,
                    volume: volume.clone(),
                    description,
                    read_only: false,
                    networks: None,
                    clients: None,
                })
            })
    }

    fn is_empty(&self) -> bool {
        self.section.is_empty()
    }

    fn exposed(&self) -> Vec<&dyn Exposed> {
        self.section.exposed()
    }

    fn portals(&self) -> Vec<Portal> {
        self.section.portals(&KIND)
    }

    fn changes(
        &self,
        wanted: &dyn Configured,
        renamed: &[(VolumeName, VolumeName)],
    ) -> Vec<String> {
        // The iSCSI front end reports differences in the limits, because both front ends have the same keys.
        let any: &dyn std::any::Any = wanted;
        let Some(NbdConfig {
            section: _,
            tls,
            limits: _,
        }) = any.downcast_ref()
        else {
            return Vec::new();
        };
        let mut lines = exposed::changes(&self.exposed(), &wanted.exposed(), renamed);
        lines.extend(tls_changes(self.tls.as_ref(), tls.as_ref()));
        lines.extend(portal_changes(
            &self.portals(),
            &wanted.portals(),
            |portal| self.describe(portal),
        ));
        lines
    }

    fn summary(&self, config: &Config) -> String {
        let encryption = self.tls.as_ref().map(|tls| {
            let clients = if tls.served.server.asks_clients() {
                ", clients with certificates"
            } else {
                ""
            };
            format!("NBD over TLS, {}{clients}\n", tls.mode())
        });
        encryption.unwrap_or_default() + &config.summary_of(&self.exposed())
    }

    fn announcement(&self, portals: &[Portal], volumes: &[control::Volume]) -> String {
        let scheme = if self.tls.is_some() { "nbds" } else { "nbd" };
        let exports = self.section.exports.iter();
        exports
            .filter_map(|export| Some(announced(export, volumes, &url(export, scheme, portals)?)))
            .collect()
    }

    fn usage(&self, portals: &[Portal]) -> String {
        let exports = self.section.exports.iter();
        exports
            .filter_map(|export| usage_of(export, self.tls.as_ref(), portals))
            .collect()
    }

    fn start(&self, serving: Serving<'_>, cores: usize) -> Arc<dyn RunningFrontEnd> {
        Nbd::new(self.served(serving), cores)
    }
}

impl RunningFrontEnd for Nbd {
    fn adopt(&self, wanted: Serving<'_>) {
        let config = NbdConfig::of(wanted.config).map(|nbd| nbd.served(wanted));
        Nbd::adopt(self, config.unwrap_or_default());
    }

    fn losses(&self, server: &Server, wanted: Serving<'_>, _: &[Portal]) -> Vec<String> {
        let now = self.config();
        let serves_still = |client: &ClientStatus| {
            let before = now
                .exports
                .iter()
                .find(|export| export.name == client.export);
            let Some(nbd) = NbdConfig::of(wanted.config) else {
                return false;
            };
            let after = nbd
                .section
                .exports
                .iter()
                .find(|export| export.name == client.export);
            let is_required = nbd.tls.as_ref().is_some_and(|tls| tls.served.is_required);
            let (Some(before), Some(after)) = (before, after) else {
                return false;
            };
            wanted
                .unit(&after.volume)
                .is_some_and(|unit| Arc::ptr_eq(unit.volume(), &before.volume))
                && after.read_only == before.read_only
                && after.admits(&client.requester)
                && (client.requester.encryption.is_some() || !is_required)
        };
        let clients = self.clients(server);
        let lost = clients.iter().filter(|client| !serves_still(client));
        lost.map(|client| format!("{} uses the export {}", client.peer, client.export))
            .collect()
    }

    fn sessions(&self, server: &Server) -> Vec<control::ServedSession> {
        self.clients(server).into_iter().map(session).collect()
    }

    fn drop_sessions(&self, server: &Server, which: &str, force: bool) -> usize {
        self.drop_clients(server, which, force)
    }
}

/// Reads the keys of `[limits]` that have the same meaning for every front end.
fn limits(section: &Section<'_>) -> Limits {
    let usual = Limits::default();
    let time = |key| section.parsed::<Time>(key).map(|time| time.value.0);
    let staging = section
        .parsed::<Bytes>("session-staging")
        .map(|bytes| bytes.value.0 as usize);
    let requests = section
        .count("window", 1..=65_535)
        .map(|count| count.value as usize);
    Limits {
        handshake_time: time("login-time").unwrap_or(usual.handshake_time),
        send_stall: time("send-stall").unwrap_or(usual.send_stall),
        requests: requests.unwrap_or(usual.requests),
        staging_bytes: staging.unwrap_or(usual.staging_bytes),
    }
}

fn session(status: ClientStatus) -> control::ServedSession {
    control::ServedSession {
        front_end: NBD.to_owned(),
        initiator: status.peer.ip().to_canonical().to_string(),
        user: None,
        isid: None,
        tsih: Some(status.number),
        target: Some(status.export),
        age_seconds: status.age.as_secs_f64(),
        core: status.core,
        connections: vec![control::Connection {
            cid: None,
            peer: status.peer.into(),
            local: status.local.to_string(),
        }],
        parameters: status
            .parameters
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect(),
        in_flight: status.in_flight,
        commands: status.traffic.commands,
        read_bytes: status.traffic.read_bytes,
        written_bytes: status.traffic.written_bytes,
    }
}

/// Returns the commands to run on a host.
fn usage_of(export: &Export, tls: Option<&Tls>, portals: &[Portal]) -> Option<String> {
    let name = &export.name;
    let (linux, qemu) = match shown(portals)? {
        ListenAddress::Inet(address) => {
            let (host, port) = (address.ip(), address.port());
            (format!("{host} {port}"), format!("host={host},port={port}"))
        }
        ListenAddress::Unix(path) => (
            format!("-unix {}", path.display()),
            format!("path={}", path.display()),
        ),
        ListenAddress::Datagrams(_) => return None, // NBD has none
    };
    let url = url(export, if tls.is_some() { "nbds" } else { NBD }, portals)?;
    if let Some(tls) = tls {
        let key = if url.contains('?') { '&' } else { '?' };
        let (own_certificate, own) = match tls.served.server.asks_clients() {
            true => (
                " -certfile client-cert.pem -keyfile client-key.pem",
                "&tls-certificate=FILE&tls-key=FILE",
            ),
            false => ("", ""),
        };
        return Some(told_by_system(
            &format!(
                "NBD export {name}, where DIR has ca-cert.pem, client-cert.pem and client-key.pem"
            ),
            [
                (
                    "Linux",
                    format!(
                        "nbd-client -N {name} -enable-tls -cacertfile ca-cert.pem{own_certificate} {linux} /dev/nbd0"
                    ),
                ),
                (
                    "QEMU",
                    format!(
                        "-object tls-creds-x509,id=tls0,endpoint=client,dir=DIR -drive \
                     driver=nbd,{qemu},export={name},tls-creds=tls0"
                    ),
                ),
                (
                    "libnbd",
                    format!("nbdinfo '{url}{key}tls-certificates=DIR'"),
                ),
                (
                    "Linerate",
                    format!("linerate info '{url}{key}tls-ca=FILE{own}'"),
                ),
            ],
        ));
    }
    // Quote the URL for a shell.
    let url = if url.contains('?') {
        format!("'{url}'")
    } else {
        url
    };
    Some(told_by_system(
        &format!("NBD export {name}"),
        [
            ("Linux", format!("nbd-client -N {name} {linux} /dev/nbd0")),
            ("QEMU", format!("-drive file={url},format=raw")),
            ("libnbd", format!("nbdinfo {url}")),
        ],
    ))
}

fn told_by_system<const N: usize>(head: &str, systems: [(&str, String); N]) -> String {
    systems
        .into_iter()
        .fold(format!("{head}\n"), |text, (system, line)| {
            text + &labelled(system, &[line], '\\')
        })
}

fn url(export: &Export, scheme: &str, portals: &[Portal]) -> Option<String> {
    let name = &export.name;
    Some(match shown(portals)? {
        ListenAddress::Inet(address) => format!("{scheme}://{address}/{name}"),
        ListenAddress::Unix(path) => format!("{scheme}+unix:///{name}?socket={}", path.display()),
        ListenAddress::Datagrams(_) => return None,
    })
}

/// Returns the address to which clients should connect: a Unix socket only if there is no other address.
fn shown(portals: &[Portal]) -> Option<&ListenAddress> {
    let own = portals
        .iter()
        .filter(|portal| portal.front_end == NBD)
        .map(|portal| &portal.listen);
    own.min_by_key(|listen| listen.inet().is_none())
}

/// Adds an export. If the addition specifies a target, the export has the name of the target.
fn add(root: &mut Table, addition: &Addition<'_>) -> Result<(), String> {
    if addition.lun.is_some() || !addition.initiators.is_empty() {
        return Err("NBD exports have neither LUNs nor initiators; omit these options".to_owned());
    }
    let nbd = section_to_edit(root, "nbd", "127.0.0.1:10809")?;
    let volume = addition.volume.as_str();
    let name = addition.target.unwrap_or(volume);
    let is_named = |export: &dyn TableLike| {
        text_of(export, "name")
            .or_else(|| text_of(export, "volume"))
            .is_some_and(|other| other == name)
    };
    let named = (name != volume).then(|| ("name", name.into()));
    let entries = [("volume", volume.into())].into_iter().chain(named);
    add_export(
        nbd,
        "export",
        is_named,
        addition.volume,
        entries,
        format!("export {name} already exists"),
    )
}

/// Removes the exports of this volume. An export that stays keeps its name.
fn remove(root: &mut Table, volume: &VolumeName) -> Result<(), String> {
    remove_exports(
        root,
        "nbd",
        "export",
        volume,
        &["name", "volume"],
        |export| {
            if !export.contains_key("name") {
                export.insert("name", Item::Value(volume.as_str().into()));
            }
        },
    )
}

// The TLS keys of `[nbd]`: the certificate files, which are read together with the configuration.

/// Maximum size of a certificate file, larger than any CA bundle.
const CERTIFICATES_BYTES_MAX: u64 = 4 << 20;

/// The TLS settings.
#[derive(Clone, Debug)]
struct Tls {
    served: nbd_server::Tls,
    /// The content of the certificate files, to detect changes. The key file need not be compared, because a
    /// key changes together with its certificate.
    certificates: Vec<u8>,
    client_cas: Option<Vec<u8>>,
}

impl Tls {
    fn mode(&self) -> &'static str {
        if self.served.is_required {
            "required"
        } else {
            "allowed"
        }
    }
}

/// Whether clients may, or must, use TLS.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Off,
    Allowed,
    Required,
}

impl FromStr for Mode {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Mode, Unfit> {
        one_of(
            "mode",
            text,
            &[
                ("off", Mode::Off),
                ("allowed", Mode::Allowed),
                ("required", Mode::Required),
            ],
        )
    }
}

/// Reads the TLS settings; `None` if TLS is off or there are errors.
fn read_tls(section: &Section<'_>) -> Option<Tls> {
    let mode = section.parsed::<Mode>("tls");
    let certificate = section.text("tls-certificate");
    let key = section.text("tls-key");
    let client_ca = section.text("tls-client-ca");
    let is_meant = [&certificate, &key, &client_ca]
        .iter()
        .any(|file| file.is_some());
    match mode.as_ref().map(|mode| mode.value) {
        Some(Mode::Off) => return None,
        None if !is_meant => return None,
        _ => {}
    }
    let certificate = section.required(
        "tls-certificate",
        certificate,
        "\"/etc/linerate/server.pem\"",
    );
    let key = section.required("tls-key", key, "\"/etc/linerate/server.key\"");
    let (certificate, key) = (certificate?, key?);
    let certificates = contents(section, &certificate, certificates_of)?;
    let private_key = contents(section, &key, secrets::read_key)?;
    let client_cas = match &client_ca {
        None => None,
        Some(file) => Some(contents(section, file, certificates_of)?),
    };
    match tls::Server::new(&certificates, &private_key, client_cas.as_deref()) {
        Ok(server) => {
            let is_required = mode.is_none_or(|mode| mode.value == Mode::Required);
            Some(Tls {
                served: nbd_server::Tls {
                    is_required,
                    server,
                },
                certificates,
                client_cas,
            })
        }
        Err(error) => {
            let file = match &error {
                CredentialsError::Certificate(_) => &certificate,
                CredentialsError::Ca(_) => client_ca.as_ref().unwrap_or(&certificate),
                CredentialsError::Key(_) | CredentialsError::Name(_) => &key,
            };
            section
                .mistakes
                .add(file.at.clone(), format!("{}: {error}", file.value));
            None
        }
    }
}

/// Reads the content of a file named by a key.
fn contents<T>(
    section: &Section<'_>,
    file: &Placed<&str>,
    read: impl FnOnce(&Path) -> io::Result<T>,
) -> Option<T> {
    let unread = |error| {
        section.mistakes.add(
            file.at.clone(),
            format!("cannot read {}: {error}", file.value),
        )
    };
    read(Path::new(file.value)).map_err(unread).ok()
}

fn certificates_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(CERTIFICATES_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 > CERTIFICATES_BYTES_MAX {
        false => Ok(bytes),
        true => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is too large for a certificate file",
        )),
    }
}

/// Returns the differences of the TLS settings, one line each.
fn tls_changes(now: Option<&Tls>, wanted: Option<&Tls>) -> Vec<String> {
    match (now, wanted) {
        (None, None) => Vec::new(),
        (None, Some(after)) => vec![format!("+ NBD TLS, {}", after.mode())],
        (Some(_), None) => vec!["- NBD TLS".to_owned()],
        (Some(before), Some(after)) => {
            let differences = [
                (before.served.is_required != after.served.is_required, "tls"),
                (before.certificates != after.certificates, "tls-certificate"),
                (before.client_cas != after.client_cas, "tls-client-ca"),
            ];
            let differs = differences.iter().filter(|(differs, _)| *differs);
            differs
                .map(|(_, key)| format!("~ NBD TLS: {key}"))
                .collect()
        }
    }
}
