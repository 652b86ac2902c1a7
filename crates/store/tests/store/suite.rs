//! The suite that every archive must pass, on SQLite and on PostgreSQL.

use std::time::{Duration, Instant};

use fullpipe_record::{StoredDocument, StoredFacts};
use fullpipe_store::{ArchiveLocation, DocumentFilter, Store, StoreError};
use fullpipe_testkit::{Postgres, require, within};
use jiff::Timestamp;

use crate::document;

/// A check with its name; it takes an empty place.
type Check = (&'static str, fn(&ArchiveLocation));

const CHECKS: &[Check] = &[
    (
        "nothing_is_there_until_it_is_made",
        nothing_is_there_until_it_is_made,
    ),
    (
        "a_document_comes_back_byte_for_byte",
        a_document_comes_back_byte_for_byte,
    ),
    ("the_same_bytes_are_kept_once", the_same_bytes_are_kept_once),
    (
        "a_list_is_filtered_and_the_newest_is_first",
        a_list_is_filtered_and_the_newest_is_first,
    ),
    (
        "an_identifier_is_found_by_its_end",
        an_identifier_is_found_by_its_end,
    ),
    (
        "a_history_has_a_series_for_each_request",
        a_history_has_a_series_for_each_request,
    ),
    ("two_writers_lose_nothing", two_writers_lose_nothing),
    ("thinning_keeps_the_facts", thinning_keeps_the_facts),
    (
        "what_was_thinned_is_whole_again_once_it_is_put_again",
        what_was_thinned_is_whole_again_once_it_is_put_again,
    ),
    (
        "a_time_beyond_those_of_the_tables_is_the_last",
        a_time_beyond_those_of_the_tables_is_the_last,
    ),
    (
        "stale_facts_are_found_and_derived_again",
        stale_facts_are_found_and_derived_again,
    ),
    ("every_text_comes_back", every_text_comes_back),
];

#[test]
fn on_sqlite() {
    for (name, check) in CHECKS {
        let folder = tempfile::tempdir().unwrap();
        check(&ArchiveLocation::File(folder.path().join("new/archive.db")));
        println_name(name);
    }
}

#[test]
fn on_postgresql() {
    require!(Postgres);
    let server = Postgres::start();
    for (name, check) in CHECKS {
        check(&server.database(name).parse().unwrap());
        println_name(name);
    }
    let url = server.database("newer");
    a_newer_archive_is_only_read(&url.parse().unwrap(), || {
        server.execute("newer", "UPDATE fullpipe.version SET number = 99");
    });
    what_a_role_may_not(&server);
    let url = server.database("damaged");
    a_cut_document_is_named(&url.parse().unwrap(), || {
        server.execute(
            "damaged",
            "UPDATE fullpipe.body SET content = substring(content FOR 10)",
        );
    });
}

fn what_a_role_may_not(server: &Postgres) {
    let url = server.database("closed");
    let as_role = |role: &str| {
        url.replace("user=postgres", &format!("user={role}"))
            .parse::<ArchiveLocation>()
            .unwrap()
    };
    let forbidden = |result: Result<(), StoreError>, part: &str| {
        let error = result.unwrap_err();
        assert!(
            matches!(error, StoreError::Forbidden { .. }) && error.to_string().contains(part),
            "{error}"
        );
    };
    let open = |role: &str| Store::open(&as_role(role)).map(drop);
    forbidden(open("nobody"), "does not exist");
    server.execute("closed", "CREATE ROLE other LOGIN");
    forbidden(
        Store::create(&as_role("other")).map(drop),
        "permission denied for database",
    );
    Store::create(&url.parse().unwrap())
        .unwrap()
        .put_document(&document("beta", 1))
        .unwrap();
    forbidden(open("other"), "permission denied for schema");
    server.execute("closed", "GRANT USAGE ON SCHEMA fullpipe TO other");
    forbidden(open("other"), "permission denied for table version");
    server.execute(
        "closed",
        "GRANT SELECT ON ALL TABLES IN SCHEMA fullpipe TO other",
    );
    let mut reader = Store::open(&as_role("other")).unwrap();
    assert_eq!(
        reader
            .list_documents(&DocumentFilter::default())
            .unwrap()
            .len(),
        1
    );
    forbidden(
        reader.put_document(&document("beta", 2)).map(drop),
        "permission denied for table document",
    );
    server.execute(
        "closed",
        "ALTER DATABASE closed SET default_transaction_read_only = on",
    );
    let mut store = Store::open(&url.parse().unwrap()).unwrap();
    forbidden(
        store.put_document(&document("beta", 2)).map(drop),
        "read-only",
    );
}

#[test]
fn on_sqlite_another_writer_is_waited_for_ten_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("archive.db");
    let store = Store::create(&ArchiveLocation::File(file.clone())).unwrap();
    let other = rusqlite::Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    another_writer_is_waited_for(store, || other.execute_batch("COMMIT").unwrap());
}

