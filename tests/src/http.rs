//! A client for the daemons' admin HTTP: GET, one request a connection.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Status code and body of an answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code, 200 for instance.
    pub status: u16,
    /// The body, as text.
    pub body: String,
}

/// GETs `path` from the server at `address`.
pub fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    // HTTP/1.0: the answer ends with the connection and is never chunked.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    parse(&String::from_utf8_lossy(&text)).with_context(|| format!("GET {path} from {address}"))
}

fn parse(text: &str) -> Result<Answer> {
    let (head, body) = text.split_once("\r\n\r\n").context("no end of the header")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok(Answer { status, body: body.to_owned() })
}

/// The samples of a Prometheus text exposition: name with labels → value.
#[derive(Clone, Debug, Default)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Reads `/metrics` of the server at `address`.
    pub fn read(address: SocketAddr) -> Result<Self> {
        let answer = get(address, "/metrics")?;
        ensure!(answer.status == 200, "/metrics answered {}", answer.status);
        Self::parse(&answer.body)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut samples = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            // Label values may hold blanks; the value follows the last blank (no timestamps are sent).
            let (name, value) = line.rsplit_once(' ').with_context(|| format!("no value in {line:?}"))?;
            samples.insert(name.to_owned(), value.parse().with_context(|| format!("value in {line:?}"))?);
        }
        Ok(Self(samples))
    }

    /// The sum over all label sets of the metric `name`; 0 when it is not there.
    pub fn sum(&self, name: &str) -> f64 {
        self.matching(|sample| sample == name)
    }

    /// The sum over all samples whose metric name (without labels) `wanted` accepts.
    pub fn matching(&self, wanted: impl Fn(&str) -> bool) -> f64 {
        let of = |sample: &str| wanted(sample.split('{').next().unwrap_or(sample));
        self.0.iter().filter(|(sample, _)| of(sample)).map(|(_, value)| value).sum()
    }

    /// Names with labels, for messages.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_when_labels_hold_blanks_then_value_is_after_the_last() {
        let text = "# TYPE a counter\na_total{x=\"b c\"} 2\na_total{x=\"d\"} 3\nb 1.5\n# EOF\n";
        let metrics = Metrics::parse(text).unwrap();
        assert_eq!(metrics.sum("a_total"), 5.0);
        assert_eq!(metrics.sum("b"), 1.5);
        assert_eq!(metrics.sum("a"), 0.0);
    }

    #[test]
    fn parse_when_answer_is_whole_then_status_and_body() {
        let answer = parse("HTTP/1.0 404 Not Found\r\nx: y\r\n\r\ngone").unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (404, "gone"));
    }
}
