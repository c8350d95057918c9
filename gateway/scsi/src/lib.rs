//! SAM, SPC and SBC of a direct-access disk as a pure library: CDBs in, plans and sense data out.
//!
//! This crate decides everything about a SCSI command that can be decided without the medium: which logical unit is
//! addressed, whether the operation code is known, which unit attention comes first, which reserved bit is set,
//! whether the range lies inside the unit. What is left over is an [`Io`], which the caller carries out, or a
//! [`Response`], which it sends back. There are no sockets, clocks or files here and nothing waits.
//!
//! Begin reading at [`prepare`] (module `prepare`), then the table of commands in `opcode/table.rs`: one row for each
//! command, from which dispatching, the check of reserved bits and REPORT SUPPORTED OPERATION CODES are all made.
//!
//! Never here: iSCSI, storage, anything that blocks.

mod capacity;
mod cdb;
mod inquiry;
mod io;
mod io_error;
mod lba_status;
mod lun;
mod mode_sense;
mod nexus;
mod opcode;
mod prepare;
mod provisioning;
mod read_write;
mod report_luns;
mod request_sense;
mod sense;
mod status;
mod supported_operations;
mod supported_task_management;
mod synchronize_cache;
mod test_unit_ready;
mod unit;
mod unit_attention;
mod vpd;
mod write_same;

#[cfg(test)]
mod tests;

pub use cdb::Cdb;
pub use io::{BlockRange, Io, Operation};
pub use io_error::IoError;
pub use lun::{LunAddress, MAX_LUN};
pub use nexus::Nexus;
pub use opcode::{Command, Reservation, UnitAttentions, command_name, commands};
pub use prepare::{ParameterCommand, Plan, Request, prepare};
pub use sense::{AdditionalSense, FieldPointer, Sense, SenseFormat, SenseKey};
pub use status::{Response, Status};
pub use unit::{BlockSize, Limits, LogicalUnit, Target, UnknownBlockSize, locally_assigned_naa};
pub use unit_attention::UnitAttention;
