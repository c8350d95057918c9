//! The volume that keeps nothing: writes are dropped, reads give zeros. It measures the iSCSI and SCSI path alone.

use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};

/// Pieces that zeros are served from; a command takes as many as it needs.
const ZEROS_BYTES: usize = 1 << 20;

static ZEROS: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(vec![0; ZEROS_BYTES]));

/// `len` bytes of zeros, without a copy up to 1 MiB.
pub(crate) fn zeros(len: usize) -> Bytes {
    if len <= ZEROS_BYTES { ZEROS.slice(..len) } else { BytesMut::zeroed(len).freeze() }
}
