//! Single PDUs.

use iscsi::pdu::{
    Bhs, DataIn, DataOut, Itt, LogoutReason, LogoutRequest, Lun, NopIn, NopOut, Reject,
    RejectReason, Residual, Response, ScsiCommand, ScsiResponse, Sn, TargetNumbers,
    TaskManagementFunction, TaskManagementRequest, TextRequest, Ttt,
};

use crate::disk;
use crate::pair::Pair;

pub(crate) fn itt(number: u32) -> Itt {
    Itt::new(number).expect("not the reserved tag")
}

/// A write of `edtl` bytes with this much immediate data.
pub(crate) fn write(tag: u32, cmd_sn: Sn, edtl: u32, immediate: u32) -> ScsiCommand {
    ScsiCommand {
        write: true,
        expected_data_transfer_length: edtl,
        data_segment_length: immediate,
        cdb: long(&disk::cdb(disk::WRITE, 0, edtl)),
        ..nothing(tag, cmd_sn)
    }
}

pub(crate) fn read(tag: u32, cmd_sn: Sn, edtl: u32) -> ScsiCommand {
    ScsiCommand {
        read: true,
        expected_data_transfer_length: edtl,
        cdb: long(&disk::cdb(disk::READ, 0, edtl)),
        ..nothing(tag, cmd_sn)
    }
}

pub(crate) fn hang(tag: u32, cmd_sn: Sn) -> ScsiCommand {
    ScsiCommand {
        cdb: long(&disk::cdb(disk::HANG, 0, 0)),
        ..nothing(tag, cmd_sn)
    }
}

pub(crate) fn nothing(tag: u32, cmd_sn: Sn) -> ScsiCommand {
    ScsiCommand::simple(Lun(0), itt(tag), cmd_sn, [0; 16])
}

pub(crate) fn data_out(
    tag: u32,
    ttt: Option<Ttt>,
    data_sn: u32,
    offset: u32,
    length: u32,
    is_final: bool,
) -> DataOut {
    DataOut {
        is_final,
        lun: Lun(0),
        itt: itt(tag),
        ttt,
        exp_stat_sn: Sn(0),
        data_sn: Sn(data_sn),
        buffer_offset: offset,
        data_segment_length: length,
    }
}

pub(crate) fn ping(tag: Option<u32>, ttt: Option<Ttt>, length: u32) -> NopOut {
    NopOut {
        immediate: true,
        lun: Lun(0),
        itt: tag.map(itt),
        ttt,
        cmd_sn: Sn(0),
        exp_stat_sn: Sn(0),
        data_segment_length: length,
    }
}

pub(crate) fn abort(
    tag: u32,
    cmd_sn: Sn,
    referenced: u32,
    ref_cmd_sn: Sn,
) -> TaskManagementRequest {
    TaskManagementRequest {
        referenced_task: Itt::new(referenced),
        ref_cmd_sn,
        ..manage(tag, cmd_sn, TaskManagementFunction::AbortTask)
    }
}

pub(crate) fn manage(
    tag: u32,
    cmd_sn: Sn,
    function: TaskManagementFunction,
) -> TaskManagementRequest {
    TaskManagementRequest {
        immediate: true,
        function,
        lun: Lun(0),
        itt: itt(tag),
        referenced_task: None,
        cmd_sn,
        exp_stat_sn: Sn(0),
        ref_cmd_sn: Sn(0),
        exp_data_sn: Sn(0),
    }
}

pub(crate) fn logout(tag: u32, reason: LogoutReason, cid: u16) -> LogoutRequest {
    LogoutRequest {
        immediate: true,
        reason,
        itt: itt(tag),
        cid: iscsi::pdu::Cid(cid),
        cmd_sn: Sn(0),
        exp_stat_sn: Sn(0),
    }
}

// --- a target's, in a new session

/// The first PDU in transit to the target.
pub(crate) fn sent(pair: &Pair, wire: usize) -> Bhs {
    Bhs(*pair.wires[wire].to_target.pdus[0]
        .first_chunk()
        .expect("a header"))
}

/// All data of a command, without a status.
pub(crate) fn data_in(command: &Bhs, length: u32) -> Bhs {
    let pdu = DataIn {
        is_final: true,
        acknowledge: false,
        status: None,
        lun: Lun(0),
        itt: itt(command.itt_raw()),
        ttt: None,
        exp_cmd_sn: EXP_CMD_SN,
        max_cmd_sn: MAX_CMD_SN,
        data_sn: Sn(0),
        buffer_offset: 0,
        data_segment_length: length,
    };
    pdu.emit()
}

/// A command's good status.
pub(crate) fn good(command: &Bhs) -> Bhs {
    let pdu = ScsiResponse {
        response: Response::Completed,
        status: 0,
        itt: itt(command.itt_raw()),
        snack_tag: 0,
        numbers: TargetNumbers {
            stat_sn: STAT_SN,
            exp_cmd_sn: EXP_CMD_SN,
            max_cmd_sn: MAX_CMD_SN,
        },
        exp_data_sn: Sn(0),
        residual: Residual::None,
        read_residual: Residual::None,
        data_segment_length: 0,
    };
    pdu.emit()
}

/// A NOP-In that requests no response.
pub(crate) fn nop_in() -> Bhs {
    let pdu = NopIn {
        lun: Lun(0),
        itt: None,
        ttt: None,
        numbers: TargetNumbers {
            stat_sn: STAT_SN,
            exp_cmd_sn: EXP_CMD_SN,
            max_cmd_sn: MAX_CMD_SN,
        },
        data_segment_length: 0,
    };
    pdu.emit()
}

/// A Reject of a PDU, with its header as data.
pub(crate) fn reject(reason: RejectReason) -> Bhs {
    let pdu = Reject {
        reason,
        numbers: TargetNumbers {
            stat_sn: STAT_SN,
            exp_cmd_sn: EXP_CMD_SN,
            max_cmd_sn: MAX_CMD_SN,
        },
        data_sn: Sn(0),
        data_segment_length: 48,
    };
    pdu.emit()
}

const STAT_SN: Sn = Sn(0xffff_fffe);
const EXP_CMD_SN: Sn = Sn(0xffff_fff0);
const MAX_CMD_SN: Sn = Sn(0xffff_fff8);

// --- an initiator's again

pub(crate) fn text(
    tag: u32,
    ttt: Option<Ttt>,
    length: u32,
    is_final: bool,
    continues: bool,
) -> Bhs {
    let pdu = TextRequest {
        immediate: true,
        is_final,
        continues,
        lun: Lun(0),
        itt: itt(tag),
        ttt,
        cmd_sn: Sn(0),
        exp_stat_sn: Sn(0),
        data_segment_length: length,
    };
    pdu.emit()
}

fn long(cdb: &[u8; 10]) -> [u8; 16] {
    let mut long = [0; 16];
    long[..10].copy_from_slice(cdb);
    long
}
