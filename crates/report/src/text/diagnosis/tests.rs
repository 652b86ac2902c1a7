use super::*;

#[test]
fn a_defect_of_a_kernel_is_stated_with_its_end_and_the_version_that_has_the_fix() {
    let version = fullpipe_record::KernelVersion::new;
    let (effect, source) = (
        "receive buffers grow too slowly".to_owned(),
        "65c5287892e9".to_owned(),
    );
    let known = KernelDefect {
        kernel: version(6, 17),
        at: At::Receiver,
        effect,
        fixed: version(6, 18),
        source,
    };
    let text = defect(&known);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "Known defect of Linux 6.17.0 for receivers: receive buffers grow too slowly. Linux 6.18.0 has";
    assert!(
        text.starts_with(expected) && text.contains("(65c5287892e9)"),
        "{text}"
    );
}

#[test]
fn names_are_those_of_the_json() {
    assert_eq!(
        (
            json_name(fullpipe_record::Cause::SoRcvbuf),
            json_name(fullpipe_record::Scope::Socket)
        ),
        ("so-rcvbuf".into(), "socket".into())
    );
}

#[test]
fn a_forecast_states_its_denominator_and_where_it_is_no_bound() {
    let [low, bits_per_second, high] = [4, 8, 17].map(BitRate::from_mbps);
    let forecast = Forecast {
        bits_per_second,
        low,
        high,
        capacity_unknown: false,
    };
    let known = forecast_gain(forecast, BitRate::from_mbps(4));
    assert_eq!(
        known,
        ": 8 Mbit/s predicted (4 Mbit/s to 17 Mbit/s), 2.0× the 4 Mbit/s measured"
    );
    // 8.3 Mbit/s (to 17) were promised over a path of which nothing was known, and 56 came.
    let unknown = forecast_gain(
        Forecast {
            capacity_unknown: true,
            ..forecast
        },
        BitRate::ZERO,
    );
    assert_eq!(
        unknown,
        ": 8 Mbit/s or more predicted (at least 4 Mbit/s; the path's capacity is not known)"
    );
}

#[test]
fn neither_a_confidence_nor_a_share_is_printed_as_all() {
    assert_eq!(confidence_percent(Ratio::ONE), "over 99 %");
    assert_eq!(confidence_percent(Ratio::new(0.9)), "90 %");
    assert_eq!(held_for(Ratio::ONE), "this was the limit throughout");
    assert_eq!(
        held_for(Ratio::new(0.89)),
        "it held for 89 % of the judged time"
    );
}

#[test]
fn what_would_be_next_is_reported_with_its_figure() {
    let stated = |kind, bits_per_second, share| {
        runner_up_sentence(&RunnerUp {
            kind,
            bits_per_second,
            share,
        })
    };
    let (rate, share) = (
        Some(BitRate::from_mbps(350)),
        Some(fullpipe_units::Ratio::new(0.45)),
    );
    assert_eq!(
        stated(Limit::ReceiveWindow, rate, None).unwrap(),
        "The receive window would be next, at 350 Mbit/s."
    );
    assert_eq!(
        stated(Limit::SenderApplication, None, share).unwrap(),
        "The sending program was the limit for about as long: 45 % of the transfer's time."
    );
    assert_eq!(
        (
            stated(Limit::Unknown, rate, None),
            stated(Limit::Loss, None, None)
        ),
        (None, None)
    );
}

#[test]
fn a_name_cannot_steer_the_terminal() {
    assert_eq!(printable_line("\u{1b}[2Jssh"), "\\u{1b}[2Jssh");
}
