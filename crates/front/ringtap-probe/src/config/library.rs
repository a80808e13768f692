// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables `[[analysis]]` of `kind = "library"`.

use std::path::PathBuf;
use std::time::Duration;

use super::{AnalysisTable, ConfigError, ConfigText};
use crate::library::LibraryPlan;

/// Most processes of one library.
const MOST_PROCESSES: u32 = 64;
/// Time after which a process that does not answer is killed.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest timeout: processes send a message each 0.5 s.
const LEAST_TIMEOUT: Duration = Duration::from_secs(2);
/// First pause before a process is started again.
const PAUSE: Duration = Duration::from_secs(1);

impl ConfigText<'_> {
    pub(super) fn library(
        &self,
        table: &AnalysisTable,
        every: Option<Duration>,
    ) -> Result<LibraryPlan, ConfigError> {
        self.refuse_unused(table)?;
        let Some(library) = &table.library else {
            let why = "needs library = the path of a shared library";
            return Err(self.error("kind", &table.kind, why));
        };
        let path = PathBuf::from(library.get_ref());
        if !path.is_absolute() || !path.is_file() {
            let why = "expected the absolute path of a shared library that exists";
            return Err(self.error("library", library, why));
        }
        let timeout = self.time("timeout", table.timeout.as_ref())?;
        if let (Some(time), Some(text)) = (timeout, &table.timeout)
            && time < LEAST_TIMEOUT
        {
            return Err(self.error("timeout", text, "expected 2s or longer"));
        }
        let name = table.name.as_ref().map(|name| name.get_ref().clone());
        let settings = table.settings.as_ref();
        Ok(LibraryPlan {
            name: name.unwrap_or_else(|| "library".to_owned()),
            library: path,
            settings: settings.map_or_else(String::new, |text| text.get_ref().clone()),
            processes: self.number("processes", table.processes.as_ref(), MOST_PROCESSES)?,
            every: self.time("every", table.every.as_ref())?.or(every),
            timeout: timeout.unwrap_or(TIMEOUT),
            pause: self.time("pause", table.pause.as_ref())?.unwrap_or(PAUSE),
        })
    }
}
