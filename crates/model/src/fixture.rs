//! Hosts and paths for tests: Linux defaults, and a line that is told by rate and round-trip time.

use fullpipe_record::{BufferTriple, Framing, HostSettings, Path, PathDirection};
use fullpipe_units::{BitRate, ByteCount, Span};

/// A host with the defaults of Linux 6.18 that says it runs `kernel`.
pub(crate) fn settings(kernel: &str) -> HostSettings {
    let triple = |min, default, max| BufferTriple {
        min: ByteCount::new(min),
        default: ByteCount::new(default),
        max: ByteCount::new(max),
    };
    HostSettings {
        kernel: kernel.parse().unwrap(),
        tcp_rmem: triple(4096, 131_072, 33_554_432),
        tcp_wmem: triple(4096, 16_384, 4_194_304),
        rmem_max: Some(ByteCount::from_mib(4)),
        wmem_max: Some(ByteCount::from_mib(4)),
        window_scaling: true,
        timestamps: true,
        sack: true,
        moderate_rcvbuf: true,
        adv_win_scale: 1,
        congestion_control: "cubic".to_owned(),
        available_congestion_controls: vec!["reno".to_owned(), "cubic".to_owned(), "bbr".to_owned()],
    }
}

/// A clean Ethernet path with a queue of one BDP.
pub(crate) fn path(rate: BitRate, rtt: Span) -> Path {
    let direction = PathDirection {
        rate: Some(rate),
        delay: Span::ZERO,
        queue: Some(rate.bytes_in(rtt)),
        loss: None,
        mtu: ByteCount::new(1500),
        framing: Framing::Ethernet,
    };
    Path::symmetric(&direction, rtt)
}
