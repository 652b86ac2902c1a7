//! Holds names, documentation and messages against the field's own words, doc comments against the form that readers
//! expect, and lines against the width that `rustfmt` cannot enforce in comments and strings.
//!
//! [`ALLOWED`] is empty and shall stay so: whatever the test finds is to be mended. Run
//!
//!     cargo test -p fullpipe-testkit --test words
//!
//! Each place is printed with file, line and what to write instead.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Words that no name and no sentence may have, in any case and also as a part of a name, with what to write instead.
const WORDS: &[(&str, &str)] = &[
    ("tell tells told telling untold teller", "report, state, print, pass, show; distinguish"),
    ("beside", "with, next to, during; cross traffic"),
    ("patience patient patients impatient", "timeout; a planted case"),
    ("stranger strangers", "pending, unknown sender, other address"),
    ("complaint complaints complain complains complained complaining", "ICMP error; error, warning"),
    ("porter doorkeeper", "accept thread, authenticator"),
    ("bell", "eventfd"),
    ("vigil vigils", "SpinSleeper"),
    ("mailbox mailboxes", "CommandChannel"),
    ("household households", "client prefix"),
    ("house", "project, workspace"),
    ("door doors", "socket, listener"),
    ("crowd crowds crowded", "rejected clients, many connections, burst"),
    ("ledger ledgers", "usage"),
    ("manner manners", "options"),
    ("supposition suppositions", "what-if question"),
    ("piece pieces", "chunk, segment, part"),
    ("hear hears heard hearing overhear", "receive, received"),
    ("trail trails", "route state"),
    ("openings", "SYN segments, SYN probes"),
    ("looked", "read, sampled, checked, searched"),
    ("manieth", "Nth"),
    ("surely", "at least; lower bound"),
];

/// Nouns that are harmless as verbs: not as an identifier, and in prose not after an article or a number.
const NOUNS: &[(&str, &str)] = &[
    ("look", "snapshot, sample"),
    ("looks", "snapshots, samples"),
    ("opening", "SYN segment, SYN probe, test header"),
];

/// What stands before a noun.
const DETERMINERS: &[&str] = &[
    "a", "an", "another", "any", "each", "every", "first", "last", "latest", "next", "no", "of", "one", "per", "same",
    "second", "such", "that", "the", "these", "this", "those", "three", "two",
];

/// Parts that the name of a constant may not have.
const CONSTANTS: &[(&str, &str)] = &[
    ("MOST LONGEST LARGEST GREATEST HIGHEST", "MAX"),
    ("LEAST FEWEST SHORTEST SMALLEST LOWEST", "MIN"),
    ("LOOK GLANCE HEAR", "POLL_INTERVAL"),
];

/// Text that may not occur as it stands.
const PHRASES: &[(&str, &str)] =
    &[("\"of it\"", "a heading that names the quotient"), ("let_go", "a verb that says what is done")];

/// Words with which no doc comment begins.
const BEGINNINGS: &[&str] = &["What", "Whether", "How", "Where"];

/// Names that hold a banned word.
const PROPER_NAMES: &[&str] = &["Bell System Technical Journal"];

/// Characters in a line.
const MAX_WIDTH: usize = 120;

/// What is left in each crate or folder: banned words, doc comments that begin with a question word, lines that are too
/// long. A crate or folder without a row has none.
const ALLOWED: &[(&str, Count)] = &[];

#[test]
fn names_and_sentences_use_the_words_of_the_field() {
    let mut found: BTreeMap<String, Vec<Place>> = BTreeMap::new();
    for file in files() {
        found.entry(area(&file)).or_default().extend(places(&file));
    }
    let mut message = String::new();
    for (area, allowed) in ALLOWED {
        if !found.contains_key(*area) {
            let _ = writeln!(message, "{area} does not exist: strike its line ({allowed:?})");
        }
    }
    for (area, places) in &found {
        let allowed = ALLOWED.iter().find(|(name, _)| name == area).map_or(Count(0, 0, 0), |(_, count)| *count);
        message.push_str(&compare(area, places, allowed));
    }
    assert!(message.is_empty(), "\n{message}");
}

