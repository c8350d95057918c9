//! Keeps continuations off each other's stacks, and out of locks that are held.
//!
//! The engine may complete an operation inside the call that starts it, which happens under the lock that orders a
//! shard; and a completion starts what waited for it. While a thread is in its *turn*, such continuations are put off
//! until the code that is running on it has come to its end.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

type Job = Box<dyn FnOnce()>;

struct Turn {
    active: Cell<bool>,
    later: RefCell<VecDeque<Job>>,
}

thread_local! {
    static TURN: Turn = const { Turn { active: Cell::new(false), later: RefCell::new(VecDeque::new()) } };
}

/// Runs `first` now, in this thread's turn, and then what was put off.
pub(super) fn enter(first: impl FnOnce()) {
    if TURN.with(|turn| turn.active.replace(true)) {
        return first();
    }
    let _end = End;
    first();
    while let Some(job) = TURN.with(|turn| turn.later.borrow_mut().pop_front()) {
        job();
    }
}

/// Runs `job` in this thread's turn: now, or after what is running.
pub(super) fn run(job: impl FnOnce() + 'static) {
    if is_active() {
        TURN.with(|turn| turn.later.borrow_mut().push_back(Box::new(job)));
    } else {
        enter(job);
    }
}

/// Whether something of this module's callers is running on this thread.
pub(super) fn is_active() -> bool {
    TURN.with(|turn| turn.active.get())
}

/// Ends the turn even if a completion panics.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        TURN.with(|turn| turn.active.set(false));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn run_when_in_a_turn_then_after_what_is_running_and_in_order() {
        let trace = Rc::new(RefCell::new(Vec::new()));
        let note = |text: &'static str| {
            let trace = Rc::clone(&trace);
            move || trace.borrow_mut().push(text)
        };
        enter(|| {
            run(note("third"));
            enter(note("first"));
            let fifth = note("fifth");
            run(move || run(fifth));
            run(note("fourth"));
            note("second")();
        });
        assert_eq!(*trace.borrow(), ["first", "second", "third", "fourth", "fifth"]);
        run(note("sixth"));
        assert_eq!(trace.borrow().last(), Some(&"sixth"));
        assert!(!is_active());
    }

    #[test]
    fn run_when_jobs_start_jobs_then_the_stack_does_not_grow() {
        fn chain(left: u32) {
            if left > 0 {
                run(move || chain(left - 1));
            }
        }
        chain(1_000_000);
    }
}
