use std::mem::{replace, swap};

use crate::EntryPath;

/// Patterns of what is neither sent nor deleted, as of rsync's `--exclude`.
///
/// `*` and `?` stand for anything but `/`, `**` for anything, `[a-z]` for one of these. A pattern that begins with `/`
/// begins at the top of the transfer; one with another `/` fits the end of a path; one without fits the last name. A
/// `/` at its end restricts it to folders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excludes(Vec<Pattern>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    glob: Vec<u8>,
    is_anchored: bool,
    has_folder: bool,
    folders_only: bool,
}

impl Excludes {
    /// Returns these patterns; none is an error.
    pub fn new<'p>(patterns: impl IntoIterator<Item = &'p [u8]>) -> Self {
        Self(patterns.into_iter().filter(|text| !text.is_empty()).map(Pattern::new).collect())
    }

    /// Returns true if there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if one of the patterns fits `path`, which is a folder or not.
    pub fn exclude(&self, path: &EntryPath, is_folder: bool) -> bool {
        self.0.iter().any(|pattern| pattern.fits(path, is_folder))
    }
}

impl Pattern {
    fn new(text: &[u8]) -> Self {
        let folders_only = text.len() > 1 && text.ends_with(b"/");
        let text = if folders_only { &text[..text.len() - 1] } else { text };
        let anchored = text.strip_prefix(b"/");
        let glob = anchored.unwrap_or(text).to_vec();
        Self { is_anchored: anchored.is_some(), has_folder: glob.contains(&b'/'), folders_only, glob }
    }

    fn fits(&self, path: &EntryPath, is_folder: bool) -> bool {
        if self.folders_only && !is_folder {
            return false;
        }
        let whole = path.as_bytes();
        match (self.is_anchored, self.has_folder) {
            (true, _) => fits(&self.glob, whole, false),
            (false, false) => fits(&self.glob, path.name(), false),
            (false, true) => fits(&self.glob, whole, true),
        }
    }
}

/// Returns whether `glob` fits all of `text` or, with `anywhere`, what follows one of its slashes. It goes on with all
/// places of the glob at once, so that the time is bounded by the product of both lengths.
fn fits(glob: &[u8], text: &[u8], anywhere: bool) -> bool {
    let last_close = glob.iter().rposition(|byte| *byte == b']').unwrap_or_default();
    let [mut places, mut next] = [vec![false; glob.len() + 1], vec![false; glob.len() + 1]];
    reach(glob, 0, &mut places);
    for &byte in text {
        next.fill(false);
        if anywhere && byte == b'/' {
            reach(glob, 0, &mut next);
        }
        for at in (0..glob.len()).filter(|at| places[*at]) {
            let stays = glob[at..].starts_with(b"**") || (glob[at] == b'*' && byte != b'/');
            if stays {
                reach(glob, at, &mut next);
            } else if glob[at] != b'*'
                && let Some(length) = one(&glob[at..], byte, at < last_close)
            {
                reach(glob, at + length, &mut next);
            }
        }
        swap(&mut places, &mut next);
    }
    places[glob.len()]
}

/// Notes a place of `glob`, and those behind the stars that follow it, which may stand for nothing.
fn reach(glob: &[u8], mut at: usize, places: &mut [bool]) {
    while !replace(&mut places[at], true) {
        match &glob[at..] {
            [b'*', b'*', ..] => at += 2,
            [b'*', ..] => at += 1,
            _ => return,
        }
    }
}

