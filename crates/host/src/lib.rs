//! The settings of this host that bear on bulk transfers: shown, advised, changed, read back, undone.
//!
//! [`inspect()`] reads what the predictor takes, [`show()`] everything; [`advise()`] says what should change for a
//! path. [`apply()`] changes with the way back in memory, as a lab does whose hosts end with it; a [`JournalDir`]
//! with the way back on the disk, where it outlives whoever made the change.
//!
//! All of it acts on the network namespace of the calling thread, through `/proc/sys/net` and netlink; what concerns
//! the machine is read from `/sys`. This room alone knows how a typed [`Change`](fullpipe_record::Change) is written,
//! as files, as messages to the kernel and as commands.

mod advise;
mod allow;
mod apply;
mod chain;
mod defects;
mod device_meter;
mod elsewhere;
mod entry;
mod folklore;
mod inspect;
mod journal;
mod journal_dir;
mod journal_error;
mod managers;
mod meter;
mod nearby;
mod render;
mod setting;
mod show;
mod sysctl;

pub use advise::{advise, who_else};
pub use allow::{allowances, usual_path};
pub use apply::{Applied, ApplyError, apply};
pub use defects::defects_behind;
pub use device_meter::{DeviceMeter, device_counts};
pub use elsewhere::elsewhere;
pub use inspect::{inspect, settings_of};
pub use journal_dir::{ApplyOptions, JournalDir, Step, check, planned};
pub use journal_error::JournalError;
pub use managers::managers;
pub use meter::{ProcessorMeter, thin_out_processors};
pub use nearby::MachineTree;
pub use render::{commands, commands_for_unread_host};
pub use setting::System;
pub use show::{SYSCTLS, show};
pub use sysctl::{SysctlError, SysctlTree, is_network_sysctl};
