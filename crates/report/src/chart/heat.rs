//! Rates by window and streams, as tiles.

use std::cmp::Reverse;

use fullpipe_units::{BitRate, ByteCount};

use crate::chart::figures::FigureTable;
use crate::chart::plot::NOTHING;
use crate::chart::quantity::{AxisUnit, Dimension, format_digits, format_quantity};
use crate::chart::svg::{
    displayable_text, escape_html, format_coordinate, format_percent, nothing_paragraph,
    text_element,
};
use crate::chart::words::{format_if, text_if};

/// Width of a tile, in units of the picture: it is as wide as its place permits.
const TILE: usize = 100;

/// Height of a row of tiles, in pixels.
const ROW: f64 = 28.0;

/// Room above the tiles for the numbers of streams.
const ABOVE: f64 = 44.0;

/// Room below for the scale.
const BELOW: f64 = 38.0;

/// Height of a line of the legend below the scale.
const LEGEND: f64 = 17.0;

/// Steps of the scale of colours.
const SHADES: usize = 9;

/// Share of the best rate that counts as reaching it.
const NEARLY: f64 = 0.95;

/// A setting and its rate.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatTile {
    /// Window of each stream.
    pub window: ByteCount,
    /// Number of streams.
    pub streams: u64,
    /// Rate of all streams together.
    pub rate: BitRate,
    /// True if it was measured or simulated; otherwise it is known from a fitted surface alone.
    pub is_measured: bool,
    /// Further figures, in words.
    pub note: String,
}

/// Tiles by window, the largest at the top, and streams, the fewest at the left.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatMap {
    title: String,
    tiles: Vec<HeatTile>,
    windows: Vec<ByteCount>,
    streams: Vec<u64>,
    best: BitRate,
    knee: Option<(ByteCount, u64)>,
    bdp: Option<ByteCount>,
}

impl HeatMap {
    /// Returns a map of `tiles`; `title` is read by programs that read the screen. Of several tiles
    /// with one setting, the first is kept.
    pub fn new(title: &str, mut tiles: Vec<HeatTile>) -> Self {
        tiles.sort_by_key(|tile| (Reverse(tile.window), tile.streams));
        tiles.dedup_by_key(|tile| (tile.window, tile.streams));
        let mut windows: Vec<ByteCount> = tiles.iter().map(|tile| tile.window).collect();
        let mut streams: Vec<u64> = tiles.iter().map(|tile| tile.streams).collect();
        windows.sort_unstable_by(|one, next| next.cmp(one));
        streams.sort_unstable();
        windows.dedup();
        streams.dedup();
        let best = tiles.iter().map(|tile| tile.rate).max().unwrap_or_default();
        Self {
            title: displayable_text(title),
            tiles,
            windows,
            streams,
            best,
            knee: None,
            bdp: None,
        }
    }

    /// Returns the same map with a ring around the best setting: the least that gives nearly the
    /// best rate.
    #[must_use]
    pub fn with_knee(self, window: ByteCount, streams: u64) -> Self {
        Self {
            knee: Some((window, streams)),
            ..self
        }
    }

    /// Returns the same map with a line along which streams × window is `bdp`, the product of
    /// bandwidth and round-trip time.
    #[must_use]
    pub fn with_bdp(self, bdp: ByteCount) -> Self {
        Self {
            bdp: Some(bdp),
            ..self
        }
    }

    fn tile_at(&self, row: usize, column: usize) -> Option<&HeatTile> {
        let wanted = (Reverse(*self.windows.get(row)?), *self.streams.get(column)?);
        let index = self
            .tiles
            .binary_search_by_key(&wanted, |tile| (Reverse(tile.window), tile.streams))
            .ok()?;
        self.tiles.get(index)
    }

    /// Returns the row and the column of a tile.
    fn tile_position(&self, tile: &HeatTile) -> Option<(usize, usize)> {
        let row = self
            .windows
            .binary_search_by_key(&Reverse(tile.window), |window| Reverse(*window))
            .ok()?;
        Some((row, self.streams.binary_search(&tile.streams).ok()?))
    }

    fn rate_unit(&self) -> AxisUnit {
        Dimension::Rate.largest_unit(self.best.as_f64())
    }

