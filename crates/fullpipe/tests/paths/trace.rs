//! `trace` over captures of emulated paths: the limit of a transfer by the packets of each end alone, and what both
//! show together.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{fullpipe, run};
use fullpipe_testkit::{document, path, require};
use serde_json::Value;

const TIMEOUT: u64 = 60;

/// A full link, a window that is too small and a program that offers less, over the same path.
const SCENARIO: &str = "name = \"traced\"\ntitle = \"A path of a test\"\n\n\
                        [path]\nrate = \"40Mbit/s\"\nrtt = \"20ms\"\n\n\
                        [[step]]\nname = \"full\"\nduration = \"2s\"\n\n\
                        [[step]]\nname = \"window\"\nwindow = \"32KiB\"\nduration = \"2s\"\n\n\
                        [[step]]\nname = \"offered\"\nrate = \"8M\"\nduration = \"2s\"\n\n\
                        [[step]]\nname = \"edited\"\nduration = \"2s\"\n\
                        path = { loss = \"1%\", edits = \"strip-window-scale clamp-mss=1200\" }\n";

fn capture_in(files: &[&Path]) -> Value {
    let names = files.iter().map(|file| file.to_str().unwrap());
    let words: Vec<&str> = ["trace", "--json"].into_iter().chain(names).collect();
    document(&run(&mut fullpipe(&words), TIMEOUT))["capture"].clone()
}

fn limit_in(file: &Path) -> (String, String) {
    let diagnosis = capture_in(&[file])["transfers"][0]["diagnosis"].clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&diagnosis["verdict"]["kind"]), text(&diagnosis["evidence"]["capture"]["point"]))
}

#[test]
fn the_capture_of_each_end_shows_the_limit_and_where_it_was_taken() {
    require!(Lab);
    let _path = path();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("traced.toml");
    fs::write(&file, SCENARIO).unwrap();
    let [file, captures] = [file.as_path(), folder.path()].map(|path| path.to_str().unwrap());
    let command = ["lab", "run", file, "--json", "--capture", captures];
    document(&run(&mut fullpipe(&command), TIMEOUT));
    for (step, kind) in [("full", "capacity"), ("window", "receive-window"), ("offered", "sender-application")] {
        for end in ["sender", "receiver"] {
            let found = limit_in(&folder.path().join(format!("traced-{step}-1-{end}.pcap")));
            assert_eq!(found, (kind.to_owned(), end.to_owned()), "{step} at the {end}");
        }
    }
    let files = ["receiver", "sender"].map(|end| folder.path().join(format!("traced-edited-1-{end}.pcap")));
    let capture = capture_in(&files.each_ref().map(PathBuf::as_path));
    let pair = &capture["pairs"][0];
    let of = |end: usize| &pair["directions"][end];
    let changed = |end: usize| -> Vec<(String, String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let all = of(end)["changes"].as_array().unwrap().iter();
        all.map(|one| (text(&one["field"]), text(&one["before"]), text(&one["after"]))).collect()
    };
    // The second file is that of the sender, which opened the connection.
    assert_eq!(pair["nearer_to_first"], 1, "{pair}");
    let is_there = |field: &str, after: &str| changed(0).iter().any(|one| one.0 == field && one.2 == after);
    assert!(is_there("mss", "1200") && is_there("window-scale", "none"), "{:?}", changed(0));
    // The answer offers no scale to take away.
    assert_eq!(changed(1), [("mss", "1460", "1200")].map(|(one, two, three)| (one.into(), two.into(), three.into())));
    let lost = of(0)["lost"].as_f64().unwrap();
    assert!((0.002..0.03).contains(&lost) && of(1)["lost_bytes"] == 0, "{pair}");
    let verdict = &capture["transfers"][0]["diagnosis"]["verdict"];
    assert_eq!(verdict["basis"], "capture");
}
