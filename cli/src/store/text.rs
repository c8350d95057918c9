//! Items of a dump as lines for a person.

use holdfast_store::check::dump::{Item, PartItem, RecordItem};

/// The lines of one item.
pub(super) fn lines(item: &Item) -> Vec<String> {
    let first = match item {
        Item::Identity { of, disk, node } => format!("identity of the {of}: disk {disk}, node {node}"),
        Item::Superblock { copy, disk, node, journal_offset, journal_bytes, slots_offset } => format!(
            "superblock, copy {copy}: disk {disk}, node {node}, journal of {journal_bytes} bytes at {journal_offset}, \
             slots at {slots_offset}"
        ),
        Item::Checkpoint { number, position, next_batch, previous_crc } => format!(
            "checkpoint {number}: journal from position {position}, batch {next_batch}, after crc {previous_crc:08x}"
        ),
        Item::Journal { batches, next_batch, position, torn_tail } => format!(
            "journal: {batches} batches since the checkpoint, next is {next_batch} at position {position}{}",
            if *torn_tail { ", behind it the remains of a batch that was never acknowledged" } else { "" }
        ),
        Item::Batch { number, position, bytes, payload_blocks, proven, records } => {
            let mut lines = vec![format!(
                "batch {number} at position {position}: {bytes} bytes, {payload_blocks} blocks of payload, {} records{}",
                records.len(),
                if *proven { "" } else { ", the last" }
            )];
            lines.extend(records.iter().map(|record| format!("  {}", record_line(record))));
            return lines;
        }
        Item::Volume { id, name, naa, size_bytes, block_size, content, read_only } => format!(
            "volume {id}: {name}, {size_bytes} bytes, blocks of {block_size}, NAA {naa}, {content}{}",
            if *read_only { ", read-only" } else { "" }
        ),
        Item::Shard { volume, index, epoch, term, last, committed, suspect, operations, chunks } => format!(
            "shard {volume}.{index}: {chunks} chunks with data, epoch {epoch}, term {term}, last change {last}, committed \
             {committed}, {operations} operations remembered{}",
            if *suspect { ", suspect" } else { "" }
        ),
        Item::Allocation { slots, used, pages } => {
            format!("allocation: {used} of {slots} slots used at the checkpoint, {pages} pages")
        }
        Item::Entry { volume, shard, chunk, version, stale, slot, mapped, lost, crcs } => {
            let stale = if *stale { ", stale" } else { "" };
            match slot {
                None => format!("chunk {volume}.{shard}.{chunk}: version {version}, hole{stale}"),
                Some(slot) => {
                    let lost = if *lost == 0 { String::new() } else { format!(", lost {lost:016b}") };
                    let crcs: Vec<String> = crcs
                        .iter()
                        .enumerate()
                        .map(|(block, crc)| if mapped >> block & 1 == 1 { format!("{crc:08x}") } else { "-".into() })
                        .collect();
                    format!(
                        "chunk {volume}.{shard}.{chunk}: version {version}, slot {slot}{stale}{lost}, crcs {}",
                        crcs.join(" ")
                    )
                }
            }
        }
        Item::Damage { place, detail } => format!("DAMAGED {place}: {detail}"),
    };
    vec![first]
}

fn record_line(record: &RecordItem) -> String {
    match record {
        RecordItem::Mutation { volume, shard, at, chunk_version, committed, operation, parts } => {
            let version = if chunk_version == at { String::new() } else { format!(", chunks get {chunk_version}") };
            let operation = operation.as_ref().map(|id| format!(", operation {id}")).unwrap_or_default();
            let parts: Vec<String> = parts.iter().map(part_text).collect();
            format!("shard {volume}.{shard} at {at}{version}, committed {committed}{operation}: {}", parts.join("; "))
        }
        RecordItem::State { volume, shard, epoch, term, committed, suspect } => {
            let suspect = if *suspect { ", suspect" } else { "" };
            format!("shard {volume}.{shard}: epoch {epoch}, term {term}, committed {committed}{suspect}")
        }
        RecordItem::Stale { volume, shard, chunk, chunks, stale } => {
            let what = if *stale { "stale" } else { "good again" };
            format!("shard {volume}.{shard}: {chunks} chunks from {chunk} are {what}")
        }
        RecordItem::Drop { volume, shard } => format!("shard {volume}.{shard} is dropped"),
    }
}

fn part_text(part: &PartItem) -> String {
    match part {
        PartItem::Blocks { chunk, first, blocks, fresh_slot } => {
            let slot = fresh_slot.map(|slot| format!(", new slot {slot}")).unwrap_or_default();
            format!("{blocks} blocks of chunk {chunk} from {first}{slot}")
        }
        PartItem::Chunk { chunk, slot } => format!("chunk {chunk} in slot {slot}"),
        PartItem::Hole { first_block, blocks } => format!("hole of {blocks} blocks from {first_block}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_when_of_a_batch_then_one_for_each_record() {
        let parts = vec![
            PartItem::Blocks { chunk: 3, first: 2, blocks: 1, fresh_slot: Some(9) },
            PartItem::Hole { first_block: 64, blocks: 16 },
        ];
        let at = "1:7".to_owned();
        let mutation = RecordItem::Mutation {
            volume: 1,
            shard: 0,
            at: at.clone(),
            chunk_version: at,
            committed: 6,
            operation: None,
            parts,
        };
        let records = vec![mutation, RecordItem::Drop { volume: 2, shard: 5 }];
        let item = Item::Batch { number: 4, position: 8192, bytes: 8192, payload_blocks: 1, proven: false, records };
        let expected = [
            "batch 4 at position 8192: 8192 bytes, 1 blocks of payload, 2 records, the last",
            "  shard 1.0 at 1:7, committed 6: 1 blocks of chunk 3 from 2, new slot 9; hole of 16 blocks from 64",
            "  shard 2.5 is dropped",
        ];
        assert_eq!(lines(&item), expected);
    }
}
