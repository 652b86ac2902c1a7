//! Pages of the documentation as text for a terminal.

use super::prelude::*;

/// A paragraph or an item of a list, until it is whole.
struct TextBlock {
    /// Columns before it, and before its first line if it is an item.
    indent: usize,
    is_item: bool,
    text: String,
}

/// Returns Markdown as lines of at most 80 columns, but for commands, which stay as they are. Of
/// links within the documentation the text is left, and of tables a list.
pub fn markdown_text(page: &str) -> String {
    let mut text = String::new();
    let mut block: Option<TextBlock> = None;
    for line in page.lines() {
        let row = table_row(line);
        let line = row.as_deref().unwrap_or(line);
        let content = line.trim_start();
        let indent = line.len() - content.len();
        let item = content.strip_prefix("* ");
        if let (Some(open), None, false) = (&mut block, item, content.is_empty()) {
            open.text += " ";
            open.text += content;
            continue;
        }
        text += &block.take().map_text(TextBlock::into_text);
        match content.trim_start_matches('#') {
            _ if content.is_empty() => text += "\n",
            title if title.len() < content.len() => {
                text += &format!("{}\n", bold_text(title.trim_start()));
            }
            _ if indent >= 4 && item.is_none() => text += &format!("{line}\n"),
            _ => {
                block = Some(TextBlock {
                    indent,
                    is_item: item.is_some(),
                    text: item.unwrap_or(content).to_owned(),
                });
            }
        }
    }
    text + &block.map_text(TextBlock::into_text)
}

/// Returns a row of a table as an item, and the line below its head as nothing; `None` of another
/// line.
fn table_row(line: &str) -> Option<String> {
    let cells = line.strip_prefix('|')?.trim_end().strip_suffix('|')?;
    let is_rule = cells.bytes().all(|byte| b"|-: ".contains(&byte));
    let cells: Vec<&str> = cells.split('|').map(str::trim).collect();
    Some(format_if(!is_rule, || format!("* {}", cells.join(": "))))
}

impl TextBlock {
    fn into_text(self) -> String {
        let text = without_links(&self.text);
        if !self.is_item {
            return paragraph(&text, self.indent);
        }
        let lines = paragraph(&text, self.indent + 2);
        format!("{}* {}", " ".repeat(self.indent), lines.trim_start())
    }
}

/// Returns the text with each `[words](file)` as its words; addresses of the web stay.
fn without_links(text: &str) -> String {
    let Some((before, rest)) = text.split_once('[') else {
        return text.to_owned();
    };
    let link = rest
        .split_once("](")
        .and_then(|(words, rest)| Some((words, rest.split_once(')')?)));
    match link {
        Some((words, (target, after))) if !words.contains('[') && !target.contains(' ') => {
            let address = format_if(target.starts_with("http"), || format!(" ({target})"));
            format!("{before}{words}{address}{}", without_links(after))
        }
        _ => format!("{before}[{}", without_links(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::without_marks;

    #[test]
    fn paragraphs_and_items_are_wrapped_and_commands_are_not() {
        let long = "a word and another ".repeat(6);
        let paragraphs =
            format!("# loss/policer\n\nAt: path\n\n{long}\nand [more](../more.md).\n\n");
        let items = format!("* {long}\n  * [x](https://x.example/) {long}\n    goes on\n\n");
        let command = "    tcpdump -ni eth0 -c 4 'tcp[tcpflags] & tcp-syn != 0 and host ADDRESS' and more of it\n";
        let table = "\n| what | type |\n|---|---|\n| a listing | `ss` |\n";
        let page = [&paragraphs, &items, command, table].concat();
        let text = without_marks(&markdown_text(&page));
        assert!(
            text.starts_with("loss/policer\n\nAt: path\n\na word"),
            "{text}"
        );
        assert!(
            text.contains("and more.\n\n* a word")
                && text.contains("\n  * x (https://x.example/) a"),
            "{text}"
        );
        assert!(
            text.contains("\n    tcpdump -ni eth0 -c 4 'tcp[tcpflags] & tcp-syn"),
            "{text}"
        );
        assert!(
            text.ends_with("\n* what: type\n\n* a listing: `ss`\n"),
            "{text}"
        );
        assert!(
            text.lines()
                .all(|line| line.contains("tcpdump") || line.chars().count() <= 80),
            "{text}"
        );
    }
}
