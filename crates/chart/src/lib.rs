//! Series of quantities as charts: inline SVG for a page, and the same marks as text of 80 columns.
//!
//! A [`Plot`] draws lines and dots over an axis of time, rate or number; a [`Rows`] draws bars, dots and intervals, a
//! row each; a [`HeatMap`] draws tiles by window and streams. Each has `svg`, `text` and `figures`, the last for a
//! table of all that is drawn. An SVG has no colours of its own: [`STYLE`] sets them as CSS variables for light, dark,
//! print and forced colours. [`SCRIPT`] adds values at the pointer and the keyboard, and zoom; everything is drawn
//! without it.
//!
//! Text of others is escaped, cut to a bounded length and isolated from the direction of the text around it.

#![expect(clippy::format_push_string, reason = "a chart is not on any hot path, and this reads best")]

mod braille;
mod figures;
mod heat;
mod plot;
mod quantity;
mod rows;
mod svg;
mod thin;
mod ticks;

pub use figures::Figures;
pub use heat::{HeatMap, Tile};
pub use plot::{Mark, Panel, Plot, Series};
pub use quantity::{Change, Dimension, Quantity};
pub use rows::{Row, Rows};
pub use svg::{Hue, escape, shown};

/// The style sheet of charts: variables for colours, and the classes of marks.
pub const STYLE: &str = include_str!("../assets/chart.css");

/// The script of charts: values at the pointer and the keyboard, and zoom. It needs no network and stores nothing.
pub const SCRIPT: &str = include_str!("../assets/chart.js");
