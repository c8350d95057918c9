//! `holdfast store dump`: what a store holds, for a person or as one document.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use holdfast_store::check::dump::{DumpOptions, Item, MapOf, dump};
use serde_json::{Map, Value};

use super::{CLEAN, Output, explained, text};
use crate::output;

#[derive(Args)]
pub(crate) struct Options {
    /// Data directory of the node; that of `holdfast dev` is DATA/node1
    dir: PathBuf,
    /// Show each batch of the journal since the last checkpoint, with its records
    #[arg(long)]
    journal: bool,
    /// Show the map of this volume (name or number): where each chunk is, with its checksums
    #[arg(long, value_name = "VOLUME")]
    map: Option<String>,
    /// Of the map, only this shard (GiB) of the volume
    #[arg(long, value_name = "NUMBER", requires = "map")]
    shard: Option<u32>,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

pub(super) fn run(options: &Options) -> Result<u8> {
    let map = options.map.clone().map(|volume| MapOf { volume, shard: options.shard });
    let wanted = DumpOptions { batches: options.journal, map };
    let mut document = Document::default();
    let mut result = Ok(());
    let shown = dump(&options.dir, &wanted, &mut |item| {
        if result.is_ok() {
            result = match options.output {
                Output::Text => text::lines(&item).into_iter().try_for_each(output::line),
                Output::Json => document.add(&item),
            };
        }
    });
    shown.map_err(|error| explained(&options.dir, error))?;
    result?;
    if options.output == Output::Json {
        output::line(serde_json::to_string_pretty(&document.0)?)?;
    }
    Ok(CLEAN)
}

/// Lists of items by their kind.
#[derive(Default)]
struct Document(Map<String, Value>);

impl Document {
    fn add(&mut self, item: &Item) -> Result<()> {
        let Value::Object(mut fields) = serde_json::to_value(item)? else { bail!("an item is not an object") };
        let Some(Value::String(kind)) = fields.remove("kind") else { bail!("an item is of no kind") };
        let list = self.0.entry(kind).or_insert_with(|| Value::Array(Vec::new()));
        let list = list.as_array_mut().ok_or_else(|| anyhow!("a kind is not a list"))?;
        list.push(Value::Object(fields));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_when_items_are_added_then_a_list_for_each_kind() {
        let mut document = Document::default();
        let checkpoint = |number| Item::Checkpoint { number, position: 4096, next_batch: 2, previous_crc: 3 };
        document.add(&checkpoint(1)).unwrap();
        document.add(&checkpoint(2)).unwrap();
        document.add(&Item::Damage { place: "here".into(), detail: "bad".into() }).unwrap();
        let value = Value::Object(document.0);
        assert_eq!(value["checkpoint"][1]["number"], 2);
        assert_eq!(value["damage"][0]["place"], "here");
    }
}
