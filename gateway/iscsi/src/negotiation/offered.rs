//! What this target offers in negotiations.

/// The target's side of each negotiated key. Values outside the range of a key are brought into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// HeaderDigest: whether CRC32C is offered beside None. The initiator's order decides.
    pub header_digest: bool,
    /// DataDigest: whether CRC32C is offered beside None. The initiator's order decides.
    pub data_digest: bool,
    /// MaxConnections, 1 to 65535; the lower value holds.
    pub max_connections: u16,
    /// InitialR2T; Yes of either side holds.
    pub initial_r2t: bool,
    /// ImmediateData; No of either side holds.
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength that is declared, in bytes, 512 to 2^24 - 1.
    pub max_recv_data_segment_length: u32,
    /// MaxBurstLength in bytes, 512 to 2^24 - 1; the lower value holds.
    pub max_burst_length: u32,
    /// FirstBurstLength in bytes, 512 to MaxBurstLength; the lower value holds.
    pub first_burst_length: u32,
    /// DefaultTime2Wait in seconds, 0 to 3600; the higher value holds.
    pub default_time2wait: u16,
    /// DefaultTime2Retain in seconds, 0 to 3600; the lower value holds.
    pub default_time2retain: u16,
    /// MaxOutstandingR2T per task, 1 to 65535; the lower value holds.
    pub max_outstanding_r2t: u16,
    /// DataPDUInOrder; Yes of either side holds.
    pub data_pdu_in_order: bool,
    /// DataSequenceInOrder; Yes of either side holds.
    pub data_sequence_in_order: bool,
}

impl Default for Offered {
    fn default() -> Self {
        Self {
            header_digest: true,
            data_digest: true,
            max_connections: 1,
            initial_r2t: false,
            immediate_data: true,
            max_recv_data_segment_length: 256 * 1024,
            max_burst_length: 1024 * 1024,
            first_burst_length: 64 * 1024,
            default_time2wait: 2,
            default_time2retain: 0,
            max_outstanding_r2t: 8,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
        }
    }
}
