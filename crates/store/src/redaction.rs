//! Addresses, names and paths in place of others, the same everywhere in one export.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Bound;
use std::sync::LazyLock;

use flate2::read::MultiGzDecoder;
use fullpipe_record::{StoredDocument, document_schema};
use serde_json::{Map, Value};

/// Fields whose text names a host, a user or a file, in documents of this program and of others.
const NAMES: &[&str] = &[
    "host",
    "hosts",
    "hostname",
    "local_host",
    "remote_host",
    "peer",
    "source",
    "dest",
    "source-node",
    "dest-node",
    "participants",
    "pscheduler-name",
    "user",
    "username",
    "boot_id",
    "cookie",
    "file",
    "data_filename",
    "target",
];

/// Words of the schema: names of fields, values of which a field has one of a few, and the words
/// within these.
static WORDS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let mut words = BTreeSet::new();
    let schema = serde_json::from_str(&document_schema());
    add_words(&mut words, &schema.expect("the schema is JSON"));
    words
});

/// Replaces addresses, names and paths. What was replaced once is replaced by the same everywhere,
/// so that it can still be seen which results belong together; which was which is known to nobody
/// once this is dropped.
#[derive(Debug, Default)]
pub struct Redaction {
    /// Names, and whether each is a word of the schema (a host called `sender`). Such a name is
    /// replaced where a name stands; others are replaced wherever they occur.
    names: BTreeMap<String, bool>,
    replaced: HashMap<String, String>,
    /// Replacements so far, by kind.
    counts: HashMap<&'static str, u32>,
}

impl Redaction {
    /// Learns the names in the metadata of a document, so that they are found in other texts too.
    pub fn learn_document(&mut self, document: &StoredDocument) {
        self.learn_name(&document.host);
        self.learn_name(&document.peer);
    }

    /// Returns metadata and facts of a document, redacted.
    #[must_use]
    pub fn redact_document(&mut self, document: &StoredDocument) -> StoredDocument {
        self.learn_document(document);
        let mut facts = document.facts.clone();
        for facts in &mut facts {
            facts.step = self.redact_text(&facts.step);
        }
        StoredDocument {
            host: self.text_of_names(&document.host),
            peer: self.text_of_names(&document.peer),
            address: self.redact_text(&document.address),
            path_key: self.text_of_names(&document.path_key),
            campaign: self.redact_text(&document.campaign),
            cell: self.redact_text(&document.cell),
            request_key: self.redact_text(&document.request_key),
            program: self.redact_text(&document.program),
            facts,
            ..document.clone()
        }
    }

    /// Returns the body of a document, redacted: its JSON, one value a line, decompressed if it was
    /// compressed. Returns `None` if it is no JSON.
    pub fn redact_body(&mut self, body: &[u8]) -> Option<String> {
        let mut unpacked = Vec::new();
        let is_packed = MultiGzDecoder::new(body).read_to_end(&mut unpacked).is_ok();
        let bytes = if is_packed { &unpacked[..] } else { body };
        let values = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
        let values: Vec<Value> = values.collect::<Result<_, _>>().ok()?;
        for value in &values {
            self.learn_names(value);
        }
        let redacted = values.into_iter().map(|value| {
            let is_own = value["schema"].is_u64() && value["kind"].is_string();
            self.redact_value(value, is_own, false).to_string() + "\n"
        });
        Some(redacted.collect())
    }

