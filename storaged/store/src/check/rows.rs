//! Walks over rows of the catalogue in which damage hides no more than it must.
//!
//! Every row is read twice: in order, and singly, as the engine does, because the two take different ways (a filter and an index say
//! where a single row is) and either can be damaged alone.

use std::ops::{ControlFlow, Range};

use crate::catalogue::{Catalogue, CatalogueError};

/// Rows that are held at a time.
const PAGE_ROWS: usize = 1024;

/// Is given a key, and its value if it can be read.
pub(super) type Visit<'a> = dyn FnMut(&[u8], Result<&[u8], &CatalogueError>) + 'a;

/// Why the rows from a key on could not be read in order.
pub(super) struct Gap {
    from: Vec<u8>,
    pub(super) error: CatalogueError,
}

/// Visits the rows of a range, in order. After damage on the way the rest is in the gap; what was visited before is right.
pub(super) fn walk(catalogue: &dyn Catalogue, range: Range<Vec<u8>>, visit: &mut Visit<'_>) -> Result<(), Gap> {
    let mut from = range.start;
    loop {
        let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let visited = catalogue.range(&from, &range.end, &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            if rows.len() < PAGE_ROWS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let keys: Vec<Vec<u8>> = rows.iter().map(|(key, _)| key.clone()).collect();
        let singly = get_each(catalogue, &keys);
        for ((key, value), single) in rows.iter().zip(singly) {
            match single {
                Ok(single) if single.as_ref() == Some(value) => visit(key, Ok(value)),
                Ok(_) => {
                    let detail = "a row is not what it is when it is read in order".into();
                    visit(key, Err(&CatalogueError::Corrupt { detail }));
                }
                Err(error) => visit(key, Err(&error)),
            }
        }
        let is_last = rows.len() < PAGE_ROWS;
        if let Some((last, _)) = rows.pop() {
            from = after(&last);
        }
        visited.map_err(|error| Gap { from: from.clone(), error })?;
        if is_last {
            return Ok(());
        }
    }
}

/// As [`walk`], and tries the `candidates` (ascending keys of the range) beyond damage singly. Gives the error of the first damage.
pub(super) fn walk_with(
    catalogue: &dyn Catalogue,
    range: Range<Vec<u8>>,
    candidates: impl Iterator<Item = Vec<u8>>,
    visit: &mut Visit<'_>,
) -> Option<CatalogueError> {
    let gap = walk(catalogue, range, visit).err()?;
    for key in candidates.filter(|key| *key >= gap.from) {
        match catalogue.get(&key) {
            Ok(Some(value)) => visit(&key, Ok(&value)),
            Ok(None) => {}
            Err(error) => visit(&key, Err(&error)),
        }
    }
    Some(gap.error)
}

fn get_each(catalogue: &dyn Catalogue, keys: &[Vec<u8>]) -> Vec<Result<Option<Vec<u8>>, CatalogueError>> {
    match catalogue.get_many(keys) {
        Ok(values) => values.into_iter().map(Ok).collect(),
        Err(_) => keys.iter().map(|key| catalogue.get(key)).collect(),
    }
}

/// The first key behind this one.
pub(super) fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Changes;
    use crate::catalogue::model::{KeyFault, ModelCatalogue};

    fn catalogue(rows: u16) -> ModelCatalogue {
        let catalogue = ModelCatalogue::default();
        let mut changes = Changes::default();
        (0..rows).for_each(|row| changes.put(row.to_be_bytes(), [7]));
        catalogue.commit(&changes).unwrap();
        catalogue
    }

    fn keys(from: u16, to: u16) -> Range<Vec<u8>> {
        from.to_be_bytes().to_vec()..to.to_be_bytes().to_vec()
    }

    #[test]
    fn walk_when_there_are_several_pages_then_each_row_once() {
        let catalogue = catalogue(2048 + 5);
        for (from, to) in [(0, 2053), (3, 1027), (0, 1024), (7, 7)] {
            let mut seen = Vec::new();
            walk(&catalogue, keys(from, to), &mut |key, value| {
                assert_eq!(value, Ok(&[7][..]));
                seen.push(u16::from_be_bytes(key.try_into().unwrap()));
            })
            .map_err(|gap| gap.error)
            .unwrap();
            assert_eq!(seen, (from..to).collect::<Vec<_>>());
        }
    }

    #[test]
    fn walk_with_when_a_row_is_damaged_then_all_others_are_seen() {
        let catalogue = catalogue(3000);
        catalogue.fail(1500u16.to_be_bytes(), KeyFault::Corrupt);
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        let candidates = (0..4000u16).map(|row| row.to_be_bytes().to_vec());
        let error = walk_with(&catalogue, keys(0, 4000), candidates, &mut |key, value| {
            let row = u16::from_be_bytes(key.try_into().unwrap());
            if value.is_ok() { good.push(row) } else { bad.push(row) }
        });
        assert!(error.is_some());
        assert_eq!(bad, [1500]);
        assert_eq!(good, (0..3000).filter(|row| *row != 1500).collect::<Vec<_>>());
    }
}
