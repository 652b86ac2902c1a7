//! `kill -9` amid writes: whatever was acknowledged is there.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fullpipe_store::{ArchiveLocation, DocumentFilter, Store};
use fullpipe_testkit::{Postgres, require};

use crate::document;

/// Place of the archive and first number of the documents, for [`writer`].
const PLACE: &str = "FULLPIPE_TEST_PLACE";
const FIRST: &str = "FULLPIPE_TEST_FIRST";

const KILLS: u64 = 25;

#[test]
fn of_the_writer_lose_nothing_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("archive.db");
    writers_are_killed(place.to_str().unwrap());
}

#[test]
fn of_writer_and_server_lose_nothing_on_postgresql() {
    require!(Postgres);
    let mut server = Postgres::start();
    let place = server.database("kills");
    writers_are_killed(&place);
    for crash in 0..3 {
        let acknowledged = written_until(&place, (KILLS + crash) * 1000, 3, Duration::ZERO, |_| {
            server.crash();
        });
        server.run();
        all_are_there(&place, &acknowledged);
    }
}

fn writers_are_killed(place: &str) {
    Store::create(&place.parse().unwrap()).unwrap();
    let mut acknowledged = Vec::new();
    for kill in 0..KILLS {
        // At moments that fall into all parts of a write.
        let pause = Duration::from_micros(kill * 7 % 23 * 200);
        acknowledged.extend(written_until(
            place,
            kill * 1000,
            1 + kill as usize % 4,
            pause,
            |writer| {
                writer.kill().unwrap();
            },
        ));
    }
    assert!(
        acknowledged.len() as u64 > KILLS * 2,
        "{} documents were written",
        acknowledged.len()
    );
    all_are_there(place, &acknowledged);
}

/// Starts a writer, waits for the acknowledgement of `count` documents and then for `pause`, and
/// lets `kill` end it. Returns the identifiers that it acknowledged.
fn written_until(
    place: &str,
    first: u64,
    count: usize,
    pause: Duration,
    kill: impl FnOnce(&mut Child),
) -> Vec<String> {
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::writer", "--ignored", "--nocapture"])
        .env(PLACE, place)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(writer.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let mut kept = lines.filter_map(|line| line.strip_prefix("kept ").map(str::to_owned));
    let mut ids: Vec<String> = kept.by_ref().take(count).collect();
    std::thread::sleep(pause);
    kill(&mut writer);
    ids.extend(kept);
    writer.wait().unwrap();
    ids
}

fn all_are_there(place: &str, acknowledged: &[String]) {
    let mut store = Store::open(&place.parse().unwrap()).unwrap();
    let documents = store.list_documents(&DocumentFilter::default()).unwrap();
    let listed: std::collections::HashSet<&str> = documents
        .iter()
        .map(|document| document.id.as_str())
        .collect();
    let lost: Vec<&String> = acknowledged
        .iter()
        .filter(|id| !listed.contains(id.as_str()))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(documents.iter().all(|document| document.facts.len() == 1));
    let check = store.check_documents(false).unwrap();
    assert_eq!((check.damaged, check.database), (vec![], vec![]));
}

/// Writes documents and prints each identifier when the archive has it, until it is killed; a
/// process for the tests above.
#[test]
#[ignore = "it is started by the tests of this module, and ends with them"]
#[expect(clippy::print_stdout, reason = "the tests read it")]
fn writer() {
    let (Ok(place), Ok(first)) = (std::env::var(PLACE), std::env::var(FIRST)) else {
        return;
    };
    let place: ArchiveLocation = place.parse().unwrap();
    let mut store = Store::open(&place).unwrap();
    let first: u64 = first.parse().unwrap();
    for number in first.. {
        // The server may be killed in place of this process.
        let Ok(kept) = store.put_document(&document("beta", number)) else {
            return;
        };
        println!("kept {}", kept.id);
    }
}
