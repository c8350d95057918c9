//! iSCSI PDUs as they stand on the wire (RFC 7143, section 11): the 48-byte basic header segment (BHS) as one
//! structure per kind of PDU, and the owned PDUs that [`crate::frame`] produces and consumes.
//!
//! The structures are laid over received bytes; nothing here decides whether a value is allowed. Begin reading at
//! [`Pdu`] and [`Opcode`].

mod initiator;
mod reason;
mod target;

pub use initiator::*;
pub use reason::RejectReason;
pub use target::*;

use bytes::Bytes;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a basic header segment in bytes (RFC 7143, 11.2.1).
pub const BHS_BYTES: usize = 48;

/// The tag value that stands for "no tag" (Initiator and Target Transfer Tag; RFC 7143, 11.2.1.8).
pub const RESERVED_TAG: u32 = 0xffff_ffff;

/// Opcode of a PDU: six bits (RFC 7143, 11.2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the variants carry the names of RFC 7143, 11.2.1.2")]
pub enum Opcode {
    NopOut = 0x00,
    ScsiCommand = 0x01,
    TaskManagementRequest = 0x02,
    LoginRequest = 0x03,
    TextRequest = 0x04,
    DataOut = 0x05,
    LogoutRequest = 0x06,
    SnackRequest = 0x10,
    NopIn = 0x20,
    ScsiResponse = 0x21,
    TaskManagementResponse = 0x22,
    LoginResponse = 0x23,
    TextResponse = 0x24,
    DataIn = 0x25,
    LogoutResponse = 0x26,
    ReadyToTransfer = 0x31,
    AsyncMessage = 0x32,
    Reject = 0x3f,
}

impl Opcode {
    /// The opcode in the low six bits of `byte`; `None` where RFC 7143 names none.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte & 0x3f {
            0x00 => Self::NopOut,
            0x01 => Self::ScsiCommand,
            0x02 => Self::TaskManagementRequest,
            0x03 => Self::LoginRequest,
            0x04 => Self::TextRequest,
            0x05 => Self::DataOut,
            0x06 => Self::LogoutRequest,
            0x10 => Self::SnackRequest,
            0x20 => Self::NopIn,
            0x21 => Self::ScsiResponse,
            0x22 => Self::TaskManagementResponse,
            0x23 => Self::LoginResponse,
            0x24 => Self::TextResponse,
            0x25 => Self::DataIn,
            0x26 => Self::LogoutResponse,
            0x31 => Self::ReadyToTransfer,
            0x32 => Self::AsyncMessage,
            0x3f => Self::Reject,
            _ => return None,
        })
    }
}

/// A basic header segment whose kind is still to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(transparent)]
pub struct Bhs(pub [u8; BHS_BYTES]);

impl Bhs {
    /// The opcode, or `None` where RFC 7143 names none.
    pub fn opcode(&self) -> Option<Opcode> {
        Opcode::from_byte(self.0[0])
    }

    /// The immediate-delivery bit (RFC 7143, 11.2.1.1).
    pub fn immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// The final bit (RFC 7143, 11.2.1.3).
    pub fn is_final(&self) -> bool {
        self.0[1] & 0x80 != 0
    }

    /// TotalAHSLength in bytes (the field counts words of four; RFC 7143, 11.2.1.5).
    pub fn ahs_bytes(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// DataSegmentLength in bytes, padding not counted (RFC 7143, 11.2.1.6).
    pub fn data_segment_bytes(&self) -> usize {
        usize::from(self.0[5]) << 16 | usize::from(self.0[6]) << 8 | usize::from(self.0[7])
    }

    /// The LUN field: eight bytes in SAM's format (RFC 7143, 11.2.1.7).
    pub fn lun(&self) -> [u8; 8] {
        let mut lun = [0; 8];
        lun.copy_from_slice(&self.0[8..16]);
        lun
    }

    /// The Initiator Task Tag (RFC 7143, 11.2.1.8).
    pub fn initiator_task_tag(&self) -> u32 {
        u32::from_be_bytes([self.0[16], self.0[17], self.0[18], self.0[19]])
    }

    /// The header as a structure of one PDU kind. The caller has looked at the opcode.
    pub fn view<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> &T {
        const { assert!(size_of::<T>() == BHS_BYTES) };
        zerocopy::transmute_ref!(&self.0)
    }
}

/// A PDU as received.
#[derive(Clone, Debug)]
pub struct Pdu {
    /// Basic header segment.
    pub bhs: Bhs,
    /// Additional header segments, unparsed; a multiple of four bytes.
    pub ahs: Bytes,
    /// Data segment without padding.
    pub data: Bytes,
    /// Whether the data digest matched; true where none is negotiated (RFC 7143, 7.8).
    pub data_digest_ok: bool,
}

/// A PDU to be sent: header and data segment. DataSegmentLength is filled in by [`crate::frame::WriteQueue`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutPdu {
    /// Basic header segment.
    pub bhs: Bhs,
    /// Data segment without padding; its first piece where [`Self::more`] has others.
    pub data: Bytes,
    /// What follows in the data segment: nearly always nothing.
    pub more: Vec<Bytes>,
}

