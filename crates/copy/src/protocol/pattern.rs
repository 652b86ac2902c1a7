use super::EntryPath;

/// Patterns of what is neither sent nor deleted, as of rsync's `--exclude`.
///
/// `*` and `?` stand for anything but `/`, `**` for anything, `[a-z]` for one of these. A pattern
/// that begins with `/` begins at the top of the transfer; one with another `/` fits the end of a
/// path; one without fits the last name. A `/` at its end restricts it to folders.
///
/// All patterns are one automaton without backtracking, of a bit for each element of each pattern
/// (Baeza-Yates and Gonnet 1992, "A New Approach to Text Searching"): the time for a path is that
/// of its bytes, times a 64th of those of all patterns, whatever these are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExcludePatterns {
    /// For each byte, the places whose element fits it: a path that has come so far goes on to the
    /// next place.
    fitting: Vec<Places>,
    /// Places that a path may stay at for any byte, and for any but `/`: those before `**`, and
    /// before `*`.
    staying_anywhere: Places,
    staying_in_name: Places,
    /// Places at which the patterns begin: at the top, behind each `/`, and behind the last one.
    tops: Places,
    folders: Places,
    names: Places,
    /// All places of patterns of names.
    of_names: Places,
    /// Places behind the patterns, and those of patterns that fit folders alone.
    ends: Places,
    ends_of_folders: Places,
}

/// A set of places: a bit for each, 64 to a word.
type Places = Vec<u64>;

/// The places of a path at which a pattern may begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PatternAnchor {
    Top,
    AnyFolder,
    Name,
}

impl ExcludePatterns {
    /// Returns these patterns; none is an error.
    pub fn new<'p>(patterns: impl IntoIterator<Item = &'p [u8]>) -> Self {
        let patterns: Vec<&[u8]> = patterns
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        let states: usize = patterns.iter().map(|text| text.len() + 1).sum();
        let mut excludes = Self::with_words(states.div_ceil(64));
        let mut place = 0;
        for text in patterns {
            let folders_only = text.len() > 1 && text.ends_with(b"/");
            let text = if folders_only {
                &text[..text.len() - 1]
            } else {
                text
            };
            let (beginning, glob) = match text.strip_prefix(b"/") {
                Some(anchored) => (PatternAnchor::Top, anchored),
                None if text.contains(&b'/') => (PatternAnchor::AnyFolder, text),
                None => (PatternAnchor::Name, text),
            };
            place = excludes.add_pattern(place, glob, beginning, folders_only);
        }
        excludes
    }

    fn with_words(words: usize) -> Self {
        let none = vec![0; words];
        Self {
            fitting: if words == 0 {
                Vec::new()
            } else {
                vec![none.clone(); 256]
            },
            staying_anywhere: none.clone(),
            staying_in_name: none.clone(),
            tops: none.clone(),
            folders: none.clone(),
            names: none.clone(),
            of_names: none.clone(),
            ends: none.clone(),
            ends_of_folders: none,
        }
    }

    /// Adds a pattern from this place on, and returns the first place behind it.
    fn add_pattern(
        &mut self,
        first: usize,
        glob: &[u8],
        beginning: PatternAnchor,
        folders_only: bool,
    ) -> usize {
        let begins = match beginning {
            PatternAnchor::Top => &mut self.tops,
            PatternAnchor::AnyFolder => &mut self.folders,
            PatternAnchor::Name => &mut self.names,
        };
        insert_state(begins, first);
        let place = self.add_elements(first, glob);
        let ends = if folders_only {
            &mut self.ends_of_folders
        } else {
            &mut self.ends
        };
        insert_state(ends, place);
        if beginning == PatternAnchor::Name {
            (first..=place).for_each(|place| insert_state(&mut self.of_names, place));
        }
        place + 1
    }

    /// Adds the elements of a pattern from this place on, and returns the place behind them.
    fn add_elements(&mut self, first: usize, glob: &[u8]) -> usize {
        let (mut place, mut rest) = (first, glob);
        let last_close = glob
            .iter()
            .rposition(|byte| *byte == b']')
            .unwrap_or_default();
        while !rest.is_empty() {
            if rest[0] == b'*' {
                let is_anywhere = rest.starts_with(b"**");
                let staying = if is_anywhere {
                    &mut self.staying_anywhere
                } else {
                    &mut self.staying_in_name
                };
                insert_state(staying, place);
                rest = &rest[1 + usize::from(is_anywhere)..];
                continue;
            }
            let (element, length) =
                PatternElement::parse_first(rest, glob.len() - rest.len() < last_close);
            let fitting = (0..=u8::MAX)
                .zip(&mut self.fitting)
                .filter(|(byte, _)| element.fits_byte(*byte));
            fitting.for_each(|(_, places)| insert_state(places, place));
            place += 1;
            rest = &rest[length..];
        }
        place
    }

    /// Returns true if there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns true if one of the patterns fits `path`, which is a folder or not.
    pub fn excludes_path(&self, path: &EntryPath, is_folder: bool) -> bool {
        !self.is_empty() && self.fits_path(path.as_bytes(), is_folder)
    }

    fn fits_path(&self, path: &[u8], is_folder: bool) -> bool {
        let any =
            |places: &[u64], of: &[u64]| places.iter().zip(of).any(|(one, other)| one & other != 0);
        let mut places = self.tops.clone();
        self.begin_name(&mut places);
        for byte in path {
            self.advance_states(&mut places, *byte);
            if *byte == b'/' {
                self.begin_name(&mut places);
            }
        }
        any(&places, &self.ends) || is_folder && any(&places, &self.ends_of_folders)
    }

    /// Lets patterns begin that may do so behind a `/`; what patterns of names have found before
    /// does not count.
    fn begin_name(&self, places: &mut [u64]) {
        for (word, places) in places.iter_mut().enumerate() {
            *places = *places & !self.of_names[word] | self.folders[word] | self.names[word];
        }
    }

    fn advance_states(&self, places: &mut [u64], byte: u8) {
        let (fitting, mut carried) = (&self.fitting[usize::from(byte)], 0);
        for (word, places) in places.iter_mut().enumerate() {
            let in_name = if byte == b'/' {
                0
            } else {
                self.staying_in_name[word]
            };
            let (going_on, staying) = (
                *places & fitting[word],
                *places & (self.staying_anywhere[word] | in_name),
            );
            *places = going_on << 1 | carried | staying;
            carried = going_on >> 63;
        }
    }
}