#[test]
fn a_banned_word_is_found_in_prose_and_in_names_and_a_harmless_one_is_not() {
    let instead = |line: &str| words_in(line, true).len();
    assert_eq!(instead("// The server told the client."), 1);
    assert_eq!(instead("    pub told_capacity: BitRate,"), 1);
    assert_eq!(instead("struct LoadBeside;"), 1);
    assert_eq!(instead("const LONGEST_WAIT: Span = Span::ZERO;"), 1);
    assert_eq!(instead("    /// The longest wait, besides the first, at most."), 0);
    assert_eq!(instead("    let looks = self.look();"), 2);
    assert_eq!(instead("/// Samples between two looks."), 1);
    assert_eq!(instead("// It looks like a policer: look for drops when opening a file."), 0);
    assert_eq!(instead("    bail!(\"it looks like a policer\");"), 0);
}

#[test]
fn only_the_beginning_of_a_doc_comment_counts_as_one() {
    let beginnings = |text: &str| check("a.rs", text).iter().filter(|place| place.kind == Kind::Beginning).count();
    assert_eq!(beginnings("/// What it sends.\nfn f() {}"), 1);
    assert_eq!(beginnings("//! Sends.\n//!\n//! Where it can."), 1);
    assert_eq!(beginnings("/// Sends, and says\n/// What it sent."), 0);
    assert_eq!(beginnings("// What a comment may ask.\n/// Whatever it is."), 0);
}

/// Banned words, beginnings of doc comments, lines that are too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count(usize, usize, usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Beginning,
    Width,
}

/// A line that has something to mend.
struct Place {
    file: String,
    line: usize,
    kind: Kind,
    advice: String,
}

/// Returns the message for one crate or folder; empty if its figures are those of the table.
fn compare(area: &str, places: &[Place], allowed: Count) -> String {
    let of = |kind| places.iter().filter(|place| place.kind == kind).count();
    let found = Count(of(Kind::Word), of(Kind::Beginning), of(Kind::Width));
    let mut message = String::new();
    if found == allowed {
        return message;
    }
    let Count(words, beginnings, width) = found;
    let over =
        [(Kind::Word, words > allowed.0), (Kind::Beginning, beginnings > allowed.1), (Kind::Width, width > allowed.2)];
    for place in places.iter().filter(|place| over.contains(&(place.kind, true))) {
        let _ = writeln!(message, "{}:{}: {}", place.file, place.line, place.advice);
    }
    let verdict = if over.iter().any(|(_, over)| *over) { "mend what is new" } else { "lower the figures" };
    let row = format!("(\"{area}\", Count({words}, {beginnings}, {width})),");
    let _ = writeln!(message, "{area}: {verdict}; the table has {allowed:?}, the files {row}\n");
    message
}

/// Returns what is to be mended in a file.
fn places(file: &Path) -> Vec<Place> {
    let name = file.strip_prefix(root()).unwrap_or(file).display().to_string();
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{name}: {error}"));
    check(&name, &text)
}

fn check(name: &str, text: &str) -> Vec<Place> {
    let mut places = Vec::new();
    let mut in_doc = false;
    for (index, line) in text.lines().enumerate() {
        let mut add = |kind, advice| places.push(Place { file: name.to_owned(), line: index + 1, kind, advice });
        for (word, instead) in words_in(line, has_extension(name, "rs")) {
            add(Kind::Word, format!("\"{word}\": write {instead}"));
        }
        let doc = line.trim_start().strip_prefix("///").or_else(|| line.trim_start().strip_prefix("//!"));
        let doc = doc.map(str::trim).filter(|doc| !doc.is_empty() && has_extension(name, "rs"));
        let first = doc.and_then(|doc| doc.split(|c: char| !c.is_alphabetic()).next());
        if let Some(word) = first.filter(|word| !in_doc && BEGINNINGS.contains(word)) {
            add(Kind::Beginning, format!("a doc comment begins with \"{word}\": write \"Returns …\" or a noun"));
        }
        in_doc = doc.is_some();
        let width = if line.len() > MAX_WIDTH { line.chars().count() } else { 0 };
        if width > MAX_WIDTH && can_be_wrapped(name, line) {
            add(Kind::Width, format!("{width} characters, more than {MAX_WIDTH}"));
        }
    }
    places
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found == extension)
}

/// Rows of tables cannot be wrapped, recorded output must not be.
fn can_be_wrapped(name: &str, line: &str) -> bool {
    let line = line.trim_start_matches(['/', '!', ' ']);
    !(has_extension(name, "snap") || line.starts_with('|') || line.starts_with("http"))
}

