/// Returns text of somebody else in one line that commands no terminal: control characters are escaped.
pub fn printable(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

/// Returns text of somebody else without its control characters.
pub fn without_control_characters(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
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
    fn control_characters_are_removed_and_letters_stay() {
        assert_eq!(without_control_characters("\u{1b}[2JZürich\tµs\n"), "[2JZürichµs");
    }

    #[test]
    fn one_line_may_have_tabs() {
        assert!(is_one_line("4096\t16384 µ"));
        assert!(["a\nb", "a\r", "\u{1b}[2J", "\0"].iter().all(|text| !is_one_line(text)));
    }
}
