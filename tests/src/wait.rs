//! Waiting for a condition, with a deadline.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often a condition is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Looks at `condition` until it yields a value. Fails with the name of what was waited for once `deadline` has passed;
/// an error of the condition itself ends the wait at once.
pub fn until<T>(what: &str, deadline: Duration, mut condition: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let started = Instant::now();
    loop {
        if let Some(value) = condition()? {
            return Ok(value);
        }
        if started.elapsed() >= deadline {
            bail!("waited {} s in vain: {what}", deadline.as_secs_f32());
        }
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_when_condition_becomes_true_then_its_value() {
        let mut looks = 0;
        let value = until("three looks", Duration::from_secs(5), || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert_eq!(value.unwrap(), 3);
    }

    #[test]
    fn until_when_deadline_passes_then_error_names_the_condition() {
        let error = until::<()>("the moon", Duration::ZERO, || Ok(None)).unwrap_err();
        assert!(error.to_string().contains("the moon"));
    }
}
