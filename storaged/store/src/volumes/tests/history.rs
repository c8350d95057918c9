//! Judges what clients saw: each byte of a volume is an atomic register. Bytes of the same block that the same operations
//! touch have the same history, so one search for each run of those is enough (Wing and Gong, 1993, with the memory of
//! Lowe, 2017).

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use holdfast_proto::units::BLOCK_LEN;

/// One operation as its client saw it; times are places in the order of all events.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) range: Range<usize>,
    pub(super) invoked: u64,
    pub(super) answered: u64,
    pub(super) action: Action,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    /// All bytes of the range get this value.
    Set(u8),
    /// What the bytes of the range had.
    Saw(Vec<u8>),
}

/// Whether the events can have taken effect one after the other, on each byte, each between its two times. All bytes are
/// zero at first. At most 128 events.
pub(super) fn judge(events: &[Event]) -> Result<(), String> {
    let mut borders: BTreeSet<usize> = events.iter().flat_map(|event| [event.range.start, event.range.end]).collect();
    let last = borders.last().copied().unwrap_or(0);
    borders.extend((0..last).step_by(BLOCK_LEN));
    let borders: Vec<usize> = borders.into_iter().collect();
    for cell in borders.windows(2).map(|pair| pair[0]..pair[1]) {
        let mut steps = Vec::new();
        for event in events.iter().filter(|event| event.range.start <= cell.start && cell.end <= event.range.end) {
            let step = match &event.action {
                Action::Set(value) => (true, *value),
                Action::Saw(data) => {
                    let seen = &data[cell.start - event.range.start..cell.end - event.range.start];
                    if seen.iter().any(|byte| *byte != seen[0]) {
                        return Err(format!("bytes {cell:?} are a mixture in {:?}", event.range));
                    }
                    (false, seen[0])
                }
            };
            steps.push((event.invoked, event.answered, step));
        }
        if !is_linearizable(&steps) {
            return Err(format!("bytes {cell:?} are no register: {steps:?}"));
        }
    }
    Ok(())
}

/// Steps are: invoked, answered, (sets or saw, value).
fn is_linearizable(steps: &[(u64, u64, (bool, u8))]) -> bool {
    assert!(steps.len() <= 128);
    let mut seen = HashSet::new();
    let mut open = vec![(0u128, 0u8)];
    while let Some((done, value)) = open.pop() {
        let rest = || steps.iter().enumerate().filter(|(index, _)| done >> index & 1 == 0);
        let Some(first_answer) = rest().map(|(_, (_, answered, _))| *answered).min() else {
            return true;
        };
        for (index, (invoked, _, (sets, operand))) in rest() {
            if *invoked > first_answer || !(*sets || *operand == value) {
                continue;
            }
            let next = (done | 1 << index, *operand);
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    false
}

#[test]
fn judge_when_known_histories_then_told_apart() {
    let event = |invoked, answered, action| Event { range: 0..512, invoked, answered, action };
    let saw = |value| Action::Saw(vec![value; 512]);
    let (one, two) = (event(0, 5, Action::Set(1)), event(1, 6, Action::Set(2)));
    // Concurrent writes: either order, but only one.
    let good = [one.clone(), two.clone(), event(2, 3, saw(2)), event(7, 8, saw(1)), event(9, 10, saw(1))];
    assert_eq!(judge(&good), Ok(()));
    assert!(judge(&[one.clone(), two, event(7, 8, saw(1)), event(9, 10, saw(2))]).is_err());
    // A lost write, a stale read, a value that never was, a mixture.
    assert!(judge(&[one.clone(), event(7, 8, saw(0))]).is_err());
    assert!(judge(&[one.clone(), event(6, 7, Action::Set(0)), event(8, 9, saw(1))]).is_err());
    assert!(judge(&[one.clone(), event(7, 8, saw(3))]).is_err());
    assert!(judge(&[one, event(7, 8, Action::Saw([[1; 256], [0; 256]].concat()))]).is_err());
}