/// Returns the banned words of a line, with what to write instead.
fn words_in(line: &str, is_rust: bool) -> Vec<(String, &'static str)> {
    let mut found: Vec<(String, &str)> = PHRASES
        .iter()
        .filter(|(phrase, _)| line.contains(phrase))
        .map(|(phrase, instead)| ((*phrase).to_owned(), *instead))
        .collect();
    let line = &PROPER_NAMES.iter().fold(line.to_owned(), |line, name| line.replace(name, ""));
    let comment = if is_rust { line.find("//").unwrap_or(line.len()) } else { 0 };
    let mut before = String::new();
    for (at, identifier) in identifiers(line) {
        let constant = !identifier.contains(|c: char| c.is_lowercase());
        for part in parts(identifier) {
            let advice = if constant { CONSTANT.get(part) } else { None };
            let part = part.to_lowercase();
            let advice = advice.or_else(|| WORD.get(part.as_str())).or_else(|| {
                let is_name = || at < comment && is_name(line, at, identifier);
                NOUN.get(part.as_str()).filter(|_| is_name() || DETERMINERS.contains(&before.as_str()))
            });
            found.extend(advice.map(|instead| (identifier.to_owned(), *instead)));
            before = part;
        }
    }
    found
}

/// Whether a word outside a comment is code: what stands around it is no prose.
fn is_name(line: &str, at: usize, identifier: &str) -> bool {
    let before = line[..at].split(' ').rfind(|word| !word.is_empty()).unwrap_or_default();
    let keyword = ["let", "mut", "fn", "for", "mod", "use", "ref", "const", "struct", "enum"].contains(&before);
    let prose_before = !keyword && before.ends_with(|c: char| c.is_alphabetic());
    let prose_after = line[at + identifier.len()..].trim_start().starts_with(|c: char| c.is_alphabetic());
    identifier.contains('_') || !(prose_before || prose_after)
}

/// A table by its words.
type Advice = HashMap<&'static str, &'static str>;

fn by_word(table: &[(&'static str, &'static str)]) -> Advice {
    table.iter().flat_map(|(words, instead)| words.split(' ').map(|word| (word, *instead))).collect()
}

static WORD: LazyLock<Advice> = LazyLock::new(|| by_word(WORDS));
static NOUN: LazyLock<Advice> = LazyLock::new(|| by_word(NOUNS));
static CONSTANT: LazyLock<Advice> = LazyLock::new(|| by_word(CONSTANTS));

/// Returns words and identifiers, each with its place in the line.
fn identifiers(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.split(move |c| !is_part(c))
        .filter(|word| !word.is_empty())
        .map(move |word| (word.as_ptr() as usize - line.as_ptr() as usize, word))
}

/// Returns the parts of an identifier: `told_by`, `ToldBy` and `TOLD_BY` have two each.
fn parts(identifier: &str) -> impl Iterator<Item = &str> {
    identifier.split('_').flat_map(|word| {
        let mut starts = vec![0];
        let letters: Vec<(usize, char)> = word.char_indices().collect();
        starts.extend(
            letters
                .windows(2)
                .filter(|pair| pair[0].1.is_lowercase() && pair[1].1.is_uppercase())
                .map(|pair| pair[1].0),
        );
        let ends: Vec<usize> = starts.iter().skip(1).copied().chain([word.len()]).collect();
        starts.into_iter().zip(ends).map(|(start, end)| &word[start..end]).collect::<Vec<_>>()
    })
}

/// Returns the crate or the folder of a file, `.` for the workspace's own files.
fn area(file: &Path) -> String {
    let parts: Vec<_> =
        file.strip_prefix(root()).expect("it is below").iter().map(|part| part.to_string_lossy()).collect();
    match parts.as_slice() {
        [_] => ".".to_owned(),
        [folder, name, _, ..] if folder == "crates" => name.to_string(),
        [folder, ..] => folder.to_string(),
        [] => unreachable!("a file has a name"),
    }
}

/// Returns the files of the project that hold words of its own.
fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for path in entries.map(|entry| entry.expect("an entry of a folder can be read").path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !["target", ".git", "corpus", "artifacts"].contains(&name.as_str()) {
                folders.push(path);
            } else if is_text(&name) && !path.ends_with("testkit/tests/words.rs") {
                files.push(path);
            }
        }
    }
    assert!(files.len() > 100, "the workspace has files");
    files.sort();
    files
}

fn is_text(name: &str) -> bool {
    let endings = ["rs", "md", "toml", "snap", "service", "sh", "yml"];
    name == "run" || name == "Containerfile" || endings.iter().any(|ending| name.ends_with(&format!(".{ending}")))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a crate is two folders below").to_owned()
}
