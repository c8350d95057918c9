//! One HTTP GET, for what gateways tell as JSON.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Time that the other side has.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The JSON document at `http://{address}{path}`.
pub(crate) async fn get_json(address: &str, path: &str) -> Result<serde_json::Value> {
    let fetch = async {
        let uri = format!("http://{address}{path}").parse().context("not an address; write HOST:PORT")?;
        let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let response = client.get(uri).await?;
        if !response.status().is_success() {
            bail!("answered {}", response.status());
        }
        let body = response.into_body().collect().await?.to_bytes();
        Ok(serde_json::from_slice(&body)?)
    };
    let result = tokio::time::timeout(TIMEOUT, fetch).await.unwrap_or_else(|_| bail!("no answer in time"));
    result.with_context(|| format!("cannot read http://{address}{path}"))
}
