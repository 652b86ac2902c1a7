use fullpipe_record::BufferTriple;

use crate::prelude::*;

/// Returns the settings with which an untouched host of this kernel starts, where memory is ample
/// (a tuned buffer never exceeds 1/128 of the free memory) and no distribution chose otherwise.
///
/// Of the buffers (`tcp_init`, `net/core/sock.c`): `tcp_rmem[2]` is 4 MiB before 3.4, then 6 MiB,
/// and 32 MiB since 6.16 (572be9bf9d0d); `tcp_rmem[1]` 87 380 bytes before 4.20, then 128 KiB
/// (a337531b942b); `tcp_wmem[2]` always 4 MiB; `rmem_max` and `wmem_max` 212 992 bytes (early
/// kernels had from 124 928 to 229 376, by the size of their structures), and 4 MiB since 6.18
/// (a6d4f25888b8). `tcp_adv_win_scale` is 2 before 3.4 and 1 since (b49960a05e32). The rest is as
/// in 6.18, although before 2.6.19 another congestion control was the default.
pub fn default_settings(kernel: KernelVersion) -> HostSettings {
    let tcp_rmem_default = if kernel < LARGE_AT_FIRST {
        87_380
    } else {
        131_072
    };
    HostSettings {
        kernel,
        tcp_rmem: default_triple(tcp_rmem_default, tcp_rmem_max(kernel)),
        tcp_wmem: default_triple(16_384, ByteCount::from_mib(4)),
        rmem_max: Some(request_max(kernel)),
        wmem_max: Some(request_max(kernel)),
        adv_win_scale: if kernel < HALF { 2 } else { 1 },
        ..HostSettings::of_linux_6_18()
    }
}

fn default_triple(default: u64, max: ByteCount) -> BufferTriple {
    BufferTriple {
        min: ByteCount::new(4096),
        default: ByteCount::new(default),
        max,
    }
}

/// `net.core.rmem_max` and `net.core.wmem_max` of an untouched host.
pub(super) fn request_max(kernel: KernelVersion) -> ByteCount {
    if kernel < LARGE_REQUESTS {
        ByteCount::new(212_992)
    } else {
        ByteCount::from_mib(4)
    }
}

fn tcp_rmem_max(kernel: KernelVersion) -> ByteCount {
    ByteCount::from_mib(match kernel {
        kernel if kernel < HALF => 4,
        kernel if kernel < LARGE_WINDOWS => 6,
        _ => 32,
    })
}

/// Half of a receive buffer is advertised, no longer three quarters, and it grew to make up for
/// that.
const HALF: KernelVersion = KernelVersion::new(3, 4);
const LARGE_AT_FIRST: KernelVersion = KernelVersion::new(4, 20);
const LARGE_WINDOWS: KernelVersion = KernelVersion::new(6, 16);
const LARGE_REQUESTS: KernelVersion = KernelVersion::new(6, 18);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{ReceiveBuffer, send_buffer};
    use crate::window;
    use fullpipe_units::Span;

    fn of(kernel: &str) -> HostSettings {
        default_settings(kernel.parse().unwrap())
    }

    #[test]
    fn buffers_of_every_age() {
        for (kernel, rmem_default, rmem_mib, request) in [
            ("2.6.32", 87_380, 4, 212_992),
            ("3.2.0", 87_380, 4, 212_992),
            ("3.4.0", 87_380, 6, 212_992),
            ("4.19.0", 87_380, 6, 212_992),
            ("5.15.0", 131_072, 6, 212_992),
            ("6.9.0", 131_072, 6, 212_992),
            ("6.15.0", 131_072, 6, 212_992),
            ("6.16.0", 131_072, 32, 212_992),
            ("6.17.0", 131_072, 32, 212_992),
            ("6.18.0", 131_072, 32, 4_194_304),
            ("7.0", 131_072, 32, 4_194_304),
        ] {
            let host = of(kernel);
            assert_eq!(host.tcp_rmem.default.get(), rmem_default, "{kernel}");
            assert_eq!(host.tcp_rmem.max, ByteCount::from_mib(rmem_mib), "{kernel}");
            assert_eq!(host.rmem_max, Some(ByteCount::new(request)), "{kernel}");
            assert_eq!(send_buffer(&host, None), ByteCount::from_mib(4), "{kernel}");
        }
    }

    #[test]
    fn linux_6_18_is_what_the_records_know() {
        assert_eq!(of("6.18.0"), HostSettings::of_linux_6_18());
    }

    #[test]
    fn the_largest_windows_by_default() {
        for (kernel, mebibytes, scale) in [
            ("2.6.32", 3.0, 7),
            ("3.2.0", 3.0, 7),
            ("3.4.0", 3.0, 7),
            ("5.15.0", 3.0, 7),
            ("6.8.0", 3.75, 7),
            ("6.12.0", 3.75, 7),
            ("6.16.0", 20.0, 10),
            ("6.18.0", 20.0, 10),
        ] {
            let buffer = ReceiveBuffer::autotuned_buffer(&of(kernel));
            assert_eq!(
                buffer.max_window(),
                ByteCount::from_mib(1).scale_by(mebibytes),
                "{kernel}"
            );
            assert_eq!(buffer.window_shift(), Some(scale), "{kernel}");
        }
    }

    #[test]
    fn since_6_16_the_sender_is_the_bottleneck_by_default() {
        let rtt = Span::from_millis(100);
        let rates = |kernel| {
            let host = of(kernel);
            [
                ReceiveBuffer::autotuned_buffer(&host).max_window(),
                send_buffer(&host, None),
            ]
            .map(|window| window::rate_of_window(window, rtt).to_string())
        };
        assert_eq!(rates("5.15.0"), ["251.7 Mbit/s", "335.5 Mbit/s"]);
        assert_eq!(rates("6.18.0"), ["1.678 Gbit/s", "335.5 Mbit/s"]);
    }
}
