//! The commands that this target knows: what a row of the table means, and how a CDB finds its row.
//!
//! The rows themselves are in `table.rs`. To add a command, add a row and a handler.

mod table;

use crate::cdb::Cdb;
use crate::prepare::Plan;
use crate::prepare::{PortCall, UnitCall};
use crate::sense::Sense;
use crate::unit::LogicalUnit;

pub(crate) use table::COMMANDS;

/// A row of the table of commands.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Name as the standards print it.
    pub name: &'static str,
    /// Operation code.
    pub opcode: u8,
    /// Service action, where the operation code has any.
    pub service_action: Option<u16>,
    /// CDB usage data (SPC-4, 6.35): the operation code, then one bit set for each bit that may be set. Its length
    /// is the length of the CDB. A CDB with any other bit set is refused.
    pub usage: &'static [u8],
    /// Nominal and recommended command timeout in seconds (SPC-4, 6.35); 0 says nothing.
    pub timeouts_s: (u32, u32),
    /// Changes the medium: refused on a read-only unit.
    pub writes: bool,
    /// Exists only on a thin provisioned unit.
    pub thin_only: bool,
    /// What a pending unit attention condition does to the command.
    pub unit_attentions: UnitAttentions,
    /// How a persistent reservation of another nexus affects the command.
    pub reservation: Reservation,
    pub(crate) handler: Handler,
}

/// How a command meets a pending unit attention condition (SAM-5, 5.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitAttentions {
    /// The condition is reported instead of running the command.
    Reported,
    /// The command runs and the condition stays.
    PassedBy,
    /// The command runs and returns the condition as its data (REQUEST SENSE).
    Returned,
}

/// How a persistent reservation that another nexus holds affects a command (SPC-4 and SBC-3, commands allowed in the
/// presence of various reservations).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// Runs under every kind of reservation.
    Allowed,
    /// Runs under a write exclusive reservation; conflicts with an exclusive access one.
    Reads,
    /// Conflicts with every kind, unless this nexus is registered and the kind is for registrants.
    Conflicts,
}

/// The function that carries a command out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Handler {
    /// Needs a mapped logical unit.
    Unit(fn(&UnitCall<'_>) -> Result<Plan, Sense>),
    /// Is answered for any LUN field, mapped or not.
    Port(fn(&mut PortCall<'_>) -> Result<Plan, Sense>),
}

impl Command {
    pub(crate) fn available(&self, unit: &LogicalUnit) -> bool {
        unit.thin || !self.thin_only
    }

    /// Length of the command's CDB in bytes.
    pub const fn cdb_len(&self) -> usize {
        self.usage.len()
    }

    /// Refuses a CDB that is too short, or has a bit set that the usage data does not have.
    pub(crate) fn check_usage(&self, cdb: Cdb<'_>) -> Result<(), Sense> {
        for (at, usage) in (0_u16..).zip(self.usage).skip(1) {
            let Some(byte) = cdb.bytes().get(usize::from(at)) else {
                return Err(Sense::invalid_field_in_cdb(at));
            };
            let unexpected = byte & !usage;
            if let Some(bit) = unexpected.checked_ilog2() {
                // A byte's logarithm is at most 7.
                return Err(Sense::invalid_bit_in_cdb(at, u8::try_from(bit).unwrap_or(7)));
            }
        }
        Ok(())
    }
}

/// All rows, sorted by operation code and service action.
pub fn commands() -> &'static [Command] {
    COMMANDS
}

/// The rows of one operation code; none when it is not known.
pub(crate) fn rows(opcode: u8) -> &'static [Command] {
    let (start, end) = ROWS[usize::from(opcode)];
    COMMANDS.get(usize::from(start)..usize::from(end)).unwrap_or(&[])
}

/// The row for a CDB.
pub(crate) fn find(cdb: Cdb<'_>) -> Result<&'static Command, Sense> {
    let rows = cdb.opcode().map_or(&[][..], rows);
    match rows {
        [] => Err(Sense::INVALID_OPERATION_CODE),
        [command] if command.service_action.is_none() => Ok(command),
        _ => {
            let service_action = Some(cdb.service_action());
            rows.iter().find(|command| command.service_action == service_action).ok_or(Sense::invalid_bit_in_cdb(1, 4))
        }
    }
}

/// Name of a CDB's command, for logs and metrics; `None` when there is no such command.
pub fn command_name(cdb: &[u8]) -> Option<&'static str> {
    find(Cdb::new(cdb)).ok().map(|command| command.name)
}

/// For each operation code, where its rows begin and end in [`COMMANDS`].
static ROWS: [(u16, u16); 256] = index(COMMANDS);

#[allow(clippy::cast_possible_truncation, reason = "the table has fewer rows than a u16 can count")]
const fn index(commands: &[Command]) -> [(u16, u16); 256] {
    let mut rows = [(0, 0); 256];
    let mut at = 0;
    while at < commands.len() {
        let row = &mut rows[commands[at].opcode as usize];
        if row.1 == 0 {
            row.0 = at as u16;
        }
        row.1 = at as u16 + 1;
        at += 1;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_unique() {
        for pair in COMMANDS.windows(2) {
            let [first, second] = pair else { unreachable!() };
            assert!((first.opcode, first.service_action) < (second.opcode, second.service_action), "{}", second.name);
        }
    }

    #[test]
    fn usage_data_begins_with_the_operation_code_and_has_the_length_of_its_group() {
        for command in COMMANDS {
            assert_eq!(command.usage[0], command.opcode, "{}", command.name);
            let expected = match command.opcode >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                5 => 12,
                group => panic!("{}: group {group}", command.name),
            };
            assert_eq!(command.cdb_len(), expected, "{}", command.name);
            if let Some(service_action) = command.service_action {
                // The standard shows the service action itself in the usage data, not its mask.
                assert_eq!(u16::from(command.usage[1] & 0x1f), service_action, "{}", command.name);
            }
        }
    }

    #[test]
    fn every_row_is_found_by_its_own_cdb() {
        for command in COMMANDS {
            let mut cdb = vec![0; command.cdb_len()];
            cdb[0] = command.opcode;
            cdb[1] = command.service_action.map_or(0, |action| u8::try_from(action).unwrap());
            let found = find(Cdb::new(&cdb)).unwrap();
            assert_eq!(found.name, command.name);
            assert_eq!(found.check_usage(Cdb::new(&cdb)), Ok(()));
        }
    }

    #[test]
    fn unknown_operation_codes_and_service_actions_are_told_apart() {
        assert_eq!(find(Cdb::new(&[0xff; 16])).unwrap_err(), Sense::INVALID_OPERATION_CODE);
        assert_eq!(find(Cdb::new(&[])).unwrap_err(), Sense::INVALID_OPERATION_CODE);
        let mut cdb = [0; 16];
        cdb[0] = 0x9e;
        cdb[1] = 0x1f;
        assert_eq!(find(Cdb::new(&cdb)).unwrap_err(), Sense::invalid_bit_in_cdb(1, 4));
        assert_eq!(command_name(&cdb), None);
        assert_eq!(command_name(&[0x28]), Some("READ(10)"));
    }
}