    /// Learns the names that the fields of a value have.
    fn learn_names(&mut self, value: &Value) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| self.learn_names(value)),
            Value::Object(fields) => {
                if let Some(Value::String(uname)) = fields.get("system_info") {
                    self.learn_name(uname.split_whitespace().nth(1).unwrap_or_default());
                }
                for (name, value) in fields {
                    if has_names(fields, name) {
                        self.learn_texts(value);
                    }
                    self.learn_names(value);
                }
            }
            _ => {}
        }
    }

    fn learn_texts(&mut self, value: &Value) {
        match value {
            Value::String(name) => self.learn_name(&crate::text::host_of(name)),
            Value::Array(values) => values.iter().for_each(|value| self.learn_texts(value)),
            _ => {}
        }
    }

    /// Addresses and paths are found without being learned; a name of one character would be found
    /// everywhere.
    fn learn_name(&mut self, name: &str) {
        let is_common = ["localhost", "true", "false", "none", "null", "auto"].contains(&name);
        let is_found = name.starts_with('/') || name.parse::<IpAddr>().is_ok();
        // A list of documents has the same few names, and each is compared with every word.
        let is_new = !self.names.contains_key(name);
        if name.chars().count() > 1 && !is_common && !is_found && is_new {
            self.names.insert(name.to_owned(), WORDS.contains(name));
        }
    }

    /// Returns a value redacted, which is the text of names if `is_named`. No field of a document
    /// of fullpipe is called after a host; those of others may be, as the series of flent.
    fn redact_value(&mut self, value: Value, is_own: bool, is_named: bool) -> Value {
        match value {
            Value::String(text) if is_named => Value::String(self.text_of_names(&text)),
            Value::String(text) => Value::String(self.redact_text(&text)),
            Value::Array(values) => values
                .into_iter()
                .map(|value| self.redact_value(value, is_own, is_named))
                .collect(),
            Value::Object(fields) => {
                let named: Vec<bool> = fields.keys().map(|name| has_names(&fields, name)).collect();
                let fields = fields
                    .into_iter()
                    .zip(named)
                    .map(|((name, value), is_named)| {
                        let new = if is_own {
                            name
                        } else {
                            self.redact_text(&name)
                        };
                        (new, self.redact_value(value, is_own, is_named))
                    });
                Value::Object(fields.collect::<Map<_, _>>())
            }
            other => other,
        }
    }

    /// Returns a text in which addresses, paths, URLs, and known names that are no words of the
    /// schema are replaced.
    fn redact_text(&mut self, text: &str) -> String {
        let named = self.without_names(text, false);
        self.without_others(&named)
    }

    /// Returns a text that is to have names, in which the same and all known names are replaced.
    fn text_of_names(&mut self, text: &str) -> String {
        let named = self.without_names(text, true);
        self.without_others(&named)
    }

    fn without_others(&mut self, text: &str) -> String {
        let mut redacted = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(|c: char| !is_separator(c)) {
            let (before, word) = rest.split_at(start);
            let end = word.find(is_separator).unwrap_or(word.len());
            redacted.push_str(before);
            redacted.push_str(&self.redact_word(&word[..end]));
            rest = &word[end..];
        }
        redacted + rest
    }

    /// Replaces the known names, at each place the longest, so that none is found within another;
    /// words of the schema only if `all`. Takes no longer if more names are known.
    fn without_names(&mut self, text: &str, all: bool) -> String {
        let (mut done, mut rest, mut last) = (String::with_capacity(text.len()), text, None);
        while let Some(first) = rest.chars().next() {
            let known = if is_part(last) {
                None
            } else {
                self.longest_name(rest, all)
            };
            let length = known.unwrap_or(first.len_utf8());
            let (part, after) = rest.split_at(length);
            match known {
                Some(_) => done.push_str(&self.replacement_text("name", part)),
                None => done.push(first),
            }
            last = part.chars().next_back();
            rest = after;
        }
        done
    }

    /// Returns the length of the longest known name with which a text begins, if a word ends behind
    /// it.
    fn longest_name(&self, text: &str, all: bool) -> Option<usize> {
        // Each name with which this begins is at most the last one that is not greater, and begins
        // that one, too.
        let mut begin = text;
        while !begin.is_empty() {
            let (name, is_of_schema) = self
                .names
                .range::<str, _>((Bound::Unbounded, Bound::Included(begin)))
                .next_back()?;
            let is_begin = begin.starts_with(name.as_str());
            if is_begin && (all || !is_of_schema) && !is_part(text[name.len()..].chars().next()) {
                return Some(name.len());
            }
            let same = name
                .char_indices()
                .zip(begin.chars())
                .find(|((_, one), other)| one != other);
            let end = same.map_or_else(
                || name.char_indices().next_back().map_or(0, |(at, _)| at),
                |((at, _), _)| at,
            );
            begin = &begin[..end];
        }
        None
    }

    fn redact_word(&mut self, word: &str) -> String {
        let inner = word.trim_end_matches(['.', ':']);
        let end = &word[inner.len()..];
        if inner.contains("://") {
            self.replacement_text("url", inner) + end
        } else if is_mac(inner) {
            self.replacement_text("mac", &inner.to_ascii_lowercase().replace('-', ":")) + end
        } else if let Some((host, path)) = split_path(inner) {
            self.redact_addresses(host) + &self.replacement_text("/path", path) + end
        } else {
            self.redact_addresses(word)
        }
    }

    /// Replaces the addresses in a word, whatever else it has: ports, a zone, the length of a
    /// prefix, a field's name.
    fn redact_addresses(&mut self, word: &str) -> String {
        let without_v6 = self.redact_runs(
            word,
            |c| c.is_ascii_hexdigit() || c == ':' || c == '.',
            |run| run.parse().ok().map(IpAddr::V6),
        );
        self.redact_runs(
            &without_v6,
            |c| c.is_ascii_digit() || c == '.',
            |run| run.parse().ok().map(IpAddr::V4),
        )
    }

    /// Replaces the runs of such characters that are addresses and no part of a longer name.
    fn redact_runs(
        &mut self,
        word: &str,
        is_of: impl Fn(char) -> bool,
        parse: impl Fn(&str) -> Option<IpAddr>,
    ) -> String {
        let (mut done, mut rest) = (String::with_capacity(word.len()), word);
        while let Some(start) = rest.find(&is_of) {
            done.push_str(&rest[..start]);
            let run = &rest[start..];
            let (run, after) = run.split_at(run.find(|c: char| !is_of(c)).unwrap_or(run.len()));
            let is_whole = !is_part(done.chars().next_back()) && !is_part(after.chars().next());
            let found = address_candidates(run)
                .find_map(|text| Some((parse(text)?, text.len())))
                .filter(|_| is_whole);
            let replaced = found.map_or(0, |(_, length)| length);
            done.extend(found.map(|(address, _)| self.redact_address(address).to_string()));
            done.push_str(&run[replaced..]);
            rest = after;
        }
        done + rest
    }

    /// Loopback and unspecified addresses show nothing and stay.
    fn redact_address(&mut self, address: IpAddr) -> IpAddr {
        if address.is_loopback() || address.is_unspecified() {
            return address;
        }
        let kind = if address.is_ipv4() { "ipv4" } else { "ipv6" };
        let text = self.replacement_text(kind, &address.to_string());
        text.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }

    fn replacement_text(&mut self, kind: &'static str, old: &str) -> String {
        if let Some(new) = self.replaced.get(old) {
            return new.clone();
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let new = made_up(kind, *count);
        self.replaced.insert(old.to_owned(), new.clone());
        new
    }
}