#[test]
fn on_postgresql_another_writer_is_waited_for_ten_seconds() {
    require!(Postgres);
    let server = Postgres::start();
    let url = server.database("busy");
    let store = Store::create(&url.parse().unwrap()).unwrap();
    let mut other = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    other
        .batch_execute("BEGIN; LOCK TABLE fullpipe.document")
        .unwrap();
    another_writer_is_waited_for(store, || other.batch_execute("COMMIT").unwrap());
}

/// Both reported a new document, and there were bodies of none.
#[test]
fn on_postgresql_of_two_writers_of_the_same_one_finds_it_known() {
    require!(Postgres);
    let server = Postgres::start();
    let url = server.database("same");
    let mut store = Store::create(&url.parse().unwrap()).unwrap();
    let id = store.put_document(&document("beta", 1)).unwrap().id;
    let mut other = postgres::Client::connect(&url, postgres::NoTls).unwrap();
    for table in ["document", "body", "fact"] {
        let moved = format!(
            "CREATE TABLE {table} AS SELECT * FROM fullpipe.{table}; DELETE FROM fullpipe.{table}"
        );
        other.batch_execute(&moved).unwrap();
    }
    other.batch_execute("BEGIN").unwrap();
    for table in ["document", "body", "fact"] {
        other
            .batch_execute(&format!(
                "INSERT INTO fullpipe.{table} SELECT * FROM public.{table}"
            ))
            .unwrap();
    }
    let place = url.parse().unwrap();
    let second = std::thread::spawn(move || {
        Store::open(&place)
            .unwrap()
            .put_document(&document("beta", 1))
            .unwrap()
    });
    let waits = "SELECT 1 FROM pg_locks WHERE NOT granted";
    assert!(within(Duration::from_secs(20), || !other
        .query(waits, &[])
        .unwrap()
        .is_empty()));
    other.batch_execute("COMMIT").unwrap();
    let second = second.join().unwrap();
    assert_eq!((second.id, second.is_new), (id, false));
    let check = store.check_documents(false).unwrap();
    assert_eq!(
        (check.documents, check.damaged, check.database),
        (1, vec![], vec![])
    );
}

#[test]
fn on_sqlite_a_newer_archive_is_only_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("archive.db");
    a_newer_archive_is_only_read(&ArchiveLocation::File(file.clone()), || {
        rusqlite::Connection::open(&file)
            .unwrap()
            .execute_batch("PRAGMA user_version = 99")
            .unwrap();
    });
}

/// Shows in the output of a failed test which checks passed before.
#[expect(clippy::print_stdout, reason = "shown with a failure only")]
fn println_name(name: &str) {
    println!("passed: {name}");
}

fn nothing_is_there_until_it_is_made(place: &ArchiveLocation) {
    let missing = Store::open(place).err().unwrap();
    assert!(matches!(missing, StoreError::Missing(_)), "{missing}");
    assert!(
        missing.to_string().contains("fullpipe store create"),
        "{missing}"
    );
    for _ in 0..2 {
        assert_eq!(
            Store::create(place)
                .unwrap()
                .archive_report()
                .unwrap()
                .version,
            3
        );
    }
    assert_eq!(
        Store::open(place)
            .unwrap()
            .list_documents(&DocumentFilter::default())
            .unwrap(),
        []
    );
}

