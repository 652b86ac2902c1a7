use std::process::Output;

use serde_json::Value;

/// The one sentence with which the program explained its failure: the only line of its standard
/// error, without the program's name.
///
/// # Panics
/// If it exited with another code than `code`, or said anything else.
pub fn sentence(output: &Output, code: i32) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    let line = stderr
        .strip_suffix('\n')
        .filter(|line| !line.contains('\n'));
    let sentence = line.and_then(|line| line.strip_prefix("fullpipe: "));
    sentence
        .unwrap_or_else(|| panic!("not one sentence of the program: {stderr:?}"))
        .to_owned()
}

/// Holds what was said against its parts.
///
/// # Panics
/// If one of `parts` is not in `said`.
pub fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
}

/// The one JSON document that makes up its standard output.
///
/// # Panics
/// If it is none, or more than one.
pub fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        panic!("not one JSON document: {error}:\n{stdout}{stderr}")
    })
}
