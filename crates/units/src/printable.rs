/// Returns text of somebody else in one line that commands no terminal: control characters, and those that change the
/// direction of text, are escaped.
pub fn printable(text: &str) -> String {
    text.chars().map(spelled).collect()
}

fn spelled(c: char) -> String {
    match c {
        c if c.is_control() => c.escape_debug().to_string(),
        c if changes_direction(c) => c.escape_unicode().to_string(),
        c => c.to_string(),
    }
}

fn changes_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns text of somebody else without its control characters, and without those that change the direction of text.
pub fn without_control_characters(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && !changes_direction(*c)).collect()
}

/// Returns whether text has no control characters, line breaks included, but tabs.
pub fn is_one_line(text: &str) -> bool {
    text.chars().all(|c| !c.is_control() || c == '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_to_the_terminal_is_shown_and_letters_stay() {
        assert_eq!(printable("\u{1b}[2Jssh\n"), "\\u{1b}[2Jssh\\n");
        assert_eq!(printable("Zürich 5 µs"), "Zürich 5 µs");
    }

    #[test]
    fn what_turns_the_direction_of_text_is_shown() {
        assert_eq!(printable("a\u{202e}gpj.sh \u{2066}\u{200f}א"), "a\\u{202e}gpj.sh \\u{2066}\\u{200f}א");
    }

    #[test]
    fn control_characters_are_removed_and_letters_stay() {
        assert_eq!(without_control_characters("\u{1b}[2JZürich\tµs\u{202e}\n"), "[2JZürichµs");
    }

    #[test]
    fn one_line_may_have_tabs() {
        assert!(is_one_line("4096\t16384 µ"));
        assert!(["a\nb", "a\r", "\u{1b}[2J", "\0"].iter().all(|text| !is_one_line(text)));
    }
}
