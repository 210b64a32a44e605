//! The settings for starting the server: the path of the configuration file, and options of the command line.
//! Volumes on the command line are added to the volumes of the file; other options override the settings of
//! the file.

use std::path::PathBuf;
use std::str::FromStr;

use backends::Failure;
use front_end_core::ListenAddress;
use volume::spec::{Bytes, Spec};

use crate::config::file::{ConfigFile, resized};
use crate::config::values::{Gather, Poll, Unfit, VolumeName};
use crate::config::{Beside, Config, Configured, FrontEndKind, FrontEnds, Volume};

/// A configuration file and the command line's options. If both are empty, a RAM volume is served
/// ([`StartOptions::or_usual`]).
#[derive(Clone, Debug, Default)]
pub struct StartOptions {
    /// The path of the configuration file, if there is one.
    pub path: Option<PathBuf>,
    /// Volumes in addition to those of the file, each as LUN 0 of a separate target, for any initiator.
    pub volumes: Vec<NamedSpec>,
    /// Addresses to listen on. For each front end, they replace the addresses in the file. A front end
    /// without addresses here uses those of the file.
    pub listen: Vec<Listen>,
    /// The state directory, with identities and reservations.
    pub state: Option<PathBuf>,
    /// The control socket.
    pub control: Option<PathBuf>,
    /// Reactor threads.
    pub reactors: Option<u16>,
    /// TCP congestion control of all portals.
    pub congestion: Option<String>,
    /// The time for which a reactor polls for events before it sleeps.
    pub poll: Option<Poll>,
    /// Time for which a reactor lets events accumulate before it polls again.
    pub gather: Option<Gather>,
    /// The I/O engine that reads and writes files.
    pub io_engine: Option<host::IoEngine>,
    /// The available front ends.
    pub front_ends: FrontEnds,
}

/// A volume and its name, written `NAME=SPEC`.
#[derive(Clone, Debug)]
pub struct NamedSpec {
    /// Its name.
    pub name: VolumeName,
    /// Its specification.
    pub spec: Spec,
}

/// An address, and the front end that listens there: `[SCHEME://]ADDR:PORT`, where the scheme is the front
/// end's name. The scheme of the first front end may be omitted. Some front ends also listen on Unix sockets
/// (`SCHEME+unix://PATH`), or on interfaces and UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    front_end: &'static str,
    address: ListenAddress,
}

impl FromStr for Listen {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Listen, Unfit> {
        let kinds = FrontEnds::default().0;
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        let name = scheme.map(|scheme| scheme.split_once('+').map_or(scheme, |(name, _)| name));
        let named = |kind: &&FrontEndKind| name.is_none_or(|name| kind.name == name);
        let Some(kind) = kinds.iter().find(named) else {
            let schemes: Vec<String> = kinds
                .iter()
                .map(|kind| format!("{}://…", kind.name))
                .collect();
            let scheme = scheme.unwrap_or_default();
            return Err(Unfit(format!(
                "`{scheme}://` is not served here; write {}",
                schemes.join(" or ")
            )));
        };
        Ok(Listen {
            front_end: kind.name,
            address: (kind.listen)(text)?,
        })
    }
}

impl FromStr for NamedSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<NamedSpec, String> {
        let (name, spec) = text
            .split_once('=')
            .ok_or("write a name, `=` and a specification, such as vm1=ram:1GiB")?;
        let name = name.parse().map_err(|error| format!("{error}"))?;
        let spec = backends::parse(spec).map_err(|error| error.to_string())?;
        Ok(NamedSpec { name, spec })
    }
}

impl StartOptions {
    /// The complete configuration to serve.
    ///
    /// # Errors
    /// The file has errors or conflicts with the options, or it contains secrets and is accessible to users
    /// other than its owner.
    pub fn safe_config(&self) -> Result<Config, Failure> {
        self.safe_config_with(self.file()?.as_ref())
    }

    /// The configuration file, if there is one.
    pub(crate) fn file(&self) -> Result<Option<ConfigFile>, Failure> {
        let read = |path| ConfigFile::read(path, self.front_ends);
        self.path
            .as_deref()
            .map(read)
            .transpose()
            .map_err(Failure::refused)
    }

