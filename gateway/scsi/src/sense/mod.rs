//! Sense data (SPC-4, 4.5): what went wrong, and its two encodings.
//!
//! [`Sense`] is the meaning; `encoding.rs` makes bytes of it; `codes.rs` is the table of additional sense codes.

mod codes;
mod encoding;

use std::fmt;

pub use codes::AdditionalSense;

/// Sense key (SPC-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the variants carry the names of SPC-4")]
pub enum SenseKey {
    NoSense = 0x0,
    RecoveredError = 0x1,
    NotReady = 0x2,
    MediumError = 0x3,
    HardwareError = 0x4,
    IllegalRequest = 0x5,
    UnitAttention = 0x6,
    DataProtect = 0x7,
    BlankCheck = 0x8,
    CopyAborted = 0xa,
    AbortedCommand = 0xb,
    VolumeOverflow = 0xd,
    Miscompare = 0xe,
    Completed = 0xf,
}

impl SenseKey {
    /// Name as SPC-4 prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSense => "NO SENSE",
            Self::RecoveredError => "RECOVERED ERROR",
            Self::NotReady => "NOT READY",
            Self::MediumError => "MEDIUM ERROR",
            Self::HardwareError => "HARDWARE ERROR",
            Self::IllegalRequest => "ILLEGAL REQUEST",
            Self::UnitAttention => "UNIT ATTENTION",
            Self::DataProtect => "DATA PROTECT",
            Self::BlankCheck => "BLANK CHECK",
            Self::CopyAborted => "COPY ABORTED",
            Self::AbortedCommand => "ABORTED COMMAND",
            Self::VolumeOverflow => "VOLUME OVERFLOW",
            Self::Miscompare => "MISCOMPARE",
            Self::Completed => "COMPLETED",
        }
    }
}

/// Encoding of sense data, chosen by D_SENSE of the control mode page or DESC of REQUEST SENSE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SenseFormat {
    /// Response code 70h (SPC-4, 4.5.3).
    #[default]
    Fixed,
    /// Response code 72h (SPC-4, 4.5.2).
    Descriptor,
}

/// Which field is in error: the sense key specific data of ILLEGAL REQUEST (SPC-4, 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldPointer {
    /// The field is in the CDB (C/D bit); otherwise in the parameter list.
    pub in_cdb: bool,
    /// First byte of the field.
    pub byte: u16,
    /// Leftmost bit of the field, where it is smaller than a byte.
    pub bit: Option<u8>,
}

/// The meaning of sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sense {
    /// Sense key.
    pub key: SenseKey,
    /// Additional sense code and qualifier.
    pub additional: AdditionalSense,
    /// INFORMATION field: a logical block address or an offset, as the additional sense code says.
    pub information: Option<u64>,
    /// Field in error, for ILLEGAL REQUEST.
    pub field: Option<FieldPointer>,
}

impl Sense {
    /// Nothing to report.
    pub const NONE: Self = Self::new(SenseKey::NoSense, AdditionalSense::NONE);

    /// The logical unit is not there: no such LUN for this initiator.
    pub const LOGICAL_UNIT_NOT_SUPPORTED: Self =
        Self::new(SenseKey::IllegalRequest, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);

    /// The operation code is not known.
    pub const INVALID_OPERATION_CODE: Self = Self {
        field: Some(FieldPointer { in_cdb: true, byte: 0, bit: None }),
        ..Self::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE)
    };

    /// The range goes beyond the last logical block.
    pub const LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE: Self =
        Self::new(SenseKey::IllegalRequest, AdditionalSense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);

    /// The parameter list does not have the length that it says, or that its kind needs.
    pub const PARAMETER_LIST_LENGTH_ERROR: Self =
        Self::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);

    /// The unit is read-only.
    pub const WRITE_PROTECTED: Self = Self::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED);

    /// Sense data of a key and an additional sense code alone.
    pub const fn new(key: SenseKey, additional: AdditionalSense) -> Self {
        Self { key, additional, information: None, field: None }
    }

    /// INVALID FIELD IN CDB; the field is a whole number of bytes that begins at `byte`.
    pub const fn invalid_field_in_cdb(byte: u16) -> Self {
        Self {
            field: Some(FieldPointer { in_cdb: true, byte, bit: None }),
            ..Self::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB)
        }
    }

    /// INVALID FIELD IN CDB; the leftmost bit of the field is `bit` of `byte`.
    pub const fn invalid_bit_in_cdb(byte: u16, bit: u8) -> Self {
        Self {
            field: Some(FieldPointer { in_cdb: true, byte, bit: Some(bit) }),
            ..Self::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB)
        }
    }

    /// INVALID FIELD IN CDB without a field pointer: it is the combination of fields that cannot be.
    pub const fn invalid_cdb() -> Self {
        Self::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB)
    }

    /// INVALID FIELD IN PARAMETER LIST; the field begins at `byte`.
    pub const fn invalid_field_in_parameter_list(byte: u16) -> Self {
        Self {
            field: Some(FieldPointer { in_cdb: false, byte, bit: None }),
            ..Self::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST)
        }
    }

    /// The same with an INFORMATION field.
    pub const fn with_information(self, information: u64) -> Self {
        Self { information: Some(information), ..self }
    }
}

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.key.name(), self.additional)?;
        if let Some(field) = self.field {
            write!(f, ", {} byte {}", if field.in_cdb { "CDB" } else { "parameter list" }, field.byte)?;
            if let Some(bit) = field.bit {
                write!(f, " bit {bit}")?;
            }
        }
        if let Some(information) = self.information {
            write!(f, ", information {information:#x}")?;
        }
        Ok(())
    }
}
