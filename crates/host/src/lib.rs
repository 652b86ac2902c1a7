//! The settings of this host that bear on bulk transfers: shown, advised, changed, read back,
//! undone.
//!
//! [`inspect_host()`] reads what the predictor takes, [`host_report()`] everything;
//! [`advise_changes()`] says what should change for a path. [`apply_changes()`] changes with the
//! way back in memory, as a lab does whose hosts end with it; a [`JournalDir`] with the way back on
//! the disk, where it outlives whoever made the change.
//!
//! All of it acts on the network namespace of the calling thread, through `/proc/sys/net` and
//! netlink; what concerns the machine is read from `/sys`. This room alone knows how a typed
//! [`Change`](fullpipe_record::Change) is written, as files, as messages to the kernel and as
//! commands.

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
mod network_meter;
mod render;
mod setting;
mod show;
mod sysctl;

pub use advise::{advise_changes, who_else};
pub use allow::{buffer_allowances, usual_path};
pub use apply::{AppliedChanges, ApplyError, apply_changes};
pub use defects::defects_behind;
pub use device_meter::{DeviceMeter, counts_missing_buffers, device_counts};
pub use elsewhere::other_system_commands;
pub use inspect::{inspect_host, kernel_version, settings_of};
pub use journal_dir::{ApplyOptions, JournalDir, JournalStep, check_changes, preview_changes};
pub use journal_error::{JournalError, JournalResult};
pub use managers::setting_managers;
pub use meter::{ProcessorMeter, thin_out_processors};
pub use nearby::MachineTree;
pub use network_meter::{NetworkMeter, parse_backlog_drops};
pub use render::{change_commands, commands_for_unread_host};
pub use setting::HostSystem;
pub use show::{SYSCTLS, host_report};
pub use sysctl::{SysctlError, SysctlResult, SysctlTree, is_network_sysctl};
