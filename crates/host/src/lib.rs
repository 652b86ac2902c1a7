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
//! commands. On other systems than Linux, it knows the commands alone, and reads what a Linux host
//! has printed.

#![cfg_attr(not(target_os = "linux"), allow(dead_code))]

mod counters;
mod defects;
mod elsewhere;
mod inspect;
mod render;
mod sysctl;

pub use counters::{counts_missing_buffers, parse_backlog_drops};
pub use defects::defects_behind;
pub use elsewhere::other_system_commands;
pub use inspect::settings_of;
pub use render::{change_commands, commands_for_unread_host};
pub use sysctl::{SysctlError, SysctlResult, SysctlTree, is_network_sysctl};

cfg_if::cfg_if! {
    if #[cfg(target_os = "linux")] {
        mod advise;
        mod allow;
        mod apply;
        mod chain;
        mod device_meter;
        mod entry;
        mod folklore;
        mod journal;
        mod journal_dir;
        mod journal_error;
        mod managers;
        mod meter;
        mod nearby;
        mod network_meter;
        mod setting;
        mod show;

        pub use advise::{advise_changes, who_else};
        pub use allow::{buffer_allowances, usual_path};
        pub use apply::{AppliedChanges, ApplyError, apply_changes};
        pub use device_meter::{DeviceMeter, device_counts};
        pub use inspect::{inspect_host, kernel_version};
        pub use journal_dir::{
            ApplyOptions, JournalDir, JournalStep, check_changes, preview_changes,
        };
        pub use journal_error::{JournalError, JournalResult};
        pub use managers::setting_managers;
        pub use meter::{ProcessorMeter, thin_out_processors};
        pub use nearby::MachineTree;
        pub use network_meter::NetworkMeter;
        pub use setting::HostSystem;
        pub use show::{SYSCTLS, host_report};
    }
}
