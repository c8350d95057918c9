//! Headers of the PDUs that an initiator sends (RFC 7143, 11.3, 11.5, 11.7, 11.10, 11.12, 11.14, 11.16, 11.18).

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

macro_rules! header {
    ($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        #[allow(missing_docs, reason = "the fields carry the names of RFC 7143, section 11")]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }

        const _: () = assert!(size_of::<$name>() == super::BHS_BYTES);
    };
}
pub(super) use header;

header! {
    /// SCSI Command (RFC 7143, 11.3).
    ScsiCommandHeader {
        opcode: u8,
        /// F, R, W and ATTR.
        flags: u8,
        reserved: [u8; 2],
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        lun: [u8; 8],
        initiator_task_tag: U32,
        expected_data_transfer_length: U32,
        cmd_sn: U32,
        exp_stat_sn: U32,
        cdb: [u8; 16],
    }
}

impl ScsiCommandHeader {
    /// R bit: data is expected to flow to the initiator.
    pub const READ: u8 = 0x40;
    /// W bit: data is expected to flow from the initiator.
    pub const WRITE: u8 = 0x20;
    /// Mask of the task attribute.
    pub const ATTR_MASK: u8 = 0x07;
}

header! {
    /// Task Management Function Request (RFC 7143, 11.5).
    TaskManagementRequestHeader {
        opcode: u8,
        /// F bit (always one) and the function in the low seven bits.
        function: u8,
        reserved: [u8; 2],
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        lun: [u8; 8],
        initiator_task_tag: U32,
        referenced_task_tag: U32,
        cmd_sn: U32,
        exp_stat_sn: U32,
        ref_cmd_sn: U32,
        exp_data_sn: U32,
        reserved_end: [u8; 8],
    }
}

header! {
    /// SCSI Data-Out (RFC 7143, 11.7).
    DataOutHeader {
        opcode: u8,
        flags: u8,
        reserved: [u8; 2],
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        lun: [u8; 8],
        initiator_task_tag: U32,
        target_transfer_tag: U32,
        reserved_24: U32,
        exp_stat_sn: U32,
        reserved_32: U32,
        data_sn: U32,
        buffer_offset: U32,
        reserved_44: U32,
    }
}

header! {
    /// Text Request (RFC 7143, 11.10).
    TextRequestHeader {
        opcode: u8,
        /// F and C bits.
        flags: u8,
        reserved: [u8; 2],
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        lun: [u8; 8],
        initiator_task_tag: U32,
        target_transfer_tag: U32,
        cmd_sn: U32,
        exp_stat_sn: U32,
        reserved_end: [u8; 16],
    }
}

header! {
    /// Login Request (RFC 7143, 11.12).
    LoginRequestHeader {
        opcode: u8,
        /// T, C, CSG and NSG.
        flags: u8,
        version_max: u8,
        version_min: u8,
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        isid: [u8; 6],
        tsih: U16,
        initiator_task_tag: U32,
        cid: U16,
        reserved: U16,
        cmd_sn: U32,
        exp_stat_sn: U32,
        reserved_end: [u8; 16],
    }
}

header! {
    /// Logout Request (RFC 7143, 11.14).
    LogoutRequestHeader {
        opcode: u8,
        /// F bit (always one) and the reason code in the low seven bits.
        reason: u8,
        reserved: [u8; 2],
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        reserved_8: [u8; 8],
        initiator_task_tag: U32,
        cid: U16,
        reserved_22: U16,
        cmd_sn: U32,
        exp_stat_sn: U32,
        reserved_end: [u8; 16],
    }
}

header! {
    /// NOP-Out (RFC 7143, 11.18).
    NopOutHeader {
        opcode: u8,
        flags: u8,
        reserved: [u8; 2],
        total_ahs_length: u8,
        data_segment_length: [u8; 3],
        lun: [u8; 8],
        initiator_task_tag: U32,
        target_transfer_tag: U32,
        cmd_sn: U32,
        exp_stat_sn: U32,
        reserved_end: [u8; 16],
    }
}
