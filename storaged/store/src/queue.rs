//! A queue between the threads that submit and the engine's own threads, which wakes a thread only if one sleeps.
//!
//! Unbounded on purpose: whoever submits bounds what is in flight (see [`crate::Store::submit`]).

use std::collections::VecDeque;
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
}

struct State<T> {
    items: VecDeque<T>,
    /// Sleeping consumers that nobody has woken yet. Whoever wakes one takes it off, so that a burst of pushes costs
    /// one system call.
    sleepers: usize,
    closed: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        let state = State { items: VecDeque::new(), sleepers: 0, closed: false };
        Self { state: Mutex::new(state), ready: Condvar::new() }
    }

    /// Appends an item, or gives it back when the queue is closed.
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut state = self.lock();
        if state.closed {
            return Err(item);
        }
        state.items.push_back(item);
        if state.sleepers > 0 {
            state.sleepers -= 1;
            drop(state);
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Waits for items and moves all of them into the empty `into`; false when the queue is closed and empty.
    pub(crate) fn take_all(&self, into: &mut VecDeque<T>) -> bool {
        let mut state = self.wait();
        mem::swap(&mut state.items, into);
        !into.is_empty()
    }

    /// Waits for one item; `None` when the queue is closed and empty.
    pub(crate) fn take(&self) -> Option<T> {
        self.wait().items.pop_front()
    }

    /// No more items are taken in; those that are there still come out.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_all();
    }

    fn wait(&self) -> MutexGuard<'_, State<T>> {
        let mut state = self.lock();
        while state.items.is_empty() && !state.closed {
            state.sleepers += 1;
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn queue_when_closed_then_drained_first() {
        let queue = Queue::new();
        queue.push(1).unwrap();
        queue.push(2).unwrap();
        queue.close();
        assert_eq!(queue.push(3), Err(3));
        assert_eq!(queue.take(), Some(1));
        let mut rest = VecDeque::new();
        assert!(queue.take_all(&mut rest));
        assert_eq!(rest, [2]);
        rest.clear();
        assert!(!queue.take_all(&mut rest));
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn queue_when_several_consumers_sleep_then_every_item_is_taken_once() {
        let queue = Arc::new(Queue::new());
        let consumers: Vec<_> = (0..4)
            .map(|_| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    let mut sum = 0u64;
                    while let Some(item) = queue.take() {
                        sum += item;
                    }
                    sum
                })
            })
            .collect();
        for item in 0..10_000 {
            queue.push(item).unwrap();
            if item % 100 == 0 {
                thread::yield_now();
            }
        }
        queue.close();
        let sum: u64 = consumers.into_iter().map(|consumer| consumer.join().unwrap()).sum();
        assert_eq!(sum, 9_999 * 10_000 / 2);
    }
}