    /// Returns true if a setting gives nearly the best rate.
    fn is_nearly_best(&self, tile: &HeatTile) -> bool {
        let best = self.best.as_f64();
        best > 0.0 && tile.rate.as_f64() >= NEARLY * best
    }

    /// Returns the map as an SVG element as wide as its place on the page, in an element that
    /// scrolls where the page is narrower than the tiles; or a sentence as a paragraph if there is
    /// nothing to draw.
    pub fn to_svg(&self) -> String {
        if self.tiles.is_empty() {
            return nothing_paragraph();
        }
        let tall = ROW * self.windows.len() as f64;
        let mut svg = format!(
            "<div class=\"wide tiles\"><svg width=\"{}\" height=\"0\" aria-hidden=\"true\"></svg>\
             <svg class=\"chart heat\" role=\"img\" tabindex=\"0\" aria-label=\"{}\" height=\"{}\">",
            44 * self.streams.len(),
            escape_html(&format!(
                "{}. The best is {}",
                self.title,
                format_quantity(self.best)
            )),
            ABOVE + tall + BELOW + LEGEND * self.legend_lines().len() as f64,
        );
        svg += &self.draw_heads();
        // The lines lie over the tiles, and the numbers over the lines.
        let bottom = ABOVE + tall;
        svg += &format!(
            "<svg width=\"100%\" height=\"{bottom}\" viewBox=\"0 0 {} {bottom}\" preserveAspectRatio=\"none\">{}</svg>",
            TILE * self.streams.len(),
            self.draw_tiles(|tile, row, column| self.draw_tile(tile, row, column))
        );
        svg += &self.draw_lines(tall);
        svg += &format!(
            "<g class=\"number mid\">{}</g>",
            self.draw_tiles(|tile, row, column| self.draw_label(tile, row, column))
        );
        svg + &self.draw_scale(ABOVE + tall) + "</svg></div>"
    }

    /// Draws the numbers of streams above the tiles, and the windows at their left.
    fn draw_heads(&self) -> String {
        let mut svg = text_element("tick unit", "0", 12.0, "streams");
        svg += &text_element("tick left", "0", ABOVE - 10.0, "window");
        for (column, streams) in self.streams.iter().enumerate() {
            let middle = format_percent(self.column_share(column as f64 + 0.5));
            svg += &text_element("tick mid", &middle, ABOVE - 10.0, &streams.to_string());
        }
        for (row, window) in self.windows.iter().enumerate() {
            let window = format_quantity(*window);
            svg += &text_element("tick left", "0", row_top(row) + 18.5, &window);
        }
        svg
    }

    /// Joins the texts that `draw` returns for each tile with its row and its column, from the top.
    fn draw_tiles(&self, draw: impl Fn(&HeatTile, usize, usize) -> String) -> String {
        let positions = self
            .tiles
            .iter()
            .filter_map(|tile| Some((tile, self.tile_position(tile)?)));
        positions
            .map(|(tile, (row, column))| draw(tile, row, column))
            .collect()
    }

    /// Returns a place across, in columns, between 0 and 1.
    fn column_share(&self, columns: f64) -> f64 {
        columns / self.streams.len() as f64
    }

    /// Draws a tile. Its words are in the table, whose rows are in the order of the tiles.
    fn draw_tile(&self, tile: &HeatTile, row: usize, column: usize) -> String {
        // The style sheet has the sizes of both kinds.
        let (class, left, y) = if tile.is_measured {
            ("tile", 0, 0.0)
        } else {
            ("tile small", 30, 9.0)
        };
        format!(
            "<rect class=\"m {class} s{}\" x=\"{}\" y=\"{}\"/>",
            self.tile_shade(tile),
            TILE * column + left,
            row_top(row) + y
        )
    }

    /// Draws the number of a measured tile, and the ring of the knee.
    fn draw_label(&self, tile: &HeatTile, row: usize, column: usize) -> String {
        let mut svg = String::new();
        if self.knee == Some((tile.window, tile.streams)) {
            let (left, width) = (
                format_percent(self.column_share(column as f64)),
                format_percent(self.column_share(1.0)),
            );
            let top = row_top(row);
            svg += &format!(
                "<rect class=\"ring\" x=\"{left}\" width=\"{width}\" y=\"{top}\" height=\"{ROW}\" rx=\"3\"/>"
            );
        }
        if tile.is_measured {
            let middle = format_percent(self.column_share(column as f64 + 0.5));
            let number = format_digits(round_significant(
                tile.rate.as_f64() / self.rate_unit().size,
            ));
            svg += &text_element(
                &format!("t{}", self.tile_shade(tile)),
                &middle,
                row_top(row) + 18.5,
                &number,
            );
        }
        svg
    }

