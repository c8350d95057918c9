//! A progress bar on standard error, where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar for `total_bytes`, with rate and time left.
pub(super) fn bar(total_bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(total_bytes);
    let style =
        ProgressStyle::with_template("{wide_bar} {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {eta}");
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
