//! Finds cycles between the modules of each crate: two modules that use each other can be read,
//! tested and moved only together.
//!
//! The scanner reads the text of the sources. It takes each file directly under `src/` and each
//! folder there for one module, and each `crate::name` in code as a use of the module `name`, where
//! `super::` at the top level of a file stands for `crate::`. It leaves out comments, strings and
//! modules of tests. It does not follow names that `lib.rs` or a macro exports again, so a use by
//! `crate::Name` does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Cycles that stay, as the modules of each, with the reason.
const ALLOWED: &[(&str, &[&str], &str)] = &[(
    "fullpipe",
    &["cli", "commands"],
    "`man` and `completions` describe the command line that they are part of",
)];

#[test]
fn modules_of_a_crate_do_not_use_each_other_in_a_circle() {
    let mut wrong = Vec::new();
    let mut allowed: BTreeSet<(&str, Vec<&str>)> = ALLOWED
        .iter()
        .map(|(package, modules, _)| (*package, modules.to_vec()))
        .collect();
    for package in packages() {
        let name = package
            .file_name()
            .expect("a crate has a folder")
            .to_string_lossy()
            .into_owned();
        for cycle in cycles(&uses(&package.join("src"))) {
            let found = (
                name.as_str(),
                cycle.iter().map(String::as_str).collect::<Vec<_>>(),
            );
            let is_allowed = allowed.iter().any(|one| *one == found);
            allowed.retain(|one| *one != found);
            if !is_allowed {
                wrong.push(format!("{name}: {}", cycle.join(" ↔ ")));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "modules that use each other, without a listed reason:\n{}",
        wrong.join("\n")
    );
    assert!(
        allowed.is_empty(),
        "cycles that are gone; strike them from the list: {allowed:?}"
    );
}

#[test]
fn a_cycle_is_found_through_any_number_of_modules_and_nothing_else_is_one() {
    let sources = [
        ("a", "use crate::b::B;\nfn f() -> B { B }"),
        (
            "b",
            "use crate::{c::C, e};\n// use crate::d::D;\nconst T: &str = \"crate::d\";",
        ),
        (
            "c",
            "fn f() { crate::a::f() }\n#[cfg(test)]\nmod tests {\n    use crate::d::D;\n}\n",
        ),
        ("d", "use super::c::C;"),
        (
            "e",
            "/// Like [`crate::b`].\nconst QUOTE: char = '\"'; use crate::f::{\n    g::G,\n    h,\n};",
        ),
        (
            "f",
            "mod inner { const A: &str = r#\"crate::e \" crate::b\"#; }",
        ),
    ];
    let names: BTreeSet<String> = sources.iter().map(|(name, _)| (*name).to_owned()).collect();
    let graph = sources
        .iter()
        .map(|(name, text)| ((*name).to_owned(), used_by(text, name, &names, true)))
        .collect();
    assert_eq!(cycles(&graph), [["a", "b", "c"]]);
    assert_eq!(graph["d"], BTreeSet::from(["c".to_owned()]));
    assert_eq!(graph["e"], BTreeSet::from(["f".to_owned()]));
}

/// The modules that each module uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns the folders of all crates.
fn packages() -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut packages: Vec<PathBuf> = entries(&crates)
        .into_iter()
        .filter(|path| path.join("src").is_dir())
        .collect();
    packages.sort();
    packages
}

/// Returns the graph of the modules directly under `source`; the root files are none, since they
/// name them all.
fn uses(source: &Path) -> Graph {
    let roots = ["lib.rs", "main.rs"].map(|name| source.join(name));
    let modules: Vec<PathBuf> = entries(source)
        .into_iter()
        .filter(|path| !roots.contains(path))
        .collect();
    let names: BTreeSet<String> = modules.iter().map(|path| stem(path)).collect();
    let mut graph: Graph = names
        .iter()
        .map(|name| (name.clone(), BTreeSet::new()))
        .collect();
    for module in modules {
        let name = stem(&module);
        for file in files(&module) {
            let text = fs::read_to_string(&file).expect("a source can be read");
            let is_top = file == module || file == module.join("mod.rs");
            graph
                .entry(name.clone())
                .or_default()
                .extend(used_by(&text, &name, &names, is_top));
        }
    }
    graph
}

/// Returns those of `names` that the `text` of `module` uses; at the `top` level, `super::` is the
/// crate's root.
fn used_by(text: &str, module: &str, names: &BTreeSet<String>, top: bool) -> BTreeSet<String> {
    let code = without_tests(&without_text(text));
    let mut used = BTreeSet::new();
    let prefixes: &[&str] = if top {
        &["crate::", "super::"]
    } else {
        &["crate::"]
    };
    for prefix in prefixes {
        for (at, _) in code.match_indices(prefix) {
            let is_whole = !code[..at]
                .ends_with(|before: char| before.is_alphanumeric() || "_$:".contains(before));
            if is_whole {
                used.extend(heads(&code[at + prefix.len()..]));
            }
        }
    }
    used.retain(|name| name != module && names.contains(name));
    used
}

/// Returns the first names of the paths at the start of `code`: one, or those of a group in braces.
fn heads(code: &str) -> Vec<String> {
    let Some(group) = code.strip_prefix('{') else {
        return vec![identifier(code)];
    };
    let (mut depth, mut begins, mut heads) = (0, true, Vec::new());
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            _ if begins && !character.is_whitespace() => {
                heads.push(identifier(&group[at..]));
                begins = false;
            }
            _ => {}
        }
    }
    heads
}

