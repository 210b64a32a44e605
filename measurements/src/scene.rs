//! The scene of a table: hosts on this machine, rate-limited links between them, servers that run during the whole measurement,
//! and RAID sets over their volumes.
//!
//! Hosts are network namespaces. Links are pairs of interfaces (veth(4)) with the kernel's token buckets (tc-tbf(8)). The lab's
//! wires, which can delay, lose and reorder, are not used: their threads would compete for the measured cores.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use xtask::namespace::Namespace;
use xtask::process::{self, Background};
use xtask::serving::Placement;
use xtask::serving::ceph::{self, Ceph};
use xtask::serving::linerate::{Linerate, await_sync};
use xtask::workspace;

/// The scene of a table. In its texts, `{NAME}` stands for one of `names`, `{folder}` for a directory on the disk, `{shm}` for
/// one in memory, and `{ceph:IMAGE}` for an image of the Ceph cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Scene {
    pub(crate) names: BTreeMap<String, String>,
    /// Link N is the interface `linkN` at both ends, with the addresses 10.88.N.1 and 10.88.N.2. Without links, everything runs
    /// in this machine's own network namespace.
    links: Vec<Link>,
    /// A host that acts as a switch between its links.
    switch: Option<String>,
    /// Additional addresses: host, link and address.
    addresses: Vec<(String, usize, String)>,
    /// The host of the clients.
    client: String,
    daemons: Vec<Daemon>,
    sets: Vec<Set>,
    /// Storage to fill before measuring, for `fill_seconds` each.
    fill: Vec<String>,
    fill_seconds: f64,
    /// The size of the file `{folder}/disk.img`, for servers that do not create one.
    disk_mib: u64,
    /// Images of 256 MiB in a one-node Ceph cluster.
    ceph_images: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Link {
    ends: [String; 2],
    /// The rate; unlimited by default.
    mbit: Option<f64>,
    mtu: Option<u32>,
    /// Disables segmentation and receive offload at both ends, so that each segment is a packet.
    #[serde(default)]
    no_offload: bool,
    /// The first end splits its data into segments itself, so that the queue after it gets single segments.
    #[serde(default)]
    segments_alone: bool,
}