    /// Like [`StartOptions::safe_config`], with this file instead of the one on disk.
    pub(crate) fn safe_config_with(&self, file: Option<&ConfigFile>) -> Result<Config, Failure> {
        let mut config = match file {
            Some(file) => file.config().map_err(Failure::refused)?,
            None => Config::empty(self.front_ends),
        };
        for NamedSpec { name, spec } in &self.volumes {
            if config.volumes.iter().any(|volume| volume.name == *name) {
                let sentence = format!("two volumes are named {name}; rename one of them");
                return Err(Failure::refused(sentence));
            }
            config.volumes.push(Volume::new(name.clone(), spec.clone()));
        }
        for front_end in &mut config.front_ends {
            let its = self
                .listen
                .iter()
                .filter(|listen| listen.front_end == front_end.kind().name);
            let beside = Beside {
                listen: its.map(|listen| listen.address.clone()).collect(),
                has_addresses: !self.listen.is_empty(),
                volumes: self.volumes.iter().map(|volume| &volume.name).collect(),
            };
            front_end.take_over(&beside).map_err(Failure::refused)?;
        }
        if config.front_ends().all(Configured::is_empty) {
            let headings: Vec<&str> = self.front_ends.0.iter().map(|kind| kind.heading).collect();
            return Err(Failure::refused(format!(
                "nothing to serve: the configuration has no {}; add one, or --volume",
                headings.join(" and no ")
            )));
        }
        let Config {
            state,
            control,
            reactors,
            poll,
            gather,
            io_engine,
            congestion,
            ..
        } = &mut config;
        congestion.clone_from(&self.congestion);
        *state = self.state.clone().or(state.take());
        *control = self.control.clone().or(control.take());
        *reactors = self.reactors.map(usize::from).or(*reactors);
        *poll = self.poll.map(|poll| poll.0).or(*poll);
        *gather = self.gather.map(|gather| gather.0).or(*gather);
        *io_engine = self.io_engine.or(*io_engine);
        Ok(config)
    }

    /// Adds the default volume if none is given.
    pub fn or_usual(mut self) -> StartOptions {
        if self.path.is_none() && self.volumes.is_empty() {
            // A test checks that the text can be parsed.
            self.volumes = vec![USUAL_VOLUME.parse().expect("a volume")];
        }
        self
    }

    /// Whether a volume is from the command line.
    pub(crate) fn has_volume(&self, name: &VolumeName) -> bool {
        self.volumes.iter().any(|volume| volume.name == *name)
    }

    pub(crate) fn with_volume(&self, name: &VolumeName, spec: &Spec) -> StartOptions {
        let mut start_options = self.clone();
        start_options.volumes.push(NamedSpec {
            name: name.clone(),
            spec: spec.clone(),
        });
        start_options
    }

    pub(crate) fn without_volume(&self, name: &VolumeName) -> StartOptions {
        let mut start_options = self.clone();
        start_options.volumes.retain(|volume| volume.name != *name);
        start_options
    }

    /// Returns a copy in which the volume has a different size.
    pub(crate) fn with_size(&self, name: &VolumeName, size: Bytes) -> Result<StartOptions, String> {
        let Some(volume) = self.volumes.iter().find(|volume| volume.name == *name) else {
            return Ok(self.clone());
        };
        let sized = resized(name, &volume.spec.to_string(), size)?;
        Ok(self.with_spec(
            name,
            &backends::parse(&sized).map_err(|error| error.to_string())?,
        ))
    }

    /// Returns a copy in which the volume has a different specification.
    pub(crate) fn with_spec(&self, name: &VolumeName, spec: &Spec) -> StartOptions {
        let mut start_options = self.clone();
        let named = start_options
            .volumes
            .iter_mut()
            .filter(|volume| volume.name == *name);
        named.for_each(|volume| volume.spec = spec.clone());
        start_options
    }
}

/// The default volume of `linerate serve`.
const USUAL_VOLUME: &str = "ram0=ram:1GiB";

#[cfg(test)]
mod tests {
    use super::*;

    fn config(start_options: &StartOptions) -> Result<Config, String> {
        start_options
            .clone()
            .or_usual()
            .safe_config()
            .map_err(|failure| failure.to_string())
    }

    fn volume(text: &str) -> Vec<NamedSpec> {
        vec![text.parse().expect("a volume")]
    }

    fn listening(text: &str) -> Vec<Listen> {
        vec![text.parse().expect("an address")]
    }

