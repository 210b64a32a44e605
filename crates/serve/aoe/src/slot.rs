//! The slots to serve, and the settings that hosts make in a slot: the configuration string, the mask list
//! and the reservation (AoEr11 sections 3.2 to 3.4).

use std::sync::Arc;
use std::time::Duration;

use aoe::{
    Address, Config as ConfigQuery, ConfigCommand, ErrorCode, MacList, Mask, MaskDirective,
    MaskError, Reserve, ReserveCommand,
};
use reactor::MacAddress;
use volume::Volume;

/// The configuration of the front end. [`Aoe::adopt`](crate::Aoe::adopt) replaces it.
#[derive(Clone, Default)]
pub struct Config {
    /// The volumes; their addresses differ.
    pub slots: Vec<Arc<Slot>>,
    /// Limits in addition to those of the server.
    pub limits: Limits,
}

/// A volume at an address.
pub struct Slot {
    /// Shelf and slot.
    pub address: Address,
    /// The volume.
    pub volume: Arc<Volume>,
    /// Whether hosts are prevented from writing to the volume.
    pub read_only: bool,
    /// The stations that may use it; `None` allows any.
    pub stations: Option<Vec<MacAddress>>,
    /// The deadline of a device request. After the deadline, the volume is fenced.
    pub deadline: Duration,
}

/// Limits of this front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of outstanding commands of one station at one slot, as advertised (the buffer count).
    pub commands: u16,
    /// Memory for command data of all stations on one core, in bytes.
    pub staging_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            commands: 64,
            staging_bytes: 64 << 20,
        }
    }
}

impl Slot {
    /// Its address in text form.
    pub fn name(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn admits(&self, station: MacAddress) -> bool {
        self.stations
            .as_ref()
            .is_none_or(|stations| stations.contains(&station))
    }
}

/// The state of one slot.
#[derive(Default)]
pub(crate) struct SlotState {
    string: Vec<u8>,
    /// If not empty, frames of stations that are not in this list are ignored.
    masks: MacList,
    /// If not empty, commands of stations that are not in this list are rejected.
    holders: MacList,
}

/// Maximum number of stations in a list. The whole list must fit in a standard frame.
const STATIONS_MAX: usize = 185;

impl SlotState {
    pub(crate) fn hears(&self, station: MacAddress) -> bool {
        self.masks.is_empty() || self.masks.contains(&station.0)
    }

    /// Whether the reservation allows this station's commands.
    pub(crate) fn serves(&self, station: MacAddress) -> bool {
        self.holders.is_empty() || self.holders.contains(&station.0)
    }

    pub(crate) fn is_reserved(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Records that another front end has released the volume's reservation.
    pub(crate) fn lose_reservation(&mut self) {
        self.holders.clear();
    }

    /// Returns the configuration string. `None` if the query requires a different string, and is
    /// therefore not answered.
    pub(crate) fn config(&mut self, query: &ConfigQuery<'_>) -> Option<Result<&[u8], ErrorCode>> {
        match query.command {
            ConfigCommand::Read => {}
            ConfigCommand::Test if query.string == self.string => {}
            ConfigCommand::Prefix if self.string.starts_with(query.string) => {}
            ConfigCommand::Test | ConfigCommand::Prefix => return None,
            ConfigCommand::Set if !self.string.is_empty() && query.string != self.string => {
                return Some(Err(ErrorCode::ConfigPresent));
            }
            ConfigCommand::Set | ConfigCommand::ForceSet => self.string = query.string.to_vec(),
            ConfigCommand::Other(_) => return Some(Err(ErrorCode::BadArgument)),
        }
        Some(Ok(&self.string))
    }

    /// Reads or edits the mask list. An edit succeeds completely, or changes nothing.
    pub(crate) fn mask(&mut self, asked: &Mask) -> Result<Mask, ErrorCode> {
        let error = match asked.command {
            0 => None,
            1 => self.edit_masks(&asked.directives).err(),
            _ => return Err(ErrorCode::BadArgument),
        };
        let directive = |station: &[u8; 6]| MaskDirective {
            command: 0,
            station: *station,
        };
        Ok(Mask {
            command: asked.command,
            error,
            directives: self.masks.iter().map(directive).collect(),
        })
    }

    fn edit_masks(&mut self, directives: &[MaskDirective]) -> Result<(), MaskError> {
        let mut masks = self.masks.clone();
        for directive in directives {
            let is_listed = masks.contains(&directive.station);
            match directive.command {
                0 => {}
                1 if is_listed => {}
                1 if masks.len() == STATIONS_MAX => return Err(MaskError::Full),
                1 => masks.push(directive.station),
                2 => masks.retain(|station| *station != directive.station),
                _ => return Err(MaskError::BadDirective),
            }
        }
        debug_assert!(masks.len() <= STATIONS_MAX, "a usual frame has space");
        self.masks = masks;
        Ok(())
    }

    /// Returns the current holders of the reservation, for the reply.
    pub(crate) fn holders(&self, command: ReserveCommand) -> Reserve {
        Reserve {
            command,
            stations: self.holders.clone(),
        }
    }

    /// Returns the new holders, if this command of `from` changes the reservation. An empty list releases it.
    pub(crate) fn reservation(
        &self,
        asked: &Reserve,
        from: MacAddress,
    ) -> Result<Option<MacList>, ErrorCode> {
        match asked.command {
            ReserveCommand::Read => Ok(None),
            ReserveCommand::Set if !self.serves(from) => Err(ErrorCode::Reserved),
            ReserveCommand::Set | ReserveCommand::ForceSet => Ok(Some(asked.stations.clone())),
            ReserveCommand::Other(_) => Err(ErrorCode::BadArgument),
        }
    }

    pub(crate) fn set_holders(&mut self, holders: MacList) {
        self.holders = holders;
    }
}

#[cfg(test)]
mod tests {
    use aoe::{Body, Frame, Header};