/// A server on each of these hosts. In its texts, `{host}` is the host, and `{link}` and `{last}` are the interfaces of its first
/// and last link.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Daemon {
    name: String,
    hosts: Vec<String>,
    core: Option<usize>,
    #[serde(default)]
    program: DaemonProgram,
    #[serde(default)]
    listen: Vec<String>,
    #[serde(default)]
    volumes: Vec<String>,
    #[serde(default)]
    options: Vec<String>,
    /// Writes its log to `{folder}/NAME.log`.
    #[serde(default)]
    log: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DaemonProgram {
    #[default]
    Linerate,
    Nbdkit,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Set {
    set: String,
    /// Options of `linerate raid create`.
    #[serde(default)]
    options: Vec<String>,
    /// The set's specification once it is created, if that differs.
    opened: Option<String>,
    /// Wait until it is in sync.
    #[serde(default)]
    sync: bool,
}

/// A running scene, removed when dropped.
#[derive(Debug)]
pub(crate) struct World {
    binary: PathBuf,
    client: String,
    daemons: Vec<(Daemon, Option<Background>)>,
    pub(crate) ceph: Option<Ceph>,
    hosts: BTreeMap<String, Namespace>,
    ends: Vec<[String; 2]>,
    texts: Vec<(String, String)>,
    folders: [PathBuf; 2],
    /// Whether to keep the directory on the disk.
    pub(crate) keep: bool,
}

/// Parameters of a link's buffer, which is like the buffer of a switch port, with a burst of two segments of
/// the kernel's maximum size.
const BUCKET: [&str; 4] = ["latency", "10ms", "burst", "128kb"];
/// Parameters of a bucket that is too small for any packet.
const NOTHING: [&str; 6] = ["rate", "8kbit", "latency", "1ms", "burst", "10b"];
/// Time limit for nbdkit to start on a loaded machine.
const START_MAX: Duration = Duration::from_secs(60);

impl World {
    pub(crate) fn build(scene: &Scene, binary: &Path) -> Result<World> {
        let id = std::process::id();
        let folders = [
            workspace::target_directory().join(format!("xtask/scene-{id}")),
            PathBuf::from(format!("/dev/shm/linerate-scene-{id}")),
        ];
        let mut texts: Vec<(String, String)> = scene
            .names
            .iter()
            .map(|(name, text)| (format!("{{{name}}}"), text.clone()))
            .collect();
        for (name, folder) in ["{folder}", "{shm}"].into_iter().zip(&folders) {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            texts.push((name.to_owned(), folder.display().to_string()));
        }
        let mut world = World {
            binary: binary.to_owned(),
            client: scene.client.clone(),
            daemons: Vec::new(),
            ceph: None,
            hosts: BTreeMap::new(),
            ends: Vec::new(),
            texts,
            folders,
            keep: false,
        };
        if scene.disk_mib > 0 {
            fs::File::create(world.folders[0].join("disk.img"))?.set_len(scene.disk_mib << 20)?;
        }
        world.start_ceph(&scene.ceph_images)?;
        world.connect(scene)?;
        let sets = scene
            .sets
            .iter()
            .map(|set| (set, world.resolve(&set.set).contains("://")));
        let (remote, local): (Vec<_>, Vec<_>) = sets.partition(|(_, is_remote)| *is_remote);
        local.iter().try_for_each(|(set, _)| world.create(set))?;
        for daemon in &scene.daemons {
            for host in &daemon.hosts {
                let daemon = world.on_host(daemon, host);
                let running = world.start(&daemon)?;
                world.daemons.push((daemon, Some(running)));
            }
        }
        remote.iter().try_for_each(|(set, _)| world.create(set))?;
        for place in &scene.fill {
            let mut command = world.place(&world.client, None)?.command(binary);
            command.args([
                "--log",
                "error",
                "bench",
                &world.resolve(place),
                "--allow-write",
                "--yes",
            ]);
            command.args([
                "--block", "256KiB", "--depth", "8", "--read", "0", "--random", "0", "--json",
            ]);
            command.args(["--seconds", &scene.fill_seconds.to_string()]);
            process::capture(command)?;
        }
        Ok(world)
    }

    fn start_ceph(&mut self, images: &[String]) -> Result<()> {
        const SIZE: &str = "256M";
        if images.is_empty() {
            return Ok(());
        }
        let ceph = Ceph::start(ceph::IN_MEMORY)?;
        for image in images {
            ceph.run("rbd", &format!("create --size {SIZE} {image}"))?;
            // Fill the image, so that reads find data and writes create no objects.
            let fill = "bench --io-type write --io-size 1M --io-threads 4 --io-total";
            ceph.run("rbd", &format!("{fill} {SIZE} {image}"))?;
            self.texts
                .push((format!("{{ceph:{image}}}"), ceph.volume(image, "")));
        }
        self.ceph = Some(ceph);
        Ok(())
    }

    fn connect(&mut self, scene: &Scene) -> Result<()> {
        if !scene.links.is_empty() {
            process::require(&["ip", "tc", "nsenter", "taskset", "ethtool"])?;
        }
        for (number, link) in scene.links.iter().enumerate() {
            for end in &link.ends {
                if !self.hosts.contains_key(end) {
                    self.hosts
                        .insert(end.clone(), Namespace::named(&format!("-{end}"))?);
                }
            }
            self.ends.push(link.ends.clone());
            let [first, second] = link.ends.each_ref().map(|end| self.hosts[end].name.clone());
            let interface = &format!("link{number}");
            let pair = [
                "link", "add", interface, "netns", &first, "type", "veth", "peer", "name",
                interface,
            ];
            process::run("ip", &[&pair[..], &["netns", &second]].concat())?;
            for (at, end) in (1..).zip(&link.ends) {
                self.ip(
                    end,
                    &[
                        "address",
                        "add",
                        &format!("10.88.{number}.{at}/24"),
                        "dev",
                        interface,
                    ],
                )?;
                let mtu = link.mtu.unwrap_or(1500).to_string();
                self.ip(end, &["link", "set", interface, "mtu", &mtu, "up"])?;
                if link.no_offload {
                    let off = [
                        "tso",
                        "off",
                        "gso",
                        "off",
                        "gro",
                        "off",
                        "tx-udp-segmentation",
                        "off",
                    ];
                    self.hosts[end].within(&[&["ethtool", "-K", interface][..], &off].concat())?;
                }
            }
            if link.segments_alone {
                self.ip(
                    &link.ends[0],
                    &["link", "set", interface, "gso_max_segs", "1"],
                )?;
            }
            if let Some(mbit) = link.mbit {
                self.set_rate(number, Some(mbit))?;
            }
        }
        if let Some(switch) = &scene.switch {
            self.ip(switch, &["link", "add", "bridge", "type", "bridge"])?;
            self.ip(switch, &["link", "set", "bridge", "up"])?;
            for number in (0..self.ends.len()).filter(|number| self.ends[*number].contains(switch))
            {
                let interface = &format!("link{number}");
                self.ip(switch, &["address", "flush", "dev", interface])?;
                self.ip(switch, &["link", "set", interface, "master", "bridge"])?;
            }
        }
        for (host, number, address) in &scene.addresses {
            self.ip(
                host,
                &["address", "add", address, "dev", &format!("link{number}")],
            )?;
        }
        Ok(())
    }

    fn ip(&self, host: &str, words: &[&str]) -> Result<()> {
        let name = &self
            .hosts
            .get(host)
            .with_context(|| format!("no host {host}"))?
            .name;
        process::run("ip", &[&["-n", name], words].concat()).map(drop)
    }

    pub(crate) fn ceph_version(&self) -> Option<String> {
        Some(
            self.ceph
                .as_ref()?
                .run("ceph", "--version")
                .ok()?
                .trim()
                .to_owned(),
        )
    }

    /// Sets the rate of a link in both directions; `None` blocks all traffic.
    pub(crate) fn set_rate(&self, number: usize, mbit: Option<f64>) -> Result<()> {
        let rate = mbit.map(|mbit| format!("{:.0}bit", mbit * 1e6));
        let limits: Vec<&str> = match &rate {
            Some(rate) => [&["rate", rate.as_str()][..], &BUCKET].concat(),
            None => NOTHING.to_vec(),
        };
        let interface = &format!("link{number}");
        for end in &self.ends[number] {
            let add = ["tc", "qdisc", "replace", "dev", interface, "root", "tbf"];
            self.hosts[end].within(&[&add[..], &limits].concat())?;
        }
        Ok(())
    }

    /// Takes the second end of a link down, or brings it up.
    pub(crate) fn set_up(&self, number: usize, is_up: bool) -> Result<()> {
        let state = if is_up { "up" } else { "down" };
        self.ip(
            &self.ends[number][1],
            &["link", "set", &format!("link{number}"), state],
        )
    }

    /// Returns the placement on a host, on one core or on all. Without links, the host is this machine.
    fn place(&self, host: &str, core: Option<usize>) -> Result<Placement> {
        let namespace = match self.hosts.is_empty() {
            true => None,
            false => Some(
                self.hosts
                    .get(host)
                    .with_context(|| format!("no host {host}"))?
                    .name
                    .clone(),
            ),
        };
        Ok(Placement { namespace, core })
    }

    /// Returns the placement of clients.
    pub(crate) fn client(&self, core: Option<usize>) -> Result<Placement> {
        self.place(&self.client, core)
    }

    pub(crate) fn resolve(&self, text: &str) -> String {
        let replace =
            |text: String, (name, with): &(String, String)| text.replace(name.as_str(), with);
        let once = self.texts.iter().fold(text.to_owned(), replace);
        self.texts.iter().fold(once, replace) // a text can contain the name of another
    }

    fn on_host(&self, daemon: &Daemon, host: &str) -> Daemon {
        let is_here = |ends: &[String; 2]| ends.iter().any(|end| end == host);
        let first = format!("link{}", self.ends.iter().position(is_here).unwrap_or(0));
        let last = format!("link{}", self.ends.iter().rposition(is_here).unwrap_or(0));
        let text = |text: &String| {
            self.resolve(text)
                .replace("{host}", host)
                .replace("{link}", &first)
                .replace("{last}", &last)
        };
        let texts = |texts: &[String]| texts.iter().map(text).collect();
        Daemon {
            hosts: vec![host.to_owned()],
            listen: texts(&daemon.listen),
            volumes: texts(&daemon.volumes),
            options: texts(&daemon.options),
            ..daemon.clone()
        }
    }

    fn start(&self, daemon: &Daemon) -> Result<Background> {
        let (host, place) = (&daemon.hosts[0], self.place(&daemon.hosts[0], daemon.core)?);
        if matches!(daemon.program, DaemonProgram::Nbdkit) {
            let listening = self.folders[0].join(format!("nbdkit-{host}.pid"));
            let _ = fs::remove_file(&listening); // does not exist before the first start
            let mut command = place.command("nbdkit");
            command
                .arg("--foreground")
                .arg("--pidfile")
                .arg(&listening)
                .args(&daemon.options);
            let nbdkit = Background::start(&mut command)?;
            let begun = Instant::now();
            while !listening.exists() {
                ensure!(
                    begun.elapsed() < START_MAX,
                    "nbdkit does not listen after {START_MAX:?}"
                );
                thread::sleep(Duration::from_millis(20));
            }
            return Ok(nbdkit);
        }
        let state = self.state(daemon);
        fs::create_dir_all(&state).with_context(|| state.display().to_string())?;
        let mut command = place.command(&self.binary);
        command
            .args(["--log", if daemon.log { "info" } else { "error" }, "serve"])
            .args(&daemon.options);
        command.args(daemon.listen.iter().flat_map(|listen| ["--listen", listen]));
        command.args(
            daemon
                .volumes
                .iter()
                .flat_map(|volume| ["--volume", volume]),
        );
        command
            .arg("--state")
            .arg(&state)
            .arg("--control")
            .arg(state.join("control"));
        if daemon.log {
            let log = self.folders[0].join(format!("{}.log", daemon.name));
            command.stderr(OpenOptions::new().create(true).append(true).open(log)?);
        }
        Background::start_ready(&mut command)
            .with_context(|| format!("starting {} of {host}", daemon.name))
    }

    fn state(&self, daemon: &Daemon) -> PathBuf {
        self.folders[0].join(format!("{}-{}", daemon.name, daemon.hosts[0]))
    }

    fn create(&self, set: &Set) -> Result<()> {
        let (client, spec) = (self.client(None)?, self.resolve(&set.set));
        let mut command = client.command(&self.binary);
        command.args(["raid", "create", &spec, "--yes"]);
        command.args(set.options.iter().map(|option| self.resolve(option)));
        process::capture(command)?;
        if set.sync {
            let opened = set
                .opened
                .as_ref()
                .map_or(spec, |opened| self.resolve(opened));
            // Only a server resynchronises the set, not a reading client.
            let server = Linerate::start(&self.binary, &[format!("set={opened}")], 1, &client)?;
            await_sync(&self.binary, &server.control(), "set")?;
        }
        Ok(())
    }

    /// Returns the process IDs of the named daemons.
    pub(crate) fn pids(&self, names: &[String]) -> Vec<u32> {
        let named = self
            .daemons
            .iter()
            .filter(|(daemon, _)| names.contains(&daemon.name));
        named
            .filter_map(|(_, running)| Some(running.as_ref()?.pid()))
            .collect()
    }

    pub(crate) fn start_daemon(&mut self, name: &str) -> Result<()> {
        let at = self.daemon(name)?;
        self.daemons[at].1 = None; // terminated, if it is running
        self.daemons[at].1 = Some(self.start(&self.daemons[at].0)?);
        Ok(())
    }

    /// Returns the process of a daemon, if it is running.
    pub(crate) fn process(&self, name: &str) -> Option<&Background> {
        self.daemons[self.daemon(name).ok()?].1.as_ref()
    }

    /// Returns the path of a daemon's control socket.
    pub(crate) fn control(&self, name: &str) -> Result<PathBuf> {
        Ok(self
            .state(&self.daemons[self.daemon(name)?].0)
            .join("control"))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folders[0]
    }

    pub(crate) fn kill_daemon(&mut self, name: &str) -> Result<()> {
        let at = self.daemon(name)?;
        self.daemons[at]
            .1
            .take()
            .context("the server is not running")?
            .kill();
        Ok(())
    }

    /// Makes a server close one connection of an NBD client without notifying the client.
    pub(crate) fn drop_connection(&self, name: &str) -> Result<()> {
        let daemon = &self.daemons[self.daemon(name)?].0;
        let server = |arguments: &[&str]| {
            let mut command = self.place(&daemon.hosts[0], None)?.command(&self.binary);
            command
                .arg("server")
                .args(arguments)
                .arg("--control")
                .arg(self.control(name)?);
            process::capture(command)
        };
        let sessions: Value = serde_json::from_str(&server(&["sessions", "--json"])?)?;
        let number = sessions["sessions"][0]["tsih"]
            .as_u64()
            .context("an NBD client among the sessions")?;
        server(&["drop", "--force", &format!("nbd:{number}")]).map(drop)
    }

    fn daemon(&self, name: &str) -> Result<usize> {
        let at = self
            .daemons
            .iter()
            .position(|(daemon, _)| daemon.name == name);
        at.with_context(|| format!("no server {name}"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        while self.daemons.pop().is_some() {} // in reverse order: a gateway stops before the servers that it uses
        for folder in self.folders.iter().skip(usize::from(self.keep)) {
            let _ = fs::remove_dir_all(folder); // a leftover has this process's ID in its name, and is harmless
        }
    }
}
