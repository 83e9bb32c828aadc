//! The load generator, and a server to compare others with.

use headrace_load::{Config, start_floor};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// A load on an Arrow Flight server, described and reported as JSON.
#[pyclass(frozen)]
pub struct Load(headrace_load::Load);

#[pymethods]
impl Load {
    #[new]
    fn new(config: &str) -> PyResult<Load> {
        let config =
            Config::parse(config).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Load(headrace_load::Load::new(config)))
    }

    /// Runs the load to its end, without the interpreter's lock. Raises OSError if no client could begin.
    fn run(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.run())
            .map_err(|error| PyOSError::new_err(error.to_string()))
            .and_then(|report| {
                serde_json::to_string(&report)
                    .map_err(|error| PyValueError::new_err(error.to_string()))
            })
    }

    /// Returns how many writes were acknowledged so far at their first tier.
    fn acknowledged(&self) -> u64 {
        self.0.acknowledged()
    }
}

/// Starts a server that acknowledges every write and keeps nothing; it serves as long as the process lives.
/// Returns its port once it is bound.
#[pyfunction]
pub fn serve_floor() -> PyResult<u16> {
    start_floor()
        .map(|address| address.port())
        .map_err(|error| PyOSError::new_err(error.to_string()))
}