    use super::*;

    const ONE: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const TWO: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

    #[test]
    fn a_string_is_set_once_and_tested() {
        let mut state = SlotState::default();
        let mut ask = |command, string: &[u8]| {
            state
                .config(&ConfigQuery::query(command, string))
                .map(|answer| answer.map(<[u8]>::to_vec))
        };
        assert_eq!(ask(ConfigCommand::Test, b""), Some(Ok(Vec::new())));
        assert_eq!(ask(ConfigCommand::Set, b"mine"), Some(Ok(b"mine".to_vec())));
        assert_eq!(
            ask(ConfigCommand::Set, b"other"),
            Some(Err(ErrorCode::ConfigPresent))
        );
        assert_eq!(
            ask(ConfigCommand::Set, b"mine"),
            Some(Ok(b"mine".to_vec())),
            "the same again"
        );
        assert_eq!(ask(ConfigCommand::Test, b"min"), None);
        assert_eq!(
            ask(ConfigCommand::Prefix, b"min"),
            Some(Ok(b"mine".to_vec()))
        );
        assert_eq!(ask(ConfigCommand::Prefix, b"other"), None);
        assert_eq!(
            ask(ConfigCommand::ForceSet, b"other"),
            Some(Ok(b"other".to_vec()))
        );
        assert_eq!(
            ask(ConfigCommand::Other(9), b""),
            Some(Err(ErrorCode::BadArgument))
        );
    }

    #[test]
    fn an_edit_of_masks_is_done_as_a_whole_or_not_at_all() {
        let mut state = SlotState::default();
        let mut edit = |commands: &[(u8, MacAddress)]| {
            let line = |(command, station): &(u8, MacAddress)| MaskDirective {
                command: *command,
                station: station.0,
            };
            let asked = Mask {
                command: 1,
                error: None,
                directives: commands.iter().map(line).collect(),
            };
            let answer = state.mask(&asked).expect("an edit");
            (answer.error, answer.directives.len())
        };
        assert_eq!(edit(&[(1, ONE), (1, ONE), (0, TWO)]), (None, 1));
        assert_eq!(
            edit(&[(1, TWO), (7, ONE)]),
            (Some(MaskError::BadDirective), 1)
        );
        let many: Vec<_> = (0..=255)
            .map(|last| (1, MacAddress([4, 0, 0, 0, 0, last])))
            .collect();
        assert_eq!(edit(&many), (Some(MaskError::Full), 1));
        assert!(state.hears(ONE) && !state.hears(TWO));
        for add in many.chunks(STATIONS_MAX - 1).take(1).flatten() {
            let directive = MaskDirective {
                command: add.0,
                station: add.1.0,
            };
            let asked = Mask {
                command: 1,
                error: None,
                directives: vec![directive],
            };
            assert_eq!(state.mask(&asked).map(|answer| answer.error), Ok(None));
        }
        let header = Header {
            is_response: true,
            error: None,
            address: Address::ALL,
            tag: 1,
        };
        let all = state
            .mask(&Mask {
                command: 0,
                error: None,
                directives: Vec::new(),
            })
            .expect("the list");
        assert_eq!(all.directives.len(), STATIONS_MAX);
        assert!(
            Frame {
                header,
                body: Body::Mask(all)
            }
            .write()
            .len()
                <= 1500,
            "a usual frame has space"
        );
        assert_eq!(
            state.mask(&Mask {
                command: 9,
                error: None,
                directives: Vec::new()
            }),
            Err(ErrorCode::BadArgument)
        );
    }

    #[test]
    fn a_reservation_is_changed_by_its_holders_or_by_force() {
        let mut state = SlotState::default();
        let set = |command, station: MacAddress| Reserve {
            command,
            stations: vec![station.0],
        };
        let holders = state
            .reservation(&set(ReserveCommand::Set, ONE), ONE)
            .expect("nobody holds it");
        state.set_holders(holders.expect("it is set"));
        assert!(state.serves(ONE) && !state.serves(TWO));
        assert_eq!(
            state.reservation(&set(ReserveCommand::Set, TWO), TWO),
            Err(ErrorCode::Reserved)
        );
        assert_eq!(
            state.reservation(&set(ReserveCommand::ForceSet, TWO), TWO),
            Ok(Some(vec![TWO.0]))
        );
        assert_eq!(
            state.reservation(&set(ReserveCommand::Read, TWO), TWO),
            Ok(None)
        );
    }
}
