//! `trace` over captures of emulated paths: the limit of a transfer by the packets of each end alone.

use std::fs;
use std::path::Path;

use crate::common::{fullpipe, path, run};
use fullpipe_testkit::{document, require};
use serde_json::Value;

const TIMEOUT: u64 = 60;

/// A full link, a window that is too small and a program that offers less, over the same path.
const SCENARIO: &str = "name = \"traced\"\ntitle = \"A path of a test\"\n\n\
                        [path]\nrate = \"40Mbit/s\"\nrtt = \"20ms\"\n\n\
                        [[step]]\nname = \"full\"\nduration = \"2s\"\n\n\
                        [[step]]\nname = \"window\"\nwindow = \"32KiB\"\nduration = \"2s\"\n\n\
                        [[step]]\nname = \"offered\"\nrate = \"8M\"\nduration = \"2s\"\n";

fn limit_in(file: &Path) -> (String, String) {
    let output = run(&mut fullpipe(&["trace", "--json", file.to_str().unwrap()]), TIMEOUT);
    let diagnosis = document(&output)["capture"]["transfers"][0]["diagnosis"].clone();
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
}
