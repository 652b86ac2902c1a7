//! Signs of life: an end that waits too long for the other one gives up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::shared::SharedNumber;

/// Time after which an end with nothing to say says that it is there.
pub(crate) const ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Time for which the near end may be silent until it has said how long.
pub(crate) const FIRST_TIMEOUT: Duration = Duration::from_secs(30);

/// Bounds of the time after which an end that receives nothing gives up.
const TIMEOUTS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_hours(1));

/// The time that writing may take is so many times as long: the other end may write to a slow disk
/// before it reads on.
const WRITING: u32 = 10;

/// Since when this end waits for the other one.
pub(crate) struct SilenceWatch {
    began: Instant,
    /// Milliseconds from `began` to the time from which a thread waits to read or to write; zero if
    /// none does.
    reading: SharedNumber,
    writing: SharedNumber,
    timeout: SharedNumber,
}

impl SilenceWatch {
    /// Returns a pulse whose other end may be silent for `timeout`.
    pub(crate) fn new(timeout: Duration) -> Arc<Self> {
        let pulse = Self {
            began: Instant::now(),
            reading: SharedNumber::default(),
            writing: SharedNumber::default(),
            timeout: SharedNumber::default(),
        };
        pulse.set_timeout(timeout);
        Arc::new(pulse)
    }

    /// Sets the time for which the other end may be silent, within bounds.
    pub(crate) fn set_timeout(&self, timeout: Duration) {
        let timeout = timeout.clamp(TIMEOUTS.0, TIMEOUTS.1);
        self.timeout.set_value(timeout.as_millis() as u64);
    }

    /// Returns the time for which the other end may be silent.
    pub(crate) fn silence_timeout(&self) -> Duration {
        Duration::from_millis(self.timeout.current_value())
    }

    /// Carries out `read`, which waits for the other end.
    pub(crate) fn while_reading<T>(&self, read: impl FnOnce() -> T) -> T {
        self.time_wait(&self.reading, read)
    }

    /// Carries out `write`, which waits until the other end reads.
    pub(crate) fn while_writing<T>(&self, write: impl FnOnce() -> T) -> T {
        self.time_wait(&self.writing, write)
    }

    /// Returns true if the other end has been silent for too long.
    pub(crate) fn is_silent(&self) -> bool {
        let now = self.elapsed_ms();
        let timeout = self.silence_timeout();
        [(&self.reading, timeout), (&self.writing, timeout * WRITING)]
            .into_iter()
            .any(|(since, most)| match since.current_value() {
                0 => false,
                since => u128::from(now.saturating_sub(since)) > most.as_millis(),
            })
    }

    /// Returns a pulse whose other end may be silent for so long, which is shorter than users may
    /// ask for.
    #[cfg(test)]
    pub(crate) fn brief(timeout: Duration) -> Arc<Self> {
        let pulse = Self::new(timeout);
        pulse.timeout.set_value(timeout.as_millis() as u64);
        pulse
    }

    fn time_wait<T>(&self, since: &SharedNumber, wait: impl FnOnce() -> T) -> T {
        since.set_value(self.elapsed_ms());
        let waited = wait();
        since.set_value(0);
        waited
    }

    fn elapsed_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waiting_for_the_other_end_is_its_silence() {
        let pulse = SilenceWatch::new(Duration::ZERO);
        assert_eq!(pulse.silence_timeout(), TIMEOUTS.0);
        let pulse = SilenceWatch::brief(Duration::from_millis(20));
        std::thread::sleep(Duration::from_millis(30));
        assert!(!pulse.is_silent());
        assert!(pulse.while_reading(|| {
            let before = pulse.is_silent();
            std::thread::sleep(Duration::from_millis(30));
            !before && pulse.is_silent()
        }));
        assert!(!pulse.is_silent());
        assert!(!pulse.while_writing(|| {
            std::thread::sleep(Duration::from_millis(30));
            pulse.is_silent()
        }));
    }
}
