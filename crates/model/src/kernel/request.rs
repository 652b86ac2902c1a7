use crate::prelude::*;

use super::defaults::request_max;

/// `TCP_SKB_MIN_TRUESIZE` on 64 bit.
const MIN_RCVBUF: ByteCount = ByteCount::new(2304);
/// Twice `TCP_SKB_MIN_TRUESIZE`.
const MIN_SNDBUF: ByteCount = ByteCount::new(4608);
/// `INT_MAX / 2`: what is stored must fit a C `int`.
const MAX_REQUEST: ByteCount = ByteCount::new((1 << 30) - 1);

/// Returns the buffer that the kernel stores when a program asks for `SO_RCVBUF`: the request, at
/// most `net.core.rmem_max`, twice; other systems store the request.
pub fn stored_rcvbuf(settings: &HostSettings, request: ByteCount) -> ByteCount {
    stored_size(settings, request, rmem_max(settings), MIN_RCVBUF)
}

/// Returns the buffer that the kernel stores when a program asks for `SO_SNDBUF`: the request, at
/// most `net.core.wmem_max`, twice; other systems store the request.
pub fn stored_sndbuf(settings: &HostSettings, request: ByteCount) -> ByteCount {
    stored_size(settings, request, wmem_max(settings), MIN_SNDBUF)
}

/// `net.core.rmem_max`, or the kernel's own default where it is not visible.
pub fn rmem_max(settings: &HostSettings) -> ByteCount {
    settings
        .rmem_max
        .unwrap_or_else(|| request_max(settings.kernel))
}

/// `net.core.wmem_max`, or the kernel's own default where it is not visible.
pub fn wmem_max(settings: &HostSettings) -> ByteCount {
    settings
        .wmem_max
        .unwrap_or_else(|| request_max(settings.kernel))
}

fn stored_size(
    settings: &HostSettings,
    request: ByteCount,
    max: ByteCount,
    least: ByteCount,
) -> ByteCount {
    let granted = request.min(max).min(MAX_REQUEST);
    match &settings.system {
        Some(_) => granted,
        None => (granted * 2).max(least),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture;

    #[test]
    fn requests_are_doubled_and_bounded() {
        let settings = test_fixture::default_settings("6.18.44");
        for (asked, rcvbuf, sndbuf) in [
            (65_536, 131_072, 131_072),
            (50_000, 100_000, 100_000),
            (8 << 20, 8_388_608, 8_388_608),
            (u64::MAX, 8_388_608, 8_388_608),
            (1000, 2304, 4608),
            (0, 2304, 4608),
        ] {
            assert_eq!(
                stored_rcvbuf(&settings, ByteCount::new(asked)).get(),
                rcvbuf,
                "{asked}"
            );
            assert_eq!(
                stored_sndbuf(&settings, ByteCount::new(asked)).get(),
                sndbuf,
                "{asked}"
            );
        }
    }

    #[test]
    fn a_limit_that_is_not_visible_is_the_kernels_default() {
        let hidden = |kernel| HostSettings {
            rmem_max: None,
            wmem_max: None,
            ..test_fixture::default_settings(kernel)
        };
        let asked = ByteCount::from_mib(8);
        assert_eq!(stored_rcvbuf(&hidden("6.1.0"), asked).get(), 425_984);
        assert_eq!(
            stored_sndbuf(&hidden("6.18.0"), asked),
            ByteCount::from_mib(8)
        );
    }

    #[test]
    fn nothing_stored_exceeds_an_int() {
        let settings = HostSettings {
            rmem_max: Some(ByteCount::new(u64::MAX)),
            ..test_fixture::default_settings("6.18.0")
        };
        assert_eq!(
            stored_rcvbuf(&settings, ByteCount::new(u64::MAX)).get(),
            (1 << 31) - 2
        );
    }
}
