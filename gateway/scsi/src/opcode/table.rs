//! The table of commands.

use super::{Command, Handler, Reservation, UnitAttentions};
use crate::prepare::{Plan, PortCall, UnitCall};
use crate::sense::Sense;
use crate::{
    capacity, inquiry, lba_status, mode_sense, provisioning, read_write, report_luns, request_sense,
    supported_operations, supported_task_management, synchronize_cache, test_unit_ready, write_same,
};

type OnUnit = fn(&UnitCall<'_>) -> Result<Plan, Sense>;
type OnPort = fn(&mut PortCall<'_>) -> Result<Plan, Sense>;

/// Group numbers are accepted and have no effect (GROUP_SUP=0).
const GROUP: u8 = 0x1f;
/// DPO and FUA: allowed, and satisfied by every command, for there is no volatile cache (DPOFUA=1, WCE=0).
const DPO_FUA: u8 = 0x18;
/// UNMAP bit of WRITE SAME.
const UNMAP: u8 = 0x08;
/// NDOB bit of WRITE SAME (16).
const NDOB: u8 = 0x01;
/// IMMED bit of SYNCHRONIZE CACHE.
const IMMED: u8 = 0x02;

/// Every command, sorted by operation code and service action.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    on_port("TEST UNIT READY", &[0x00, 0, 0, 0, 0, 0], test_unit_ready::test_unit_ready),
    on_port("REQUEST SENSE", &[0x03, 0x01, 0, 0, 0xff, 0], request_sense::request_sense)
        .unit_attentions(UnitAttentions::Returned),
    on_unit("READ(6)", &[0x08, 0x1f, 0xff, 0xff, 0xff, 0], read_write::read_6).medium(Reservation::Reads),
    on_unit("WRITE(6)", &[0x0a, 0x1f, 0xff, 0xff, 0xff, 0], read_write::write_6).writing(),
    on_port("INQUIRY", &[0x12, 0x01, 0xff, 0xff, 0xff, 0], inquiry::inquiry)
        .unit_attentions(UnitAttentions::PassedBy),
    on_unit("MODE SENSE(6)", &[0x1a, 0x08, 0xff, 0xff, 0xff, 0], mode_sense::mode_sense_6)
        .reservation(Reservation::Conflicts),
    on_unit("READ CAPACITY(10)", &[0x25, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x01, 0], capacity::read_capacity_10),
    on_unit("READ(10)", &[0x28, DPO_FUA, 0xff, 0xff, 0xff, 0xff, GROUP, 0xff, 0xff, 0], read_write::read_10)
        .medium(Reservation::Reads),
    on_unit("WRITE(10)", &[0x2a, DPO_FUA, 0xff, 0xff, 0xff, 0xff, GROUP, 0xff, 0xff, 0], read_write::write_10)
        .writing(),
    on_unit(
        "SYNCHRONIZE CACHE(10)",
        &[0x35, IMMED, 0xff, 0xff, 0xff, 0xff, GROUP, 0xff, 0xff, 0],
        synchronize_cache::synchronize_cache_10,
    )
    .medium(Reservation::Conflicts),
    on_unit("WRITE SAME(10)", &[0x41, UNMAP, 0xff, 0xff, 0xff, 0xff, GROUP, 0xff, 0xff, 0], write_same::write_same_10)
        .writing(),
    on_unit("UNMAP", &[0x42, 0, 0, 0, 0, 0, GROUP, 0xff, 0xff, 0], provisioning::unmap)
        .writing()
        .thin_only(),
    on_unit("MODE SENSE(10)", &[0x5a, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0], mode_sense::mode_sense_10)
        .reservation(Reservation::Conflicts),
    on_unit(
        "READ(16)",
        &[0x88, DPO_FUA, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, GROUP, 0],
        read_write::read_16,
    )
    .medium(Reservation::Reads),
    on_unit(
        "WRITE(16)",
        &[0x8a, DPO_FUA, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, GROUP, 0],
        read_write::write_16,
    )
    .writing(),
    on_unit(
        "SYNCHRONIZE CACHE(16)",
        &[0x91, IMMED, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, GROUP, 0],
        synchronize_cache::synchronize_cache_16,
    )
    .medium(Reservation::Conflicts),
    on_unit(
        "WRITE SAME(16)",
        &[0x93, UNMAP | NDOB, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, GROUP, 0],
        write_same::write_same_16,
    )
    .writing(),
    on_unit(
        "READ CAPACITY(16)",
        &[0x9e, 0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0],
        capacity::read_capacity_16,
    )
    .service_action(0x10),
    on_unit(
        "GET LBA STATUS",
        &[0x9e, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
        lba_status::get_lba_status,
    )
    .service_action(0x12)
    .thin_only(),
    on_port("REPORT LUNS", &[0xa0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0], report_luns::report_luns)
        .unit_attentions(UnitAttentions::PassedBy),
    on_unit(
        "REPORT SUPPORTED OPERATION CODES",
        &[0xa3, 0x0c, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
        supported_operations::report_supported_operation_codes,
    )
    .service_action(0x0c)
    .reservation(Reservation::Conflicts),
    on_unit(
        "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
        &[0xa3, 0x0d, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        supported_task_management::report_supported_task_management_functions,
    )
    .service_action(0x0d)
    .reservation(Reservation::Conflicts),
    on_unit(
        "READ(12)",
        &[0xa8, DPO_FUA, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, GROUP, 0],
        read_write::read_12,
    )
    .medium(Reservation::Reads),
    on_unit(
        "WRITE(12)",
        &[0xaa, DPO_FUA, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, GROUP, 0],
        read_write::write_12,
    )
    .writing(),
];

/// Seconds after which a host may ask itself what became of a command that uses the medium.
const MEDIUM_TIMEOUTS_S: (u32, u32) = (1, 30);

const fn row(name: &'static str, usage: &'static [u8], handler: Handler) -> Command {
    Command {
        name,
        opcode: usage[0],
        service_action: None,
        usage,
        timeouts_s: (0, 10),
        writes: false,
        thin_only: false,
        unit_attentions: UnitAttentions::Reported,
        reservation: Reservation::Allowed,
        handler,
    }
}

const fn on_unit(name: &'static str, usage: &'static [u8], handler: OnUnit) -> Command {
    row(name, usage, Handler::Unit(handler))
}

const fn on_port(name: &'static str, usage: &'static [u8], handler: OnPort) -> Command {
    row(name, usage, Handler::Port(handler))
}

impl Command {
    const fn service_action(self, service_action: u16) -> Self {
        Self { service_action: Some(service_action), ..self }
    }

    const fn unit_attentions(self, unit_attentions: UnitAttentions) -> Self {
        Self { unit_attentions, ..self }
    }

    const fn reservation(self, reservation: Reservation) -> Self {
        Self { reservation, ..self }
    }

    const fn medium(self, reservation: Reservation) -> Self {
        Self { timeouts_s: MEDIUM_TIMEOUTS_S, reservation, ..self }
    }

    const fn writing(self) -> Self {
        Self { writes: true, ..self.medium(Reservation::Conflicts) }
    }

    const fn thin_only(self) -> Self {
        Self { thin_only: true, ..self }
    }
}
