//! A store that completes an operation when the test says so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use holdfast_proto::ids::VolumeId;
use holdfast_store::{Completion, NewVolume, Operation, Output, Store, StoreError, Usage, VolumeError, VolumeRecord};

#[derive(Default)]
pub(crate) struct HeldStore {
    held: Mutex<VecDeque<Completion>>,
    failure: Mutex<Option<Arc<str>>>,
}

impl HeldStore {
    /// Number of operations that wait.
    pub(crate) fn count(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    /// Waits until so many operations wait.
    pub(crate) async fn submitted(&self, count: usize) {
        while self.count() < count {
            tokio::task::yield_now().await;
        }
    }

    /// Its disk fails, and no operation has noticed.
    pub(crate) fn fail(&self, why: &str) {
        *self.failure.lock().unwrap() = Some(why.into());
    }

    /// Completes the oldest one.
    pub(crate) fn complete_next(&self, result: Result<Output, StoreError>) {
        let done = self.held.lock().unwrap().pop_front().expect("an operation waits");
        done(result);
    }
}

impl Store for HeldStore {
    fn volumes(&self) -> Vec<VolumeRecord> {
        Vec::new()
    }

    fn create_volume(&self, _new: NewVolume) -> Result<VolumeRecord, VolumeError> {
        Err(VolumeError::Unavailable(StoreError::Closed))
    }

    fn submit(&self, _volume: VolumeId, _operation: Operation, done: Completion) {
        self.held.lock().unwrap().push_back(done);
    }

    fn usage(&self, _volume: VolumeId) -> Option<Usage> {
        None
    }

    fn failure(&self) -> Option<Arc<str>> {
        self.failure.lock().unwrap().clone()
    }

    fn close(&self) {}
}
