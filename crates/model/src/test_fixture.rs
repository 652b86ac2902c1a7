//! Hosts and paths for tests: Linux defaults, and a path of a given rate and round-trip time.

use fullpipe_record::{Encapsulation, Framing, IpVersion};

use crate::calc::HostPair;
use crate::prelude::*;

/// A host with the defaults of Linux 6.18 that says it runs `kernel`.
pub(crate) fn default_settings(kernel: &str) -> HostSettings {
    HostSettings {
        kernel: kernel.parse().unwrap(),
        ..HostSettings::of_linux_6_18()
    }
}

/// Two hosts with the defaults of Linux 6.18.
pub(crate) fn default_hosts() -> HostPair {
    HostPair {
        sender: HostSettings::of_linux_6_18(),
        receiver: HostSettings::of_linux_6_18(),
    }
}

/// A clean Ethernet path with a queue of one BDP.
pub(crate) fn ethernet_path(rate: BitRate, rtt: Span) -> Path {
    let direction = PathDirection {
        rate: Some(rate),
        delay: Span::ZERO,
        queue: Some(rate.bytes_in(rtt)),
        loss: None,
        mtu: ByteCount::new(1500),
        framing: Framing::Ethernet,
        ip: IpVersion::V4,
        encapsulation: Encapsulation::default(),
        effects: fullpipe_record::Effects::default(),
    };
    Path::with_symmetric_rtt(&direction, rtt)
}
