//! A host of the lab.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::process::{Child, Command};
use std::sync::{Arc, OnceLock};
use std::{fmt, fs, io};

use host::namespace::Namespace;
use host::processes::Processes;
use host::rtnetlink::{InterfaceSettings, Rtnetlink};

use crate::conditions;
use crate::error::LabError;
use crate::plan::HostPlan;

/// A host of the lab: a separate network namespace, which has the machine's files and users and contains
/// processes of the lab.
#[derive(Debug)]
pub struct Host {
    pub(crate) plan: HostPlan,
    pub(crate) namespace: Namespace,
    pub(crate) rtnetlink: Rtnetlink,
    /// For each link of this host: the name of the link and this host's address.
    pub(crate) addresses: Vec<(String, IpAddr)>,
    settings: Vec<(String, String)>,
    /// The processes of the whole lab, if any were started.
    processes: Arc<OnceLock<Processes>>,
}

/// Formats the host's name, addresses and settings, with one line for each setting.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}", self.name())?;
        self.addresses
            .iter()
            .try_for_each(|(link, address)| write!(f, ", {address} on {link}"))?;
        self.settings
            .iter()
            .try_for_each(|(name, value)| write!(f, "\n  {name} = {value}"))
    }
}

impl Host {
    pub(crate) fn build(
        plan: &HostPlan,
        processes: &Arc<OnceLock<Processes>>,
    ) -> Result<Host, LabError> {
        let namespace = Namespace::new().map_err(|error| without_namespaces(&error))?;
        conditions::allow(&plan.congestion)?;
        let wanted = settings(plan);
        let (rtnetlink, settings) = namespace
            .run(|| -> Result<_, LabError> {
                let rtnetlink =
                    Rtnetlink::open().map_err(LabError::system("reach the kernel's rtnetlink"))?;
                let loopback = rtnetlink
                    .index("lo")
                    .map_err(LabError::system("find the loopback"))?;
                let up = rtnetlink.set_up(loopback, &InterfaceSettings::default());
                up.map_err(LabError::system("bring up the loopback interface"))?;
                Ok((rtnetlink, set_all(&wanted)?))
            })
            .map_err(|error| without_namespaces(&error))??;
        let processes = Arc::clone(processes);
        Ok(Host {
            plan: plan.clone(),
            namespace,
            rtnetlink,
            addresses: Vec::new(),
            settings,
            processes,
        })
    }

    /// The name of the host.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// The plan of the host.
    pub fn plan(&self) -> &HostPlan {
        &self.plan
    }

    /// Returns the host's address on its first link, or the loopback address if the host has no link.
    pub fn address(&self) -> IpAddr {
        self.addresses
            .first()
            .map_or(IpAddr::from([127, 0, 0, 1]), |(_, address)| *address)
    }

    /// Returns the host's links, with its address on each.
    pub fn addresses(&self) -> &[(String, IpAddr)] {
        &self.addresses
    }

    /// Returns the kernel settings that the lab made, as read back from the kernel.
    pub fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    /// Starts a program in this host as one of the lab's processes. It is terminated together with the lab,
    /// as are all its descendants. `prepare` sets its arguments and streams. The program sees this host's
    /// `/sys/class/net` and, in `/proc`, only the processes of the lab.
    ///
    /// # Errors
    /// Returns the errors of [`Command::spawn`].
    pub fn start(
        &self,
        program: impl AsRef<OsStr>,
        prepare: impl FnOnce(&mut Command),
    ) -> io::Result<Child> {
        let processes = match self.processes.get() {
            Some(processes) => processes,
            None => {
                let first = Processes::new()?;
                self.processes.get_or_init(|| first)
            }
        };
        let mut command = processes.command(&self.namespace, program);
        prepare(&mut command);
        processes.start(&mut command)
    }

    /// Returns a command that runs in this host, but is not managed by the lab: the caller must end it. The
    /// command sees this host's `/sys/class/net`.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.namespace.command(program)
    }

    /// Runs `work` on a thread in this host, and waits for it.
    ///
    /// # Errors
    /// [`LabError::System`] if a thread cannot be started or moved to this host.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        self.namespace
            .run(work)
            .map_err(LabError::system(format!("enter host {}", self.plan.name)))
    }
}

/// Returns the settings of a host: first the lab's own, then those of the plan.
fn settings(plan: &HostPlan) -> Vec<(String, String)> {
    let own = OWN_SETTINGS
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let congestion = (
        "net.ipv4.tcp_congestion_control".to_owned(),
        plan.congestion.clone(),
    );
    own.chain([congestion])
        .chain(plan.sysctls.iter().cloned())
        .collect()
}

/// Settings of the lab for every host, so that results do not depend on the machine's settings.
const OWN_SETTINGS: &[(&str, &str)] = &[
    // Space for 32 MiB in each direction, which is enough to fill a link of 1 Gbit/s at 100 ms. The plan or
    // the program can set a smaller window.
    ("net.ipv4.tcp_rmem", "4096 131072 33554432"),
    ("net.ipv4.tcp_wmem", "4096 131072 33554432"),
    // The metrics of one connection must not influence the next.
    ("net.ipv4.tcp_no_metrics_save", "1"),
];

/// Writes each setting, and reads it back.
fn set_all(wanted: &[(String, String)]) -> Result<Vec<(String, String)>, LabError> {
    let set = |(name, value): &(String, String)| -> io::Result<(String, String)> {
        // The path refers to the namespace of the calling thread.
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        fs::write(&path, value)?;
        Ok((
            name.clone(),
            fs::read_to_string(&path)?
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
        ))
    };
    let set = |setting| {
        set(setting).map_err(LabError::system(format!(
            "set {} to {}",
            setting.0, setting.1
        )))
    };
    wanted.iter().map(set).collect()
}

fn without_namespaces(error: &io::Error) -> LabError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => LabError::Missing(
            "a lab requires permission to create network namespaces and interfaces; run it as root, or with \
             the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN"
                .to_owned(),
        ),
        _ => LabError::Missing(format!("the kernel cannot create a network namespace: {error}")),
    }
}
