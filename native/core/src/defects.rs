//! Defects that certification seeds, to prove that its scenarios notice them. All are off otherwise.

/// Which defects a log has; `certify` switches them on by name.
#[derive(Debug, Clone, Copy, Default)]
pub struct Defects {
    /// A write that comes at an earlier time than its producer's last one is taken for a duplicate.
    pub age_by_clock: bool,
    /// A restart forgets what producers have written.
    pub producers_forgotten: bool,
    /// A new stream of a producer begins as if it had written nothing.
    pub sessions_forgotten: bool,
    /// LOCAL_DISK is announced for a write as soon as it has its LSN.
    pub told_before_sync: bool,
    /// The error of a sync is ignored.
    pub sync_error_ignored: bool,
    /// The error of a write to the log is ignored.
    pub write_error_ignored: bool,
}

impl Defects {
    /// Returns whether there is a defect of that name.
    pub fn switch_on(&mut self, name: &str) -> bool {
        let defect = match name {
            "age_by_clock" => &mut self.age_by_clock,
            "producers_forgotten" => &mut self.producers_forgotten,
            "sessions_forgotten" => &mut self.sessions_forgotten,
            "told_before_sync" => &mut self.told_before_sync,
            "sync_error_ignored" => &mut self.sync_error_ignored,
            "write_error_ignored" => &mut self.write_error_ignored,
            _ => return false,
        };
        *defect = true;
        true
    }
}
