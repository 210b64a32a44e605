//! `[[portal]]`: an address to listen on.

use crate::config::Address;
use crate::config::Section;
use iscsi::name::TargetAddress;
use iscsi_server::ISCSI;
use reactor::StreamOptions;
use volume::spec::Bytes;

/// An address to listen on, and how connections to it are set up.
#[derive(Clone, Debug, PartialEq)]
pub struct Portal {
    /// Where to listen.
    pub listen: Address,
    /// Its portal group tag, 1 unless said otherwise.
    pub group: u16,
    /// The address that discovery returns instead.
    pub advertise: Option<TargetAddress>,
    /// TCP congestion control by name.
    pub congestion: Option<String>,
    /// SO_SNDBUF in bytes; the system's automatic size if `None`.
    pub send_buffer: Option<usize>,
    /// SO_RCVBUF, likewise.
    pub receive_buffer: Option<usize>,
}

impl Portal {
    /// At this address, with everything else as usual.
    pub fn at(listen: Address) -> Portal {
        let (advertise, congestion) = (None, None);
        Portal { listen, group: 1, advertise, congestion, send_buffer: None, receive_buffer: None }
    }

    pub(super) fn of_server(&self) -> front_end_core::Portal {
        let Portal { listen, group, advertise, congestion, send_buffer, receive_buffer } = self;
        front_end_core::Portal {
            front_end: ISCSI,
            listen: listen.0.into(),
            tag: *group,
            advertise: advertise.as_ref().map(ToString::to_string),
            stream: StreamOptions {
                congestion: congestion.clone(),
                send_buffer_bytes: *send_buffer,
                receive_buffer_bytes: *receive_buffer,
                ..StreamOptions::default()
            },
        }
    }
}

pub(super) fn all(sections: &[Section<'_>]) -> Vec<Portal> {
    let mut portals: Vec<Portal> = Vec::new();
    for section in sections {
        let Some(portal) = read(section) else { continue };
        // Port 0 takes a free port each time.
        if portal.listen.0.port() != 0 && portals.iter().any(|other| other.listen == portal.listen) {
            let sentence = format!("{} is listened on twice; remove one [[portal]]", portal.listen.0);
            section.mistakes.add(section.at(), sentence);
        }
        portals.push(portal);
    }
    portals
}

fn read(section: &Section<'_>) -> Option<Portal> {
    let listen = section.required("listen", section.parsed::<Address>("listen"), "\"0.0.0.0:3260\"");
    let group = section.count("group", 1..=65_535).map_or(1, |group| group.value as u16);
    let advertise = section.parsed("advertise").map(|address| address.value);
    let congestion = section.text("congestion").map(|name| name.value.to_owned());
    let buffer = |key| section.parsed::<Bytes>(key).map(|bytes| bytes.value.0 as usize);
    let (send_buffer, receive_buffer) = (buffer("send-buffer"), buffer("receive-buffer"));
    section.done();
    let listen = listen?.value;
    Some(Portal { listen, group, advertise, congestion, send_buffer, receive_buffer })
}
