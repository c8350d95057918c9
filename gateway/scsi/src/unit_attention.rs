//! Unit attention conditions (SAM-5, 5.14) and the queue of those that a nexus has not seen yet.

use crate::sense::{AdditionalSense, Sense, SenseKey};

/// An event that the other end has to be told of once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is the event of the additional sense code of the same name")]
pub enum UnitAttention {
    PowerOn,
    DeviceInternalReset,
    PowerOnResetOrBusDeviceReset,
    ScsiBusReset,
    BusDeviceResetFunction,
    ITNexusLoss,
    CommandsClearedByPowerLoss,
    CommandsClearedByAnotherInitiator,
    ReportedLunsDataHasChanged,
    InquiryDataHasChanged,
    CapacityDataHasChanged,
    ModeParametersChanged,
    ReservationsPreempted,
    ReservationsReleased,
    RegistrationsPreempted,
    AsymmetricAccessStateChanged,
    ThinProvisioningSoftThresholdReached,
}

impl UnitAttention {
    /// Additional sense code of the event.
    pub const fn additional_sense(self) -> AdditionalSense {
        match self {
            Self::PowerOn => AdditionalSense::POWER_ON,
            Self::DeviceInternalReset => AdditionalSense::DEVICE_INTERNAL_RESET,
            Self::PowerOnResetOrBusDeviceReset => AdditionalSense::POWER_ON_RESET_OR_BUS_DEVICE_RESET,
            Self::ScsiBusReset => AdditionalSense::SCSI_BUS_RESET,
            Self::BusDeviceResetFunction => AdditionalSense::BUS_DEVICE_RESET_FUNCTION,
            Self::ITNexusLoss => AdditionalSense::I_T_NEXUS_LOSS,
            Self::CommandsClearedByPowerLoss => AdditionalSense::COMMANDS_CLEARED_BY_POWER_LOSS,
            Self::CommandsClearedByAnotherInitiator => AdditionalSense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR,
            Self::ReportedLunsDataHasChanged => AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED,
            Self::InquiryDataHasChanged => AdditionalSense::INQUIRY_DATA_HAS_CHANGED,
            Self::CapacityDataHasChanged => AdditionalSense::CAPACITY_DATA_HAS_CHANGED,
            Self::ModeParametersChanged => AdditionalSense::MODE_PARAMETERS_CHANGED,
            Self::ReservationsPreempted => AdditionalSense::RESERVATIONS_PREEMPTED,
            Self::ReservationsReleased => AdditionalSense::RESERVATIONS_RELEASED,
            Self::RegistrationsPreempted => AdditionalSense::REGISTRATIONS_PREEMPTED,
            Self::AsymmetricAccessStateChanged => AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED,
            Self::ThinProvisioningSoftThresholdReached => AdditionalSense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED,
        }
    }

    /// Sense data that reports the event.
    pub const fn sense(self) -> Sense {
        Sense::new(SenseKey::UnitAttention, self.additional_sense())
    }

    /// Precedence level (SAM-5, unit attention condition precedence level): a lower number is reported earlier.
    /// Events of one level keep their order.
    const fn level(self) -> u8 {
        match self {
            Self::PowerOn | Self::DeviceInternalReset => 0,
            Self::PowerOnResetOrBusDeviceReset => 1,
            Self::ScsiBusReset => 2,
            Self::BusDeviceResetFunction => 3,
            Self::ITNexusLoss => 4,
            Self::CommandsClearedByPowerLoss => 5,
            _ => 6,
        }
    }
}

/// Pending events of one nexus for one logical unit. Each kind is there at most once, so the queue is never longer
/// than there are kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingAttentions(Vec<UnitAttention>);

impl PendingAttentions {
    pub(crate) fn one(event: UnitAttention) -> Self {
        Self(vec![event])
    }

    pub(crate) fn add(&mut self, event: UnitAttention) {
        if self.0.contains(&event) {
            return;
        }
        let at = self.0.partition_point(|pending| pending.level() <= event.level());
        self.0.insert(at, event);
    }

    /// The event to report now; it is not pending any more.
    pub(crate) fn take(&mut self) -> Option<UnitAttention> {
        if self.0.is_empty() { None } else { Some(self.0.remove(0)) }
    }

    pub(crate) fn clear(&mut self, event: UnitAttention) {
        self.0.retain(|pending| *pending != event);
    }

    pub(crate) fn as_slice(&self) -> &[UnitAttention] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_come_before_other_events_and_others_keep_their_order() {
        let mut pending = PendingAttentions::default();
        for event in [
            UnitAttention::CapacityDataHasChanged,
            UnitAttention::ITNexusLoss,
            UnitAttention::ReportedLunsDataHasChanged,
            UnitAttention::PowerOn,
            UnitAttention::ModeParametersChanged,
            UnitAttention::BusDeviceResetFunction,
        ] {
            pending.add(event);
        }
        let mut order = Vec::new();
        while let Some(event) = pending.take() {
            order.push(event);
        }
        assert_eq!(
            order,
            [
                UnitAttention::PowerOn,
                UnitAttention::BusDeviceResetFunction,
                UnitAttention::ITNexusLoss,
                UnitAttention::CapacityDataHasChanged,
                UnitAttention::ReportedLunsDataHasChanged,
                UnitAttention::ModeParametersChanged,
            ]
        );
    }

    #[test]
    fn an_event_that_happens_again_before_it_was_seen_is_reported_once() {
        let mut pending = PendingAttentions::default();
        for _ in 0..1000 {
            pending.add(UnitAttention::CapacityDataHasChanged);
        }
        assert_eq!(pending.as_slice(), [UnitAttention::CapacityDataHasChanged]);
    }

    #[test]
    fn sense_of_an_event_is_unit_attention() {
        let sense = UnitAttention::CapacityDataHasChanged.sense();
        assert_eq!(sense.key, SenseKey::UnitAttention);
        assert_eq!((sense.additional.code(), sense.additional.qualifier()), (0x2a, 0x09));
    }
}
