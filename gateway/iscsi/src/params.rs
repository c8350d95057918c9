//! What login has settled between the two ends (RFC 7143, section 13), as the full feature phase uses it.
//!
//! Filled in by the negotiation, read by [`crate::session`] and by the shell that sets the digests of
//! [`crate::frame`]. Text keys and their spelling are not known here.

/// The operational parameters of one session with its one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// HeaderDigest: true for CRC32C, false for None (RFC 7143, 13.1).
    pub header_digest: bool,
    /// DataDigest: true for CRC32C, false for None (RFC 7143, 13.1).
    pub data_digest: bool,
    /// MaxRecvDataSegmentLength that this target declared, in bytes, 512 to 2^24 - 1 (RFC 7143, 13.12).
    pub max_recv_data_segment_length: u32,
    /// MaxRecvDataSegmentLength that the initiator declared, in bytes, 512 to 2^24 - 1 (RFC 7143, 13.12).
    pub max_send_data_segment_length: u32,
    /// MaxBurstLength in bytes, 512 to 2^24 - 1 (RFC 7143, 13.13).
    pub max_burst_length: u32,
    /// FirstBurstLength in bytes, 512 to MaxBurstLength (RFC 7143, 13.14).
    pub first_burst_length: u32,
    /// InitialR2T: true where unsolicited Data-Out is forbidden (RFC 7143, 13.10).
    pub initial_r2t: bool,
    /// ImmediateData: true where a command may carry data (RFC 7143, 13.11).
    pub immediate_data: bool,
    /// MaxOutstandingR2T per task, 1 to 65535 (RFC 7143, 13.17).
    pub max_outstanding_r2t: u16,
    /// DefaultTime2Wait in seconds, 0 to 3600 (RFC 7143, 13.15).
    pub default_time2wait: u16,
    /// DefaultTime2Retain in seconds, 0 to 3600 (RFC 7143, 13.16).
    pub default_time2retain: u16,
    /// DataPDUInOrder (RFC 7143, 13.18). This target asks for Yes, and Yes of either end wins.
    pub data_pdu_in_order: bool,
    /// DataSequenceInOrder (RFC 7143, 13.19). This target asks for Yes, and Yes of either end wins.
    pub data_sequence_in_order: bool,
    /// ErrorRecoveryLevel, 0 to 2 (RFC 7143, 13.20).
    pub error_recovery_level: u8,
    /// MaxConnections, 1 to 65535 (RFC 7143, 13.2).
    pub max_connections: u16,
}

impl Default for Parameters {
    /// The defaults of RFC 7143, section 13: what holds where a key was never negotiated.
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            max_recv_data_segment_length: 8192,
            max_send_data_segment_length: 8192,
            max_burst_length: 262_144,
            first_burst_length: 65_536,
            initial_r2t: true,
            immediate_data: true,
            max_outstanding_r2t: 1,
            default_time2wait: 2,
            default_time2retain: 20,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            max_connections: 1,
        }
    }
}
