//! Headers of the PDUs that a target sends (RFC 7143, 11.4, 11.6 to 11.9, 11.11, 11.13, 11.15, 11.17, 11.19).

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::initiator::header;

header! {
    /// SCSI Response (RFC 7143, 11.4).
    ScsiResponseHeader {
        opcode: u8,
        /// Always-one bit, o, u, O and U.
        flags: u8,
        response: u8,
        status: u8,
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        reserved: [u8; 8],
        initiator_task_tag: U32,
        snack_tag: U32,
        stat_sn: U32,
        exp_cmd_sn: U32,
        max_cmd_sn: U32,
        exp_data_sn: U32,
        bidirectional_read_residual_count: U32,
        residual_count: U32,
    }
}

impl ScsiResponseHeader {
    /// O bit: residual overflow.
    pub const OVERFLOW: u8 = 0x04;
    /// U bit: residual underflow.
    pub const UNDERFLOW: u8 = 0x02;
}

header! {
    /// Task Management Function Response (RFC 7143, 11.6).
    TaskManagementResponseHeader {
        opcode: u8,
        flags: u8,
        response: u8,
        reserved: u8,
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        reserved_8: [u8; 8],
        initiator_task_tag: U32,
        reserved_20: U32,
        stat_sn: U32,
        exp_cmd_sn: U32,
        max_cmd_sn: U32,
        reserved_end: [u8; 12],
    }
}

header! {
    /// SCSI Data-In (RFC 7143, 11.7).
    DataInHeader {
        opcode: u8,
        /// F, A, O, U and S.
        flags: u8,
        reserved: u8,
        /// Status, where S is set.
        status: u8,
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        lun: [u8; 8],
        initiator_task_tag: U32,
        target_transfer_tag: U32,
        stat_sn: U32,
        exp_cmd_sn: U32,
        max_cmd_sn: U32,
        data_sn: U32,
        buffer_offset: U32,
        residual_count: U32,
    }
}

impl DataInHeader {
    /// O bit: residual overflow, valid with S.
    pub const OVERFLOW: u8 = 0x04;
    /// U bit: residual underflow, valid with S.
    pub const UNDERFLOW: u8 = 0x02;
    /// S bit: this PDU carries the status.
    pub const STATUS: u8 = 0x01;
}

header! {
    /// Ready To Transfer (RFC 7143, 11.8).
    ReadyToTransferHeader {
        opcode: u8,
        flags: u8,
        reserved: [u8; 2],
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        lun: [u8; 8],
        initiator_task_tag: U32,
        target_transfer_tag: U32,
        stat_sn: U32,
        exp_cmd_sn: U32,
        max_cmd_sn: U32,
        r2t_sn: U32,
        buffer_offset: U32,
        desired_data_transfer_length: U32,
    }
}

header! {
    /// Asynchronous Message (RFC 7143, 11.9).
    AsyncMessageHeader {
        opcode: u8,
        flags: u8,
        reserved: [u8; 2],
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        lun: [u8; 8],
        /// Always 0xffffffff.
        initiator_task_tag: U32,
        reserved_20: U32,
        stat_sn: U32,
        exp_cmd_sn: U32,
        max_cmd_sn: U32,
        async_event: u8,
        async_vcode: u8,
        parameter_1: U16,
        parameter_2: U16,
        parameter_3: U16,
        reserved_end: U32,
    }
}

header! {
    /// Text Response (RFC 7143, 11.11).
    TextResponseHeader {
        opcode: u8,
        /// F and C bits.
        flags: u8,
        reserved: [u8; 2],
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        lun: [u8; 8],
        initiator_task_tag: U32,
        target_transfer_tag: U32,
        stat_sn: U32,
        exp_cmd_sn: U32,
        max_cmd_sn: U32,
        reserved_end: [u8; 12],
    }
}

header! {
    /// Login Response (RFC 7143, 11.13).
    LoginResponseHeader {
        opcode: u8,
        /// T, C, CSG and NSG.
        flags: u8,
        version_max: u8,
        version_active: u8,
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        isid: [u8; 6],
        tsih: U16,
        initiator_task_tag: U32,
        reserved_20: U32,
        stat_sn: U32,
        exp_cmd_sn: U32,
        max_cmd_sn: U32,
        status_class: u8,
        status_detail: u8,
        reserved_38: U16,
        reserved_end: [u8; 8],
    }
}

header! {
    /// Logout Response (RFC 7143, 11.15).
    LogoutResponseHeader {
        opcode: u8,
        flags: u8,
        response: u8,
        reserved: u8,
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        reserved_8: [u8; 8],
        initiator_task_tag: U32,
        reserved_20: U32,
        stat_sn: U32,
        exp_cmd_sn: U32,
        max_cmd_sn: U32,
        reserved_36: U32,
        time2wait: U16,
        time2retain: U16,
        reserved_44: U32,
    }
}

header! {
    /// Reject (RFC 7143, 11.17).
    RejectHeader {
        opcode: u8,
        flags: u8,
        reason: u8,
        reserved: u8,
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        reserved_8: [u8; 8],
        /// Always 0xffffffff.
        initiator_task_tag: U32,
        reserved_20: U32,
        stat_sn: U32,
        exp_cmd_sn: U32,
        max_cmd_sn: U32,
        data_sn_or_r2t_sn: U32,
        reserved_end: [u8; 8],
    }
}

header! {
    /// NOP-In (RFC 7143, 11.19).
    NopInHeader {
        opcode: u8,
        flags: u8,
        reserved: [u8; 2],
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        lun: [u8; 8],
        initiator_task_tag: U32,
        target_transfer_tag: U32,
        stat_sn: U32,
        exp_cmd_sn: U32,
        max_cmd_sn: U32,
        reserved_end: [u8; 12],
    }
}
