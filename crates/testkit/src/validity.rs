/// Runs `measure` until a run is valid, `tries` times at most, and gives that run to the test. A run that is invalid by
/// its own checks says nothing about the program; one that is valid is judged, whatever it shows.
///
/// # Panics
/// If no run was valid.
pub fn valid_within<T>(tries: u32, mut measure: impl FnMut() -> (T, Vec<String>)) -> T {
    let mut reasons = Vec::new();
    for _ in 0..tries {
        let (result, broken) = measure();
        if broken.is_empty() {
            return result;
        }
        reasons.push(broken.join("; "));
    }
    panic!("no valid run in {tries}: {}", reasons.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_invalid_runs_are_repeated() {
        let mut run = 0;
        let result = valid_within(3, || {
            run += 1;
            (run, if run < 2 { vec!["late".to_owned()] } else { vec![] })
        });
        assert_eq!((result, run), (2, 2));
    }

    #[test]
    #[should_panic(expected = "no valid run in 2: late | late")]
    fn three_invalid_runs_are_a_failure() {
        valid_within(2, || ((), vec!["late".to_owned()]));
    }
}
