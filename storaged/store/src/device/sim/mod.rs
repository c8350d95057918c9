//! A disk in memory whose power can be cut and whose faults a seed chooses.
//!
//! Deterministic: the same seed, plan and calls give the same results, without a clock, a thread or the order of a hash
//! table. Stricter than a real disk, so that the engine cannot lean on luck:
//!
//! - [`write_durably`](Device::write_durably) makes only the given writes durable (as with forced unit access); nothing
//!   else that was written is any safer for it.
//! - Every write that was not synced is kept or lost by a power cut, in any subset, or torn between sectors of 512 bytes.
//! - When the power fails in one of a call's writes, all the others of the call may be there too: they run in parallel.
//!
//! Each read, each single write, each sync and each grow is one operation of the shared [`Power`]. The tests explore a crash at
//! every one of them: run once, read [`Power::operations`], then run again with [`Power::cut_at`] each number and go on with
//! [`SimDisk::after_power_cut`]; or call that (or [`SimDisk::fork`]) between any two calls of a single run.

mod fault;
mod media;
mod random;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rustix::io::Errno;

pub use self::fault::{Fault, FaultKind, FaultPlan, Horizon};
pub use self::media::SECTOR_LEN;
pub use self::random::Random;

use self::fault::{SyncFault, WriteFault};
use self::media::Media;
use super::power::{Begun, Power, PowerCut};
use super::{Device, DeviceStatistics, DeviceTraits, DeviceWrite, check_len, check_range, check_writes};

/// The disk. Share it in an `Arc`: a test keeps a handle while the engine runs on another.
#[derive(Debug)]
pub struct SimDisk {
    power: Power,
    traits: DeviceTraits,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Debug)]
struct State {
    media: Media,
    random: Random,
    faults: FaultPlan,
    operations: u64,
    calls: u64,
    /// Tried ones too: the numbers that the plan's faults go by.
    statistics: DeviceStatistics,
    delay_us: u64,
    hang_all: bool,
    hanging: usize,
    releases: u64,
}

impl SimDisk {
    /// An empty disk without faults, with its own power. The length is rounded up to whole pages.
    pub fn new(len_bytes: u64, seed: u64) -> Self {
        let len_bytes = len_bytes.next_multiple_of(super::DEVICE_ALIGN);
        Self::with_state(State::new(Media::new(len_bytes), seed))
    }

