//! The picture of a page: its lines between a title and a line about the keys.

use fullpipe_report::chart::{break_lines, value_bar};
use fullpipe_units::Span;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Rect, Size};
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::{Line, Span as Words};
use ratatui_core::widgets::Widget;

/// Least size that a picture needs.
const MIN: Size = Size {
    width: 40,
    height: 10,
};

/// Most size that is drawn; a terminal may claim 65 535 × 65 535 characters.
const MAX: Size = Size {
    width: 400,
    height: 200,
};

/// Colour of rates: of middle luminance, to be read on dark and on light.
pub(crate) const RATE: Style = Style::new().fg(Color::Indexed(32));

/// Colour of round-trip times.
pub(crate) const RTT: Style = Style::new().fg(Color::Indexed(166));

/// Details.
pub(crate) const fn dim_style() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

pub(crate) fn dim_line(text: String) -> Line<'static> {
    Line::styled(text, dim_style())
}

/// Titles and names.
pub(crate) const fn bold_style() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// A state that updates change, and that is drawn.
pub(crate) trait LivePage: Send + 'static {
    /// Something that happened.
    type Update: Send + 'static;

    /// Takes an update that came `now`, after the start.
    fn apply_update(&mut self, now: Span, update: Self::Update);

    /// Returns the title: what runs at the left, and how at the right.
    fn title(&self) -> (String, String);

    /// Returns the lines below the title, at most as many and as long as `room` permits, `now`
    /// after the start. Text of others has no control characters.
    fn page_lines(&self, now: Span, room: Size) -> Vec<Line<'static>>;
}

/// State of the picture that no page knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PictureState {
    pub(crate) size: Size,
    pub(crate) has_colour: bool,
    /// True once the user asked for the end.
    pub(crate) is_ending: bool,
}

/// Draws a page; a sentence in its place where the terminal is too small.
pub(crate) fn draw_page(page: &impl LivePage, now: Span, view: PictureState) -> Buffer {
    let size = Size::new(
        view.size.width.min(MAX.width),
        view.size.height.min(MAX.height),
    );
    let mut buffer = Buffer::empty(Rect::new(0, 0, size.width, size.height));
    let lines = if size.width < MIN.width || size.height < MIN.height {
        let sentence = format!(
            "{} × {} characters are too few for the picture, which needs {} × {}. It goes on; q ends it.",
            view.size.width, view.size.height, MIN.width, MIN.height
        );
        let lines = break_lines(&sentence, size.width.into()).into_iter();
        lines.map(Line::from).collect()
    } else {
        full_page(page, now, size, view.is_ending)
    };
    for (line, row) in lines.into_iter().zip(0..size.height) {
        line.render(Rect::new(0, row, size.width, 1), &mut buffer);
    }
    if !view.has_colour {
        for cell in &mut buffer.content {
            (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
        }
    }
    buffer
}

fn full_page(page: &impl LivePage, now: Span, size: Size, is_ending: bool) -> Vec<Line<'static>> {
    let (left, right) = page.title();
    let mut lines = vec![spread_line(&left, &right, size.width).style(bold_style())];
    lines.extend(page.page_lines(
        now,
        Size {
            height: size.height - 2,
            ..size
        },
    ));
    lines.resize(usize::from(size.height) - 1, Line::default());
    let keys = if is_ending {
        "ending; Ctrl-C ends it at once"
    } else {
        "q ends it"
    };
    lines.push(dim_line(keys.to_owned()));
    lines
}

/// Returns a line with text at both ends; that at the right is left out where there is no room for
/// it.
fn spread_line(left: &str, right: &str, width: u16) -> Line<'static> {
    let gap = usize::from(width).saturating_sub(left.chars().count() + right.chars().count());
    if gap < 2 {
        return Line::from(left.to_owned());
    }
    Line::from(format!("{left}{}{right}", " ".repeat(gap)))
}

