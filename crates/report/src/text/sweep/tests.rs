use super::*;
use fullpipe_units::ByteCount;

#[test]
fn a_few_dips_are_counted_and_only_without_any_there_are_none() {
    let dips = |dips: u32| SweepDips {
        runs: 16,
        dips,
        flight: ByteCount::from_kib(256),
        runs_beyond: 8,
        dips_beyond: 0,
        repeated: 0,
        again: 0,
        of_setting: None,
        neighbours: None,
        cause: None,
    };
    // 20.3 and 187 among settings of 250 Mbit/s.
    let few = "2 of 16 runs are dips, below 80 % of what a setting with no more streams and no larger window has: \
                   they are too few to say why.";
    assert_eq!(of_dips(&dips(2), None), [few]);
    assert_eq!(
        of_dips(&dips(0), None),
        ["No run has less than 80 % of what a smaller setting has: there are no dips."]
    );
}