impl OutPdu {
    /// A PDU from one of the target's header structures.
    pub fn new<T: IntoBytes + Immutable>(header: &T, data: Bytes) -> Self {
        const { assert!(size_of::<T>() == BHS_BYTES) };
        let mut bhs = Bhs([0; BHS_BYTES]);
        bhs.0.copy_from_slice(header.as_bytes());
        Self { bhs, data, more: Vec::new() }
    }

    /// Length of the data segment in bytes, without padding.
    pub fn data_bytes(&self) -> usize {
        self.data.len() + self.more.iter().map(Bytes::len).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    macro_rules! assert_offsets {
        ($($header:ident { $($field:ident: $offset:literal),* $(,)? })*) => {
            $($(assert_eq!(
                offset_of!($header, $field),
                $offset,
                concat!(stringify!($header), ".", stringify!($field))
            );)*)*
        };
    }

    /// The figures of RFC 7143, section 11.
    #[test]
    fn headers_when_compared_with_the_figures_of_the_rfc_then_fields_stand_at_their_bytes() {
        assert_offsets! {
            ScsiCommandHeader {
                opcode: 0, flags: 1, total_ahs_length: 4, data_segment_length: 5, lun: 8, initiator_task_tag: 16,
                expected_data_transfer_length: 20, cmd_sn: 24, exp_stat_sn: 28, cdb: 32,
            }
            TaskManagementRequestHeader {
                function: 1, lun: 8, initiator_task_tag: 16, referenced_task_tag: 20, cmd_sn: 24, exp_stat_sn: 28,
                ref_cmd_sn: 32, exp_data_sn: 36,
            }
            DataOutHeader {
                flags: 1, lun: 8, initiator_task_tag: 16, target_transfer_tag: 20, exp_stat_sn: 28, data_sn: 36,
                buffer_offset: 40,
            }
            TextRequestHeader { flags: 1, initiator_task_tag: 16, target_transfer_tag: 20, cmd_sn: 24, exp_stat_sn: 28 }
            LoginRequestHeader {
                flags: 1, version_max: 2, version_min: 3, isid: 8, tsih: 14, initiator_task_tag: 16, cid: 20,
                cmd_sn: 24, exp_stat_sn: 28,
            }
            LogoutRequestHeader { reason: 1, initiator_task_tag: 16, cid: 20, cmd_sn: 24, exp_stat_sn: 28 }
            NopOutHeader { lun: 8, initiator_task_tag: 16, target_transfer_tag: 20, cmd_sn: 24, exp_stat_sn: 28 }
            ScsiResponseHeader {
                flags: 1, response: 2, status: 3, initiator_task_tag: 16, snack_tag: 20, stat_sn: 24, exp_cmd_sn: 28,
                max_cmd_sn: 32, exp_data_sn: 36, bidirectional_read_residual_count: 40, residual_count: 44,
            }
            TaskManagementResponseHeader {
                response: 2, initiator_task_tag: 16, stat_sn: 24, exp_cmd_sn: 28, max_cmd_sn: 32,
            }
            DataInHeader {
                flags: 1, status: 3, lun: 8, initiator_task_tag: 16, target_transfer_tag: 20, stat_sn: 24,
                exp_cmd_sn: 28, max_cmd_sn: 32, data_sn: 36, buffer_offset: 40, residual_count: 44,
            }
            ReadyToTransferHeader {
                lun: 8, initiator_task_tag: 16, target_transfer_tag: 20, stat_sn: 24, exp_cmd_sn: 28, max_cmd_sn: 32,
                r2t_sn: 36, buffer_offset: 40, desired_data_transfer_length: 44,
            }
            AsyncMessageHeader {
                lun: 8, initiator_task_tag: 16, stat_sn: 24, exp_cmd_sn: 28, max_cmd_sn: 32, async_event: 36,
                async_vcode: 37, parameter_1: 38, parameter_2: 40, parameter_3: 42,
            }
            TextResponseHeader {
                flags: 1, initiator_task_tag: 16, target_transfer_tag: 20, stat_sn: 24, exp_cmd_sn: 28, max_cmd_sn: 32,
            }
            LoginResponseHeader {
                flags: 1, version_max: 2, version_active: 3, isid: 8, tsih: 14, initiator_task_tag: 16, stat_sn: 24,
                exp_cmd_sn: 28, max_cmd_sn: 32, status_class: 36, status_detail: 37,
            }
            LogoutResponseHeader {
                response: 2, initiator_task_tag: 16, stat_sn: 24, exp_cmd_sn: 28, max_cmd_sn: 32, time2wait: 40,
                time2retain: 42,
            }
            RejectHeader {
                reason: 2, initiator_task_tag: 16, stat_sn: 24, exp_cmd_sn: 28, max_cmd_sn: 32, data_sn_or_r2t_sn: 36,
            }
            NopInHeader {
                lun: 8, initiator_task_tag: 16, target_transfer_tag: 20, stat_sn: 24, exp_cmd_sn: 28, max_cmd_sn: 32,
            }
        }
    }

    #[test]
    fn opcode_when_the_immediate_bit_is_set_then_is_the_same() {
        for byte in 0..=255 {
            assert_eq!(Opcode::from_byte(byte), Opcode::from_byte(byte & 0x3f));
            if let Some(opcode) = Opcode::from_byte(byte) {
                assert_eq!(opcode as u8, byte & 0x3f);
            }
        }
    }
}
