use super::*;
use crate::chart::quantity::RateChange;
use fullpipe_units::{BitRate, Ratio};

fn ceilings() -> RowChart {
    RowChart::new("Ceilings", ["limit", "ceiling"])
        .with_row(
            ChartRow::new("send-buffer", "323 Mbit/s, the limit", Hue::Orange)
                .with_bar(BitRate::from_mbps(323)),
        )
        .with_row(
            ChartRow::new("capacity", "941.5 Mbit/s", Hue::Grey)
                .with_bar(BitRate::from_bps(941_500_000)),
        )
}

#[test]
fn bars_begin_at_zero() {
    let svg = ceilings().to_svg();
    assert!(
        svg.contains("class=\"bar\" x=\"0%\" width=\"32.3%\""),
        "{svg}"
    );
    assert!(
        svg.contains("<title>send-buffer: 323 Mbit/s, the limit</title>")
            && svg.contains(">1000 Mbit/s<"),
        "{svg}"
    );
    let text = ceilings().to_text();
    let bar = |count: usize| "█".repeat(count);
    assert!(
        text.starts_with(&format!(
            "send-buffer              {:<27} 323 Mbit/s",
            bar(9)
        )),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn changes_lie_on_both_sides_of_none() {
    let change = |factor| RateChange(Ratio::new(factor));
    let row = ChartRow::new("CUBIC → BBR", "+3.1 % (+0.8 to +5.4 %)", Hue::Green);
    let rows = RowChart::new("Changes", ["change", "difference"])
        .with_row(
            row.with_dot(change(1.031))
                .with_interval(change(1.008), change(1.054)),
        )
        .with_row(ChartRow::new("to nothing", "−100 %", Hue::Orange).with_dot(change(0.0)))
        .with_row(
            ChartRow::new("MTU", "no difference shown", Hue::Grey)
                .with_dot(change(1.01))
                .with_hollow_dot(),
        );
    let (svg, text) = (rows.to_svg(), rows.to_text());
    assert!(
        svg.contains(">0 %<") && svg.contains("centre hollow") && !svg.contains("NaN"),
        "{svg}"
    );
    assert!(text.contains('○') && text.contains('●'), "{text}");
}

#[test]
fn nothing_is_a_sentence_and_many_rows_are_the_first() {
    assert!(RowChart::new("", ["", ""]).to_svg().contains(NOTHING));
    assert!(
        RowChart::new("", ["", ""])
            .with_row(ChartRow::new("a", "b", Hue::Blue))
            .to_text()
            .contains(NOTHING)
    );
    let row = |index: u64| {
        ChartRow::new(&index.to_string(), "", Hue::Blue).with_bar(BitRate::from_mbps(index))
    };
    let many = (0..1_000).fold(RowChart::new("Many", ["a", "b"]), |rows, index| {
        rows.with_row(row(index))
    });
    assert!(
        many.to_svg()
            .ends_with("<p class=\"none\">880 more in the table.</p>")
    );
    assert_eq!(many.to_figures().rows.len(), 1_000);
    let zero = RowChart::new("Zero", ["a", "b"])
        .with_row(ChartRow::new("z", "0", Hue::Blue).with_bar(BitRate::ZERO));
    assert!(
        !zero.to_svg().contains("NaN") && !zero.to_text().contains('█'),
        "{}",
        zero.to_text()
    );
}
