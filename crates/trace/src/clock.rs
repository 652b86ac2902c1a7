//! The clock of the host that captured.

use fullpipe_units::{Span, Time};

/// Maximum time by which a packet is late in its file behind others of its device and still belongs
/// before them: programs that capture with several processors write packets so. NTP corrects less
/// without a step, and steps by more.
const LATE: u64 = 125_000_000;

/// Maximum time by which a packet is late in its file behind those of another device: a program
/// writes packets of a slow device when it reads its buffer, at the latest 250 ms (dumpcap) or 1 s
/// (tcpdump) after the first of them.
const LATE_OF_DEVICE: u64 = 2_000_000_000;

/// Maximum silence: beyond it the clock was set, as that of a host which begins in 1970.
const SILENCE: u64 = 366 * 86_400 * 1_000_000_000;

/// Times of packets as those of a clock that was never set.
#[derive(Default)]
pub(crate) struct CaptureClock {
    /// The latest time so far, in nanoseconds since 1970, and the first.
    newest: Option<u64>,
    first: u64,
    /// Added to times, modulo 2⁶⁴.
    offset: u64,
    last_step: Option<ClockStep>,
    pub steps: ClockSteps,
    /// The device of the packet before, and the latest time of its packets; zero before the first
    /// of them.
    device: u16,
    newest_of_device: u64,
    /// The latest time of each device's packets, as it was when another one's packet came.
    devices: Vec<u64>,
}

/// A step back after which the clock may return: a single packet, or those of another device, have
/// an earlier time.
#[derive(Clone, Copy)]
struct ClockStep {
    at: u64,
    by: u64,
}

/// The steps of a clock.
#[derive(Clone, Copy, Default)]
pub(crate) struct ClockSteps {
    count: u64,
    largest: Span,
}

impl ClockSteps {
    /// Returns a sentence for a clock that was set.
    pub(crate) fn note_text(self) -> Option<String> {
        let Self { count, largest } = self;
        let steps = match count {
            0 => return None,
            1 => format!("once, by {largest}"),
            _ => format!("{count} times, by {largest} at most"),
        };
        Some(format!(
            "The clock of the capture was set {steps}: times go on from the packet before."
        ))
    }
}

impl CaptureClock {
    /// Returns the time of the next packet of the file, captured by `device`. It is at most
    /// [`LATE`] before others of that device, and [`LATE_OF_DEVICE`] before any: after a longer
    /// step, the clock goes on from the packet before.
    #[inline]
    pub(crate) fn packet_time(&mut self, at: Time, device: u16) -> Time {
        let at = at.as_nanos().wrapping_add(self.offset);
        if device != self.device {
            self.change_device(device);
        }
        let newest = self.newest.unwrap_or_else(|| self.begin_clock(at));
        let longest = self.last_step.map_or(SILENCE, |step| step.by);
        if at.checked_sub(newest).is_some_and(|ahead| ahead < longest) {
            self.newest = Some(at);
            self.newest_of_device = at;
            return Time::from_nanos(at);
        }
        self.deviating_time(at, newest)
    }

    fn begin_clock(&mut self, at: u64) -> u64 {
        self.first = at;
        at
    }

    fn change_device(&mut self, device: u16) {
        let [before, next] = [self.device, device].map(usize::from);
        self.devices
            .resize(self.devices.len().max(before.max(next) + 1), 0);
        self.devices[before] = self.newest_of_device;
        (self.device, self.newest_of_device) = (device, self.devices[next]);
    }

    #[cold]
    fn deviating_time(&mut self, at: u64, newest: u64) -> Time {
        let behind = newest.wrapping_sub(at);
        let behind_own = self.newest_of_device.saturating_sub(at);
        let is_late = behind <= LATE || behind <= LATE_OF_DEVICE && behind_own <= LATE;
        let at = if is_late {
            at
        } else {
            self.step_time(at, newest)
        };
        self.newest_of_device = self.newest_of_device.max(at);
        self.first = self.first.min(at);
        Time::from_nanos(at)
    }

    /// Returns the time from the first packet to the last.
    pub(crate) fn elapsed_time(&self) -> Span {
        Span::from_nanos(
            self.newest
                .map_or(0, |newest| newest.saturating_sub(self.first)),
        )
    }

