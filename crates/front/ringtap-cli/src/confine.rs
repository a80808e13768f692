// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives up the rights of a verb once its devices are open: `-Z USER`, capabilities, system calls.

use anyhow::{Result, ensure};
use clap::Args;
use ringtap::{Confinement, User};
use ringtap_device::Kind;
use ringtap_net::affinity::Placement;

use crate::UsageError;
use crate::input::InputArgs;

const ONLY_ROOT: &str =
    "-Z: only root can put interrupts and NAPI back: leave out irq= and napi= of --cpu";

/// User that a verb becomes.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct UserArgs {
    /// Become USER once the devices are open; files are created as USER.
    #[arg(short = 'Z', long = "relinquish-privileges", value_name = "USER")]
    user: Option<User>,
}

impl UserArgs {
    pub(crate) fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// What a verb with these devices keeps.
    ///
    /// # Errors
    ///
    /// Only root can restore what the placement changes.
    pub(crate) fn keeping(
        &self,
        devices: impl IntoIterator<Item = &'static Kind>,
        cpu: &Placement,
    ) -> Result<Confinement> {
        ensure!(
            self.user.is_none() || !cpu.moves_interrupts(),
            UsageError(ONLY_ROOT.to_owned())
        );
        let has_interface = devices.into_iter().any(Kind::names_an_interface);
        Ok(Confinement {
            user: self.user.clone(),
            ..Confinement::capturing(has_interface, cpu)
        })
    }

    /// What a verb keeps that writes nothing but its standard output.
    pub(crate) fn reading(&self, input: &InputArgs, cpu: &Placement) -> Result<Confinement> {
        let keeps = self.keeping(input.kind(), cpu)?;
        Ok(match input.file() {
            Some(_) => keeps.only_reading(),
            None => keeps,
        })
    }

    /// What a recorder keeps, which creates `file`, and others with names like it.
    pub(crate) fn recording(
        &self,
        device: Option<&'static Kind>,
        cpu: &Placement,
        file: &str,
    ) -> Result<Confinement> {
        Ok(self.keeping(device, cpu)?.recording(file, cpu))
    }
}
