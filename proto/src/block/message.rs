//! What the two ends of the block stream say to each other, as checked types.
//!
//! The wire form is in `proto/holdfast/block/v1/block.proto`; [`super::wire`] goes from one to the other.

use std::fmt;

use bytes::Bytes;

use crate::ids::{OpId, VolumeId};

/// The version of the block protocol that this code speaks.
pub const WIRE_VERSION: u32 = 1;

/// Largest payload of one message, in bytes.
pub const MAX_PAYLOAD_BYTES: usize = 8 << 20;

/// Largest message, in bytes: a full payload, its checksums and the other fields.
pub const MAX_MESSAGE_BYTES: usize = MAX_PAYLOAD_BYTES + (64 << 10);

/// Longest text in a message, in bytes: what is longer is cut off by the sender.
pub const MAX_TEXT_BYTES: usize = 1024;

/// First message of a stream, from the side that opened it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Version of the protocol the caller speaks: [`WIRE_VERSION`].
    pub wire_version: u32,
    /// The cluster the caller believes it talks to; empty when it does not say.
    pub cluster: String,
    /// Incarnation of the calling process.
    pub incarnation: u64,
    /// Which of the caller's independent sequences of operations travels on this stream.
    pub lane: u32,
    /// Name of the caller, for logs.
    pub name: String,
}

/// The server's answer to [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Version of the protocol from now on.
    pub wire_version: u32,
    /// The cluster the server belongs to.
    pub cluster: String,
    /// Number of the storage node.
    pub node_id: u64,
    /// Incarnation of the storage daemon.
    pub incarnation: u64,
    /// Largest payload in bytes that the server takes or gives in one message.
    pub max_payload_bytes: u64,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reads the range.
    Read,
    /// Writes the payload, as long as the range.
    Write,
    /// Writes the payload, one logical block, until the range is full of it.
    WriteSame,
    /// Turns the range into a hole that reads as zeros.
    Unmap,
    /// Answered when every write that was answered before is durable.
    Flush,
}

impl Kind {
    /// All kinds, in the order of their numbers on the wire.
    pub const ALL: [Kind; 5] = [Kind::Read, Kind::Write, Kind::WriteSame, Kind::Unmap, Kind::Flush];

    /// The number on the wire.
    pub const fn to_wire(self) -> u32 {
        match self {
            Kind::Read => 1,
            Kind::Write => 2,
            Kind::WriteSame => 3,
            Kind::Unmap => 4,
            Kind::Flush => 5,
        }
    }

    /// The kind with this number on the wire, if there is one.
    pub fn from_wire(number: u32) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.to_wire() == number)
    }

    /// Lower-case name, for logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::WriteSame => "write_same",
            Kind::Unmap => "unmap",
            Kind::Flush => "flush",
        }
    }
}

/// One operation on one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the caller, unique among the requests in flight on this stream.
    pub id: u64,
    /// The volume.
    pub volume: VolumeId,
    /// Index of the 1 GiB piece of the volume in which the whole range lies.
    pub shard: u32,
    /// The shard's configuration number that the caller knows; 0 when it does not say.
    pub epoch: u64,
    /// The reign number of the shard's primary that the caller knows; 0 when it does not say.
    pub term: u64,
    /// Name of the operation, for ever.
    pub op: OpId,
    /// Operations of this lane with a lower sequence have been answered and are never repeated.
    pub acked_below: u64,
    /// The nexus that the command came from; 0 for none.
    pub nexus: u64,
    /// Grant under which the gateway writes for this initiator; 0 for none.
    pub path_epoch: u64,
    /// What to do.
    pub kind: Kind,
    /// Where, in bytes from the start of the volume.
    pub offset: u64,
    /// How many bytes of the volume.
    pub len: u64,
    /// CRC32C of each piece of the payload, see [`crate::checksum`].
    pub checksums: Vec<u32>,
    /// The bytes to write, in any number of segments: their sequence is the payload.
    pub payload: Vec<Bytes>,
}

impl Request {
    /// Length of the payload in bytes.
    pub fn payload_bytes(&self) -> usize {
        self.payload.iter().map(Bytes::len).sum()
    }
}

/// The answer to one [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// `id` of the request.
    pub id: u64,
    /// How the operation ended.
    pub status: Status,
    /// CRC32C of each piece of the payload.
    pub checksums: Vec<u32>,
    /// The bytes that were read, in any number of segments.
    pub payload: Vec<Bytes>,
}

impl Reply {
    /// An answer without data.
    pub const fn new(id: u64, status: Status) -> Self {
        Self { id, status, checksums: Vec::new(), payload: Vec::new() }
    }

    /// Length of the payload in bytes.
    pub fn payload_bytes(&self) -> usize {
        self.payload.iter().map(Bytes::len).sum()
    }
}

/// How an operation ended.
///
/// Up to [`Status::Stopping`] nothing was done by a request that was not answered [`Status::Ok`]; after the last two it
/// is not known whether the operation took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done, and durable where the kind promises that.
    Ok,
    /// The payload did not match its checksums on arrival: sending again may help.
    Checksum,
    /// The medium has lost the bytes at this offset of the volume.
    MediumError {
        /// Byte of the volume.
        offset: u64,
    },
    /// No room.
    NoSpace,
    /// The range does not lie within the volume and the shard.
    OutOfRange,
    /// There is no such volume here.
    NoSuchVolume,
    /// The volume may not be written.
    WriteProtected,
    /// Epoch or term is not the present one: fetch the configuration.
    StaleEpoch,
    /// The path epoch is below one seen for this initiator.
    StalePath,
    /// The request breaks a rule of the protocol.
    Invalid(String),
    /// The daemon is stopping.
    Stopping,
    /// The device failed.
    DeviceFailed(String),
    /// Any other failure.
    Failed(String),
}