fn a_document_comes_back_byte_for_byte(place: &ArchiveLocation) {
    let mut store = Store::create(place).unwrap();
    let new = document("beta", 1234);
    let kept = store.put_document(&new).unwrap();
    assert!(kept.is_new);
    let listed = Store::open(place)
        .unwrap()
        .list_documents(&DocumentFilter::default())
        .unwrap();
    let found = store.find_document(&kept.id).unwrap();
    assert_eq!(listed, std::slice::from_ref(&found));
    assert_eq!(store.document_body(&found).unwrap(), new.body);
    let expected = StoredDocument {
        id: kept.id,
        bytes: found.bytes,
        blake3: found.blake3.clone(),
        ..new.head
    };
    assert_eq!(found, expected);
    assert_eq!(found.bytes.get(), new.body.len() as u64);
    let report = store.archive_report().unwrap();
    assert_eq!(report.documents.get("foreign/test"), Some(&1));
    assert!(report.bytes.get() > 0 && report.exists && !report.read_only);
}

fn the_same_bytes_are_kept_once(place: &ArchiveLocation) {
    let mut store = Store::create(place).unwrap();
    let first = store.put_document(&document("beta", 1)).unwrap();
    let again = store.put_document(&document("beta", 1)).unwrap();
    assert_eq!(
        (again.id.as_str(), again.is_new),
        (first.id.as_str(), false)
    );
    // A diagnosis holds a measurement with an identifier that is known already.
    let mut other = document("beta", 2);
    other.head.id.clone_from(&first.id);
    let second = store.put_document(&other).unwrap();
    assert!(second.is_new && second.id != first.id);
    assert_eq!(
        store
            .list_documents(&DocumentFilter::default())
            .unwrap()
            .len(),
        2
    );
}

fn a_list_is_filtered_and_the_newest_is_first(place: &ArchiveLocation) {
    let mut store = Store::create(place).unwrap();
    for number in 0..6 {
        let mut new = document(if number % 2 == 0 { "even" } else { "odd" }, number);
        new.head.address = String::new();
        new.head.campaign = if number < 2 {
            "first".to_owned()
        } else {
            String::new()
        };
        new.head.kind = if number == 5 {
            "measurement".to_owned()
        } else {
            new.head.kind
        };
        store.put_document(&new).unwrap();
    }
    let mut minutes = |filter: DocumentFilter| -> Vec<String> {
        let listed = store.list_documents(&filter).unwrap();
        assert!(listed.iter().all(|document| document.facts.len() == 1));
        listed
            .into_iter()
            .map(|document| document.started[14..16].to_owned())
            .collect()
    };
    let at = |minute: u32| {
        format!("2026-03-01T00:{minute:02}:00Z")
            .parse::<Timestamp>()
            .ok()
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        minutes(DocumentFilter::default()),
        ["05", "04", "03", "02", "01", "00"]
    );
    assert_eq!(
        minutes(DocumentFilter {
            limit: Some(2),
            ..DocumentFilter::default()
        }),
        ["05", "04"]
    );
    assert_eq!(
        minutes(DocumentFilter {
            peer: text("even"),
            ..DocumentFilter::default()
        }),
        ["04", "02", "00"]
    );
    assert_eq!(
        minutes(DocumentFilter {
            peer: text("even:5201"),
            ..DocumentFilter::default()
        }),
        ["04", "02", "00"]
    );
    assert_eq!(
        minutes(DocumentFilter {
            campaign: text("first"),
            ..DocumentFilter::default()
        }),
        ["01", "00"]
    );
    assert_eq!(
        minutes(DocumentFilter {
            kind: text("foreign"),
            limit: Some(2),
            ..DocumentFilter::default()
        }),
        ["04", "03"]
    );
    assert_eq!(
        minutes(DocumentFilter {
            kind: text("measurement"),
            ..DocumentFilter::default()
        }),
        ["05"]
    );
    assert_eq!(
        minutes(DocumentFilter {
            since: at(2),
            before: at(4),
            ..DocumentFilter::default()
        }),
        ["03", "02"]
    );
    assert_eq!(
        minutes(DocumentFilter {
            peer: text("odd"),
            since: at(2),
            ..DocumentFilter::default()
        }),
        ["05", "03"]
    );
}

