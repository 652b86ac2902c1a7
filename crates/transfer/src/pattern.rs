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
            (true, _) => fits(&self.glob, whole),
            (false, false) => fits(&self.glob, path.name()),
            (false, true) => {
                let starts = whole.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
                std::iter::once(0).chain(starts).any(|start| fits(&self.glob, &whole[start..]))
            }
        }
    }
}

/// Returns whether `glob` fits all of `text`. Only the last star of a kind is tried again, so that the time is bounded
/// by a power of the length.
fn fits(glob: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // The places to go on from after the last `*` and the last `**`, should the rest not fit.
    let mut star: Option<(usize, usize)> = None;
    let mut double: Option<(usize, usize)> = None;
    loop {
        if glob[at..].starts_with(b"**") {
            (at, star) = (at + 2, None);
            double = Some((at, read));
            continue;
        }
        if glob.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, read));
            continue;
        }
        if at == glob.len() && read == text.len() {
            return true;
        }
        if let Some(length) = text.get(read).and_then(|byte| one(&glob[at..], *byte)) {
            (at, read) = (at + length, read + 1);
            continue;
        }
        let again = |from: &mut (usize, usize)| {
            from.1 += 1;
            *from
        };
        if let Some(from) = star.as_mut().filter(|from| text.get(from.1).is_some_and(|byte| *byte != b'/')) {
            (at, read) = again(from);
        } else if let Some(from) = double.as_mut().filter(|from| from.1 < text.len()) {
            star = None;
            (at, read) = again(from);
        } else {
            return false;
        }
    }
}

/// Returns the length of the first element of `glob`, if it fits `byte`.
fn one(glob: &[u8], byte: u8) -> Option<usize> {
    match glob {
        [b'?', ..] => (byte != b'/').then_some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => match rest.iter().skip(1).position(|byte| *byte == b']') {
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
    }

    proptest! {
        #[test]
        fn any_pattern_is_read(glob in proptest::collection::vec(any::<u8>(), 0..40), text in "[a-c/]{0,12}") {
            let _ = fits(&glob, text.as_bytes());
        }
    }
}