    /// Creates a file with this text, and start options that name only this file.
    fn file(text: &str) -> (tempfile::NamedTempFile, StartOptions) {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), text).expect("written");
        let start_options = StartOptions {
            path: Some(file.path().to_owned()),
            ..StartOptions::default()
        };
        (file, start_options)
    }

    #[test]
    fn without_arguments_a_ram_volume_is_served_to_this_machine() {
        let config = config(&StartOptions::default()).expect("nothing wrong");
        assert_eq!(config.volumes[0].spec.to_string(), "ram:1GiB");
        assert_eq!(
            config.iscsi().targets[0].name.as_str(),
            "iqn.2026-01.io.linerate:ram0"
        );
        assert_eq!(config.iscsi().targets[0].luns[0].lun, 0);
        assert_eq!(
            config.iscsi().portals[0].listen.0.to_string(),
            "127.0.0.1:3260"
        );
    }

    #[test]
    fn volumes_beside_the_file_add_to_those_of_the_file() {
        let (_file, start_options) = file(
            "[volume.a]\nspec = \"ram:1GiB\"\n[[target]]\nname = \"iqn.2026-01.com.example:a\"\n\
             lun = [{ lun = 0, volume = \"a\" }]\n[[portal]]\nlisten = \"127.0.0.1:1\"\n",
        );
        let (volumes, listen) = (volume("b=ram:1MiB"), listening("[::1]:2"));
        let both = config(&StartOptions {
            volumes,
            listen,
            ..start_options.clone()
        })
        .expect("fine");
        assert_eq!(both.volumes.len(), 2);
        assert_eq!(both.iscsi().portals.len(), 1, "an address replaces");
        let twice = config(&StartOptions {
            volumes: volume("a=ram:1MiB"),
            ..start_options
        })
        .expect_err("two of a name");
        assert!(twice.contains("two volumes are named a"), "{twice}");
    }

    #[test]
    fn a_target_cannot_lose_its_portal_group() {
        let (_file, start_options) = file(
            "[volume.a]\nspec = \"ram:1GiB\"\n[[target]]\nname = \"iqn.2026-01.com.example:a\"\ngroups = [2]\n\
             lun = [{ lun = 0, volume = \"a\" }]\n[[portal]]\nlisten = \"127.0.0.1:1\"\ngroup = 2\n",
        );
        config(&start_options).expect("fine as it is");
        let lost = StartOptions {
            listen: listening("127.0.0.1:2"),
            ..start_options
        };
        let lost = config(&lost).expect_err("nobody could reach it");
        assert!(lost.contains("use [[portal]]"), "{lost}");
    }

    /// Regression: the last export of a server could not be removed.
    #[test]
    fn what_listens_may_be_without_volumes() {
        let volume = "[volume.a]\nspec = \"ram:1MiB\"\n";
        let target = "[[target]]\nname = \"iqn.2026-01.com.example:a\"\nlun = [{ lun = 0, volume = \"a\" }]\n";
        for section in [
            format!("[[portal]]\nlisten = \"127.0.0.1:1\"\n{target}"),
            "[nbd]\nlisten = [\"127.0.0.1:1\"]\n[[nbd.export]]\nvolume = \"a\"\n".to_owned(),
            "[nbd]\nlisten = [\"127.0.0.1:1\"]\n[[nbd.export]]\nvolume = \"a\"\nnetworks = [\"127.0.0.0/8\"]\n".to_owned(),
            "[aoe]\nlisten = [\"eth0\"]\n[[aoe.slot]]\naddress = \"7.1\"\nvolume = \"a\"\n".to_owned(),
            "[hyperscsi]\nlisten = [\"eth0\"]\n[[hyperscsi.target]]\nname = \"a\"\nlun = [{ lun = 0, volume = \"a\" }]\n"
                .to_owned(),
        ] {
            let (_file, start_options) = file(&format!("{volume}{section}"));
            let read = start_options.file().expect("readable").expect("there is one");
            let without = read.without_volume(&"a".parse().expect("a name")).expect("it is there");
            let config = start_options.safe_config_with(Some(&without)).unwrap_or_else(|error| panic!("{section}: {error}"));
            assert_eq!(config.exported().count(), 0, "{section}");
        }
    }

    #[test]
    fn nothing_to_serve_is_a_mistake() {
        let (_file, empty) = file("");
        let error = config(&empty).expect_err("empty");
        assert!(error.contains("nothing to serve"), "{error}");
    }
}
