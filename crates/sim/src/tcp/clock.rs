use std::num::NonZeroU32;

use fullpipe_units::{Span, Time};

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// Milliseconds of a host's clock, as a timestamp option carries them (RFC 7323, section 3;
/// `tcp_time_stamp_ms`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TimestampValue(u32);

impl TimestampValue {
    /// Returns the milliseconds as the option carries them.
    pub fn as_millis(self) -> u32 {
        self.0
    }

    /// Milliseconds since `earlier`; zero if that is later.
    pub(crate) fn millis_since(self, earlier: Self) -> u64 {
        u64::from(self.0.saturating_sub(earlier.0))
    }
}

/// The clocks of a host: nanoseconds since it booted, and the ticks by which its kernel's timers
/// go.
///
/// CUBIC's curve, timeouts and BBR's filters move in ticks (`jiffies`), of which a kernel has 100,
/// 250, 300 or 1000 a second (`CONFIG_HZ`).
#[derive(Debug, Clone, Copy)]
pub struct HostClock {
    ticks_per_second: u32,
    /// Nanoseconds of a tick, where that is a whole number.
    tick: Option<NonZeroU32>,
    up: Span,
    last: ClockReading,
}

/// The readings of a clock at a moment. Most moments are asked for several times.
#[derive(Debug, Clone, Copy)]
struct ClockReading {
    now: Time,
    micros: u64,
    ticks: u64,
}

impl HostClock {
    /// A clock with `ticks_per_second`, of a host that has been up for `up` at [`Time::ZERO`]; its
    /// fraction of a tick, or of a millisecond, is the phase of the host against the others.
    pub fn new(ticks_per_second: u32, up: Span) -> Self {
        let ticks_per_second = ticks_per_second.clamp(1, 1_000_000);
        let tick = SECOND
            .is_multiple_of(u64::from(ticks_per_second))
            .then(|| SECOND as u32 / ticks_per_second);
        let last = ClockReading::at_time(Time::ZERO, up, ticks_per_second);
        Self {
            ticks_per_second,
            tick: tick.and_then(NonZeroU32::new),
            up,
            last,
        }
    }

    /// Reads the clock at `now`, so that [`Self::micros_at`] and [`Self::ticks_at`] of that moment
    /// are known.
    #[inline]
    pub(crate) fn read(&mut self, now: Time) {
        if self.last.now != now {
            self.last = ClockReading::at_time(now, self.up, self.ticks_per_second);
        }
    }

    #[inline]
    fn reading_at(&self, now: Time) -> ClockReading {
        if self.last.now == now {
            self.last
        } else {
            ClockReading::at_time(now, self.up, self.ticks_per_second)
        }
    }

    /// Returns the stamp of a packet sent so long before [`Time::ZERO`].
    pub fn stamp_before(&self, span: Span) -> TimestampValue {
        Self::stamp_at(self.up.saturating_sub(span).as_micros())
    }

    pub(crate) fn ticks_per_second(&self) -> u64 {
        u64::from(self.ticks_per_second)
    }

    /// Nanoseconds since the host booted (`tcp_clock_ns`).
    pub(crate) fn nanos_at(&self, now: Time) -> u64 {
        (now + self.up).as_nanos()
    }

    /// The moment at which the host has been up for so many nanoseconds.
    pub(crate) fn moment_at(&self, nanos: u64) -> Time {
        Time::from_nanos(nanos.saturating_sub(self.up.as_nanos()))
    }

    /// Microseconds since the host booted (`tcp_mstamp`).
    pub(crate) fn micros_at(&self, now: Time) -> u64 {
        self.reading_at(now).micros
    }

    /// Ticks since the host booted (`tcp_jiffies32`).
    pub(crate) fn ticks_at(&self, now: Time) -> u64 {
        self.reading_at(now).ticks
    }

    pub(crate) fn timestamp_at(&self, now: Time) -> TimestampValue {
        Self::stamp_at(self.micros_at(now))
    }