fn an_identifier_is_found_by_its_end(place: &ArchiveLocation) {
    let mut store = Store::create(place).unwrap();
    let ids: Vec<String> = (0..20)
        .map(|number| store.put_document(&document("beta", number)).unwrap().id)
        .collect();
    for id in &ids {
        assert_eq!(
            store.find_document(&id[24..].to_uppercase()).unwrap().id,
            *id
        );
    }
    // Of 20 identifiers, two end in the same of 16 characters.
    let ends: Vec<char> = ids.iter().map(|id| id.chars().last().unwrap()).collect();
    let twice = ends
        .iter()
        .find(|end| ends.iter().filter(|other| other == end).count() > 1)
        .unwrap();
    assert!(matches!(
        store.find_document(&twice.to_string()),
        Err(StoreError::Ambiguous(_))
    ));
    for id in [
        "",
        "%",
        "_",
        "0123456789ab0123456789ab",
        "x'; DROP TABLE fact; --",
    ] {
        assert!(
            matches!(store.find_document(id), Err(StoreError::Unknown(_))),
            "{id}"
        );
    }
}

fn a_history_has_a_series_for_each_request(place: &ArchiveLocation) {
    let mut store = Store::create(place).unwrap();
    for number in 0..7 {
        let mut new = document("beta", number * 700);
        if number == 3 {
            "udp".clone_into(&mut new.head.request_key);
        }
        if number == 5 {
            new.head.facts[0].valid = false;
        }
        new.head.facts.push(StoredFacts {
            step: "trial".to_owned(),
            ..new.head.facts[0].clone()
        });
        store.put_document(&new).unwrap();
    }
    store.put_document(&document("gamma", 9)).unwrap();
    for host in ["beta", "beta:5201", "192.0.2.1", "192.0.2.1:5201"] {
        let history = store.host_history(host, None).unwrap();
        let runs: Vec<usize> = history
            .series
            .iter()
            .map(|series| series.points.len())
            .collect();
        assert_eq!(
            runs,
            if host.starts_with("beta") {
                vec![6, 1]
            } else {
                vec![7, 1]
            },
            "{host}"
        );
        let points = &history.series[0].points;
        assert!(
            points
                .windows(2)
                .all(|pair| pair[0].started < pair[1].started)
        );
        assert_eq!(points[0].limit.as_deref(), Some("capacity/link"));
    }
    let history = store.host_history("beta", None).unwrap();
    let days: Vec<(&str, u64)> = history.series[0]
        .days
        .iter()
        .map(|day| (day.date.as_str(), day.runs))
        .collect();
    assert_eq!(
        days,
        [("2026-03-01", 3), ("2026-03-02", 1), ("2026-03-03", 1)]
    );
    let since = "2026-03-02T00:00:00Z".parse().ok();
    assert_eq!(
        store.host_history("beta", since).unwrap().series[0]
            .points
            .len(),
        3
    );
    assert!(
        store
            .host_history("nobody", None)
            .unwrap()
            .series
            .is_empty()
    );
}

fn two_writers_lose_nothing(place: &ArchiveLocation) {
    Store::create(place).unwrap();
    let write = |writer: u64| {
        let mut store = Store::open(place).unwrap();
        (0..25).for_each(|number| {
            assert!(
                store
                    .put_document(&document("beta", writer * 1000 + number))
                    .unwrap()
                    .is_new
            );
        });
    };
    std::thread::scope(|scope| (0..2).for_each(|writer| drop(scope.spawn(move || write(writer)))));
    let mut store = Store::open(place).unwrap();
    assert_eq!(
        store
            .list_documents(&DocumentFilter::default())
            .unwrap()
            .len(),
        50
    );
    assert_eq!(store.check_documents(false).unwrap().damaged, []);
}

