//! The host that both ends are taken to be, where nothing else is stated: this one.

use fullpipe_host::{SysctlResult, SysctlTree, inspect_host, kernel_version};
use fullpipe_model::kernel::default_settings;
use fullpipe_record::{HostSettings, KernelVersion};

use crate::commands::prelude::*;

pub(super) fn settings() -> Result<HostSettings> {
    this_host().map_err(usage_failure)
}

/// Returns the settings of this host: without /proc, those with which its kernel starts.
fn this_host() -> SysctlResult<HostSettings> {
    let tree = SysctlTree::of_this_host();
    if tree.has_tcp() {
        inspect_host(&tree)
    } else {
        kernel_version().map(default_settings)
    }
}

/// Returns a description of the host with this kernel.
pub(super) fn description(kernel: KernelVersion) -> String {
    let settings = if SysctlTree::of_this_host().has_tcp() {
        "its settings"
    } else {
        "the kernel's own settings, as there is no /proc/sys"
    };
    format!("as this host: Linux {kernel} with {settings}")
}