    /// The stamp of a packet sent at `micros` (`tcp_skb_timestamp_ts`).
    pub(crate) fn stamp_at(micros: u64) -> TimestampValue {
        TimestampValue((micros / 1_000) as u32)
    }

    /// Ticks in `micros`, rounded up (`usecs_to_jiffies`).
    pub(crate) fn ticks_in(&self, micros: u64) -> u64 {
        (micros * self.ticks_per_second()).div_ceil(1_000_000)
    }

    /// Microseconds in `ticks` (`jiffies_to_usecs`).
    pub(crate) fn micros_in(&self, ticks: u64) -> u64 {
        self.tick_nanos().map_or_else(
            || ticks * 1_000_000 / self.ticks_per_second(),
            |tick| ticks * tick / 1_000,
        )
    }

    /// The moment at which a timer goes off that is set at `now` to `delay` ticks.
    ///
    /// The wheel never fires early, and its levels become coarser by eight (`calc_index`,
    /// `kernel/time/timer.c`, since 4.8).
    pub(crate) fn timer_expiry(&self, now: Time, delay: u64) -> Time {
        let expires = self.ticks_at(now) + delay;
        let level = (0..8).find(|level| delay < 63 << (3 * level)).unwrap_or(8);
        let shift = 3 * level;
        let fires = ((expires >> shift) + 1) << shift;
        // Ticks are counted by the timer interrupt, so the tick itself is the moment.
        self.moment_at(
            self.tick_nanos()
                .map_or_else(|| self.tick_begins(fires), |tick| fires * tick),
        )
    }

    fn tick_nanos(&self) -> Option<u64> {
        self.tick.map(|tick| u64::from(tick.get()))
    }

    /// When a tick begins, in nanoseconds, rounded up.
    fn tick_begins(&self, tick: u64) -> u64 {
        let (seconds, ticks) = (
            tick / self.ticks_per_second(),
            tick % self.ticks_per_second(),
        );
        seconds * SECOND + (ticks * SECOND).div_ceil(self.ticks_per_second())
    }
}

impl ClockReading {
    fn at_time(now: Time, up: Span, ticks_per_second: u32) -> Self {
        let (nanos, hz) = ((now + up).as_nanos(), u64::from(ticks_per_second));
        let ticks = (nanos / SECOND) * hz + (nanos % SECOND) * hz / SECOND;
        Self {
            now,
            micros: nanos / 1_000,
            ticks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_follow_their_rate() {
        let clock = HostClock::new(250, Span::from_secs(100));
        assert_eq!(clock.ticks_at(Time::from_nanos(3_999_999)), 25_000);
        assert_eq!(clock.ticks_at(Time::from_nanos(4_000_000)), 25_001);
        assert_eq!(
            (
                clock.ticks_in(200_000),
                clock.ticks_in(4_001),
                clock.micros_in(50)
            ),
            (50, 2, 200_000)
        );
    }

    #[test]
    fn a_timer_never_fires_early_and_long_ones_are_coarse() {
        for hz in [100, 250, 300, 1000] {
            let clock = HostClock::new(hz, Span::from_millis(1_234_567));
            for delay in [0, 1, 50, 62, 63, 64, 100, 511, 600, 5_000] {
                let now = Time::from_nanos(777_777);
                let waited = clock.micros_in(delay);
                let fires = clock
                    .timer_expiry(now, delay)
                    .duration_since(now)
                    .as_micros();
                let tick = 1_000_000 / u64::from(hz);
                assert!(
                    fires + tick >= waited && fires <= waited + waited / 7 + 2 * tick,
                    "{hz} {delay}: {fires}"
                );
            }
        }
        // 200 ms at 250 ticks a second: the tick after the fiftieth.
        let clock = HostClock::new(250, Span::from_secs(100));
        assert_eq!(
            clock.timer_expiry(Time::from_nanos(1), 50),
            Time::from_nanos(204_000_000)
        );
    }
}