/// Returns true if the text of this field names hosts, users or files. A host of ours is an object
/// with `name` and `kernel`.
fn has_names(fields: &Map<String, Value>, field: &str) -> bool {
    NAMES.contains(&field.to_ascii_lowercase().as_str())
        || (field == "name" && fields.contains_key("kernel"))
}

/// Returns true if a character is of a word, so that none ends before it and none begins behind it.
fn is_part(character: Option<char>) -> bool {
    character.is_some_and(char::is_alphanumeric)
}

/// Adds a word of a schema, and all that stands between the beginning of a word within it and the
/// end of one.
fn add_word(words: &mut BTreeSet<String>, word: &str) {
    let begins = word
        .char_indices()
        .filter(|(at, one)| is_part(Some(*one)) && !is_part(word[..*at].chars().next_back()));
    for (begin, _) in begins {
        let inner = &word[begin..];
        let ends = inner.char_indices().map(|(at, one)| at + one.len_utf8());
        let of_words = ends.filter(|end| {
            is_part(inner[..*end].chars().next_back()) && !is_part(inner[*end..].chars().next())
        });
        words.extend(of_words.map(|end| inner[..end].to_owned()));
    }
    words.insert(word.to_owned());
}

/// Adds the words of a schema.
fn add_words(words: &mut BTreeSet<String>, schema: &Value) {
    match schema {
        Value::Array(values) => values.iter().for_each(|value| add_words(words, value)),
        Value::Object(keys) => {
            for (key, value) in keys {
                match (key.as_str(), value) {
                    ("const", Value::String(word)) => add_word(words, word),
                    ("enum", Value::Array(of)) => {
                        of.iter()
                            .filter_map(Value::as_str)
                            .for_each(|word| add_word(words, word));
                    }
                    ("properties", Value::Object(fields)) => {
                        fields.keys().for_each(|word| add_word(words, word));
                    }
                    _ => {}
                }
                add_words(words, value);
            }
        }
        _ => {}
    }
}

/// Returns the replacement with this number. Addresses are of the range for benchmarks (RFC 2544,
/// 198.18.0.0/15), which is large enough, and of the range for documentation (RFC 3849, RFC 7042).
fn made_up(kind: &str, number: u32) -> String {
    match kind {
        "ipv4" => Ipv4Addr::from_bits(0xc612_0000 | number & 0x1_ffff).to_string(),
        "ipv6" => Ipv6Addr::from_bits((0x2001_0db8 << 96) | u128::from(number)).to_string(),
        "mac" => format!(
            "00:00:5e:00:{:02x}:{:02x}",
            number >> 8 & 0xff,
            number & 0xff
        ),
        kind => format!("{kind}-{number}"),
    }
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || "\"'`(),;=<>{}|→@".contains(c)
}

/// Returns the texts of a run of characters of addresses that may be one: it may end a sentence, or
/// with a port behind a dot as `tcpdump` writes it.
fn address_candidates(run: &str) -> impl Iterator<Item = &str> {
    let without_port = run.rsplit_once('.').map(|(address, _)| address);
    [run, run.trim_end_matches(['.', ':'])]
        .into_iter()
        .chain(without_port)
}

/// Returns the text before a path, and the path, which begins the word, or follows the colon behind
/// a host. The two colons at the end of a prefix of IPv6 are none behind a host.
fn split_path(word: &str) -> Option<(&str, &str)> {
    let colons = word
        .match_indices(':')
        .map(|(at, _)| at + 1)
        .filter(|at| !word[..*at].ends_with("::"));
    let at = [0].into_iter().chain(colons).find(|at| {
        let path = &word[*at..];
        (path.starts_with('/') || path.starts_with("~/")) && path.len() > 2
    })?;
    Some(word.split_at(at))
}

/// Returns true if `word` is six bytes in hexadecimal with colons or dashes between.
fn is_mac(word: &str) -> bool {
    word.len() == 17
        && [':', '-'].into_iter().any(|between| {
            word.split(between)
                .all(|byte: &str| byte.len() == 2 && u8::from_str_radix(byte, 16).is_ok())
        })
}

#[cfg(test)]
mod tests;
