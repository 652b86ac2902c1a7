//! Rates that processors and network cards permit, where the protocol permits more.
//!
//! Published figures of one TCP connection between two tuned hosts: the cover letter of Linux's
//! series "`io_uring` zero copy rx" (Begunkov and Wei, 2025), AMD EPYC 9454, a card of 200 Gbit/s,
//! packets of 4096 bytes. No formula knows a machine: these bound what to expect of any.

use fullpipe_units::BitRate;

/// With ordinary sockets, where program and interrupts share a core.
const ONE_CORE: BitRate = BitRate::from_bps(62_600_000_000);
/// With ordinary sockets, where each has a core of its own.
const TWO_CORES: BitRate = BitRate::from_bps(82_200_000_000);
/// With zero-copy receive by `io_uring` (6.15), and a core for each.
const ZERO_COPY: BitRate = BitRate::from_bps(116_200_000_000);

/// Returns a sentence about what hosts do, if `rate` over this many connections is more for each
/// than a core is known to carry.
pub fn beyond_hosts(rate: BitRate, streams: u16) -> Option<String> {
    let each = BitRate::from_bps(rate.bps() / u64::from(streams.max(1)));
    (each > ONE_CORE).then(|| {
        format!(
            "hosts carry less than the protocol permits: the fastest connections that are published reach {ONE_CORE} \
             on one core, {TWO_CORES} on two, and {ZERO_COPY} with zero-copy receive"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rate_that_no_core_carries_is_remarked_on() {
        let rate = BitRate::from_mbps(94_000);
        let sentence = beyond_hosts(rate, 1).unwrap();
        assert!(
            sentence.contains("62.6 Gbit/s") && sentence.contains("116.2 Gbit/s"),
            "{sentence}"
        );
        assert_eq!(
            (beyond_hosts(rate, 2), beyond_hosts(BitRate::ZERO, 0)),
            (None, None)
        );
    }
}
