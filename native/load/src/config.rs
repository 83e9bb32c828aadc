//! The settings of a run, as JSON.

use serde::Deserialize;

use crate::acks::{TIERS, tier_of};
use crate::error::LoadError;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `grpc://HOST:PORT`, or `grpc+tls://HOST:PORT`.
    pub url: String,
    pub collection: String,
    #[serde(default = "one")]
    pub clients: usize,
    /// Writes a second of all clients together; without it each client writes as fast as its window allows.
    pub rate: Option<f64>,
    /// How many writes of a client may wait for their first acknowledgement if there is no rate.
    #[serde(default = "default_window")]
    pub window: u64,
    /// How many writes travel in a message.
    #[serde(default = "one")]
    pub coalesce: usize,
    /// Bytes of a row.
    #[serde(default = "default_payload")]
    pub payload: usize,
    #[serde(default)]
    pub warm_up_seconds: f64,
    #[serde(default)]
    pub seconds: f64,
    /// How many writes each client makes; then nothing ends by time.
    pub writes: Option<u64>,
    /// The tiers that the client asks for; without it, the client sends no options and expects all four.
    pub levels: Option<Vec<String>>,
    pub token: Option<String>,
    /// Certificates to trust, as PEM; without it those of the system.
    pub ca: Option<String>,
    #[serde(default = "default_silence")]
    pub silence_seconds: f64,
    #[serde(default = "default_threads")]
    pub threads: usize,
}

fn one() -> usize {
    1
}

fn default_window() -> u64 {
    1024
}

fn default_payload() -> usize {
    100
}

fn default_silence() -> f64 {
    120.0
}

fn default_threads() -> usize {
    2
}

impl Config {
    pub fn parse(json: &str) -> Result<Config, LoadError> {
        let config: Config =
            serde_json::from_str(json).map_err(|error| LoadError::Config(error.to_string()))?;
        config.check()?;
        Ok(config)
    }

    /// Returns which of the four tiers are to be announced.
    pub fn expected(&self) -> [bool; TIERS.len()] {
        let Some(levels) = &self.levels else {
            return [true; TIERS.len()];
        };
        TIERS.map(|tier| levels.iter().any(|level| level == tier))
    }

    fn check(&self) -> Result<(), LoadError> {
        let refuse = |what: &str| Err(LoadError::Config(what.to_owned()));
        if self.clients == 0 || self.coalesce == 0 || self.window == 0 || self.threads == 0 {
            return refuse("clients, coalesce, window and threads are at least 1");
        }
        if self
            .rate
            .is_some_and(|rate| !(rate.is_finite() && rate > 0.0))
        {
            return refuse("rate is above 0");
        }
        let times = [self.warm_up_seconds, self.seconds, self.silence_seconds];
        if times.iter().any(|time| !(time.is_finite() && *time >= 0.0)) {
            return refuse("times are numbers of seconds");
        }
        match self.writes {
            Some(0) => return refuse("writes is at least 1"),
            Some(writes) if !writes.is_multiple_of(self.coalesce as u64) => {
                return refuse("writes is a multiple of coalesce");
            }
            Some(_) if self.warm_up_seconds > 0.0 => {
                return refuse("a run that ends by its number of writes has no warm-up");
            }
            None if self.seconds == 0.0 => return refuse("either seconds or writes is needed"),
            _ => {}
        }
        let Some(levels) = &self.levels else {
            return Ok(());
        };
        if !levels.iter().any(|level| level == TIERS[0]) {
            return refuse("levels has MEMORY, by which the writes are told apart");
        }
        match levels.iter().find(|level| tier_of(level).is_none()) {
            Some(level) => refuse(&format!("levels has {level}, which is no tier")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(extra: &str) -> String {
        let json = format!(r#"{{"url": "grpc://127.0.0.1:1", "collection": "c"{extra}}}"#);
        Config::parse(&json).map_or_else(|error| error.to_string(), |_| "accepted".to_owned())
    }

    #[test]
    fn a_run_needs_an_end() {
        assert!(refusal("").contains("either seconds or writes"));
        assert_eq!(refusal(r#", "seconds": 1"#), "accepted");
        assert_eq!(refusal(r#", "writes": 10"#), "accepted");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(refusal(r#", "writes": 10, "coalesce": 3"#).contains("multiple of coalesce"));
        assert!(refusal(r#", "seconds": 1, "rate": 0"#).contains("rate"));
        assert!(refusal(r#", "seconds": 1, "levels": ["LOCAL_DISK"]"#).contains("has MEMORY"));
        assert!(refusal(r#", "seconds": 1, "levels": ["MEMORY", "TAPE"]"#).contains("TAPE"));
        assert!(refusal(r#", "seconds": 1, "speed": 9"#).contains("unknown field"));
    }
}