fn insert_state(places: &mut Places, place: usize) {
    places[place / 64] |= 1 << (place % 64);
}

/// An element of a pattern that stands for one byte.
#[derive(Clone, Copy)]
enum PatternElement<'g> {
    Literal(u8),
    AnyOfName,
    Class(&'g [u8]),
}

impl<'g> PatternElement<'g> {
    /// Returns the first element of what is left of a pattern, which is not empty, and its length.
    /// A class is one only if one `may_close`.
    fn parse_first(glob: &'g [u8], may_close: bool) -> (Self, usize) {
        match glob {
            [b'?', ..] => (Self::AnyOfName, 1),
            [b'\\', escaped, ..] => (Self::Literal(*escaped), 2),
            [b'[', rest @ ..] if may_close => {
                match rest.iter().skip(1).position(|byte| *byte == b']') {
                    Some(end) => (Self::Class(&rest[..=end]), end + 3),
                    None => (Self::Literal(b'['), 1),
                }
            }
            _ => (Self::Literal(glob[0]), 1),
        }
    }

    fn fits_byte(self, byte: u8) -> bool {
        match self {
            Self::Literal(literal) => literal == byte,
            Self::AnyOfName => byte != b'/',
            Self::Class(class) => is_of_class(class, byte),
        }
    }
}

fn is_of_class(class: &[u8], byte: u8) -> bool {
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

    /// Returns true if `glob` fits all of `text` or, with `anywhere`, what follows one of its
    /// slashes.
    fn fits(glob: &[u8], text: &[u8], anywhere: bool) -> bool {
        let mut excludes = ExcludePatterns::with_words((glob.len() + 1).div_ceil(64));
        excludes.add_pattern(
            0,
            glob,
            if anywhere {
                PatternAnchor::AnyFolder
            } else {
                PatternAnchor::Top
            },
            false,
        );
        excludes.fits_path(text, false)
    }

    fn excludes(pattern: &str, path: &str) -> bool {
        let folder = path.ends_with('/');
        let path = EntryPath::new(path.trim_end_matches('/')).unwrap();
        ExcludePatterns::new([pattern.as_bytes()]).excludes_path(&path, folder)
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

    /// Each pattern once took the product of its length and that of the path.
    #[test]
    fn a_million_bytes_of_patterns_take_a_sixty_fourth_of_the_product_for_a_path() {
        let long = [
            "**/*".repeat(8000),
            "[a-z]*".repeat(5000),
            "?".repeat(30_000),
        ];
        let patterns = long
            .iter()
            .map(String::as_bytes)
            .cycle()
            .take(33)
            .chain([&b"b"[..]]);
        let excludes = ExcludePatterns::new(patterns);
        let words = excludes.ends.len();
        assert!(
            words <= (1 << 20) / 64 && excludes.fitting.iter().all(|places| places.len() == words),
            "{words}"
        );
        let [other, named] =
            ["a", "b"].map(|name| EntryPath::new("a/".repeat(2000) + name).unwrap());
        assert!(!excludes.excludes_path(&other, false) && excludes.excludes_path(&named, false));
    }

    #[test]
    fn patterns_next_to_each_other_do_not_run_into_each_other() {
        let patterns = ["ab", "/top", "x/y", "only/", "*.o", "c*"];
        let together = ExcludePatterns::new(patterns.map(str::as_bytes));
        for path in [
            "ab", "abt", "a", "b", "top", "a/top", "x/y", "z/x/y", "x/yo", "only", "only/z", "a.o",
            "b/c", "c/b",
        ] {
            let alone = patterns.iter().any(|pattern| excludes(pattern, path));
            assert_eq!(
                together.excludes_path(&EntryPath::new(path).unwrap(), false),
                alone,
                "{path}"
            );
        }
        assert!(together.excludes_path(&EntryPath::new("only").unwrap(), true));
    }

    /// Matches a glob without a bound on the time.
    fn fits_slowly(glob: &[u8], text: &[u8]) -> bool {
        let later = |length: usize, may_pass: fn(u8) -> bool| {
            let ends = text
                .iter()
                .position(|byte| !may_pass(*byte))
                .unwrap_or(text.len());
            (0..=ends).any(|skipped| fits_slowly(&glob[length..], &text[skipped..]))
        };
        match (glob, text) {
            ([], _) => text.is_empty(),
            ([b'*', b'*', ..], _) => later(2, |_| true),
            ([b'*', ..], _) => later(1, |byte| byte != b'/'),
            (_, [byte, rest @ ..]) => {
                let (element, length) = PatternElement::parse_first(glob, true);
                element.fits_byte(*byte) && fits_slowly(&glob[length..], rest)
            }
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