fn thinning_keeps_the_facts(place: &ArchiveLocation) {
    let mut store = Store::create(place).unwrap();
    let mut own = document("beta", 1);
    "measurement".clone_into(&mut own.head.kind);
    own.body = br#"{"schema":2,"kind":"measurement","measurement":{"local":{"samples":[{"at":1},{"at":2}]}}}"#.to_vec();
    let own = store.put_document(&own).unwrap().id;
    let foreign = store.put_document(&document("beta", 2)).unwrap().id;
    let after = "2026-04-01T00:00:00Z".parse::<Timestamp>().ok();
    let before = "2026-02-01T00:00:00Z".parse::<Timestamp>().ok();
    let facts: Vec<_> = store
        .list_documents(&DocumentFilter::default())
        .unwrap()
        .into_iter()
        .map(|document| document.facts)
        .collect();

    let thinned = store.thin_documents(before, before).unwrap();
    assert_eq!((thinned.samples, thinned.bodies), (0, 0));
    let thinned = store.thin_documents(after, None).unwrap();
    assert_eq!((thinned.samples, thinned.bodies), (1, 0));
    let document = store.find_document(&own).unwrap();
    let body = String::from_utf8(store.document_body(&document).unwrap()).unwrap();
    assert!(
        document.thinned && body.contains(r#""samples":[]"#),
        "{body}"
    );
    // What another program wrote stays as it is.
    let document = store.find_document(&foreign).unwrap();
    assert!(!document.thinned && store.document_body(&document).is_ok());
    assert_eq!(store.thin_documents(after, None).unwrap().samples, 0);

    let thinned = store.thin_documents(None, after).unwrap();
    assert_eq!(thinned.bodies, 2);
    assert!(thinned.freed.get() > 0);
    let document = store.find_document(&foreign).unwrap();
    assert!(matches!(
        store.document_body(&document),
        Err(StoreError::Removed(_))
    ));
    let kept: Vec<_> = store
        .list_documents(&DocumentFilter::default())
        .unwrap()
        .into_iter()
        .map(|document| document.facts)
        .collect();
    assert_eq!(kept, facts);
    assert_eq!(store.check_documents(false).unwrap().damaged, []);
}

fn what_was_thinned_is_whole_again_once_it_is_put_again(place: &ArchiveLocation) {
    let mut store = Store::create(place).unwrap();
    let mut new = document("beta", 1);
    new.body = br#"{"schema":2,"kind":"measurement","measurement":{"samples":[1]}}"#.to_vec();
    let first = store.put_document(&new).unwrap();
    let all = Some(Timestamp::MAX);
    for (samples, bodies) in [(all, None), (None, all), (all, all)] {
        let thinned = store.thin_documents(samples, bodies).unwrap();
        assert_eq!(thinned.samples + thinned.bodies, 1);
        let again = store.put_document(&new).unwrap();
        assert_eq!(
            (again.id.as_str(), again.is_new, again.is_restored),
            (first.id.as_str(), false, true)
        );
        let found = store.find_document(&first.id).unwrap();
        assert!(!found.thinned && found.facts == new.head.facts);
        assert_eq!(store.document_body(&found).unwrap(), new.body);
        let once_more = store.put_document(&new).unwrap();
        assert!(!once_more.is_new && !once_more.is_restored);
    }
    let check = store.check_documents(false).unwrap();
    assert_eq!(
        (check.documents, check.damaged, check.database),
        (1, vec![], vec![])
    );
}

fn a_time_beyond_those_of_the_tables_is_the_last(place: &ArchiveLocation) {
    let mut store = Store::create(place).unwrap();
    for (number, started) in [
        (1, "9000-01-01T00:00:00Z"),
        (2, "1000-01-01T00:00:00Z"),
        (3, "no time"),
    ] {
        let mut new = document("beta", number);
        started.clone_into(&mut new.head.started);
        store.put_document(&new).unwrap();
    }
    let years: Vec<String> = store
        .list_documents(&DocumentFilter::default())
        .unwrap()
        .iter()
        .map(|document| document.started[..4].to_owned())
        .collect();
    assert_eq!(years, ["2262", "1970", "1677"]);
    assert_eq!(
        store
            .thin_documents(None, "2026-01-01T00:00:00Z".parse().ok())
            .unwrap()
            .bodies,
        2
    );
}

fn stale_facts_are_found_and_derived_again(place: &ArchiveLocation) {
    let mut store = Store::create(place).unwrap();
    let file = include_bytes!("../files/iperf3-tcp.json");
    let mut new = fullpipe_store::read_import(file, Timestamp::UNIX_EPOCH)
        .unwrap()
        .remove(0);
    let right = new.head.facts.clone();
    new.head.facts[0].retransmits = None;
    let id = store.put_document(&new).unwrap().id;
    let check = store.check_documents(false).unwrap();
    assert_eq!(
        (check.documents, check.stale, check.repaired),
        (1, 1, false)
    );
    assert_eq!(store.check_documents(true).unwrap().stale, 1);
    assert_eq!(store.find_document(&id).unwrap().facts, right);
    assert_eq!(store.check_documents(true).unwrap().stale, 0);
}

fn every_text_comes_back(place: &ArchiveLocation) {
    let mut store = Store::create(place).unwrap();
    for (number, name) in [
        "Zürich",
        "a'b\"c",
        "$1",
        "%",
        "\u{1F4E1}",
        "line\nbreak",
        "\\",
        "",
    ]
    .into_iter()
    .enumerate()
    {
        let mut new = document(name, number as u64);
        new.head.facts[0].congestion = Some(name.to_owned());
        let id = store.put_document(&new).unwrap().id;
        let found = store.find_document(&id).unwrap();
        assert_eq!(
            (found.peer.as_str(), found.facts[0].congestion.as_deref()),
            (name, Some(name))
        );
    }
    let mut zero = document("a\0b", 99);
    zero.head.facts[0].steady = Some(fullpipe_units::BitRate::from_bps(u64::MAX));
    let id = store.put_document(&zero).unwrap().id;
    assert_eq!(store.find_document(&id).unwrap().peer, "ab");
}

/// A writer that never ends holds up no measurement for ever, and leaves nothing half done.
fn another_writer_is_waited_for(mut store: Store, end: impl FnOnce()) {
    let begun = Instant::now();
    let refused = store
        .put_document(&document("beta", 1))
        .unwrap_err()
        .to_string();
    assert!(
        (9..20).contains(&begun.elapsed().as_secs()),
        "{:?}",
        begun.elapsed()
    );
    assert!(
        refused.contains("lock") && !refused.contains('\n'),
        "{refused}"
    );
    end();
    assert!(store.put_document(&document("beta", 1)).unwrap().is_new);
    assert_eq!(store.check_documents(false).unwrap().damaged, []);
}

fn a_cut_document_is_named(place: &ArchiveLocation, cut: impl FnOnce()) {
    let mut store = Store::create(place).unwrap();
    let id = store.put_document(&document("beta", 3000)).unwrap().id;
    cut();
    let damaged = store.check_documents(true).unwrap().damaged;
    assert_eq!(
        damaged
            .iter()
            .map(|damaged| damaged.id.as_str())
            .collect::<Vec<_>>(),
        [id.as_str()]
    );
    let found = store.find_document(&id).unwrap();
    assert!(matches!(
        store.document_body(&found),
        Err(StoreError::Damaged { .. })
    ));
}

fn a_newer_archive_is_only_read(place: &ArchiveLocation, make_newer: impl FnOnce()) {
    let id = Store::create(place)
        .unwrap()
        .put_document(&document("beta", 1))
        .unwrap()
        .id;
    make_newer();
    let mut store = Store::open(place).unwrap();
    assert_eq!(
        store
            .list_documents(&DocumentFilter::default())
            .unwrap()
            .len(),
        1
    );
    assert!(store.archive_report().unwrap().read_only);
    let refused = store.put_document(&document("beta", 2)).unwrap_err();
    assert!(refused.to_string().contains("has version 99"), "{refused}");
    assert!(
        store
            .thin_documents(Some(Timestamp::MAX), Some(Timestamp::MAX))
            .is_err()
    );
    let found = store.find_document(&id).unwrap();
    assert_eq!(
        store.document_body(&found).unwrap(),
        document("beta", 1).body
    );
}
