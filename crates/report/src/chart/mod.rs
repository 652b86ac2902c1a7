//! Series of quantities as charts: inline SVG for a page, and the same marks as text of 80 columns.
//!
//! A [`Plot`] draws lines and dots over an axis of time, rate or number; a [`RowChart`] draws bars,
//! dots and intervals, a row each; a [`HeatMap`] draws tiles by window and streams. Each has `svg`,
//! `text` and `figures`, the last for a table of all that is drawn. An SVG has no colours of its
//! own: [`STYLE`] sets them as CSS variables for light, dark, print and forced colours. [`SCRIPT`]
//! adds values at the pointer and the keyboard, and zoom; everything is drawn without it.
//!
//! Text of others is escaped, cut to a bounded length and isolated from the direction of the text
//! around it.

mod braille;
mod figures;
mod heat;
mod plot;
mod quantity;
mod rows;
mod svg;
mod thin;
mod ticks;
mod words;

pub use figures::FigureTable;
pub use heat::{HeatMap, HeatTile};
pub use plot::{Panel, Plot, PlotSeries, SeriesForm};
pub use quantity::{AxisQuantity, Dimension, RateChange};
pub(crate) use quantity::{join_figures, trim_zeros};
pub use rows::{ChartRow, RowChart};
pub use svg::{Hue, displayable_text, escape_html};
pub use words::{break_lines, value_bar};
pub(crate) use words::{format_if, text_if};

/// The style sheet of charts: variables for colours, and the classes of marks.
pub const STYLE: &str = include_str!("chart.css");

/// The script of charts: values at the pointer and the keyboard, and zoom. It needs no network and
/// stores nothing.
pub const SCRIPT: &str = include_str!("chart.js");

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::STYLE;

    /// Least contrast of text (WCAG 2.2, 1.4.3).
    const MIN_CONTRAST: f64 = 4.5;

    /// Returns the variables of the theme whose block of the style sheet begins with `begin`.
    fn theme(begin: &str) -> BTreeMap<&str, [f64; 3]> {
        let block = STYLE
            .split_once(begin)
            .unwrap()
            .1
            .split_once('}')
            .unwrap()
            .0;
        let parts = block
            .split([';', '{'])
            .filter_map(|part| part.trim().strip_prefix("--")?.split_once(": #"));
        parts
            .map(|(name, hex)| (name, [0, 2, 4].map(|at| channel(&hex[at..at + 2]))))
            .collect()
    }

    /// Returns a channel of a colour as a part of its luminance (WCAG 2.2, relative luminance).
    fn channel(hex: &str) -> f64 {
        let value = f64::from(u8::from_str_radix(hex, 16).unwrap()) / 255.0;
        if value <= 0.040_45 {
            value / 12.92
        } else {
            libm::pow((value + 0.055) / 1.055, 2.4)
        }
    }

    fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
        let luminance =
            |[red, green, blue]: [f64; 3]| 0.2126 * red + 0.7152 * green + 0.0722 * blue;
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn all_text_can_be_read_in_both_themes() {
        for begin in [":root {", "prefers-color-scheme: dark) {"] {
            let colours = theme(begin);
            let texts = ["fg", "dim", "c0", "c1", "c2", "c3", "c4"]
                .map(|text| (text.to_owned(), "bg".to_owned()));
            let tiles = (0..9).map(|shade| (format!("t{shade}"), format!("s{shade}")));
            for (text, ground) in texts.into_iter().chain(tiles) {
                let ratio = contrast(colours[text.as_str()], colours[ground.as_str()]);
                assert!(
                    ratio >= MIN_CONTRAST,
                    "{begin} {text} on {ground}: {ratio:.2}"
                );
            }
            assert!(
                contrast(colours["dim"], colours["ramp"]) >= MIN_CONTRAST,
                "{begin} notes on shades"
            );
        }
    }
}
