//! The disk and the catalogue of a node, whose power is cut at every operation: each call is first made on copies that lose their power in
//! its first, second, ... operation, and what is left of those is recovered and compared.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

use bytes::Bytes;

use super::Node;
use super::compare::Found;
use super::model::Model;
use crate::catalogue::model::ModelCatalogue;
use crate::catalogue::{Catalogue, CatalogueError, CatalogueStatistics, Changes, Visitor};
use crate::device::sim::Random;
use crate::device::{Device, DeviceStatistics, DeviceTraits, DeviceWrite, Power, SimDisk};
use crate::machine::{Bounds, Machine};
use crate::recovery::recover;

/// A node and its watcher.
pub(super) struct Probe {
    pub(super) node: Node,
    pub(super) bounds: Bounds,
    /// What has to be found after a cut: what was acknowledged, and that with the batch in flight.
    pub(super) durable: RwLock<Model>,
    pub(super) pending: RwLock<Model>,
    random: Mutex<Random>,
    cuts: AtomicU64,
    /// Which cut ends this life; `None`: the power is never cut.
    last_cut: Option<u64>,
    /// What it left.
    next: Mutex<Option<(Node, Model)>>,
    failure: Mutex<Option<String>>,
}

impl Probe {
    pub(super) fn new(node: Node, model: Model, bounds: Bounds, seed: u64, last_cut: Option<u64>) -> Self {
        Self {
            node,
            bounds,
            durable: RwLock::new(model.clone()),
            pending: RwLock::new(model),
            random: Mutex::new(Random::new(seed)),
            cuts: AtomicU64::new(0),
            last_cut,
            next: Mutex::new(None),
            failure: Mutex::new(None),
        }
    }

    /// Where this life has ended, or what was wrong.
    pub(super) fn outcome(&self) -> Result<Option<(Node, Model)>, String> {
        match self.failure.lock().unwrap().take() {
            Some(failure) => Err(failure),
            None => Ok(self.next.lock().unwrap().take()),
        }
    }

    /// How often the power was cut.
    pub(super) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }

    /// Whether the disk may fail.
    pub(super) fn has_faults(&self) -> bool {
        self.last_cut.is_none()
    }

    fn seed(&self) -> u64 {
        self.random.lock().unwrap().next_u64()
    }

    fn is_over(&self) -> bool {
        self.last_cut.is_none() || self.failure.lock().unwrap().is_some() || self.next.lock().unwrap().is_some()
    }

    /// Cuts the power in every operation of a call of the device.
    fn cut_in(&self, call: impl Fn(&SimDisk) -> io::Result<()>) {
        for operation in 0.. {
            if self.is_over() {
                return;
            }
            let fork = self.node.disk.fork();
            fork.set_space_limit(self.node.disk.space_limit());
            fork.power().cut_at(operation);
            if call(&fork).is_ok() || !fork.power().is_off() {
                return;
            }
            let catalogue = self.node.catalogue.fork(Power::new(), self.seed());
            self.after_cut(&format!("operation {operation} of a call"), &fork, &catalogue);
        }
    }

    /// The power is cut at this instant, with that left in the catalogue.
    fn after_cut(&self, when: &str, disk: &SimDisk, catalogue: &ModelCatalogue) {
        self.cuts.fetch_add(1, Ordering::Relaxed);
        let copy = || Node {
            disk: disk.after_power_cut(self.seed()),
            catalogue: catalogue.fork(Power::new(), self.seed()),
            superblock: self.node.superblock.clone(),
            bounds: self.bounds,
        };
        let (durable, pending) = (self.durable.read().unwrap(), self.pending.read().unwrap());
        let mut node = copy();
        // Another cut, in the recovery.
        if self.random.lock().unwrap().one_in(8) {
            node.disk.power().cut_at(self.random.lock().unwrap().below(3));
            // Whether it comes before the end of the recovery or behind it.
            drop(recover::<usize>(&node.disk, &node.catalogue, &node.superblock, self.bounds));
            node.disk = node.disk.after_power_cut(self.seed());
        }
        match look(&mut node, self.bounds, &[&durable, &pending], self.cuts.load(Ordering::Relaxed).is_multiple_of(8)) {
            Ok((_, index)) => {
                if self.last_cut.is_some_and(|last| self.cuts.load(Ordering::Relaxed) >= last) {
                    let model = if index == 0 { durable.clone() } else { pending.clone() };
                    *self.next.lock().unwrap() = Some((node, model));
                }
            }
            Err(detail) => {
                let detail = format!("power cut {} in {when}: {detail}", self.cuts.load(Ordering::Relaxed));
                *self.failure.lock().unwrap() = Some(detail);
            }
        }
    }
}

/// Starts a node; which of the models it has.
pub(super) fn look(
    node: &mut Node,
    bounds: Bounds,
    models: &[&Model],
    check: bool,
) -> Result<(Machine<usize>, usize), String> {
    let recovered = recover(&node.disk, &node.catalogue, &node.superblock, bounds);
    let mut machine = recovered.map_err(|error| format!("it does not start: {error}"))?.machine;
    let mut found = Found { machine: &mut machine, device: &node.disk, catalogue: &node.catalogue };
    let index = found.is_one_of(models)?;
    if check {
        found.is_clean()?;
    }
    Ok((machine, index))
}

impl Device for Probe {
    fn traits(&self) -> DeviceTraits {
        self.node.disk.traits()
    }

    fn len_bytes(&self) -> u64 {
        self.node.disk.len_bytes()
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.node.disk.read(offset, len)
    }

    fn write(&self, writes: &[DeviceWrite]) -> io::Result<()> {
        self.cut_in(|disk| disk.write(writes));
        self.node.disk.write(writes)
    }

    fn write_durably(&self, writes: &[DeviceWrite]) -> io::Result<()> {
        self.cut_in(|disk| disk.write_durably(writes));
        self.node.disk.write_durably(writes)
    }

    fn sync(&self) -> io::Result<()> {
        self.cut_in(Device::sync);
        self.node.disk.sync()
    }

    fn grow(&self, len_bytes: u64) -> io::Result<()> {
        self.cut_in(|disk| disk.grow(len_bytes));
        self.node.disk.grow(len_bytes)
    }

    fn statistics(&self) -> DeviceStatistics {
        self.node.disk.statistics()
    }
}

impl Catalogue for Probe {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, CatalogueError> {
        self.node.catalogue.get(key)
    }

    fn range(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), CatalogueError> {
        self.node.catalogue.range(from, to, visit)
    }

    fn commit(&self, changes: &Changes) -> Result<(), CatalogueError> {
        if !self.is_over() {
            let before = self.node.catalogue.fork(Power::new(), self.seed());
            self.after_cut("a commit, before it", &self.node.disk.fork(), &before);
        }
        self.node.catalogue.commit(changes)?;
        if !self.is_over() {
            let after = self.node.catalogue.fork(Power::new(), self.seed());
            self.after_cut("a commit, behind it", &self.node.disk.fork(), &after);
        }
        Ok(())
    }

    fn statistics(&self) -> CatalogueStatistics {
        self.node.catalogue.statistics()
    }
}