/// Returns a bar of `width` characters that is filled up to `share`.
pub(crate) fn share_bar(share: f64, width: usize) -> String {
    format!("{:·<width$}", value_bar(share, 1.0, width))
}

/// Returns a line of a name and what is said of it.
pub(crate) fn named_line(name: &str, said: String) -> Line<'static> {
    Line::from(vec![
        Words::styled(format!("{name} "), bold_style()),
        Words::raw(said),
    ])
}

/// Returns the lines of a sentence about a limit: two at most, each of at most `width` characters.
pub(crate) fn sentence_lines(sentence: &str, width: usize) -> Vec<Line<'static>> {
    let lines = shorten_text(sentence, width - 2, 2).into_iter();
    lines.map(|line| dim_line(format!("  {line}"))).collect()
}

/// Returns at most `most` of the lines of `text`, the last with an ellipsis if there are more.
fn shorten_text(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = break_lines(text, width);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = last.chars().take(width - 1).chain(['…']).collect();
        }
    }
    lines
}

/// Returns a time since the start: `12 s` or `3:07 min`.
pub(crate) fn clock_text(span: Span) -> String {
    let seconds = span.as_secs_f64() as u64;
    if seconds < 100 {
        format!("{seconds} s")
    } else {
        format!("{}:{:02} min", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ratatui_core::backend::TestBackend;
    use ratatui_core::terminal::Terminal;

    /// Returns a page as a terminal without colour of so many characters shows it.
    pub(crate) fn shown(page: &impl LivePage, now: Span, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let view = PictureState {
            size: Size { width, height },
            has_colour: false,
            is_ending: false,
        };
        terminal
            .draw(|frame| frame.buffer_mut().merge(&draw_page(page, now, view)))
            .unwrap();
        let lines = terminal
            .backend()
            .buffer()
            .content
            .chunks(width.into())
            .map(|row| {
                let line: String = row.iter().map(ratatui_core::buffer::Cell::symbol).collect();
                line.trim_end().to_owned()
            });
        lines.collect::<Vec<_>>().join("\n")
    }

    struct Hostile;

    impl LivePage for Hostile {
        type Update = ();

        fn apply_update(&mut self, _: Span, (): ()) {}

        fn title(&self) -> (String, String) {
            ("x".repeat(1_000_000), "y".to_owned())
        }

        fn page_lines(&self, _: Span, _: Size) -> Vec<Line<'static>> {
            vec![Line::from("\u{1b}[2J\u{7}z"); 1_000]
        }
    }

    #[test]
    fn a_picture_has_any_size_and_no_control_characters() {
        for (width, height) in [
            (0, 0),
            (1, 1),
            (39, 10),
            (40, 9),
            (40, 10),
            (u16::MAX, u16::MAX),
        ] {
            let view = PictureState {
                size: Size { width, height },
                has_colour: true,
                is_ending: true,
            };
            let drawn = draw_page(&Hostile, Span::ZERO, view);
            assert!(drawn.area.width <= width && drawn.area.height <= height);
            assert!(
                drawn
                    .content
                    .iter()
                    .all(|cell| !cell.symbol().contains(char::is_control))
            );
        }
    }

    #[test]
    fn a_terminal_that_is_too_small_has_a_sentence() {
        let sentence = "30 × 5 characters are too few\nfor the picture, which needs\n40 × 10. It goes on; q ends\nit.\n";
        assert_eq!(shown(&Hostile, Span::ZERO, 30, 5), sentence);
    }

    #[test]
    fn bars_are_filled_by_eighths() {
        assert_eq!(
            [
                share_bar(0.0, 3),
                share_bar(0.5, 3),
                share_bar(1.0, 3),
                share_bar(f64::NAN, 3)
            ],
            ["···", "█▌·", "███", "···"]
        );
    }

    #[test]
    fn text_keeps_to_its_lines() {
        assert_eq!(
            shorten_text("one two three four", 9, 2),
            ["one two", "three…"].map(str::to_owned)
        );
    }
}