    fn with_state(state: State) -> Self {
        let traits = DeviceTraits { instant: true, direct: false, memory_align: 1 };
        Self { power: Power::new(), traits, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Puts it on another power supply, which other parts of the same node share.
    #[must_use]
    pub fn with_power(mut self, power: Power) -> Self {
        self.power = power;
        self
    }

    /// Says something else about itself than "in memory", so that the engine treats it as another disk.
    #[must_use]
    pub fn with_traits(mut self, traits: DeviceTraits) -> Self {
        self.traits = traits;
        self
    }

    /// As [`set_faults`](Self::set_faults).
    #[must_use]
    pub fn with_faults(self, faults: FaultPlan) -> Self {
        self.set_faults(faults);
        self
    }

    /// Its power supply.
    pub fn power(&self) -> &Power {
        &self.power
    }

    /// What goes wrong from now on; the counts go on.
    pub fn set_faults(&self, faults: FaultPlan) {
        self.state().faults = faults;
    }

    /// How large it may grow, bytes.
    pub fn set_space_limit(&self, space_limit: Option<u64>) {
        self.state().faults.space_limit = space_limit;
    }

    /// How large it may grow, bytes.
    pub fn space_limit(&self) -> Option<u64> {
        self.state().faults.space_limit
    }

    /// A bit turns over, durably.
    pub fn rot(&self, offset: u64, bit: u8) {
        self.state().media.rot(offset, bit);
    }

    /// Reads of the page at the offset fail with EIO until it is written again.
    pub fn make_unreadable(&self, offset: u64) {
        self.state().media.make_unreadable(offset);
    }

    /// An independent copy of this instant, unsynced writes included, with its own power that is on.
    pub fn fork(&self) -> Self {
        let mut state = self.state().clone();
        state.hanging = 0;
        Self { traits: self.traits, ..Self::with_state(state) }
    }

    /// The disk as it is when the power comes back after it failed at this instant, or where [`Power::cut_at`] said: what
    /// was synced is there, of the rest the seed decides. It has its own power, which is on, and no faults but the pages
    /// that cannot be read.
    pub fn after_power_cut(&self, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let media = self.state().media.after_power_cut(&mut random);
        Self { traits: self.traits, ..Self::with_state(State::new(media, random.next_u64())) }
    }

    /// How many operations have begun on this disk.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// How many writes a power cut may take now.
    pub fn unsynced_writes(&self) -> usize {
        self.state().media.unsynced()
    }

    /// A checksum of all that reads see: two disks with the same content have the same.
    pub fn digest(&self) -> u32 {
        self.state().media.digest()
    }

    /// How much longer the operations since the last call took, microseconds of simulated time, for the driver of the
    /// simulation to let pass.
    pub fn take_delay_us(&self) -> u64 {
        std::mem::take(&mut self.state().delay_us)
    }

    /// Every operation from now on hangs until [`release`](Self::release).
    pub fn hang(&self) {
        self.state().hang_all = true;
    }

    /// Waits until so many operations hang.
    pub fn wait_until_hanging(&self, operations: usize) {
        let mut state = self.state();
        while state.hanging < operations {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What hangs goes on, and nothing hangs any more but what the plan says.
    pub fn release(&self) {
        let mut state = self.state();
        state.hang_all = false;
        state.releases += 1;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One operation begins: true if the power fails in it.
    fn begin<'a>(&'a self, mut state: MutexGuard<'a, State>) -> io::Result<(MutexGuard<'a, State>, bool)> {
        let cut = match self.power.begin() {
            Begun::Powered => false,
            Begun::Cut => true,
            Begun::Off => return Err(PowerCut.into()),
        };
        if state.begin() {
            state.hanging += 1;
            self.changed.notify_all();
            let releases = state.releases;
            while state.releases == releases {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.hanging -= 1;
            if self.power.is_off() && !cut {
                return Err(PowerCut.into());
            }
        }
        Ok((state, cut))
    }

    /// The call's writes, and its number.
    fn write_all(&self, writes: &[DeviceWrite]) -> io::Result<(MutexGuard<'_, State>, u64)> {
        let mut state = self.state();
        check_writes(writes, state.media.len_bytes())?;
        check_overlap(writes)?;
        let call = state.calls;
        state.calls += 1;
        for (index, write) in writes.iter().enumerate() {
            let rest = writes.get(index..).unwrap_or_default();
            let (powered, cut) = self.begin(state)?;
            state = powered;
            if cut {
                // The next start decides; with the power off nobody reads before.
                rest.iter().for_each(|write| state.media.write(call, write.offset, write));
                return Err(PowerCut.into());
            }
            match state.count_write(write) {
                None => state.media.write(call, write.offset, write),
                Some(WriteFault::Lost) => {}
                Some(WriteFault::Misdirected { to }) => state.media.write(call, to, write),
                Some(WriteFault::Error) => {
                    let State { media, random, .. } = &mut *state;
                    rest.iter().for_each(|write| media.perhaps_write(call, write, random));
                    return Err(Errno::IO.into());
                }
            }
        }
        Ok((state, call))
    }
}

impl Device for SimDisk {
    fn traits(&self) -> DeviceTraits {
        self.traits
    }

    fn len_bytes(&self) -> u64 {
        self.state().media.len_bytes()
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let state = self.state();
        check_range("a read", offset, len as u64, state.media.len_bytes())?;
        let (mut state, cut) = self.begin(state)?;
        if cut {
            return Err(PowerCut.into());
        }
        let number = state.statistics.reads;
        state.statistics.reads += 1;
        if state.faults.fails_read(number) {
            return Err(Errno::IO.into());
        }
        let bytes = state.media.read(offset, len).ok_or(Errno::IO)?;
        state.statistics.bytes_read += len as u64;
        Ok(bytes.into())
    }

    fn write(&self, writes: &[DeviceWrite]) -> io::Result<()> {
        self.write_all(writes).map(drop)
    }

    fn write_durably(&self, writes: &[DeviceWrite]) -> io::Result<()> {
        let (state, call) = self.write_all(writes)?;
        let (mut state, cut) = self.begin(state)?;
        if cut {
            return Err(PowerCut.into());
        }
        match state.count_sync() {
            None => {}
            Some(SyncFault::Lie) => return Ok(()),
            Some(SyncFault::Error) => return state.fail_sync(),
        }
        state.media.sync_call(call);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let (mut state, cut) = self.begin(self.state())?;
        if cut {
            return Err(PowerCut.into());
        }
        match state.count_sync() {
            None => state.media.sync(),
            Some(SyncFault::Lie) => {}
            Some(SyncFault::Error) => return state.fail_sync(),
        }
        Ok(())
    }

    fn grow(&self, len_bytes: u64) -> io::Result<()> {
        check_len(len_bytes)?;
        let (mut state, cut) = self.begin(self.state())?;
        if len_bytes <= state.media.len_bytes() {
            return if cut { Err(PowerCut.into()) } else { Ok(()) };
        }
        if cut {
            state.media.perhaps_grow(len_bytes);
            return Err(PowerCut.into());
        }
        if state.faults.space_limit.is_some_and(|limit| len_bytes > limit) {
            return Err(Errno::NOSPC.into());
        }
        state.media.grow(len_bytes);
        Ok(())
    }

    fn statistics(&self) -> DeviceStatistics {
        self.state().statistics
    }
}

impl State {
    fn new(media: Media, seed: u64) -> Self {
        Self {
            media,
            random: Random::new(seed),
            faults: FaultPlan::none(),
            operations: 0,
            calls: 0,
            statistics: DeviceStatistics::default(),
            delay_us: 0,
            hang_all: false,
            hanging: 0,
            releases: 0,
        }
    }

    /// What the plan does before an operation; true if it hangs.
    fn begin(&mut self) -> bool {
        let number = self.operations;
        self.operations += 1;
        let mut hangs = self.hang_all;
        for fault in self.faults.of_operation(number) {
            match fault {
                Fault::BitRot { offset, bit, .. } => self.media.rot(*offset, *bit),
                Fault::Unreadable { offset, .. } => self.media.make_unreadable(*offset),
                Fault::Slow { delay_us, .. } => self.delay_us = self.delay_us.saturating_add(*delay_us),
                Fault::Hang { .. } => hangs = true,
                _ => {}
            }
        }
        hangs
    }

    fn count_write(&mut self, write: &DeviceWrite) -> Option<WriteFault> {
        let number = self.statistics.writes;
        self.statistics.writes += 1;
        self.statistics.bytes_written += write.len_bytes();
        self.faults.of_write(number)
    }

    fn count_sync(&mut self) -> Option<SyncFault> {
        let number = self.statistics.syncs;
        self.statistics.syncs += 1;
        self.faults.of_sync(number)
    }

    fn fail_sync(&mut self) -> io::Result<()> {
        self.media.drop_some(&mut self.random);
        Err(Errno::IO.into())
    }
}

/// Two writes of a call to the same place have no order, so a caller that makes them does not know what it wants.
fn check_overlap(writes: &[DeviceWrite]) -> io::Result<()> {
    let mut ranges: Vec<_> = writes.iter().map(|write| (write.offset, write.offset + write.len_bytes())).collect();
    ranges.sort_unstable();
    if ranges.iter().zip(ranges.iter().skip(1)).any(|((_, end), (start, _))| end > start) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "two writes of one call overlap"));
    }
    Ok(())
}
