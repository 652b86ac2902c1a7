//! An archive of many documents is fast.

use std::time::{Duration, Instant};

use fullpipe_store::{Filter, Location, Store};
use fullpipe_testkit::{Postgres, require};

use crate::document;

const DOCUMENTS: u64 = 100_000;
const PEERS: u64 = 20;

#[test]
#[ignore = "it judges the machine too, and takes minutes"]
fn lists_and_histories_of_a_hundred_thousand_documents_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    is_fast(&Location::File(folder.path().join("archive.db")));
}

#[test]
#[ignore = "it judges the machine too, and takes minutes"]
fn lists_and_histories_of_a_hundred_thousand_documents_on_postgresql() {
    require!(Postgres);
    let server = Postgres::start();
    is_fast(&server.database("large").parse().unwrap());
}

#[expect(clippy::print_stdout, reason = "figures of a run, shown by --nocapture")]
fn is_fast(place: &Location) {
    let mut store = Store::create(place).unwrap();
    let ((), writing) = timed(|| {
        for number in 0..DOCUMENTS {
            let mut new = document(&format!("host-{}", number % PEERS), number);
            new.head.address = format!("192.0.2.{}", number % PEERS);
            store.put(&new).unwrap();
        }
    });
    let mut store = Store::open(place).unwrap();
    let (listed, list) = timed(|| store.list(&Filter { limit: Some(20), ..Filter::default() }).unwrap());
    assert_eq!(listed.len(), 20);
    let (shown, history) = timed(|| store.history("host-7", None).unwrap());
    assert_eq!(shown.series[0].points.len() as u64, DOCUMENTS / PEERS);
    let (_, find) = timed(|| store.find(&listed[0].id[24..]).unwrap());
    let rate = DOCUMENTS as f64 / writing.as_secs_f64();
    println!("{rate:.0} documents a second; list {list:?}, history {history:?}, show {find:?}");
    assert!(list <= Duration::from_millis(50), "list {list:?}");
    assert!(history <= Duration::from_millis(200), "history {history:?}");
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    (work(), begun.elapsed())
}
