//! Words in lines, and bars of characters.

/// Returns `text` if the condition holds, and nothing otherwise.
pub(crate) fn text_if(condition: bool, text: &str) -> &str {
    if condition { text } else { "" }
}

/// Returns the text of `to_text` if the condition holds, and nothing otherwise.
pub(crate) fn format_if(condition: bool, to_text: impl FnOnce() -> String) -> String {
    condition.then(to_text).unwrap_or_default()
}

/// Returns `text` broken at spaces into lines of at most `width` characters; a word longer than that stands
/// alone.
pub fn break_lines(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in split_words(text) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// The words of `text`. A number and the word after it are one, so that no figure is parted from
/// its unit.
fn split_words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut after_number = false;
    for word in text.split_whitespace() {
        match words.last_mut() {
            Some(number) if after_number => *number += &format!(" {word}"),
            _ => words.push(word.to_owned()),
        }
        after_number = word.trim_start_matches('(').parse::<f64>().is_ok();
    }
    words
}

/// Returns a bar of at most `width` characters for `value` out of `full`, to an eighth of a character.
pub fn value_bar(value: f64, full: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = if full > 0.0 {
        (value / full).clamp(0.0, 1.0)
    } else {
        0.0
    };
    let eighths = (share * width as f64 * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_keeps_its_unit() {
        assert_eq!(
            break_lines("over (9 round trips) and 4 MiB", 10),
            ["over", "(9 round", "trips) and", "4 MiB"]
        );
    }

    #[test]
    fn bars_grow_by_eighths() {
        assert_eq!(value_bar(0.0, 1.0, 4), "");
        assert_eq!(value_bar(0.5, 1.0, 4), "██");
        assert_eq!(value_bar(0.53, 1.0, 4), "██▏");
        assert_eq!(value_bar(9.0, 1.0, 4), "████");
        assert_eq!(value_bar(1.0, 0.0, 4), "");
    }
}
