//! Bytes that are cut into buffers anyhow.

use bytes::Bytes;

/// Appends `len` bytes from byte `from` of `data` to `out`, without a copy. What is beyond the end is left out.
pub(crate) fn cut(data: &[Bytes], from: usize, len: usize, out: &mut Vec<Bytes>) {
    let (mut skip, mut wanted) = (from, len);
    for piece in data {
        if wanted == 0 {
            return;
        }
        if skip >= piece.len() {
            skip -= piece.len();
            continue;
        }
        let end = piece.len().min(skip.saturating_add(wanted));
        wanted -= end - skip;
        out.push(piece.slice(skip..end));
        skip = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_when_any_range_then_its_bytes() {
        let data = [Bytes::from_static(b"ab"), Bytes::new(), Bytes::from_static(b"cdefg"), Bytes::from_static(b"h")];
        for from in 0..9 {
            for len in 0..10 {
                let mut out = Vec::new();
                cut(&data, from, len, &mut out);
                assert_eq!(out.concat(), b"abcdefgh"[from.min(8)..(from + len).min(8)], "{from} {len}");
                assert!(out.iter().all(|piece| !piece.is_empty()));
            }
        }
    }
}
