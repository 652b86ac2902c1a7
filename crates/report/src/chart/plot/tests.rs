use super::*;
use crate::chart::svg::Hue;
use fullpipe_units::{BitRate, Span};

fn second(index: u64) -> Span {
    Span::from_millis(index * 10)
}

fn plot(points: Vec<(Span, BitRate)>) -> Plot {
    let rate = PlotSeries::new("rate", SeriesForm::Line, Hue::Blue, points)
        .with_label("steady 941 Mbit/s");
    Plot::new("Rate over time").with_panel(
        Panel::new("rate")
            .with_series(rate)
            .with_level(BitRate::from_mbps(950), "predicted 950"),
    )
}

#[test]
fn nothing_is_a_sentence() {
    let empty = plot(Vec::new());
    assert_eq!(empty.to_svg(), format!("<p class=\"none\">{NOTHING}</p>"));
    assert_eq!(empty.to_text(), format!("{NOTHING}\n"));
    assert_eq!(empty.to_figures(), FigureTable::default());
}

#[test]
fn one_sample_is_a_dot_and_zeros_are_a_line_at_zero() {
    let one = plot(vec![(second(1), BitRate::from_mbps(7))]);
    assert!(
        one.to_svg()
            .contains("z\"><title>rate: 7 Mbit/s at 10 ms</title>"),
        "{}",
        one.to_svg()
    );
    assert!(
        one.to_figures().rows == [["10 ms", "7 Mbit/s"]],
        "{:?}",
        one.to_figures()
    );
    let rate = PlotSeries::new(
        "rate",
        SeriesForm::Line,
        Hue::Blue,
        [(second(0), BitRate::ZERO), (second(1), BitRate::ZERO)],
    );
    let zeros = Plot::new("Zeros").with_panel(Panel::new("rate").with_series(rate));
    assert!(
        zeros.to_svg().contains("d=\"M0,0 10,0\""),
        "{}",
        zeros.to_svg()
    );
    for plot in [one, zeros] {
        assert!(
            !plot.to_svg().contains("NaN") && !plot.to_svg().contains("inf"),
            "{}",
            plot.to_svg()
        );
        assert!(
            plot.to_text()
                .lines()
                .all(|line| line.chars().count() <= 80),
            "{}",
            plot.to_text()
        );
    }
}

#[test]
fn a_million_samples_are_a_small_picture_with_every_spike() {
    let rate = |index: u64| {
        if index == 765_432 {
            999
        } else {
            400 + index * 7_919 % 100
        }
    };
    let many = plot(
        (0..1_000_000)
            .map(|index| (second(index), BitRate::from_mbps(rate(index))))
            .collect(),
    );
    let svg = many.to_svg();
    assert!(svg.len() < 100_000, "{}", svg.len());
    assert!(svg.contains("-999 "), "the spike");
    assert!(svg.contains("rate: 400 to 999 Mbit/s"));
    assert_eq!(many.to_figures().rows.len(), 40);
}

#[test]
fn values_lie_in_the_picture_as_they_are() {
    let svg = plot(vec![
        (second(0), BitRate::ZERO),
        (second(100), BitRate::from_bps(941_400_000)),
    ])
    .to_svg();
    assert!(svg.contains("d=\"M0,0 1-941.4\""), "{svg}");
    assert!(
        svg.contains("viewBox=\"0 -1000 1 1000\" data-n=\"rate\" data-y=\"Mbit/s\""),
        "{svg}"
    );
    assert!(svg.contains(">0 s</text>"), "{svg}");
}