impl Status {
    /// The number on the wire.
    pub const fn to_wire(&self) -> u32 {
        match self {
            Status::Ok => 1,
            Status::Checksum => 2,
            Status::MediumError { .. } => 3,
            Status::NoSpace => 4,
            Status::OutOfRange => 5,
            Status::NoSuchVolume => 6,
            Status::WriteProtected => 7,
            Status::StaleEpoch => 8,
            Status::StalePath => 9,
            Status::Invalid(_) => 10,
            Status::Stopping => 11,
            Status::DeviceFailed(_) => 12,
            Status::Failed(_) => 13,
        }
    }

    /// The status with this number; one that this version does not know becomes [`Status::Failed`], which promises
    /// nothing.
    pub fn from_wire(number: u32, detail: String, error_offset: u64) -> Status {
        match number {
            1 => Status::Ok,
            2 => Status::Checksum,
            3 => Status::MediumError { offset: error_offset },
            4 => Status::NoSpace,
            5 => Status::OutOfRange,
            6 => Status::NoSuchVolume,
            7 => Status::WriteProtected,
            8 => Status::StaleEpoch,
            9 => Status::StalePath,
            10 => Status::Invalid(detail),
            11 => Status::Stopping,
            12 => Status::DeviceFailed(detail),
            13 => Status::Failed(detail),
            other => Status::Failed(format!("status {other} is not known to this version: {detail}")),
        }
    }

    /// The text that goes with it, empty for most.
    pub fn detail(&self) -> &str {
        match self {
            Status::Invalid(detail) | Status::DeviceFailed(detail) | Status::Failed(detail) => detail,
            _ => "",
        }
    }

    /// The byte of the volume it is about, 0 for most.
    pub const fn error_offset(&self) -> u64 {
        match self {
            Status::MediumError { offset } => *offset,
            _ => 0,
        }
    }

    /// Lower-case name, for logs and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Checksum => "checksum",
            Status::MediumError { .. } => "medium_error",
            Status::NoSpace => "no_space",
            Status::OutOfRange => "out_of_range",
            Status::NoSuchVolume => "no_such_volume",
            Status::WriteProtected => "write_protected",
            Status::StaleEpoch => "stale_epoch",
            Status::StalePath => "stale_path",
            Status::Invalid(_) => "invalid",
            Status::Stopping => "stopping",
            Status::DeviceFailed(_) => "device_failed",
            Status::Failed(_) => "failed",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::MediumError { offset } => write!(f, "medium error at byte {offset}"),
            Status::Invalid(detail) => write!(f, "invalid request: {detail}"),
            Status::DeviceFailed(detail) => write!(f, "device failed: {detail}"),
            Status::Failed(detail) => write!(f, "failed: {detail}"),
            other => f.write_str(&other.name().replace('_', " ")),
        }
    }
}

/// Everything the caller sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToNode {
    /// The first message.
    Hello(Hello),
    /// Every later one.
    Request(Request),
}

/// Everything the server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromNode {
    /// The first message.
    Welcome(Welcome),
    /// Every later one.
    Reply(Reply),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::generated;

    #[test]
    fn kind_numbers_when_compared_with_the_proto_then_equal() {
        use generated::Kind as Wire;
        let table = [
            (Kind::Read, Wire::Read),
            (Kind::Write, Wire::Write),
            (Kind::WriteSame, Wire::WriteSame),
            (Kind::Unmap, Wire::Unmap),
            (Kind::Flush, Wire::Flush),
        ];
        assert_eq!(table.map(|(kind, _)| kind), Kind::ALL);
        for (kind, wire) in table {
            assert_eq!(i64::from(kind.to_wire()), i64::from(i32::from(wire)));
            assert_eq!(Kind::from_wire(kind.to_wire()), Some(kind));
        }
        assert_eq!(Kind::from_wire(0), None);
        assert_eq!(Kind::from_wire(6), None);
    }

    #[test]
    fn status_numbers_when_compared_with_the_proto_then_equal() {
        use generated::StatusCode as Wire;
        let text = || "why".to_owned();
        let table = [
            (Status::Ok, Wire::Ok),
            (Status::Checksum, Wire::Checksum),
            (Status::MediumError { offset: 77 }, Wire::MediumError),
            (Status::NoSpace, Wire::NoSpace),
            (Status::OutOfRange, Wire::OutOfRange),
            (Status::NoSuchVolume, Wire::NoSuchVolume),
            (Status::WriteProtected, Wire::WriteProtected),
            (Status::StaleEpoch, Wire::StaleEpoch),
            (Status::StalePath, Wire::StalePath),
            (Status::Invalid(text()), Wire::Invalid),
            (Status::Stopping, Wire::Stopping),
            (Status::DeviceFailed(text()), Wire::DeviceFailed),
            (Status::Failed(text()), Wire::Failed),
        ];
        for (status, wire) in table {
            assert_eq!(i64::from(status.to_wire()), i64::from(i32::from(wire)));
            let back = Status::from_wire(status.to_wire(), status.detail().to_owned(), status.error_offset());
            assert_eq!(back, status);
        }
        assert!(matches!(Status::from_wire(0, text(), 0), Status::Failed(_)));
        assert!(matches!(Status::from_wire(14, text(), 0), Status::Failed(_)));
    }
}