fn identifier(code: &str) -> String {
    code.chars()
        .take_while(|character| character.is_alphanumeric() || *character == '_')
        .collect()
}

/// Returns `source` without comments, and with empty strings and character literals.
fn without_text(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let skipped = text_length(rest, code.chars().last());
        if skipped > 0 {
            code.push(' ');
            rest = &rest[skipped..];
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    code
}

/// Returns the bytes of the comment, string or character literal that `rest` begins with, or zero.
fn text_length(rest: &str, before: Option<char>) -> usize {
    let end = |found: Option<usize>, of: usize| found.map_or(rest.len(), |at| at + of);
    let in_name = before.is_some_and(|before| before.is_alphanumeric() || before == '_');
    if rest.starts_with("//") {
        return end(rest.find('\n'), 0);
    }
    if rest.starts_with("/*") {
        return end(rest.find("*/"), 2);
    }
    if !in_name && let Some(raw) = rest.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            return end(rest[hashes + 2..].find(&close), hashes + 2 + close.len());
        }
    }
    if rest.starts_with('"') {
        return quoted(rest, '"');
    }
    // A lifetime has no closing quote behind its first character.
    let is_character =
        rest.starts_with("'\\") || rest.starts_with('\'') && rest.chars().nth(2) == Some('\'');
    if is_character { quoted(rest, '\'') } else { 0 }
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if character == quote => return at + character.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// Returns `code` without its items under `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        rest = after_item(&rest[at..]);
    }
    kept + rest
}

/// Returns what follows the item that `code` begins with: it ends with a semicolon or a closing
/// brace.
fn after_item(code: &str) -> &str {
    let mut depth = 0;
    for (at, character) in code.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 && matches!(character, ';' | '}') {
            return &code[at + 1..];
        }
    }
    ""
}

/// Returns every group of modules of which each can be reached from each other one, in the order of
/// their names.
fn cycles(graph: &Graph) -> Vec<Vec<String>> {
    let reachable: BTreeMap<&String, BTreeSet<&String>> = graph
        .keys()
        .map(|module| (module, reachable_from(module, graph)))
        .collect();
    let mut groups = BTreeSet::new();
    for (module, reached) in &reachable {
        let group: Vec<String> = reached
            .iter()
            .filter(|other| reachable[**other].contains(module))
            .map(|other| (*other).clone())
            .collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

fn reachable_from<'g>(module: &str, graph: &'g Graph) -> BTreeSet<&'g String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&String> = graph.get(module).into_iter().flatten().collect();
    while let Some(next) = open.pop() {
        if found.insert(next) {
            open.extend(graph.get(next).into_iter().flatten());
        }
    }
    found
}

/// Returns the sources of a module, which is a file or a folder; not those in a folder or file of
/// tests.
fn files(module: &Path) -> Vec<PathBuf> {
    if module.is_file() {
        return vec![module.to_owned()];
    }
    entries(module)
        .iter()
        .filter(|path| stem(path) != "tests")
        .flat_map(|path| files(path))
        .collect()
}

/// Returns the Rust sources and the folders directly in `folder`.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of sources can be read");
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    paths
        .filter(|path| path.is_dir() || path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .expect("a source has a name")
        .to_string_lossy()
        .into_owned()
}
