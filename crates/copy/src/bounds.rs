//! Bounds of what an end sends or takes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_units::{BitRate, ByteCount};

use crate::protocol::CopyRequest;
use crate::shared::SharedNumber;
use fullpipe_sys::lock;

/// Time for which a thread that waited for a processor may send faster afterwards.
const LATENESS: Duration = Duration::from_millis(100);

/// The bounds of one copy.
#[derive(Default)]
pub(crate) struct CopyBounds {
    /// Rates, of this copy alone or of several together.
    pub paces: Vec<Arc<RatePace>>,
    /// Bytes of files at most.
    pub most: Option<ByteCount>,
    /// The connections of the copy give way to all other traffic.
    pub scavenge: bool,
    /// The connections never change to BBR.
    pub no_bbr: bool,
    /// Nothing is compressed.
    pub no_compress: bool,
    taken: AtomicU64,
}

impl CopyBounds {
    /// Returns bounds of these rates and bytes.
    pub(crate) fn new(paces: Vec<Arc<RatePace>>, most: Option<ByteCount>) -> Self {
        Self {
            paces,
            most,
            ..Self::default()
        }
    }

    /// Returns these bounds with what `request` says of the end that sends, which this one does, or
    /// does not.
    pub(crate) fn with_request(mut self, request: &CopyRequest, sends: bool) -> Self {
        if sends && request.limit > 0 {
            let limit = BitRate::from_bps(request.limit);
            self.paces.push(Arc::new(RatePace::new(limit)));
        }
        Self {
            scavenge: request.scavenge,
            no_bbr: request.no_bbr,
            no_compress: request.no_compress,
            ..self
        }
    }

    /// Counts bytes of a file that are to cross.
    ///
    /// # Errors
    /// Fails with a sentence if they are too many.
    pub(crate) fn count_bytes(&self, bytes: u64) -> Result<(), String> {
        let Some(most) = self.most else { return Ok(()) };
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                taken
                    .checked_add(bytes)
                    .filter(|taken| *taken <= most.get())
            })
            .map(drop)
            .map_err(|_| format!("the server lets no copy have more than {most}"))
    }

    /// Waits until `length` bytes may cross.
    pub(crate) fn wait_for_bytes(&self, length: usize) {
        self.paces
            .iter()
            .for_each(|pace| pace.wait_for_turn(length));
    }

    /// Returns the time for which the rates have made connections wait, all of them together.
    pub(crate) fn waited_time(&self) -> Duration {
        let waited = self.paces.iter().map(|pace| pace.waited.current_value());
        Duration::from_nanos(waited.sum())
    }
}

/// Spreads data over time.
pub(crate) struct RatePace {
    rate: BitRate,
    next: Mutex<Instant>,
    /// Nanoseconds for which threads have waited.
    waited: SharedNumber,
}

impl RatePace {
    pub(crate) fn new(rate: BitRate) -> Self {
        Self {
            rate,
            next: Mutex::new(Instant::now()),
            waited: SharedNumber::default(),
        }
    }

    fn wait_for_turn(&self, length: usize) {
        let now = Instant::now();
        let wait = self
            .reserve_start(now, length)
            .saturating_duration_since(now);
        if !wait.is_zero() {
            thread::sleep(wait);
            let waited = now.elapsed().as_nanos() as u64;
            self.waited.increase_by(waited);
        }
    }

    /// Returns the time from which `length` bytes may cross, asked for at `now`. One who comes late
    /// makes up for it.
    fn reserve_start(&self, now: Instant, length: usize) -> Instant {
        let mut next = lock(&self.next);
        let begin = (*next).max(now.checked_sub(LATENESS).unwrap_or(now));
        *next = begin + Duration::from(self.rate.time_for(ByteCount::new(length as u64)));
        begin
    }
}

/// The rates of all copies of a server together: of what it sends, and of what it receives.
#[derive(Clone, Default)]
pub(crate) struct DirectionRates {
    sent: Option<Arc<RatePace>>,
    received: Option<Arc<RatePace>>,
}

impl DirectionRates {
    /// Returns this rate in each direction; no bound if it is absent.
    pub(crate) fn with_rate(rate: Option<BitRate>) -> Self {
        let [sent, received] = [rate, rate].map(|rate| rate.map(RatePace::new).map(Arc::new));
        Self { sent, received }
    }

    /// Returns the rate limits of a copy that sends, or of one that receives.
    pub(crate) fn direction_paces(&self, sends: bool) -> Vec<Arc<RatePace>> {
        let pace = if sends { &self.sent } else { &self.received };
        pace.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_what_is_smaller_is_not() {
        let bounds = CopyBounds::new(Vec::new(), Some(ByteCount::new(10)));
        assert!(
            bounds.count_bytes(6).is_ok()
                && bounds.count_bytes(5).is_err()
                && bounds.count_bytes(u64::MAX).is_err()
        );
        assert!(bounds.count_bytes(4).is_ok() && bounds.count_bytes(1).is_err());
        assert!(CopyBounds::default().count_bytes(u64::MAX).is_ok());
    }

    #[test]
    fn one_who_is_late_makes_up_for_it_but_not_for_a_long_rest() {
        let pace = RatePace::new(BitRate::from_mbps(8));
        let first = *lock(&pace.next);
        let after = |milliseconds| first + Duration::from_millis(milliseconds);
        // A kilobyte takes a millisecond.
        assert_eq!(pace.reserve_start(after(0), 10_000), after(0));
        assert_eq!(pace.reserve_start(after(0), 10_000), after(10));
        assert_eq!(pace.reserve_start(after(25), 10_000), after(20));
        assert_eq!(pace.reserve_start(after(31), 10_000), after(30));
        assert_eq!(pace.reserve_start(after(9000), 10_000), after(8900));
        assert_eq!(pace.reserve_start(after(9000), 10_000), after(8910));
    }

    #[test]
    fn copies_in_one_direction_share_a_rate_and_do_not_slow_the_other() {
        let directions = DirectionRates::with_rate(Some(BitRate::from_mbps(8)));
        let pace = |sends| directions.direction_paces(sends).pop().unwrap();
        let now = Instant::now();
        // A megabyte takes a second.
        for sends in [true, false] {
            assert!(pace(sends).reserve_start(now, 1_000_000) <= now, "{sends}");
        }
        assert!(pace(true).reserve_start(now, 1) > now + Duration::from_millis(800));
        assert!(
            DirectionRates::with_rate(None)
                .direction_paces(true)
                .is_empty()
        );
    }
}
