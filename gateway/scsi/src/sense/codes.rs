//! Additional sense codes (SPC-4, additional sense codes), as far as this target has a use for them.

use std::fmt;

/// Additional sense code (high byte) and its qualifier (low byte).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdditionalSense(u16);

/// Declares the constants and the table of names from one list.
macro_rules! additional_sense {
    ($($constant:ident = $code:literal, $name:literal;)*) => {
        impl AdditionalSense {
            $(#[doc = $name] pub const $constant: Self = Self($code);)*

            /// Name as SPC-4 prints it; `None` for a code that this target does not use.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($name),)*
                    _ => None,
                }
            }
        }
    };
}

additional_sense! {
    NONE = 0x0000, "NO ADDITIONAL SENSE INFORMATION";
    BECOMING_READY = 0x0401, "LOGICAL UNIT IS IN PROCESS OF BECOMING READY";
    COMMUNICATION_FAILURE = 0x0800, "LOGICAL UNIT COMMUNICATION FAILURE";
    WRITE_ERROR = 0x0c00, "WRITE ERROR";
    UNRECOVERED_READ_ERROR = 0x1100, "UNRECOVERED READ ERROR";
    PARAMETER_LIST_LENGTH_ERROR = 0x1a00, "PARAMETER LIST LENGTH ERROR";
    MISCOMPARE_DURING_VERIFY = 0x1d00, "MISCOMPARE DURING VERIFY OPERATION";
    INVALID_COMMAND_OPERATION_CODE = 0x2000, "INVALID COMMAND OPERATION CODE";
    LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE = 0x2100, "LOGICAL BLOCK ADDRESS OUT OF RANGE";
    INVALID_FIELD_IN_CDB = 0x2400, "INVALID FIELD IN CDB";
    LOGICAL_UNIT_NOT_SUPPORTED = 0x2500, "LOGICAL UNIT NOT SUPPORTED";
    INVALID_FIELD_IN_PARAMETER_LIST = 0x2600, "INVALID FIELD IN PARAMETER LIST";
    WRITE_PROTECTED = 0x2700, "WRITE PROTECTED";
    SPACE_ALLOCATION_FAILED_WRITE_PROTECT = 0x2707, "SPACE ALLOCATION FAILED WRITE PROTECT";
    POWER_ON_RESET_OR_BUS_DEVICE_RESET = 0x2900, "POWER ON, RESET, OR BUS DEVICE RESET OCCURRED";
    POWER_ON = 0x2901, "POWER ON OCCURRED";
    SCSI_BUS_RESET = 0x2902, "SCSI BUS RESET OCCURRED";
    BUS_DEVICE_RESET_FUNCTION = 0x2903, "BUS DEVICE RESET FUNCTION OCCURRED";
    DEVICE_INTERNAL_RESET = 0x2904, "DEVICE INTERNAL RESET";
    I_T_NEXUS_LOSS = 0x2907, "I_T NEXUS LOSS OCCURRED";
    MODE_PARAMETERS_CHANGED = 0x2a01, "MODE PARAMETERS CHANGED";
    RESERVATIONS_PREEMPTED = 0x2a03, "RESERVATIONS PREEMPTED";
    RESERVATIONS_RELEASED = 0x2a04, "RESERVATIONS RELEASED";
    REGISTRATIONS_PREEMPTED = 0x2a05, "REGISTRATIONS PREEMPTED";
    ASYMMETRIC_ACCESS_STATE_CHANGED = 0x2a06, "ASYMMETRIC ACCESS STATE CHANGED";
    CAPACITY_DATA_HAS_CHANGED = 0x2a09, "CAPACITY DATA HAS CHANGED";
    COMMANDS_CLEARED_BY_ANOTHER_INITIATOR = 0x2f00, "COMMANDS CLEARED BY ANOTHER INITIATOR";
    COMMANDS_CLEARED_BY_POWER_LOSS = 0x2f01, "COMMANDS CLEARED BY POWER LOSS NOTIFICATION";
    THIN_PROVISIONING_SOFT_THRESHOLD_REACHED = 0x3807, "THIN PROVISIONING SOFT THRESHOLD REACHED";
    SAVING_PARAMETERS_NOT_SUPPORTED = 0x3900, "SAVING PARAMETERS NOT SUPPORTED";
    INQUIRY_DATA_HAS_CHANGED = 0x3f03, "INQUIRY DATA HAS CHANGED";
    REPORTED_LUNS_DATA_HAS_CHANGED = 0x3f0e, "REPORTED LUNS DATA HAS CHANGED";
    INTERNAL_TARGET_FAILURE = 0x4400, "INTERNAL TARGET FAILURE";
    DATA_PHASE_CRC_ERROR = 0x4701, "DATA PHASE CRC ERROR DETECTED";
    OVERLAPPED_COMMANDS_ATTEMPTED = 0x4e00, "OVERLAPPED COMMANDS ATTEMPTED";
}

impl AdditionalSense {
    /// ADDITIONAL SENSE CODE.
    pub const fn code(self) -> u8 {
        self.0.to_be_bytes()[0]
    }

    /// ADDITIONAL SENSE CODE QUALIFIER.
    pub const fn qualifier(self) -> u8 {
        self.0.to_be_bytes()[1]
    }
}

impl fmt::Display for AdditionalSense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name().unwrap_or("vendor specific");
        write!(f, "{name} ({:02x}h/{:02x}h)", self.code(), self.qualifier())
    }
}
