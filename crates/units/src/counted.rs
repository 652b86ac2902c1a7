use std::fmt::Display;

/// Returns a count with what it counts, `one` of it in the singular: "1 file", "3 files".
pub fn count_noun(count: impl Display, one: &str) -> String {
    let count = count.to_string();
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {one}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_every_other_number_plural() {
        let counts = [0, 1, 2, 11].map(|count| count_noun(count, "file"));
        assert_eq!(counts, ["0 files", "1 file", "2 files", "11 files"]);
    }
}
