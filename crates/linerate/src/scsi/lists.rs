//! What a target lists of itself: its LUNs, its port groups, the commands that a unit knows.

use initiator::verbs::{LunAddress, LunSelection, PortGroup, SupportedCommand};
use serde_json::{Value, json};

use super::answer::Answer;
use super::unit::AskArguments;
use crate::failure::Failure;
use stats::table::{Align, lines};

pub(super) fn luns(asked: &AskArguments) -> Result<(), Failure> {
    asked.ask(async |unit| {
        let luns = unit.report_luns(LunSelection::All).await?;
        let words: Vec<String> = luns.iter().map(|lun| LunAddress::parse(lun.0).to_string()).collect();
        let json = luns
            .iter()
            .zip(&words)
            .map(|(lun, words)| json!({ "lun": words, "address": format!("{:016x}", lun.0) }));
        let json = json.collect::<Value>();
        Ok(Answer::new(words.join("\n"), json))
    })
}

pub(super) fn port_groups(asked: &AskArguments) -> Result<(), Failure> {
    asked.ask(async |unit| {
        let groups = unit.target_port_groups().await?;
        let text: Vec<String> = groups.iter().map(PortGroup::to_string).collect();
        let json = groups.iter().map(|group| {
            json!({
                "group": group.group,
                "state": group.state.to_string(),
                "preferred": group.preferred,
                "relative_ports": group.ports,
            })
        });
        let json = json.collect::<Value>();
        Ok(Answer::new(text.join("\n"), json))
    })
}

pub(super) fn opcodes(asked: &AskArguments) -> Result<(), Failure> {
    asked.ask(async |unit| {
        let commands = unit.supported_commands().await?;
        let rows: Vec<[String; 3]> = commands.iter().map(row).collect();
        let json = commands.iter().map(|command| {
            json!({
                "operation_code": command.opcode,
                "service_action": command.service_action,
                "name": command.to_string(),
                "cdb_bytes": command.cdb_bytes,
            })
        });
        let json = json.collect::<Value>();
        Ok(Answer::new(lines([Align::Left, Align::Right, Align::Left], &rows).join("\n"), json))
    })
}

/// `9e/10  16  READ CAPACITY(16)`: its numbers, its length, its name.
fn row(command: &SupportedCommand) -> [String; 3] {
    let action = command.service_action.map_or_else(String::new, |action| format!("/{action:02x}"));
    [format!("{:02x}{action}", command.opcode), command.cdb_bytes.to_string(), command.to_string()]
}
