//! Faults that a test or a certification injects into a log: a hook at its fault points, and a clock that is wrong.

use std::fmt::{self, Debug, Formatter};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headrace_core::{Clock, Hooks, SystemClock};
use pyo3::prelude::*;

/// An object of Python with the methods `reached`, `created` and `synced`.
pub struct PythonHooks(pub Py<PyAny>);

impl Debug for PythonHooks {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("PythonHooks")
    }
}

impl PythonHooks {
    fn call<'py>(&self, py: Python<'py>, method: &str, path: &Path, failed: Option<bool>) {
        let path = path.to_string_lossy();
        let called = match failed {
            None => self.0.bind(py).call_method1(method, (path,)),
            Some(failed) => self.0.bind(py).call_method1(method, (path, failed)),
        };
        if let Err(error) = called {
            error.write_unraisable(py, None);
        }
    }
}

impl Hooks for PythonHooks {
    fn reached(&self, point: &str) -> io::Result<()> {
        Python::attach(|py| {
            self.0
                .bind(py)
                .call_method1("reached", (point,))
                .map(drop)
                .map_err(|error| {
                    let errno = error
                        .value(py)
                        .getattr("errno")
                        .and_then(|errno| errno.extract::<i32>());
                    match errno {
                        Ok(errno) => io::Error::from_raw_os_error(errno),
                        Err(_) => io::Error::other(error.to_string()),
                    }
                })
        })
    }

    fn created(&self, path: &Path) {
        Python::attach(|py| self.call(py, "created", path, None));
    }

    fn synced(&self, path: &Path, result: &io::Result<()>) {
        Python::attach(|py| self.call(py, "synced", path, Some(result.is_err())));
    }
}

/// Clocks that are ahead by as many seconds as a file says, if it is there: that on the wall by the first number, and
/// that of the process by the second, if there is one.
#[derive(Debug)]
pub struct SteppedClock {
    pub file: PathBuf,
    pub right: SystemClock,
}

impl SteppedClock {
    fn ahead(&self, which: usize) -> i64 {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        text.split_whitespace()
            .nth(which)
            .and_then(|number| number.parse().ok())
            .unwrap_or(0)
    }
}

impl Clock for SteppedClock {
    fn wall_us(&self) -> u64 {
        self.right
            .wall_us()
            .saturating_add_signed(self.ahead(0) * 1_000_000)
    }

    fn running(&self) -> Duration {
        self.right.running() + Duration::from_secs(self.ahead(1).unsigned_abs())
    }
}
