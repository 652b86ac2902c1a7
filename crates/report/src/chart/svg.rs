//! Parts of SVG.

use fullpipe_units::printable_line;

use crate::chart::plot::NOTHING;
use crate::chart::quantity::trim_zeros;
use crate::chart::words::format_if;

/// Longest text of others that is shown, in characters.
const MAX_TEXT: usize = 160;

/// Colour of a series. All four can be distinguished by people who do not distinguish red and
/// green, and each has a label next to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hue {
    /// Rates, and the first of several series.
    Blue,
    /// The knee, and the second of several series.
    Orange,
    /// The third of several series, and gains.
    Green,
    /// Round-trip times, and the fourth of several series.
    Plum,
    /// A reference.
    Grey,
}

impl Hue {
    pub(crate) const fn css_class(self) -> &'static str {
        match self {
            Self::Blue => "c0",
            Self::Orange => "c1",
            Self::Green => "c2",
            Self::Plum => "c3",
            Self::Grey => "c4",
        }
    }
}

/// Returns text for HTML and SVG, also within quotation marks.
pub fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns text of others as it may be shown: control characters, and those that change the
/// direction of text, are spelled out, and what is longer than 160 characters is cut.
pub fn displayable_text(text: &str) -> String {
    cut_text(text, MAX_TEXT)
}

/// Returns the first `max` characters of text of others, with an ellipsis for the rest.
pub(crate) fn cut_text(text: &str, max: usize) -> String {
    let is_long = text.chars().nth(max).is_some();
    let kept: String = text
        .chars()
        .take(if is_long { max - 1 } else { max })
        .collect();
    // What was spelled out is longer than the characters were.
    let visible: String = printable_line(&kept).chars().take(max * 8).collect();
    if is_long { visible + "…" } else { visible }
}

/// Returns a coordinate with so many decimal places at most, without a zero before the point.
pub(crate) fn format_coordinate(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    match trim_zeros(&text) {
        "-0" => "0".to_owned(),
        short => match (short.strip_prefix("0."), short.strip_prefix("-0.")) {
            (Some(part), _) => format!(".{part}"),
            (_, Some(part)) => format!("-.{part}"),
            _ => short.to_owned(),
        },
    }
}

/// Returns the decimal places with which a place on an axis of this `range` is right to a tenth of
/// a pixel.
pub(crate) fn decimal_places(range: f64) -> usize {
    /// Steps of a fifth of a pixel on the widest page.
    const STEPS: f64 = 3_600.0;
    libm::ceil(libm::log10(STEPS / range.max(1e-12))).clamp(0.0, 12.0) as usize
}

/// Returns the decimal places that keep four digits of the values of an axis from zero to `end`.
pub(crate) fn value_places(end: f64) -> usize {
    (4.0 - libm::ceil(libm::log10(end.max(1e-12)))).clamp(0.0, 12.0) as usize
}

/// Returns the sentence in place of a chart without data, as a paragraph.
pub(crate) fn nothing_paragraph() -> String {
    format!("<p class=\"none\">{}</p>", escape_html(NOTHING))
}

/// Returns a text element at `x` (a length or a percentage) and `y` in pixels.
pub(crate) fn text_element(class: &str, x: &str, y: f64, content: &str) -> String {
    let x = format_if(x != "0", || format!(" x=\"{x}\""));
    let class = format_if(!class.is_empty(), || format!(" class=\"{class}\""));
    format!(
        "<text{class}{x} y=\"{}\">{}</text>",
        format_coordinate(y, 1),
        escape_html(content)
    )
}

/// Returns a place between 0 and 1 as a percentage, to a tenth of a pixel.
pub(crate) fn format_percent(share: f64) -> String {
    format!("{}%", format_coordinate(share * 100.0, 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_text() {
        assert_eq!(
            escape_html("<b a=\"1\">&'"),
            "&lt;b a=&quot;1&quot;&gt;&amp;&#39;"
        );
        assert_eq!(displayable_text("a\u{202e}b\nc"), "a\\u{202e}b\\nc");
        let long = displayable_text(&"x".repeat(1_000_000));
        assert_eq!(
            (long.chars().count(), long.ends_with("x…")),
            (MAX_TEXT, true)
        );
        assert!(displayable_text(&"\u{202e}".repeat(1_000_000)).len() < 2_000);
        assert_eq!(displayable_text("eth0"), "eth0");
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!(
            (
                format_coordinate(12.0, 3),
                format_coordinate(-0.000_1, 2),
                format_coordinate(-0.125, 2)
            ),
            ("12".into(), "0".into(), "-.12".into())
        );
        assert_eq!(
            (
                decimal_places(1_000.0),
                decimal_places(0.178),
                decimal_places(12.0)
            ),
            (1, 5, 3)
        );
        assert_eq!(
            (value_places(1_000.0), value_places(60.0), value_places(0.2)),
            (1, 2, 4)
        );
    }
}