/// Returns the length of the first element of `glob`, if it fits `byte`. A class is one only if one `may_close`.
fn one(glob: &[u8], byte: u8, may_close: bool) -> Option<usize> {
    match glob {
        [b'?', ..] => (byte != b'/').then_some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] if may_close => match rest.iter().skip(1).position(|byte| *byte == b']') {
            Some(end) => of_class(&rest[..=end], byte).then_some(end + 3),
            None => (byte == b'[').then_some(1),
        },
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

fn of_class(class: &[u8], byte: u8) -> bool {
    let (negated, mut class) = match class {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, class),
    };
    let mut found = false;
    while let [first, rest @ ..] = class {
        (found, class) = match rest {
            [b'-', last, rest @ ..] => (found || (*first..=*last).contains(&byte), rest),
            _ => (found || *first == byte, rest),
        };
    }
    byte != b'/' && found != negated
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn excludes(pattern: &str, path: &str) -> bool {
        let folder = path.ends_with('/');
        let path = EntryPath::new(path.trim_end_matches('/')).unwrap();
        Excludes::new([pattern.as_bytes()]).exclude(&path, folder)
    }

    #[test]
    fn patterns_mean_what_rsync_means_by_them() {
        for (pattern, path, expected) in [
            ("*.o", "a/b.o", true),
            ("*.o", "a/b.obj", false),
            ("b", "a/b", true),
            ("b", "a/bb", false),
            ("/b", "a/b", false),
            ("/a/b", "a/b", true),
            ("a/b", "x/a/b", true),
            ("a/b", "xa/b", false),
            ("target/", "x/target/", true),
            ("target/", "x/target", false),
            ("a*c", "a/c", false),
            ("/a/**/d", "a/b/c/d", true),
            ("/a/*/d", "a/b/c/d", false),
            ("?.txt", "1.txt", true),
            ("[0-9].txt", "1.txt", true),
            ("[!0-9].txt", "1.txt", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[", "[", true),
            ("*a*b*c", "xaxbxc", true),
            ("", "a", false),
        ] {
            assert_eq!(excludes(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let text = "a".repeat(250);
        assert!(!excludes(&("*a".repeat(60) + "b"), &text));
        assert!(!excludes(&("**a".repeat(60) + "b"), &text));
        // Each of these once took the square of the path's length, or of the pattern's.
        let deep = "a/".repeat(2000) + "a";
        assert!(!excludes(&("**/*".repeat(20) + "/b"), &deep));
        assert!(!excludes(&("**/*".to_owned() + &"[".repeat(5_000)), &deep));
    }

    /// The same without a bound on the time.
    fn fits_slowly(glob: &[u8], text: &[u8]) -> bool {
        let later = |length: usize, may_pass: fn(u8) -> bool| {
            let ends = text.iter().position(|byte| !may_pass(*byte)).unwrap_or(text.len());
            (0..=ends).any(|skipped| fits_slowly(&glob[length..], &text[skipped..]))
        };
        match (glob, text) {
            ([], _) => text.is_empty(),
            ([b'*', b'*', ..], _) => later(2, |_| true),
            ([b'*', ..], _) => later(1, |byte| byte != b'/'),
            (_, [byte, rest @ ..]) => one(glob, *byte, true).is_some_and(|length| fits_slowly(&glob[length..], rest)),
            (_, []) => false,
        }
    }

    proptest! {
        #[test]
        fn any_pattern_is_read(glob in proptest::collection::vec(any::<u8>(), 0..40), text in "[a-c/]{0,12}") {
            prop_assert_eq!(fits(&glob, text.as_bytes(), false), fits_slowly(&glob, text.as_bytes()));
        }

        #[test]
        fn patterns_of_stars_and_classes_fit_as_they_do_by_trying(
            glob in "(\\*|\\*\\*|\\?|a|b|/|\\[|\\]|\\[a-b\\]|\\[!a\\]|\\\\){0,9}",
            text in "[abc/]{0,9}",
        ) {
            let (glob, text) = (glob.as_bytes(), text.as_bytes());
            prop_assert_eq!(fits(glob, text, false), fits_slowly(glob, text));
            let starts = text.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
            let anywhere = std::iter::once(0).chain(starts).any(|start| fits_slowly(glob, &text[start..]));
            prop_assert_eq!(fits(glob, text, true), anywhere);
        }
    }
}
