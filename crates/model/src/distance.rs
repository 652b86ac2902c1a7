//! Distance and round-trip time: what fibre allows, and what routes make of it.

use fullpipe_units::{Distance, Span};

/// The least round-trip time over `distance` in a fibre that runs straight: 9.79 µs per km, rounded
/// down.
///
/// Light in it is 1.468 times slower than in a vacuum, the group index of ordinary fibre (ITU-T
/// G.652; data sheets give 1.4676 to 1.4682 between 1310 and 1550 nm). Radio relays and low
/// satellites can be below it.
pub fn fibre_floor(distance: Distance) -> Span {
    Span::from_nanos(scaled_quotient(
        distance.metres(),
        NANOS_PER_STEP,
        METRES_PER_STEP,
    ))
}

/// The longest distance that fibre can span in `rtt`: the inverse of [`fibre_floor`].
pub fn max_distance(rtt: Span) -> Distance {
    Distance::from_metres(scaled_quotient(
        rtt.as_nanos(),
        METRES_PER_STEP,
        NANOS_PER_STEP,
    ))
}

/// Returns true if no fibre between two places `distance` apart has a round-trip time as short as
/// `rtt`. Then something nearer answers: a proxy, or not the end that was meant.
pub fn below_floor(rtt: Span, distance: Distance) -> bool {
    rtt < fibre_floor(distance)
}

/// A guess at the round-trip time over `distance` where it was not measured: a published guide of
/// 15 ms for 1000 km, 50 ms for 4000 km and 120 ms for 8000 km, straight between its rows, and in
/// proportion below and beyond them.
pub fn guess_rtt(distance: Distance) -> Span {
    let (from, to) = match distance {
        d if d <= GUIDE[1].0 => (GUIDE[0], GUIDE[1]),
        d if d <= GUIDE[2].0 => (GUIDE[1], GUIDE[2]),
        d if d <= GUIDE[3].0 => (GUIDE[2], GUIDE[3]),
        _ => (GUIDE[0], GUIDE[3]),
    };
    let beyond = distance.metres() - from.0.metres();
    let rise = (to.1 - from.1).as_nanos();
    from.1
        + Span::from_nanos(scaled_quotient(
            beyond,
            rise,
            to.0.metres() - from.0.metres(),
        ))
}

/// `value` · `times` ÷ `per`, rounded down.
fn scaled_quotient(value: u64, times: u64, per: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(times) / u128::from(per)).unwrap_or(u64::MAX)
}

/// In this many nanoseconds (10⁹ · 2 · 1.468) …
const NANOS_PER_STEP: u64 = 2_936_000_000;
/// … light goes this far in fibre and back.
const METRES_PER_STEP: u64 = 299_792_458;

const GUIDE: [(Distance, Span); 4] = [
    (Distance::ZERO, Span::ZERO),
    (Distance::from_km(1000), Span::from_millis(15)),
    (Distance::from_km(4000), Span::from_millis(50)),
    (Distance::from_km(8000), Span::from_millis(120)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn km(km: u64) -> Distance {
        Distance::from_km(km)
    }

    #[test]
    fn light_takes_its_time() {
        assert_eq!(fibre_floor(km(1)), Span::from_nanos(9_793));
        // London to New York is the second, to Singapore the last.
        for (distance, millis) in [
            (1000, "9.8"),
            (5570, "54.5"),
            (8800, "86.2"),
            (10_850, "106.3"),
        ] {
            assert_eq!(
                format!("{:.1}", fibre_floor(km(distance)).as_millis_f64()),
                millis,
                "{distance} km"
            );
        }
    }

    #[test]
    fn the_guide_is_met_and_continued() {
        for (distance, millis) in [
            (0, 0.0),
            (500, 7.5),
            (1000, 15.0),
            (2500, 32.5),
            (4000, 50.0),
            (6000, 85.0),
            (8000, 120.0),
            (16_000, 240.0),
        ] {
            assert_eq!(
                guess_rtt(km(distance)),
                Span::from_secs_f64(millis / 1e3),
                "{distance} km"
            );
        }
    }

    #[test]
    fn an_answer_from_nearby_is_recognised() {
        // 4 ms is a cache in the next town, not a server across an ocean.
        assert!(below_floor(Span::from_millis(4), km(5570)));
        assert!(!below_floor(Span::from_millis(70), km(5570)));
        assert_eq!(max_distance(Span::from_millis(4)).to_string(), "408.4 km");
    }

    proptest! {
        #[test]
        fn a_longer_way_never_takes_less(metres: u64, more: u64) {
            let (near, far) = (Distance::from_metres(metres), Distance::from_metres(metres.saturating_add(more)));
            prop_assert!(fibre_floor(far) >= fibre_floor(near));
            prop_assert!(guess_rtt(far) >= guess_rtt(near));
        }

        #[test]
        fn what_is_guessed_is_possible(metres: u64) {
            let distance = Distance::from_metres(metres);
            prop_assert!(!below_floor(guess_rtt(distance), distance));
        }

        #[test]
        fn the_longest_way_is_possible_and_a_longer_one_is_not(nanos in 0_u64..1 << 60) {
            let (rtt, far) = (Span::from_nanos(nanos), max_distance(Span::from_nanos(nanos)));
            prop_assert!(!below_floor(rtt, far));
            prop_assert!(below_floor(rtt, Distance::from_metres(far.metres() + 2)));
        }
    }
}
