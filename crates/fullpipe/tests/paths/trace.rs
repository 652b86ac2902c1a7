//! `trace` over captures of emulated paths: the limit of a transfer by the packets of each end
//! alone, and what both show together.

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
    (
        text(&diagnosis["verdict"]["kind"]),
        text(&diagnosis["evidence"]["capture"]["point"]),
    )
}

/// Asserts that the report of the scenario has the limit of a step by its packets too.
fn both_views_agree(report: &Value, step: &str, kind: &str) {
    let run = &report["steps"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == step)
        .unwrap()["runs"][0];
    let capture = &run["capture"];
    assert_eq!(
        (&capture["limit"]["kind"], &run["limit"]["kind"]),
        (&kind.into(), &kind.into()),
        "{capture}"
    );
    assert_eq!(
        (&capture["agrees"], &capture["limit"]["basis"]),
        (&true.into(), &"capture".into())
    );
    let files = [&capture["name"], &capture["other"]].map(|name| Path::new(name.as_str().unwrap()));
    let packets: u64 = files
        .iter()
        .map(|file| capture_in(&[file])["packets"].as_u64().unwrap())
        .sum();
    assert!(
        packets > 1_000 && capture["packets"] == packets && capture["left_out"] == 0,
        "{capture}"
    );
}

/// Sets the clock of the receiver's capture 3.5 s ahead, and lets it gain `ppm`, which both
/// captures must show.
fn clocks_are_found([receiver, sender]: &[PathBuf; 2], ppm: i64) {
    let skewed = receiver.with_extension(format!("skewed{ppm}"));
    fs::write(
        &skewed,
        with_another_clock(&fs::read(receiver).unwrap(), ppm, 3_500_000_000),
    )
    .unwrap();
    let pair = capture_in(&[sender, &skewed])["pairs"][0].clone();
    let (skew, offset) = (&pair["clock_skew"], &pair["clock_offset"]);
    let seen = skew["by"].as_f64().unwrap() * if skew["faster"] == 1 { 1e6 } else { -1e6 };
    assert!((seen - ppm as f64).abs() < 3.0, "{pair}");
    // The path of the test takes 10 ms each way, and what is sent first has no queue.
    let (by, rtt) = (
        offset["by"].as_f64().unwrap(),
        offset["rtt"].as_f64().unwrap(),
    );
    assert!(offset["ahead"] == 1 && (by - 3.5).abs() < 1e-3, "{pair}");
    assert!((0.0199..0.022).contains(&rtt), "{pair}");
    // Acknowledgements meet no queue.
    assert!(
        pair["directions"][1]["delay"]["median"].as_f64().unwrap() < 1e-3,
        "{pair}"
    );
}

/// Returns a pcap file whose clock is `ahead` nanoseconds ahead at its first packet and gains
/// `ppm`.
fn with_another_clock(file: &[u8], ppm: i64, ahead: i64) -> Vec<u8> {
    const HEADER: usize = 24;
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!(word(0), 0xa1b2_3c4d, "nanoseconds, little-endian");
    let (mut changed, mut at) = (file.to_vec(), HEADER);
    let time = |at: usize| i64::from(word(at)) * 1_000_000_000 + i64::from(word(at + 4));
    while at < file.len() {
        let elapsed = time(at) - time(HEADER);
        let time = time(at) + elapsed * ppm / 1_000_000 + ahead;
        let parts = [time / 1_000_000_000, time % 1_000_000_000]
            .map(|part| u32::try_from(part).unwrap().to_le_bytes());
        changed[at..at + 8].copy_from_slice(&parts.concat());
        at += 16 + word(at + 8) as usize;
    }
    changed
}

/// Tests whose figures are judged.
mod tests_alone {
    use super::*;

    #[test]
    fn the_capture_of_each_end_shows_the_limit_and_where_it_was_taken() {
        require!(Lab);
        let _path = path();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("traced.toml");
        fs::write(&file, SCENARIO).unwrap();
        let [file, captures] = [file.as_path(), folder.path()].map(|path| path.to_str().unwrap());
        let command = ["lab", "run", file, "--json", "--capture", captures];
        let report = document(&run(&mut fullpipe(&command), TIMEOUT))["lab"][0].clone();
        for (step, kind) in [
            ("full", "capacity"),
            ("window", "receive-window"),
            ("offered", "sender-application"),
        ] {
            both_views_agree(&report, step, kind);
            for end in ["sender", "receiver"] {
                let found = limit_in(&folder.path().join(format!("traced-{step}-1-{end}.pcap")));
                assert_eq!(
                    found,
                    (kind.to_owned(), end.to_owned()),
                    "{step} at the {end}"
                );
            }
        }
        let files = ["receiver", "sender"]
            .map(|end| folder.path().join(format!("traced-edited-1-{end}.pcap")));
        let capture = capture_in(&files.each_ref().map(PathBuf::as_path));
        let pair = &capture["pairs"][0];
        let of = |end: usize| &pair["directions"][end];
        let changed = |end: usize| -> Vec<(String, String, String)> {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let all = of(end)["changes"].as_array().unwrap().iter();
            all.map(|one| {
                (
                    text(&one["field"]),
                    text(&one["before"]),
                    text(&one["after"]),
                )
            })
            .collect()
        };
        // The second file is that of the sender, which opened the connection.
        assert_eq!(pair["nearer_to_first"], 1, "{pair}");
        let is_there = |field: &str, after: &str| {
            changed(0)
                .iter()
                .any(|one| one.0 == field && one.2 == after)
        };
        assert!(
            is_there("mss", "1200") && is_there("window-scale", "none"),
            "{:?}",
            changed(0)
        );
        // The answer offers no scale to take away.
        assert_eq!(
            changed(1),
            [("mss", "1460", "1200")].map(|(one, two, three)| (
                one.into(),
                two.into(),
                three.into()
            ))
        );
        let lost = of(0)["lost"].as_f64().unwrap();
        assert!(
            (0.002..0.03).contains(&lost) && of(1)["lost_bytes"] == 0,
            "{pair}"
        );
        let verdict = &capture["transfers"][0]["diagnosis"]["verdict"];
        assert_eq!(verdict["basis"], "capture");
        for ppm in [200, -200] {
            clocks_are_found(&files, ppm);
        }
    }
}
