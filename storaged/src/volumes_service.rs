//! The volumes service: what the store has, for gateways and tools.

use std::sync::Arc;

use holdfast_proto::ids::VolumeName;
use holdfast_proto::units::BlockSize;
use holdfast_proto::volumes::volumes_server::Volumes;
use holdfast_proto::volumes::{
    CreateRequest, CreateResponse, GetRequest, GetResponse, ListRequest, ListResponse, Usage, Volume, VolumeKind,
};
use holdfast_store::{Kind, NewVolume, Store, VolumeRecord};
use tonic::{Request, Response, Status};
use tracing::info;

use crate::error::volume_status;

pub(crate) struct VolumesService {
    pub(crate) store: Arc<dyn Store>,
}

#[tonic::async_trait]
impl Volumes for VolumesService {
    async fn list(&self, _request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let volumes = self.store.volumes().into_iter().map(to_wire).collect();
        Ok(Response::new(ListResponse { volumes }))
    }

    async fn create(&self, request: Request<CreateRequest>) -> Result<Response<CreateResponse>, Status> {
        let new = parse(&request.into_inner())?;
        let store = self.store.clone();
        let record = blocking(move || store.create_volume(new)).await?.map_err(|error| volume_status(&error))?;
        info!(volume = %record.id, name = %record.name, size_bytes = record.size_bytes, "volume created");
        Ok(Response::new(CreateResponse { volume: Some(to_wire(record)) }))
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let name = request.into_inner().name;
        let record = self.store.volumes().into_iter().find(|volume| volume.name.as_str() == name);
        let record = record.ok_or_else(|| Status::not_found(format!("no volume is named {name:?}")))?;
        let (store, id) = (self.store.clone(), record.id);
        let usage = blocking(move || store.usage(id)).await?;
        let usage = usage.map(|usage| Usage { allocated_bytes: usage.allocated_bytes });
        Ok(Response::new(GetResponse { volume: Some(to_wire(record)), usage }))
    }
}

/// Runs what waits for the disk on a thread that may wait.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Status::internal(error.to_string()))
}

fn parse(request: &CreateRequest) -> Result<NewVolume, Status> {
    let invalid = |error: &dyn std::fmt::Display| Status::invalid_argument(error.to_string());
    let name: VolumeName = request.name.parse().map_err(|error| invalid(&error))?;
    let block_size = BlockSize::try_from(request.block_size).map_err(|error| invalid(&error))?;
    let kind = match request.kind() {
        VolumeKind::Disk => Kind::Disk,
        VolumeKind::Null => Kind::Null,
        VolumeKind::Unspecified => return Err(Status::invalid_argument("no kind of volume is given")),
    };
    Ok(NewVolume { name, size_bytes: request.size_bytes, block_size, kind, read_only: request.read_only })
}

fn to_wire(record: VolumeRecord) -> Volume {
    let kind = match record.kind {
        Kind::Disk => VolumeKind::Disk,
        Kind::Null => VolumeKind::Null,
    };
    Volume {
        id: record.id.0,
        name: record.name.to_string(),
        naa: record.naa,
        size_bytes: record.size_bytes,
        block_size: record.block_size.bytes(),
        kind: kind.into(),
        read_only: record.read_only,
    }
}
