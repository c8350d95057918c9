//! REPORT SUPPORTED OPERATION CODES (SPC-4, 6.35), from the same table that dispatches commands.

use crate::opcode::{self, Command};
use crate::prepare::{Plan, UnitCall};
use crate::sense::Sense;

/// Length of a command timeouts descriptor in bytes, its length field included.
const TIMEOUTS_BYTES: u16 = 12;
/// SUPPORT: the command is not supported.
const NOT_SUPPORTED: u8 = 0x01;
/// SUPPORT: the command is supported in conformance with a standard.
const SUPPORTED: u8 = 0x03;

pub(crate) fn report_supported_operation_codes(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    let with_timeouts = call.cdb.bit(2, 7);
    let opcode = call.cdb.u8(3);
    let service_action = call.cdb.u16(4);
    let rows = || opcode::rows(opcode).iter().filter(|command| command.available(call.unit));
    let has_service_actions = opcode::rows(opcode).iter().any(|command| command.service_action.is_some());
    let data = match call.cdb.u8(2) & 0x07 {
        0b000 => all_commands(call, with_timeouts),
        // One operation code without service actions.
        0b001 if has_service_actions => return Err(Sense::invalid_bit_in_cdb(2, 2)),
        0b001 => one_command(rows().next(), with_timeouts),
        // One operation code with a service action. One that is not known at all cannot be said to have none.
        0b010 if !has_service_actions && rows().next().is_some() => {
            return Err(Sense::invalid_bit_in_cdb(2, 2));
        }
        0b010 => one_command(rows().find(|row| row.service_action == Some(service_action)), with_timeouts),
        // Either; without service actions the field has to be zero for the command to be the one that is meant.
        0b011 => {
            let matches = |row: &&Command| row.service_action.unwrap_or(0) == service_action;
            one_command(rows().find(matches), with_timeouts)
        }
        _ => return Err(Sense::invalid_bit_in_cdb(2, 2)),
    };
    Ok(Plan::data_in(data, call.cdb.u32(6)))
}

/// COMMAND DATA LENGTH, then a descriptor of 8 bytes for each command: operation code, reserved, service action (2),
/// reserved, CTDP (1) and SERVACTV (0), CDB length (2).
fn all_commands(call: &UnitCall<'_>, with_timeouts: bool) -> Vec<u8> {
    let mut data = vec![0; 4];
    for command in opcode::commands().iter().filter(|command| command.available(call.unit)) {
        data.extend_from_slice(&[command.opcode, 0]);
        data.extend_from_slice(&command.service_action.unwrap_or(0).to_be_bytes());
        let flags = (u8::from(with_timeouts) << 1) | u8::from(command.service_action.is_some());
        data.extend_from_slice(&[0, flags]);
        data.extend_from_slice(&cdb_length(command));
        if with_timeouts {
            put_timeouts(&mut data, command);
        }
    }
    let length = u32::try_from(data.len() - 4).unwrap_or(u32::MAX);
    if let Some(field) = data.first_chunk_mut() {
        *field = length.to_be_bytes();
    }
    data
}

/// Reserved, CTDP (7) and SUPPORT (2..0), CDB size (2), usage data.
fn one_command(command: Option<&Command>, with_timeouts: bool) -> Vec<u8> {
    let Some(command) = command else {
        return vec![0, NOT_SUPPORTED, 0, 0];
    };
    let mut data = vec![0, SUPPORTED | (u8::from(with_timeouts) << 7)];
    data.extend_from_slice(&cdb_length(command));
    data.extend_from_slice(command.usage);
    if with_timeouts {
        put_timeouts(&mut data, command);
    }
    data
}

fn cdb_length(command: &Command) -> [u8; 2] {
    u16::try_from(command.cdb_len()).unwrap_or(u16::MAX).to_be_bytes()
}

/// Length of what follows (2), reserved, command specific, nominal and recommended timeout in seconds (4 each).
fn put_timeouts(data: &mut Vec<u8>, command: &Command) {
    let (nominal_s, recommended_s) = command.timeouts_s;
    data.extend_from_slice(&(TIMEOUTS_BYTES - 2).to_be_bytes());
    data.extend_from_slice(&[0, 0]);
    data.extend_from_slice(&nominal_s.to_be_bytes());
    data.extend_from_slice(&recommended_s.to_be_bytes());
}
