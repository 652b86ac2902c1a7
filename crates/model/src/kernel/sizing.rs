use super::WindowShare;
use crate::loss::CongestionControl;
use crate::prelude::*;

const MIB: ByteCount = ByteCount::from_mib(1);

/// A third value for `tcp_rmem` under which `window` is always at hand: twice it ÷ the advertised
/// share, rounded up to a whole MiB. Twice, because the kernel tunes towards two windows of what
/// arrives in a round trip (`tcp_rcv_space_adjust`).
pub fn tcp_rmem_max_for(settings: &HostSettings, window: ByteCount) -> ByteCount {
    whole_mebibytes(WindowShare::settled_share(settings).space_from_window(window * 2))
}

/// A third value for `tcp_wmem` under which `window` is always at hand: as many windows as the
/// kernel tunes for under this congestion control, rounded up to a whole MiB. More than one,
/// because what is lost must be kept while what follows is sent.
pub fn tcp_wmem_max_for(control: CongestionControl, window: ByteCount) -> ByteCount {
    whole_mebibytes(window * control.send_windows())
}

fn whole_mebibytes(size: ByteCount) -> ByteCount {
    MIB * size.get().div_ceil(MIB.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::ReceiveBuffer;
    use crate::test_fixture;
    use proptest::prelude::*;

    /// 1 Gbit/s × 100 ms.
    const NEED: ByteCount = ByteCount::new(12_500_000);

    #[test]
    fn a_gigabit_over_a_tenth_of_a_second() {
        // 50 MB at one half, 40 MB at 160/256, 25 MB and 37.5 MB.
        assert_eq!(
            tcp_rmem_max_for(&test_fixture::default_settings("5.15.0"), NEED),
            ByteCount::from_mib(48)
        );
        assert_eq!(
            tcp_rmem_max_for(&test_fixture::default_settings("6.18.44"), NEED),
            ByteCount::from_mib(39)
        );
        assert_eq!(
            tcp_wmem_max_for(CongestionControl::Cubic, NEED),
            ByteCount::from_mib(24)
        );
        assert_eq!(
            tcp_wmem_max_for(CongestionControl::Bbr, NEED),
            ByteCount::from_mib(36)
        );
    }

    #[test]
    fn sizes_at_their_ends() {
        assert_eq!(
            tcp_wmem_max_for(CongestionControl::Reno, ByteCount::ZERO),
            ByteCount::ZERO
        );
        assert_eq!(
            tcp_wmem_max_for(CongestionControl::Reno, ByteCount::new(u64::MAX)).get(),
            u64::MAX
        );
    }

    proptest! {
        #[test]
        fn the_size_found_carries_the_window(window in 1_000_000_u64..500_000_000) {
            let mut settings = test_fixture::default_settings("6.18.44");
            settings.tcp_rmem.max = tcp_rmem_max_for(&settings, ByteCount::new(window));
            let carried = ReceiveBuffer::autotuned_buffer(&settings).in_flight(ByteCount::new(1448));
            prop_assert!(carried.get() >= window);
        }
    }
}
