use std::fmt::Write as _;

/// Returns text of somebody else in one line that commands no terminal: control characters, and
/// those that change the direction of text or begin a line, are escaped.
pub fn printable_line(text: &str) -> String {
    text.chars().map(escape_char).collect()
}

/// Returns bytes of somebody else, such as the name of a file, as [`printable_line`] text; those
/// that are no UTF-8 are escaped, too.
pub fn printable_bytes(bytes: &[u8]) -> String {
    let mut text = String::new();
    for part in bytes.utf8_chunks() {
        text += &printable_line(part.valid());
        text.extend(part.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// Returns bytes as hexadecimal digits, as `b3sum` prints them.
pub fn to_hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(
        String::with_capacity(2 * bytes.len()),
        |mut digits, byte| {
            let _ = write!(digits, "{byte:02x}");
            digits
        },
    )
}

fn escape_char(c: char) -> String {
    match c {
        c if c.is_control() => c.escape_debug().to_string(),
        c if changes_lines(c) => c.escape_unicode().to_string(),
        c => c.to_string(),
    }
}

/// Returns true if a character separates lines or paragraphs, or changes the direction of text.
fn changes_lines(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns text of somebody else without its control characters, and without those that change the
/// direction of text or begin a line.
pub fn without_control_characters(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() && !changes_lines(*c))
        .collect()
}

/// Returns true if text has no control characters, line breaks included, but tabs.
pub fn is_one_line(text: &str) -> bool {
    text.chars().all(|c| !c.is_control() || c == '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_to_the_terminal_is_shown_and_letters_stay() {
        assert_eq!(printable_line("\u{1b}[2Jssh\n"), "\\u{1b}[2Jssh\\n");
        assert_eq!(printable_line("Zürich 5 µs"), "Zürich 5 µs");
        assert_eq!(to_hexadecimal(&[0, 0x1f, 0xff]), "001fff");
    }

    #[test]
    fn what_turns_the_direction_of_text_is_shown() {
        assert_eq!(
            printable_line("a\u{202e}gpj.sh \u{2066}\u{200f}א"),
            "a\\u{202e}gpj.sh \\u{2066}\\u{200f}א"
        );
        assert_eq!(printable_line("a\u{2028}b"), "a\\u{2028}b");
    }

    #[test]
    fn bytes_are_shown_as_text_is_and_what_is_no_text_as_numbers() {
        assert_eq!(printable_bytes(b"a\x1b[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable_bytes(b"caf\xc3\xa9 \xff"), "café \\xff");
        for turning in ['\u{061c}', '\u{200f}', '\u{202e}', '\u{2066}', '\u{2069}'] {
            let name = format!("a{turning}gpj.sh");
            assert_eq!(
                printable_bytes(name.as_bytes()),
                format!("a{}gpj.sh", turning.escape_unicode())
            );
            assert_eq!(printable_bytes(name.as_bytes()), printable_line(&name));
        }
    }

    #[test]
    fn control_characters_are_removed_and_letters_stay() {
        assert_eq!(
            without_control_characters("\u{1b}[2JZürich\tµs\u{202e}\n"),
            "[2JZürichµs"
        );
    }

    #[test]
    fn one_line_may_have_tabs() {
        assert!(is_one_line("4096\t16384 µ"));
        assert!(
            ["a\nb", "a\r", "\u{1b}[2J", "\0"]
                .iter()
                .all(|text| !is_one_line(text))
        );
    }
}
