//! Hosts for tests.

use fullpipe_record::HostSettings;

use crate::Hosts;

/// Two hosts with the defaults of Linux 6.18.
pub(crate) fn hosts() -> Hosts {
    Hosts { sender: HostSettings::of_linux_6_18(), receiver: HostSettings::of_linux_6_18() }
}
