//! Why bytes are not the structure they should be.

use thiserror::Error;

/// Why bytes are not the structure they should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// Whole, and written by a later release: leave it alone and use that release.
    #[error("{what} has version {version}, this release knows up to {known}; use a newer release")]
    Newer {
        /// The structure.
        what: &'static str,
        /// Its version.
        version: u32,
        /// The newest version that is understood here.
        known: u32,
    },
    /// Not what was written: nothing of it can be trusted.
    #[error("{what} is corrupt: {detail}")]
    Corrupt {
        /// The structure.
        what: &'static str,
        /// What is wrong with it.
        detail: &'static str,
    },
}
