//! What a target remembers for one I_T nexus: the initiator port, and unit attentions that it has not seen.

use std::collections::BTreeMap;

use crate::unit_attention::{PendingAttentions, UnitAttention};

/// State of an I_T nexus, which lives as long as the iSCSI session.
#[derive(Clone, Debug)]
pub struct Nexus {
    initiator_name: String,
    isid: [u8; 6],
    /// Only units that a command has reached are in here: the first one finds POWER ON, RESET, OR BUS DEVICE RESET
    /// OCCURRED, which tells the host to read everything anew, so that nothing earlier has to be kept. Bounded by the
    /// mapped LUNs.
    pending: BTreeMap<u16, PendingAttentions>,
}

impl Nexus {
    /// The nexus of a new session. The first command to each unit is told of it (29h/00h).
    pub fn new(initiator_name: impl Into<String>, isid: [u8; 6]) -> Self {
        Self { initiator_name: initiator_name.into(), isid, pending: BTreeMap::new() }
    }

    /// iSCSI name of the initiator.
    pub fn initiator_name(&self) -> &str {
        &self.initiator_name
    }

    /// Initiator session identifier; with the name it is the initiator port.
    pub const fn isid(&self) -> [u8; 6] {
        self.isid
    }

    /// Establishes a unit attention condition for one unit, or for all that this nexus has used.
    pub fn raise(&mut self, lun: Option<u16>, event: UnitAttention) {
        match lun {
            Some(lun) => self.queue(lun).add(event),
            None => self.pending.values_mut().for_each(|pending| pending.add(event)),
        }
    }

    /// Forgets a LUN that is not mapped any more; if it is mapped again it is a new unit.
    pub fn forget(&mut self, lun: u16) {
        self.pending.remove(&lun);
    }

    /// What is pending for a unit, the next to be reported first; `None` when no command has reached it yet.
    pub fn pending(&self, lun: u16) -> Option<&[UnitAttention]> {
        self.pending.get(&lun).map(PendingAttentions::as_slice)
    }

    /// The condition to report for this unit now, which ends it.
    pub(crate) fn take(&mut self, lun: u16) -> Option<UnitAttention> {
        self.queue(lun).take()
    }

    /// Ends a condition on all units.
    pub(crate) fn clear_everywhere(&mut self, event: UnitAttention) {
        self.pending.values_mut().for_each(|pending| pending.clear(event));
    }

    fn queue(&mut self, lun: u16) -> &mut PendingAttentions {
        self.pending.entry(lun).or_insert_with(|| PendingAttentions::one(UnitAttention::PowerOnResetOrBusDeviceReset))
    }
}
