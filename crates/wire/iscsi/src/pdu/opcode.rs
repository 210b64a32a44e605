//! PDU types (RFC 7143 section 11.2.1.2).

use num_enum::TryFromPrimitive;

/// The type of a PDU. Bit 5 is the sender: clear for the initiator, set for the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromPrimitive)]
#[repr(u8)]
pub enum Opcode {
    /// Initiator: ping, or the response to the target's ping.
    NopOut = 0x00,
    /// Initiator: a SCSI command.
    ScsiCommand = 0x01,
    /// Initiator: abort, reset, query.
    TaskManagementRequest = 0x02,
    /// Initiator: begin or continue a login.
    LoginRequest = 0x03,
    /// Initiator: keys and values, in full feature phase.
    TextRequest = 0x04,
    /// Initiator: data of a write.
    DataOut = 0x05,
    /// Initiator: close this connection, another, or the session.
    LogoutRequest = 0x06,
    /// Initiator: request for retransmission.
    SnackRequest = 0x10,
    /// Target: ping, or the response to the initiator's ping.
    NopIn = 0x20,
    /// Target: status of a SCSI command.
    ScsiResponse = 0x21,
    /// Target: outcome of a task management function.
    TaskManagementResponse = 0x22,
    /// Target: continues, completes or refuses a login.
    LoginResponse = 0x23,
    /// Target: keys and values, in full feature phase.
    TextResponse = 0x24,
    /// Target: data of a read, perhaps with the command's status.
    DataIn = 0x25,
    /// Target: outcome of a logout.
    LogoutResponse = 0x26,
    /// Target: request for a part of a write's data.
    R2t = 0x31,
    /// Target: asynchronous event.
    AsyncMessage = 0x32,
    /// Target: rejection of a PDU.
    Reject = 0x3f,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighteen_of_the_sixty_four_numbers_mean_something() {
        let known: Vec<Opcode> = (0..64).flat_map(Opcode::try_from).collect();
        assert_eq!(known.len(), 18);
        assert!(known.iter().all(|&opcode| Opcode::try_from(opcode as u8) == Ok(opcode)));
    }
}
