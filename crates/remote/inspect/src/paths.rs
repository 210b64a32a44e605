//! The paths of a LUN by several sessions (multipath): whether each leads to it, and its access state.

use backends::{Failure, remote};
use iscsi_client::Url;
use iscsi_client::verbs::Identity;
use serde::Serialize;

/// A path, as it is now. The names of the JSON are promised.
#[derive(Debug, Serialize)]
pub(crate) struct PathInfo {
    /// The portal, and the address of this host that it is reached from if the URL names one.
    path: String,
    /// A login has succeeded, and leads to the LUN.
    usable: bool,
    /// The target port group, and its access state (ALUA), if the target tells of them.
    port_group: Option<u16>,
    state: Option<String>,
    /// Why it is not usable.
    problem: Option<String>,
}

/// Looks at each path of a URL, by a session of its own. They must lead to one unit, that of the first that leads to any.
pub(crate) async fn look(url: &Url) -> Vec<PathInfo> {
    let (mut paths, mut unit) = (Vec::new(), None);
    for one in url.paths() {
        let source = one.settings.stream.source.map(|source| format!(" from {}", source.ip()));
        let path = format!("{}{}", one.portal, source.unwrap_or_default());
        let (access, problem) = match reached(&one).await {
            Ok((identity, access)) => {
                let first = unit.get_or_insert_with(|| identity.clone());
                let problem = match identity {
                    Identity::Unknown => {
                        Some("the LUN has no name by which it could be recognised".to_owned())
                    }
                    other if other != *first => Some(format!("it leads to {other} instead of {first}")),
                    _ => None,
                };
                (access, problem)
            }
            Err(failure) => (None, Some(failure.to_string())),
        };
        let (port_group, state) = access.unzip();
        paths.push(PathInfo { path, usable: problem.is_none(), port_group, state: state.flatten(), problem });
    }
    paths
}

type Access = (u16, Option<String>);

async fn reached(url: &Url) -> Result<(Identity, Option<Access>), Failure> {
    let target = remote::open_target(url).await?;
    let unit = target.unit(url.lun);
    let looked = async {
        let identity = unit.identity().await?;
        let access = unit.own_port_group().await?.map(|(own, groups)| {
            let state = groups.iter().find(|group| group.group == own).map(|group| group.state.to_string());
            (own, state)
        });
        Ok((identity, access))
    };
    let looked = looked.await;
    target.close().await;
    looked
}

impl PathInfo {
    /// What is known of it, for people.
    pub(crate) fn row(&self) -> (String, String) {
        let group = self.port_group.map(|group| format!("port group {group}"));
        let problem = self.problem.as_ref().map(|problem| format!("not usable: {problem}"));
        let facts = [Some(self.path.clone()), group, self.state.clone(), problem];
        ("path".to_owned(), facts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}