    /// Returns the figures of a tile in words.
    fn tile_words(&self, tile: &HeatTile) -> String {
        let share = tile.rate.as_f64() / self.best.as_f64().max(1.0) * 100.0;
        let known = text_if(!tile.is_measured, ", not measured");
        let note = format_if(!tile.note.is_empty(), || {
            format!("; {}", displayable_text(&tile.note))
        });
        format!(
            "{}, {share:.0} % of the best{known}{note}",
            format_quantity(tile.rate)
        )
    }

    fn tile_shade(&self, tile: &HeatTile) -> usize {
        let share = tile.rate.as_f64() / self.best.as_f64().max(1.0);
        ((share * SHADES as f64) as usize).min(SHADES - 1)
    }

    /// Draws the edge of the settings that give nearly the best rate, and the line of the BDP, in
    /// units of tiles.
    fn draw_lines(&self, tall: f64) -> String {
        let (columns, rows) = (self.streams.len(), self.windows.len());
        let mut svg = format!(
            "<svg y=\"{ABOVE}\" width=\"100%\" height=\"{tall}\" viewBox=\"0 0 {columns} {rows}\" \
             preserveAspectRatio=\"none\">"
        );
        for (class, line) in [("edge", self.best_edge()), ("bdp", self.bdp_line())] {
            // A line of the background's colour below it, so that it shows on light and on dark
            // tiles.
            svg += &format!(
                "<path class=\"casing\" d=\"{line}\"/><path class=\"{class}\" d=\"{line}\"/>"
            );
        }
        svg + "</svg>"
    }

    /// Returns the line along which streams × window is the BDP; empty where fewer than two columns
    /// have a place on it.
    fn bdp_line(&self) -> String {
        let Some(bdp) = self.bdp else {
            return String::new();
        };
        let points: Vec<String> = (0..self.streams.len())
            .filter_map(|column| self.bdp_crossing(bdp, column))
            .collect();
        format_if(points.len() > 1, || format!("M{}", points.join(" ")))
    }

    /// Returns the sides at which a setting with nearly the best rate has a neighbour without.
    fn best_edge(&self) -> String {
        self.draw_tiles(|tile, row, column| {
            let mut sides = String::new();
            if self.is_edge(tile, row, column + 1) {
                sides += &format!("M{},{row}v1", column + 1);
            }
            if self.is_edge(tile, row + 1, column) {
                sides += &format!("M{column},{}h1", row + 1);
            }
            sides
        })
    }

    /// Returns true if one of a tile and that at another place gives nearly the best rate, and the
    /// other does not.
    fn is_edge(&self, tile: &HeatTile, row: usize, column: usize) -> bool {
        self.tile_at(row, column)
            .is_some_and(|other| self.is_nearly_best(other) != self.is_nearly_best(tile))
    }

    /// Returns the place in a column at which streams × window is `bdp`, between the windows by
    /// their logarithms; `None` above the largest and below the smallest.
    fn bdp_crossing(&self, bdp: ByteCount, column: usize) -> Option<String> {
        let wanted = bdp.as_f64() / self.streams[column] as f64;
        let row = self
            .windows
            .partition_point(|window| window.as_f64() > wanted)
            .saturating_sub(1);
        let [above, below] =
            [row, row + 1].map(|row| self.windows.get(row).map(|window| window.as_f64()));
        let (above, below) = above
            .zip(below)
            .filter(|(above, below)| (*below..=*above).contains(&wanted))?;
        let share = libm::log(above / wanted) / libm::log(above / below.max(1.0));
        Some(format!(
            "{},{}",
            format_coordinate(column as f64 + 0.5, 1),
            format_coordinate(row as f64 + 0.5 + share, 3)
        ))
    }