    /// Returns the time of a packet with the time `at` that is long after or before the one at
    /// `newest`.
    fn step_time(&mut self, at: u64, newest: u64) -> u64 {
        let goes_on = at.checked_sub(newest).is_some_and(|ahead| ahead < SILENCE);
        let new = match self.last_step.take() {
            // It is ahead by the step at least, soon after it.
            Some(step) if goes_on && newest - step.at < step.by => at - step.by,
            _ if goes_on => at,
            _ => {
                let by = at.abs_diff(newest);
                self.last_step = (at < newest).then_some(ClockStep { at: newest, by });
                self.steps.count += 1;
                self.steps.largest = self.steps.largest.max(Span::from_nanos(by));
                newest
            }
        };
        self.offset = self.offset.wrapping_add(new.wrapping_sub(at));
        self.newest = Some(new);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Returns the times of packets of one device in milliseconds, and the steps.
    fn times(of_file: &[u64]) -> (Vec<u64>, u64) {
        let of_device: Vec<(u64, u16)> = of_file.iter().map(|at| (*at, 0)).collect();
        times_of_devices(&of_device)
    }

    fn times_of_devices(of_file: &[(u64, u16)]) -> (Vec<u64>, u64) {
        let mut clock = CaptureClock::default();
        let time = |(at, device): &(u64, u16)| {
            clock.packet_time(Time::from_nanos(at * 1_000_000), *device)
        };
        let times = of_file
            .iter()
            .map(time)
            .map(|at| at.as_nanos() / 1_000_000)
            .collect();
        (times, clock.steps.count)
    }

    #[test]
    fn late_packets_keep_their_time() {
        let of_file = [1_000, 1_200, 1_075, 1_300, 1_250, 90_000_000];
        assert_eq!(times(&of_file), (of_file.to_vec(), 0));
    }

    #[test]
    fn packets_of_another_device_may_be_later() {
        let of_file = [
            (5_000, 7),
            (5_250, 7),
            (5_001, 2),
            (5_240, 2),
            (6_900, 7),
            (5_250, 2),
            (5_200, 2),
            (6_901, 7),
        ];
        let as_they_are: Vec<u64> = of_file.iter().map(|(at, _)| *at).collect();
        assert_eq!(times_of_devices(&of_file), (as_they_are, 0));
    }

    #[test]
    fn a_clock_of_several_devices_that_was_set_goes_on() {
        // The busy one shows by how much, wherever packets of the other one stand.
        let of_file = [
            (5_000, 0),
            (5_010, 1),
            (5_100, 0),
            (4_100, 0),
            (4_090, 1),
            (4_200, 0),
            (4_110, 1),
        ];
        assert_eq!(
            times_of_devices(&of_file),
            (vec![5_000, 5_010, 5_100, 5_100, 5_090, 5_200, 5_110], 1)
        );
        // So long after the others a packet is none that waited.
        let of_file = [(5_000, 0), (5_010, 1), (8_000, 0), (5_020, 1), (5_030, 1)];
        assert_eq!(
            times_of_devices(&of_file),
            (vec![5_000, 5_010, 8_000, 8_000, 8_010], 1)
        );
    }

    #[test]
    fn a_clock_that_was_set_goes_on() {
        // By NTP, twice, with a pause; and by a host that begins in 1970.
        let of_file = [10_000, 10_010, 7_010, 9_000, 10_900, 14_500, 13_000];
        assert_eq!(
            times(&of_file),
            (
                vec![10_000, 10_010, 10_010, 12_000, 13_900, 17_500, 17_500],
                2
            )
        );
        let of_file = [0, 20, 1_700_000_000_000, 1_700_000_000_030];
        assert_eq!(times(&of_file), (vec![0, 20, 20, 50], 1));
    }

    #[test]
    fn two_clocks_in_turn_are_one() {
        let of_file = [10_000, 9_000, 10_100, 9_100, 9_110, 10_200, 9_210, 10_300];
        assert_eq!(
            times(&of_file),
            (
                vec![
                    10_000, 10_000, 10_100, 10_100, 10_110, 10_200, 10_200, 10_300
                ],
                3
            )
        );
    }

    #[test]
    fn any_times_give_times_that_are_late_at_most() {
        let mut clock = CaptureClock::default();
        let (mut newest, mut random) = (0, 1_u64);
        for number in 0..100_000_u64 {
            random = random
                .wrapping_mul(0x5851_F42D_4C95_7F2D)
                .wrapping_add(number);
            let at =
                [random, random >> 32, u64::MAX - (random >> 40), 0][(random >> 61) as usize % 4];
            let device = (random >> 50) as u16 % 4 % 3;
            let at = clock.packet_time(Time::from_nanos(at), device).as_nanos();
            assert!(
                number == 0
                    || at.saturating_sub(newest) <= SILENCE
                        && newest.saturating_sub(at) <= LATE_OF_DEVICE,
                "{number}"
            );
            newest = newest.max(at);
        }
        assert!(clock.steps.largest > Span::from_nanos(SECOND));
    }
}
