//! Lists of stations: whose frames a server takes (AoEr11 section 3.3, the MAC mask list), and who holds a reservation
//! (section 3.4).

/// Addresses of stations. A frame counts them in 8 bits.
pub type MacList = Vec<[u8; 6]>;

/// A command on the mask list, or its answer with the whole list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// 0 reads the list, 1 edits it.
    pub command: u8,
    /// Of an answer: why the list was not edited.
    pub error: Option<MaskError>,
    /// What is to be done, in order; of an answer each station of the list.
    pub directives: Vec<MaskDirective>,
}

/// Why a mask list was not edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskError {
    /// 1, and any other.
    Unspecified,
    /// 2: a directive is unknown.
    BadDirective,
    /// 3: it has no more room.
    Full,
}

/// A line of a mask list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskDirective {
    /// 0 is nothing, 1 adds the station, 2 removes it.
    pub command: u8,
    /// The station.
    pub station: [u8; 6],
}

impl Mask {
    pub(crate) fn parse(body: &[u8]) -> Option<Mask> {
        let ([_, command, error, count], rest) = body.split_first_chunk::<4>()?;
        let directives = rest.get(..usize::from(*count) * 8)?.as_chunks::<8>().0;
        let directive =
            |[_, command, station @ ..]: &[u8; 8]| MaskDirective { command: *command, station: *station };
        let error = match error {
            0 => None,
            2 => Some(MaskError::BadDirective),
            3 => Some(MaskError::Full),
            _ => Some(MaskError::Unspecified),
        };
        Some(Mask { command: *command, error, directives: directives.iter().map(directive).collect() })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let error = match self.error {
            None => 0,
            Some(MaskError::Unspecified) => 1,
            Some(MaskError::BadDirective) => 2,
            Some(MaskError::Full) => 3,
        };
        let directives = &self.directives[..self.directives.len().min(usize::from(u8::MAX))];
        out.extend_from_slice(&[0, self.command, error, directives.len() as u8]);
        for directive in directives {
            out.extend_from_slice(&[0, directive.command]);
            out.extend_from_slice(&directive.station);
        }
    }
}

/// A command on the reservation, or its answer with who holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// What is to be done.
    pub command: ReserveCommand,
    /// Who is to hold it, nobody to release it; of an answer who does.
    pub stations: MacList,
}

/// What is done to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveCommand {
    /// 0: returns who holds it.
    Read,
    /// 1: sets who holds it, if the sender does or nobody does.
    Set,
    /// 2: sets who holds it.
    ForceSet,
    /// Any other.
    Other(u8),
}

impl Reserve {
    pub(crate) fn parse(body: &[u8]) -> Option<Reserve> {
        let ([command, count], rest) = body.split_first_chunk::<2>()?;
        let command = match command {
            0 => ReserveCommand::Read,
            1 => ReserveCommand::Set,
            2 => ReserveCommand::ForceSet,
            code => ReserveCommand::Other(*code),
        };
        Some(Reserve { command, stations: rest.get(..usize::from(*count) * 6)?.as_chunks::<6>().0.to_vec() })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let command = match self.command {
            ReserveCommand::Read => 0,
            ReserveCommand::Set => 1,
            ReserveCommand::ForceSet => 2,
            ReserveCommand::Other(code) => code,
        };
        let stations = &self.stations[..self.stations.len().min(usize::from(u8::MAX))];
        out.extend_from_slice(&[command, stations.len() as u8]);
        stations.iter().for_each(|station| out.extend_from_slice(station));
    }
}
