//! Hosts for tests.

use fullpipe_record::HostSettings;

use crate::HostPair;

/// Two hosts with the defaults of Linux 6.18.
pub(crate) fn default_hosts() -> HostPair {
    HostPair {
        sender: HostSettings::of_linux_6_18(),
        receiver: HostSettings::of_linux_6_18(),
    }
}
