//! Lines of braille: a grid of dots, two by four in each character.

/// Bits of a braille character by column and row of its dots (Unicode 15, section 21.1).
const DOTS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

/// A grid of dots.
pub(crate) struct DotGrid {
    width: usize,
    height: usize,
    cells: Vec<u8>,
}

impl DotGrid {
    /// Returns an empty grid of so many characters.
    pub(crate) fn new(width: usize, height: usize) -> Self {
        Self {
            width,
            height,
            cells: vec![0; width * height],
        }
    }

    /// Sets the dot at the shares `x`, from the left, and `y`, from the bottom.
    pub(crate) fn draw_dot(&mut self, x: f64, y: f64) {
        let (column, row) = self.dot_position(x, y);
        self.set_dot(column, row);
    }

    /// Sets the dots of a line between two points.
    pub(crate) fn draw_line(&mut self, from: (f64, f64), to: (f64, f64)) {
        let ((x0, y0), (x1, y1)) = (
            self.dot_position(from.0, from.1),
            self.dot_position(to.0, to.1),
        );
        let steps = x1.abs_diff(x0).max(y1.abs_diff(y0)).max(1);
        for step in 0..=steps {
            let share = step as f64 / steps as f64;
            self.set_dot(dot_between(x0, x1, share), dot_between(y0, y1, share));
        }
    }

    fn dot_position(&self, x: f64, y: f64) -> (usize, usize) {
        let rows = self.height * 4;
        (
            share_index(x, self.width * 2),
            rows - 1 - share_index(y, rows),
        )
    }

    fn set_dot(&mut self, column: usize, row: usize) {
        self.cells[row / 4 * self.width + column / 2] |= DOTS[column % 2][row % 4];
    }

    /// Returns the lines from the top, without blanks at their ends.
    pub(crate) fn text_lines(&self) -> Vec<String> {
        let lines = self.cells.chunks(self.width);
        lines
            .map(|cells| {
                let line: String = cells.iter().copied().map(dot_character).collect();
                line.trim_end().to_owned()
            })
            .collect()
    }
}

/// Returns the index at a share of so many places in a row; 0 of a number that is none.
pub(crate) fn share_index(share: f64, count: usize) -> usize {
    (share.clamp(0.0, 1.0) * (count - 1) as f64).round() as usize
}

/// Returns the dot at a share of the way between two.
fn dot_between(from: usize, to: usize, share: f64) -> usize {
    (from as f64 + (to as f64 - from as f64) * share).round() as usize
}

fn dot_character(dots: u8) -> char {
    match dots {
        0 => ' ',
        dots => char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' '),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_rises() {
        let mut grid = DotGrid::new(4, 2);
        grid.draw_line((0.0, 0.0), (1.0, 1.0));
        assert_eq!(grid.text_lines(), ["  ⡠⠊", "⡠⠊"]);
        let mut grid = DotGrid::new(1, 1);
        grid.draw_dot(f64::NAN, 2.0);
        assert_eq!(grid.text_lines(), ["⠁"]);
    }
}
