//! The way of a command: from the bytes of a CDB to a [`Plan`].
//!
//! The order of the checks is that of SAM-5: the logical unit, then unit attentions, then the operation code, the
//! reserved bits, write protection, and at last the command's own fields.

use std::sync::Arc;

use crate::cdb::Cdb;
use crate::io::Io;
use crate::lun::LunAddress;
use crate::nexus::Nexus;
use crate::opcode::{self, Handler, UnitAttentions};
use crate::provisioning;
use crate::sense::Sense;
use crate::status::Response;
use crate::unit::{LogicalUnit, Target};

/// A command as the transport delivers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// LUN field.
    pub lun: [u8; 8],
    /// Command descriptor block: at least 16 bytes from iSCSI, but any length is dealt with.
    pub cdb: &'a [u8],
    /// Bytes of Data-Out that the initiator has announced: the expected data transfer length of a command with the W
    /// bit, else 0. Only commands whose Data-Out must have one exact length look at it.
    pub expected_data_out_bytes: u64,
}

/// What to do with a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing more: this is the answer.
    Respond(Response),
    /// Get the parameter list first, then go on with [`ParameterCommand::finish`].
    Parameters {
        /// Length of the parameter list in bytes; not 0.
        len_bytes: u32,
        /// The rest of the command.
        command: ParameterCommand,
    },
    /// Use the medium.
    Io(Io),
}

impl Plan {
    pub(crate) const fn good() -> Self {
        Self::Respond(Response::good())
    }

    pub(crate) fn data_in(data: Vec<u8>, allocation_length: u32) -> Self {
        Self::Respond(Response::allocated(data, allocation_length))
    }
}

/// A command that waits for its parameter list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterCommand {
    unit: Arc<LogicalUnit>,
    lun: u16,
    kind: ParameterKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParameterKind {
    Unmap,
}

impl ParameterCommand {
    pub(crate) fn unmap(call: &UnitCall<'_>) -> Self {
        Self { unit: Arc::clone(call.unit), lun: call.lun, kind: ParameterKind::Unmap }
    }

    /// Goes on with the parameter list, which may be shorter than what the CDB asked for when the initiator had less
    /// to send. Never asks for parameters again.
    pub fn finish(self, parameters: &[u8]) -> Plan {
        let format = self.unit.sense_format();
        let result = match self.kind {
            ParameterKind::Unmap => provisioning::unmap_list(&self.unit, self.lun, parameters),
        };
        result.unwrap_or_else(|sense| Plan::Respond(Response::check(sense, format)))
    }
}

/// What a command's LUN field reaches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Addressed<'a> {
    Unit(u16, &'a Arc<LogicalUnit>),
    /// LUN 0 with nothing mapped: INQUIRY and REPORT LUNS have to be answered here for a host to find the others.
    EmptyLunZero,
    ReportLunsWellKnown,
    Nothing,
}

impl<'a> Addressed<'a> {
    fn new(lun: [u8; 8], target: &'a Target) -> Self {
        match LunAddress::from_bytes(lun) {
            LunAddress::Unit(number) => match target.luns.get(&number) {
                Some(unit) => Self::Unit(number, unit),
                None if number == 0 => Self::EmptyLunZero,
                None => Self::Nothing,
            },
            LunAddress::ReportLunsWellKnown => Self::ReportLunsWellKnown,
            LunAddress::Other => Self::Nothing,
        }
    }

    pub(crate) fn unit(&self) -> Option<&'a Arc<LogicalUnit>> {
        match self {
            Self::Unit(_, unit) => Some(unit),
            Self::EmptyLunZero | Self::ReportLunsWellKnown | Self::Nothing => None,
        }
    }
}

/// A command on its way to a handler that needs a mapped unit.
pub(crate) struct UnitCall<'a> {
    pub(crate) cdb: Cdb<'a>,
    pub(crate) lun: u16,
    pub(crate) unit: &'a Arc<LogicalUnit>,
    pub(crate) expected_data_out_bytes: u64,
}

/// A command on its way to a handler that answers for any LUN field.
pub(crate) struct PortCall<'a> {
    pub(crate) cdb: Cdb<'a>,
    pub(crate) addressed: Addressed<'a>,
    pub(crate) nexus: &'a mut Nexus,
    pub(crate) target: &'a Target,
}

/// Says everything about a command that can be said before data flows.
pub fn prepare(request: &Request<'_>, nexus: &mut Nexus, target: &Target) -> Plan {
    let addressed = Addressed::new(request.lun, target);
    dispatch(request, addressed, nexus, target).unwrap_or_else(|sense| {
        let format = addressed.unit().map(|unit| unit.sense_format()).unwrap_or_default();
        Plan::Respond(Response::check(sense, format))
    })
}

fn dispatch<'a>(
    request: &Request<'a>,
    addressed: Addressed<'a>,
    nexus: &'a mut Nexus,
    target: &'a Target,
) -> Result<Plan, Sense> {
    let cdb = Cdb::new(request.cdb);
    let found = opcode::find(cdb);
    if let Addressed::Unit(lun, _) = addressed {
        let passes = found.as_ref().is_ok_and(|command| command.unit_attentions != UnitAttentions::Reported);
        if !passes && let Some(event) = nexus.take(lun) {
            return Err(event.sense());
        }
    }
    let command = match found {
        Ok(command) => command,
        Err(_) if addressed.unit().is_none() => return Err(missing_unit(&addressed)),
        Err(sense) => return Err(sense),
    };
    match (command.handler, addressed) {
        (Handler::Unit(handler), Addressed::Unit(lun, unit)) => {
            if !command.available(unit) {
                return Err(Sense::INVALID_OPERATION_CODE);
            }
            command.check_usage(cdb)?;
            if command.writes && unit.read_only {
                return Err(Sense::WRITE_PROTECTED);
            }
            handler(&UnitCall { cdb, lun, unit, expected_data_out_bytes: request.expected_data_out_bytes })
        }
        (Handler::Unit(_), _) => Err(missing_unit(&addressed)),
        (Handler::Port(handler), _) => {
            command.check_usage(cdb)?;
            handler(&mut PortCall { cdb, addressed, nexus, target })
        }
    }
}

/// Why a command that needs a logical unit cannot run here.
fn missing_unit(addressed: &Addressed<'_>) -> Sense {
    match addressed {
        // The well known unit exists; it has few commands (SPC-4, 8.2).
        Addressed::ReportLunsWellKnown => Sense::INVALID_OPERATION_CODE,
        Addressed::Unit(..) | Addressed::EmptyLunZero | Addressed::Nothing => Sense::LOGICAL_UNIT_NOT_SUPPORTED,
    }
}
