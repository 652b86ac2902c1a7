/// Returns text of somebody else in one line that commands no terminal: control characters are escaped.
pub fn printable(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_to_the_terminal_is_shown_and_letters_stay() {
        assert_eq!(printable("\u{1b}[2Jssh\n"), "\\u{1b}[2Jssh\\n");
        assert_eq!(printable("Zürich 5 µs"), "Zürich 5 µs");
    }
}
