//! The one table from the store's errors to what goes over the wire.

use holdfast_proto::block::Status;
use holdfast_store::{StoreError, VolumeError};
use tonic::Status as GrpcStatus;

/// What the caller of the block service is told.
pub(crate) fn block_status(error: &StoreError) -> Status {
    match error {
        StoreError::Checksum { offset } | StoreError::Unreadable { offset, .. } => {
            Status::MediumError { offset: *offset }
        }
        StoreError::PayloadCorrupt { .. } => Status::Checksum,
        StoreError::NoSpace => Status::NoSpace,
        StoreError::OutOfRange => Status::OutOfRange,
        StoreError::TooLong => Status::Invalid(error.to_string()),
        StoreError::NoSuchVolume => Status::NoSuchVolume,
        StoreError::ReadOnly => Status::WriteProtected,
        StoreError::DeviceFailed(detail) => Status::DeviceFailed(detail.to_string()),
        StoreError::Closed => Status::Stopping,
    }
}

/// What the caller of `Volumes.Create` is told.
pub(crate) fn volume_status(error: &VolumeError) -> GrpcStatus {
    let text = error.to_string();
    match error {
        VolumeError::NameTaken(_) => GrpcStatus::already_exists(text),
        VolumeError::BadSize { .. } => GrpcStatus::invalid_argument(text),
        VolumeError::Unavailable(StoreError::NoSpace) => GrpcStatus::resource_exhausted(text),
        VolumeError::Unavailable(_) => GrpcStatus::unavailable(text),
        VolumeError::Io(context) if context.source.kind() == std::io::ErrorKind::StorageFull => {
            GrpcStatus::resource_exhausted(text)
        }
        VolumeError::Io(_) => GrpcStatus::internal(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_errors_when_mapped_then_as_the_table_says() {
        let table = [
            (StoreError::Checksum { offset: 8192 }, Status::MediumError { offset: 8192 }),
            (StoreError::Unreadable { offset: 4096, detail: "eio".into() }, Status::MediumError { offset: 4096 }),
            (StoreError::PayloadCorrupt { offset: 0 }, Status::Checksum),
            (StoreError::NoSpace, Status::NoSpace),
            (StoreError::OutOfRange, Status::OutOfRange),
            (StoreError::NoSuchVolume, Status::NoSuchVolume),
            (StoreError::ReadOnly, Status::WriteProtected),
            (StoreError::DeviceFailed("eio".into()), Status::DeviceFailed("eio".to_owned())),
            (StoreError::Closed, Status::Stopping),
        ];
        for (error, status) in table {
            assert_eq!(block_status(&error), status);
        }
        assert!(matches!(block_status(&StoreError::TooLong), Status::Invalid(_)));
    }
}
