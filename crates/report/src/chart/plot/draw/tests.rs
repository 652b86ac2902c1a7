use super::*;

#[test]
fn steps_go_across_and_then_up_or_down() {
    let places = [("0", "0"), ("1", "0"), ("2", "-3"), ("2", "-4")];
    assert_eq!(
        step_path(&places.map(|(x, y)| (x.to_owned(), y.to_owned()))),
        "M0,0H1H2V-3V-4"
    );
    assert_eq!(
        (
            coordinate_pair(&("1".into(), "-2".into())),
            coordinate_pair(&("1".into(), "0".into()))
        ),
        ("1-2".into(), "1,0".into())
    );
}

#[test]
fn bars_stand_on_the_axis_and_touch_or_not() {
    let bars = [
        ("0", "-3"),
        ("1", "-3"),
        ("1", "-4"),
        ("2", "-4"),
        ("5", "0"),
        ("6", "0"),
        ("6", "0"),
        ("7", "0"),
    ];
    let outlines = |bars: &[(&str, &str)]| {
        bar_outlines(
            &bars
                .iter()
                .map(|(x, y)| ((*x).to_owned(), (*y).to_owned()))
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(outlines(&bars), "M0-3H1V-4H2v4L0 0zM5,0H6H7v0L5 0z");
    assert_eq!(outlines(&[]), "");
}

#[test]
fn labels_do_not_overlap() {
    assert_eq!(
        spread_positions(&[10.0, 12.0, 80.0], 100.0),
        [10.0, 26.0, 80.0]
    );
    assert_eq!(
        spread_positions(&[90.0, 95.0, 99.0], 100.0),
        [68.0, 84.0, 100.0]
    );
    assert_eq!(spread_positions(&[], 100.0), Vec::<f64>::new());
}