#[test]
fn names_of_others_are_text() {
    for name in [
        "<script>alert(1)</script>",
        "\u{202e}drow",
        &"&".repeat(1_000_000),
        "\"'/><x",
    ] {
        let series = PlotSeries::new(
            name,
            SeriesForm::Dots,
            Hue::Blue,
            [(second(1), BitRate::from_mbps(1))],
        )
        .with_label(name);
        let plot = Plot::new(name).with_axis_name(name).with_panel(
            Panel::new(name)
                .with_series(series)
                .with_level(BitRate::ZERO, name),
        );
        let (svg, text) = (plot.to_svg(), plot.to_text());
        let html = plot.to_figures().to_html();
        assert!(
            !svg.contains("<script") && !svg.contains("<x") && !html.contains("<script"),
            "{svg}"
        );
        assert!(!(svg + &html).contains('\u{202e}') && !text.contains('\u{202e}'));
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}

#[test]
fn a_line_is_drawn_in_text() {
    let points = (0..=100).map(|index| (second(index), BitRate::from_mbps(9 * index)));
    let text = plot(points.collect()).to_text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        format!("rate, Mbit/s{:>68}", "steady 941 Mbit/s · predicted 950")
    );
    assert!(
        lines[1].starts_with("   1000 ") && lines[1].ends_with('⣀'),
        "{text}"
    );
    assert!(lines[7].starts_with("      0 ⣀"), "{text}");
    assert_eq!(
        lines[8],
        "       0 s           0.2           0.4           0.6           0.8             1"
    );
}

#[test]
fn bars_are_drawn_from_their_begin_to_their_end_and_have_a_row_each() {
    let of = |from, to, mbps| (second(from), second(to), BitRate::from_mbps(mbps));
    // In any order; one reaches into the next, and one has no width.
    let bars = PlotSeries::from_bars(
        "others",
        Hue::Green,
        [
            of(300, 400, 7),
            of(0, 200, 3),
            of(100, 300, 5),
            of(500, 500, 9),
        ],
    );
    let plot = Plot::new("Others").with_panel(Panel::new("others").with_series(bars));
    let svg = plot.to_svg();
    assert!(svg.contains("class=\"m area c2\""), "{svg}");
    assert!(
        svg.contains("d=\"M0-3H1V-5H3V-7H4v7L0 0z\"") && svg.contains("3 to 7 Mbit/s"),
        "{svg}"
    );
    assert_eq!(
        plot.to_figures().rows,
        [
            ["0 s", "3 Mbit/s"],
            ["1 s", "5 Mbit/s"],
            ["3 s", "7 Mbit/s"]
        ]
    );
    assert!(plot.to_text().contains('⡇'), "{}", plot.to_text());
    assert!(
        PlotSeries::from_bars("none", Hue::Blue, Vec::<(Span, Span, BitRate)>::new())
            .points
            .is_empty()
    );
}

#[test]
fn a_distribution_ends_at_its_whole() {
    let values = (1..=1_000).map(Span::from_millis).collect();
    let series = PlotSeries::from_distribution("round trips", Hue::Plum, values);
    assert!(series.points.len() < 210);
    assert_eq!(
        (series.points.first(), series.points.last()),
        (Some(&(0.001, 0.0)), Some(&(1.0, 1.0)))
    );
    assert!(
        PlotSeries::from_distribution("none", Hue::Plum, Vec::<Span>::new())
            .points
            .is_empty()
    );
}

#[test]
fn a_line_under_way_is_drawn_in_any_width_with_room_for_the_rest() {
    let rates = (1..=40)
        .map(|index| (second(index * 10), BitRate::from_mbps(100)))
        .collect();
    let plot = plot(rates).with_axis_end(Span::from_secs(8));
    for (width, lines) in [(0, 1), (20, 3), (40, 2), (200, 30)] {
        let text = plot.text_in(width, &[lines]);
        assert_eq!(text.lines().count(), lines + 2, "{text}");
        assert!(
            text.lines()
                .all(|line| line.chars().count() <= width.max(20)),
            "{text}"
        );
    }
    // Four of eight seconds: the right half is free.
    let text = plot.text_in(80, &[5]);
    let drawn = text
        .lines()
        .flat_map(|line| line.chars().enumerate())
        .filter(|(_, c)| ('\u{2800}'..'\u{2900}').contains(c));
    assert!(
        (40..48).contains(&drawn.map(|(column, _)| column).max().unwrap()),
        "{text}"
    );
    assert!(text.contains(" 8"), "{text}");
}