    /// Draws the scale of colours, and the meaning of the lines below it.
    fn draw_scale(&self, top: f64) -> String {
        let mut svg = String::new();
        for shade in 0..SHADES {
            let x = format_percent(shade as f64 * 0.03);
            let y = top + 16.0;
            svg += &format!(
                "<rect class=\"s{shade}\" x=\"{x}\" width=\"3%\" y=\"{y}\" height=\"9\"/>"
            );
        }
        svg += &text_element(
            "tick",
            "29%",
            top + 25.0,
            &format!("0 to {}", format_quantity(self.best)),
        );
        for (index, line) in self.legend_lines().iter().enumerate() {
            svg += &text_element("tick", "0", top + 46.0 + LEGEND * index as f64, line);
        }
        svg
    }

    /// Returns the meaning of the lines and of the small tiles, as far as there are any.
    fn legend_lines(&self) -> Vec<String> {
        let bdp = self
            .bdp
            .map(|bdp| format!("dashed: streams × window = {} (BDP)", format_quantity(bdp)));
        let fitted = self.tiles.iter().any(|tile| !tile.is_measured);
        let edge = "thick line: 95 % of the best".to_owned();
        let small = fitted.then(|| "small tiles: not measured, but fitted".to_owned());
        std::iter::once(edge).chain(bdp).chain(small).collect()
    }

    /// Returns the map as lines of at most 80 columns, or a sentence if there is nothing to draw.
    /// Columns without room are left out, and counted.
    pub fn to_text(&self) -> String {
        /// Columns of five characters that fit next to the windows.
        const MAX_COLUMNS: usize = 14;
        if self.tiles.is_empty() {
            return format!("{NOTHING}\n");
        }
        let every = self.streams.len().div_ceil(MAX_COLUMNS).max(1);
        let columns: Vec<usize> = (0..self.streams.len()).step_by(every).collect();
        let mut text = format!("{:>8}", self.rate_unit().name);
        for column in &columns {
            text += &format!("{:>5}", self.streams[*column]);
        }
        text += "\n";
        for (row, window) in self.windows.iter().enumerate() {
            let cells = columns.iter().map(|column| self.cell_text(row, *column));
            let window = format_quantity(*window);
            text += &format!("{window:>8} {}\n", cells.collect::<String>().trim_end());
        }
        text += &self.text_legend();
        let left_out = self.streams.len() - columns.len();
        if left_out > 0 {
            text += &format!("{left_out} numbers of streams are left out\n");
        }
        text
    }

    /// Returns the line below the map as text.
    fn text_legend(&self) -> String {
        let knee = text_if(self.knee.is_some(), "* the knee; ");
        let fitted = text_if(
            !self.tiles.iter().all(|tile| tile.is_measured),
            "; · not measured",
        );
        format!("{knee}windows down, streams across{fitted}\n")
    }

    /// Returns the rate of a measured tile, and a dot in place of another.
    fn cell_text(&self, row: usize, column: usize) -> String {
        let Some(tile) = self.tile_at(row, column).filter(|tile| tile.is_measured) else {
            return "   · ".to_owned();
        };
        let mark = if self.knee == Some((tile.window, tile.streams)) {
            '*'
        } else {
            ' '
        };
        // Two decimals are what a column has room for.
        let value =
            (round_significant(tile.rate.as_f64() / self.rate_unit().size) * 100.0).round() / 100.0;
        format!("{:>4}{mark}", format_digits(value))
    }

    /// Returns the settings and their rates as a table.
    pub fn to_figures(&self) -> FigureTable {
        let rows = self.tiles.iter().map(|tile| {
            let window = format_quantity(tile.window);
            let setting = format!("{} × {window}", tile.streams);
            vec![setting, self.tile_words(tile)]
        });
        FigureTable {
            heads: vec!["streams × window".to_owned(), "rate".to_owned()],
            rows: rows.collect(),
        }
    }
}

/// Returns the top of a row of tiles.
fn row_top(row: usize) -> f64 {
    ABOVE + ROW * row as f64
}

/// Returns a number with three significant digits, as a tile has room for.
fn round_significant(value: f64) -> f64 {
    if value < 1e-9 {
        return 0.0;
    }
    let step = libm::pow(10.0, libm::floor(libm::log10(value)) - 2.0);
    (value / step).round() * step
}

#[cfg(test)]
mod tests;
