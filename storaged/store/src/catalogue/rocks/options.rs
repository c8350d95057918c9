//! How RocksDB is set up: little memory, no file that grows without bound, everything checked.

use rocksdb::statistics::StatsLevel;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, InfoLogger, LogLevel, Options,
};

/// What the operator may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RocksSettings {
    /// Bytes of memory for cached blocks and for what is not in tables yet, at least 4 MiB. A commit needs twice its own
    /// size beyond that while it is made.
    pub memory_bytes: usize,
    /// Tables that are open at a time, at least 16.
    pub open_files: u16,
}

impl Default for RocksSettings {
    fn default() -> Self {
        Self { memory_bytes: 32 << 20, open_files: 256 }
    }
}

/// The usual way.
pub(super) fn normal(settings: &RocksSettings) -> Options {
    let mut options = Options::default();
    options.create_if_missing(false);
    options.set_paranoid_checks(true);
    // The torn tail of a power cut ends the log, wherever in the record the hole is; what else it might be: see wal.rs.
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    options.set_track_and_verify_wals_in_manifest(true);

    let memory_bytes = settings.memory_bytes.max(4 << 20);
    options.set_write_buffer_size(memory_bytes / 4);
    options.set_max_write_buffer_number(2);
    options.set_block_based_table_factory(&tables(memory_bytes / 2));
    options.set_max_open_files(i32::from(settings.open_files.max(16)));
    options.set_memtable_whole_key_filtering(true);
    options.set_memtable_prefix_bloom_ratio(0.02);

    // Entries are some 100 bytes: a million of them is a few tables.
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_target_file_size_base(32 << 20);
    options.set_max_bytes_for_level_base(128 << 20);
    options.set_max_background_jobs(2);
    options.set_bytes_per_sync(1 << 20);

    options.set_max_manifest_file_size(4 << 20);
    options.set_manifest_preallocation_size(64 << 10);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.enable_statistics();
    options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    // Its own log file would grow beside the data; what matters goes where our messages go.
    options.set_info_logger(InfoLogger::new_callback_logger(LogLevel::Warn, |level, message| match level {
        LogLevel::Error | LogLevel::Fatal => tracing::warn!(target: "rocksdb", "{}", message.trim_end()),
        _ => tracing::debug!(target: "rocksdb", "{}", message.trim_end()),
    }));
    options
}

/// For a damaged catalogue: tables that cannot be opened are left for the reads that want them, and nothing is merged,
/// because RocksDB stops when a merge meets damage.
pub(super) fn lenient(settings: &RocksSettings) -> Options {
    let mut options = normal(settings);
    options.set_paranoid_checks(false);
    options.set_disable_auto_compactions(true);
    options.set_level_zero_slowdown_writes_trigger(i32::MAX);
    options.set_level_zero_stop_writes_trigger(i32::MAX);
    options
}

/// Most reads of single keys are for keys that are not there: a filter answers those. Index and filter are cut into
/// blocks that are cached like data, so that their size does not matter to the memory.
fn tables(cache_bytes: usize) -> BlockBasedOptions {
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(&Cache::new_lru_cache(cache_bytes));
    tables.set_block_size(4 << 10);
    tables.set_bloom_filter(10.0, false);
    tables.set_whole_key_filtering(true);
    tables.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    tables.set_partition_filters(true);
    tables.set_metadata_block_size(4 << 10);
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_cache_index_and_filter_blocks_with_high_priority(true);
    tables.set_pin_top_level_index_and_filter(true);
    tables.set_format_version(6);
    tables
}
