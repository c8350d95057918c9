//! The gateway's HTTP port: metrics, health, and the session list.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use crate::shared::Shared;

/// `GET /metrics`, `/healthz` (the process answers), `/readyz` (targets are known and storage was reached), `/sessions`.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/sessions", get(sessions))
        .with_state(shared)
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    shared.metrics.reserved_bytes.set(i64::try_from(shared.memory.reserved_bytes()).unwrap_or(i64::MAX));
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &shared.metrics_registry) {
        Ok(()) => ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
            .into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    if shared.is_ready() {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the storage node cannot be reached, or the gateway is stopping\n")
            .into_response()
    }
}

async fn sessions(State(shared): State<Arc<Shared>>) -> Response {
    axum::Json(json!({ "sessions": shared.sessions.list() })).into_response()
}
