//! The admin HTTP server: metrics and health. It shows nothing of what volumes hold and changes nothing.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use holdfast_store::Store;
use tokio::sync::watch;

use crate::metrics::Metrics;

#[derive(Clone)]
pub(crate) struct HttpState {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stopping: watch::Receiver<bool>,
}

/// `/metrics`, `/healthz` (the process answers) and `/readyz` (requests are served).
pub(crate) fn router(state: HttpState) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(state)
}

async fn metrics(State(state): State<HttpState>) -> Response {
    match state.metrics.text() {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn ready(State(state): State<HttpState>) -> (StatusCode, &'static str) {
    if *state.stopping.borrow() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping\n")
    } else if state.metrics.device_failed() || state.store.failure().is_some() {
        (StatusCode::SERVICE_UNAVAILABLE, "the device has failed\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}
