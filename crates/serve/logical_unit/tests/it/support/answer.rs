use logical_unit::{DataIn, Reply, SenseData, Status};

/// A reply, with its data in one place.
#[derive(Debug)]
pub struct CommandResult {
    pub status: Status,
    pub sense: Option<SenseData>,
    pub data: Vec<u8>,
    pub expected_bytes: u64,
}

impl CommandResult {
    pub fn from_reply(reply: Reply) -> CommandResult {
        let data = match reply.data {
            DataIn::None => vec![],
            DataIn::Bytes(bytes) => bytes,
            DataIn::Buffer(buffer) => buffer.to_vec(),
            DataIn::Region(region, _lock) => {
                let mut bytes = vec![0; region.len()];
                region.load(0, &mut bytes);
                bytes
            }
        };
        CommandResult {
            status: reply.status,
            sense: reply.sense,
            data,
            expected_bytes: reply.expected_bytes,
        }
    }

    #[track_caller]
    pub fn good(self) -> CommandResult {
        assert_eq!((self.status, self.sense), (Status::Good, None));
        self
    }

    /// Expects CHECK CONDITION with this sense key and additional sense code.
    #[track_caller]
    pub fn check(self, key: u8, asc: u16) -> CommandResult {
        let sense = self
            .sense
            .unwrap_or_else(|| panic!("{:?} without sense data", self.status));
        assert_eq!(
            (self.status, sense.key(), sense.asc()),
            (Status::CheckCondition, key, asc)
        );
        self
    }

    /// Expects INVALID FIELD IN CDB with a pointer at this byte.
    #[track_caller]
    pub fn invalid_field(self, byte: u8) {
        let sense = self.check(5, 0x2400).sense.expect("checked");
        let pointer = &sense.bytes()[15..18];
        assert_eq!(pointer[0] & 0xc0, 0xc0, "SKSV and C/D");
        assert_eq!(pointer[1..], [0, byte]);
    }

    #[track_caller]
    pub fn conflict(self) {
        assert_eq!(
            (self.status, self.sense),
            (Status::ReservationConflict, None)
        );
    }

    #[track_caller]
    pub fn out_of_range(self) {
        self.check(5, 0x2100);
    }

    #[track_caller]
    pub fn unknown(self) {
        self.check(5, 0x2000);
    }
}
