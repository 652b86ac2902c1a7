use super::*;

#[test]
fn a_queueing_discipline_is_as_asked_for_by_its_kind_and_the_same_by_its_parameters() {
    let setting = Setting::Qdisc("eth0".to_owned());
    let table = [
        ("pfifo 80010000 e8030000", "pfifo", true, false),
        (
            "pfifo 80010000 e8030000",
            "pfifo 80010000 e8030000",
            true,
            true,
        ),
        (
            "pfifo 80010000 e8030000",
            "pfifo 80010000 e9030000",
            false,
            false,
        ),
        ("fq inexact 80010000 e8030000", "fq", true, false),
        ("bfifo 80010000 e8030000", "pfifo", false, false),
        ("default pfifo_fast", "default", true, true),
        ("pfifo 80010000 e8030000", "default", false, false),
        ("fq inexact 80010000 ", "default", false, false),
        ("default pfifo_fast", "pfifo_fast", false, false),
    ];
    for (found, asked, as_asked, same) in table {
        assert_eq!(
            setting.is_as_asked(Some(found), Some(asked)),
            as_asked,
            "{found} for {asked}"
        );
        assert_eq!(
            setting.is_same(Some(found), Some(asked)),
            same,
            "{found} and {asked}"
        );
        assert_eq!(
            setting.is_same(Some(asked), Some(found)),
            same,
            "{asked} and {found}"
        );
    }
    let why = |before| why_not_exact_discipline("eth0", Some(before));
    assert!(why("htb inexact 80010000 ").is_some_and(|why| why.contains("choice, htb, ")));
    assert_eq!(why("tbf 80010000 2801"), None);
    assert_eq!(why("default pfifo_fast"), None);
    assert_eq!(setting.display_value("tbf 80010000 2801"), "tbf");
}

#[test]
fn an_offload_that_waits_for_another_is_asked_for_again() {
    let setting = Setting::Offload {
        device: "eth0".to_owned(),
        feature: "tx-tcp-segmentation".to_owned(),
    };
    assert!(!setting.is_as_asked(Some("off [requested on]"), Some("off")));
    assert!(!setting.is_same(Some("off [requested on]"), Some("off")));
    assert!(
        setting.is_same(Some("off [requested on]"), Some("on")),
        "once what it needs is there"
    );
    for (text, on) in [
        ("on", true),
        ("off", false),
        ("off [requested on]", true),
        ("on [requested off]", false),
    ] {
        assert_eq!(is_on(text), on, "{text}");
    }
}

#[test]
fn parameters_are_read_back_from_their_digits() {
    assert_eq!(parse_hex("00ff10").unwrap(), [0, 255, 16]);
    assert!(parse_hex("").unwrap().is_empty());
    for wrong in ["f", "0g", "é0"] {
        assert!(parse_hex(wrong).is_err(), "{wrong}");
    }
}
