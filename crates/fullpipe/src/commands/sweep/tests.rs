use super::*;

#[test]
fn a_range_has_two_ends_or_one_value() {
    assert_eq!(parse_stream_range("1..90"), Ok(1..=90));
    assert_eq!(parse_stream_range("4"), Ok(4..=4));
    assert_eq!(
        parse_range("8KiB..4MiB"),
        Ok(ByteCount::from_kib(8)..=ByteCount::from_mib(4))
    );
    assert!(
        ["0..4", "1..200", "..", "x", ""]
            .iter()
            .all(|text| parse_stream_range(text).is_err())
    );
}

#[test]
fn a_share_is_above_nothing_and_at_most_all() {
    assert_eq!(parse_share("20%"), Ok(Ratio::new(0.2)));
    assert!(
        ["0%", "101%", "-1", "nan"]
            .iter()
            .all(|text| parse_share(text).is_err())
    );
}

#[test]
fn a_path_of_known_capacity_has_its_round_trip() {
    let path = known_path(BitRate::from_mbps(622), Span::from_millis(154)).unwrap();
    assert_eq!(
        (path.forward.rate, path.rtt()),
        (Some(BitRate::from_mbps(622)), Span::from_millis(154))
    );
}
