//! Lists that a target reports: LUNs, target port groups, supported commands.

use iscsi::pdu::Lun;
use scsi::fields::u32_at;
use scsi::{CommandSupport, LunList, LunSelection, PortGroup, SupportedCommand, cdb};

use super::VerbError;
use crate::unit::Unit;

const OPCODES: &str = "REPORT SUPPORTED OPERATION CODES";
/// LUNs that are asked for at first.
const LUNS_FIRST: u32 = 255;
/// LUNs that are asked for at most: a target has 16,384 by two bytes of an address.
const LUNS_MOST: u32 = 0x1_0000;

impl Unit {
    /// REPORT LUNS: which logical units the target has for us. Any of its LUNs may be asked, 0 before all.
    pub async fn report_luns(&self, which: LunSelection) -> Result<Vec<Lun>, VerbError> {
        let name = "REPORT LUNS";
        let cdb = |bytes| cdb::report_luns_of(which, bytes);
        let whole = |answer: &[u8]| 8 + u64::from(u32_at(answer, 0));
        let answer = self.ask_all(name, cdb, 8 + 8 * LUNS_FIRST, 8 + 8 * LUNS_MOST, whole).await?;
        let list = LunList::parse(&answer).ok_or(VerbError::Nonsense(name))?;
        Ok(list.luns.into_iter().map(Lun).collect())
    }

    /// REPORT TARGET PORT GROUPS. A target whose INQUIRY says TPGS 0 need not know the command.
    pub async fn target_port_groups(&self) -> Result<Vec<PortGroup>, VerbError> {
        let name = "REPORT TARGET PORT GROUPS";
        let answer = self.ask_all(name, cdb::report_target_port_groups, 1024, 1 << 20, whole).await?;
        PortGroup::parse_list(&answer).ok_or(VerbError::Nonsense(name))
    }

    /// REPORT SUPPORTED OPERATION CODES: all commands that the logical unit knows.
    pub async fn supported_commands(&self) -> Result<Vec<SupportedCommand>, VerbError> {
        let answer = self.ask_all(OPCODES, cdb::report_supported_opcodes, 4096, 1 << 16, whole).await?;
        SupportedCommand::parse_list(&answer).ok_or(VerbError::Nonsense(OPCODES))
    }

    /// Whether it knows one. A command with service actions must be asked for with one, and one without must
    /// not.
    pub async fn command_support(
        &self,
        opcode: u8,
        service_action: Option<u16>,
    ) -> Result<CommandSupport, VerbError> {
        let bytes = CommandSupport::BYTES_MAX;
        let answer =
            self.ask(OPCODES, cdb::report_one_opcode(opcode, service_action, bytes), bytes as usize).await?;
        CommandSupport::parse(&answer).ok_or(VerbError::Nonsense(OPCODES))
    }
}

/// The whole length of an answer that begins with its length, which does not count itself.
fn whole(answer: &[u8]) -> u64 {
    4 + u64::from(u32_at(answer, 0))
}
