//! The targets that a gateway serves: one for each volume of the storage node, named after it, with the volume as LUN 0.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_iscsi::name::IscsiName;
use holdfast_proto::ids::VolumeId;
use holdfast_proto::volumes::volumes_client::VolumesClient;
use holdfast_proto::volumes::{ListRequest, Volume, VolumeKind};
use holdfast_scsi::{BlockSize, Limits, LogicalUnit, Target};
use tracing::{info, warn};

use crate::shared::Shared;
use crate::volume::Backend;

/// Begins the name of every target.
pub const TARGET_PREFIX: &str = "iqn.2026-11.io.holdfast:";

/// Time between two looks at the storage node's list of volumes.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);
/// Time that the node has for an answer.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// A target and the volume behind it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServedTarget {
    pub(crate) name: IscsiName,
    /// The volume's name.
    pub(crate) volume: String,
    pub(crate) volume_id: VolumeId,
    pub(crate) backend: Backend,
    /// The SCSI device that initiators see.
    pub(crate) device: Target,
}

/// All targets, at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Catalogue {
    by_name: HashMap<IscsiName, Arc<ServedTarget>>,
    in_order: Vec<Arc<ServedTarget>>,
}

impl Catalogue {
    /// Targets for `volumes`, through portal group `group`. Volumes that this version does not understand are left out, each
    /// with its reason.
    pub(crate) fn new(volumes: &[Volume], group: u16) -> (Self, Vec<String>) {
        let mut catalogue = Self::default();
        let mut refused = Vec::new();
        for volume in volumes {
            match served_target(volume, group) {
                Ok(target) => {
                    let target = Arc::new(target);
                    catalogue.by_name.insert(target.name.clone(), target.clone());
                    catalogue.in_order.push(target);
                }
                Err(reason) => refused.push(format!("{}: {reason}", volume.name)),
            }
        }
        (catalogue, refused)
    }

    pub(crate) fn target(&self, name: &IscsiName) -> Option<&Arc<ServedTarget>> {
        self.by_name.get(name)
    }

    /// In the order of volume ids.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Arc<ServedTarget>> {
        self.in_order.iter()
    }
}

fn served_target(volume: &Volume, group: u16) -> Result<ServedTarget, String> {
    let name = IscsiName::parse(&format!("{TARGET_PREFIX}{}", volume.name)).map_err(|error| error.to_string())?;
    let block_size = BlockSize::try_from(volume.block_size).map_err(|error| error.to_string())?;
    let volume_id = VolumeId(volume.id);
    let backend = match volume.kind() {
        VolumeKind::Disk => Backend::Stored(volume_id),
        VolumeKind::Null => Backend::Null,
        VolumeKind::Unspecified => return Err(format!("volume kind {} is not known", volume.kind)),
    };
    let unit = LogicalUnit {
        naa: volume.naa,
        serial: format!("{:016x}", volume.naa),
        name: volume.name.clone(),
        block_size,
        blocks: volume.size_bytes / u64::from(block_size.bytes()),
        read_only: volume.read_only,
        // A volume that keeps nothing has no space to give back.
        thin: backend != Backend::Null,
        descriptor_sense: false,
        limits: Limits::default(),
    };
    let device = Target {
        name: name.to_string(),
        relative_port: group,
        port_group: group,
        luns: BTreeMap::from([(0, Arc::new(unit))]),
    };
    Ok(ServedTarget { name, volume: volume.name.clone(), volume_id, backend, device })
}

/// Asks the storage node for its volumes once.
pub(crate) async fn fetch(shared: &Shared) -> Result<(), String> {
    let list = async {
        let channel = (shared.storage)().await?;
        let answer =
            VolumesClient::new(channel).list(ListRequest {}).await.map_err(|status| status.message().to_owned())?;
        Ok::<_, String>(answer.into_inner().volumes)
    };
    let volumes = tokio::time::timeout(LIST_TIMEOUT, list).await.map_err(|_| "no answer in time".to_owned())??;
    let (catalogue, refused) = Catalogue::new(&volumes, shared.id);
    if **shared.catalogue.load() != catalogue {
        for reason in refused {
            warn!(reason, "this volume cannot be served");
        }
        let known = shared.catalogue.load();
        for target in catalogue.targets().filter(|target| known.target(&target.name).is_none()) {
            if shared.access.is_left_open(&target.volume) {
                warn!(volume = target.volume, "the access file has no rules for this volume: everybody may use it");
            }
        }
        info!(targets = catalogue.in_order.len(), "serving the volumes of the storage node");
        shared.catalogue.store(Arc::new(catalogue));
    }
    shared.ready.store(true, Ordering::Release);
    Ok(())
}

/// Keeps the catalogue fresh. Sessions go on with what they logged in to; a new volume is there for the next login.
pub(crate) async fn keep_fresh(shared: Arc<Shared>) {
    let mut reachable = true;
    loop {
        tokio::time::sleep(REFRESH_INTERVAL).await;
        match fetch(&shared).await {
            Ok(()) => reachable = true,
            Err(cause) if reachable => {
                reachable = false;
                warn!(cause, "cannot read the list of volumes; serving those known");
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(id: u64, name: &str, kind: VolumeKind) -> Volume {
        Volume {
            id,
            name: name.to_owned(),
            naa: 0x3000_0000_0000_0000 + id,
            size_bytes: 1 << 30,
            block_size: 512,
            kind: kind.into(),
            read_only: false,
        }
    }

    #[test]
    fn catalogue_names_each_target_after_its_volume() {
        let volumes = [volume(1, "disk0", VolumeKind::Disk), volume(2, "null", VolumeKind::Null)];
        let (catalogue, refused) = Catalogue::new(&volumes, 7);
        assert!(refused.is_empty());
        let name = IscsiName::parse("iqn.2026-11.io.holdfast:disk0").unwrap();
        let target = catalogue.target(&name).unwrap();
        assert_eq!(target.backend, Backend::Stored(VolumeId(1)));
        assert_eq!(target.device.luns[&0].blocks, (1 << 30) / 512);
        assert_eq!(target.device.port_group, 7);
        let order: Vec<_> = catalogue.targets().map(|target| target.volume.as_str()).collect();
        assert_eq!(order, ["disk0", "null"]);
    }

    #[test]
    fn volume_of_an_unknown_kind_is_left_out_with_the_reason() {
        let mut odd = volume(1, "odd", VolumeKind::Disk);
        odd.kind = 77;
        let mut large = volume(2, "large", VolumeKind::Disk);
        large.block_size = 8192;
        let (catalogue, refused) = Catalogue::new(&[odd, large, volume(3, "fine", VolumeKind::Disk)], 1);
        assert_eq!(catalogue.targets().count(), 1);
        assert_eq!(
            refused,
            ["odd: volume kind 77 is not known", "large: block size 8192 is not supported: 512 and 4096 are"]
        );
    }
}
