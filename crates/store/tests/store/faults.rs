//! Files that are damaged, cut short or something else.

use std::fs;
use std::path::{Path, PathBuf};

use fullpipe_store::{ArchiveLocation, DocumentFilter, Store, StoreError};
use tempfile::TempDir;

use crate::document;

/// Returns an archive with documents, closed.
fn archive(documents: u64) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("archive.db");
    let mut store = Store::create(&ArchiveLocation::File(file.clone())).unwrap();
    (0..documents).for_each(|number| drop(store.put_document(&document("beta", number)).unwrap()));
    (folder, file)
}

fn open(file: &Path) -> Result<Store, StoreError> {
    Store::open(&ArchiveLocation::File(file.to_owned()))
}

#[test]
fn a_cut_write_ahead_log_ends_at_a_whole_document() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("archive.db");
    let mut store = Store::create(&ArchiveLocation::File(file.clone())).unwrap();
    let ids: Vec<String> = (0..30)
        .map(|number| store.put_document(&document("beta", number)).unwrap().id)
        .collect();
    let log = |file: &Path| PathBuf::from(format!("{}-wal", file.display()));
    let size = fs::metadata(log(&file)).unwrap().len();
    for cut in [0, 1, size / 3, size / 2, size - 1] {
        let copy = folder.path().join(format!("cut-{cut}.db"));
        fs::copy(&file, &copy).unwrap();
        fs::write(log(&copy), &fs::read(log(&file)).unwrap()[..cut as usize]).unwrap();
        // With nothing of the log there is no archive yet.
        let Ok(mut cut_store) = open(&copy) else {
            assert!(cut < 4096, "{cut}");
            continue;
        };
        let listed = cut_store
            .list_documents(&DocumentFilter::default())
            .unwrap();
        assert!(listed.len() < 30 && listed.iter().all(|document| document.facts.len() == 1));
        let check = cut_store.check_documents(false).unwrap();
        assert_eq!((check.damaged, check.database), (vec![], vec![]));
        // The documents before the cut are there, and no others.
        let mut found: Vec<String> = listed.into_iter().map(|document| document.id).collect();
        let mut kept = ids[..found.len()].to_vec();
        found.sort();
        kept.sort();
        assert_eq!(found, kept);
    }
}

#[test]
fn a_damaged_document_is_named_and_the_others_are_there() {
    let (_folder, file) = archive(3);
    let id = open(&file)
        .unwrap()
        .list_documents(&DocumentFilter::default())
        .unwrap()[1]
        .id
        .clone();
    let raw = rusqlite::Connection::open(&file).unwrap();
    let content: Vec<u8> = raw
        .query_row(
            "SELECT content FROM body WHERE document = $1",
            [&id],
            |row| row.get(0),
        )
        .unwrap();
    let middle = content.len() / 2;
    let cut = content[..middle].to_vec();
    let mut flipped = content;
    flipped[middle] ^= 1;
    for damaged in [flipped, cut, Vec::new()] {
        raw.execute(
            "UPDATE body SET content = ?2 WHERE document = ?1",
            (&id, damaged),
        )
        .unwrap();
        let mut store = open(&file).unwrap();
        let check = store.check_documents(true).unwrap();
        assert_eq!(
            check
                .damaged
                .iter()
                .map(|damaged| damaged.id.as_str())
                .collect::<Vec<_>>(),
            [id.as_str()]
        );
        for found in store.list_documents(&DocumentFilter::default()).unwrap() {
            let body = store.document_body(&found);
            assert_eq!(body.is_err(), found.id == id, "{body:?}");
        }
    }
    assert!(
        open(&file)
            .unwrap()
            .put_document(&document("beta", 1))
            .unwrap()
            .is_restored
    );
    assert_eq!(
        open(&file).unwrap().check_documents(false).unwrap().damaged,
        []
    );
    raw.execute("DELETE FROM body WHERE document = $1", [&id])
        .unwrap();
    assert_eq!(
        open(&file).unwrap().check_documents(false).unwrap().damaged[0]
            .why
            .lines()
            .count(),
        1
    );
}

#[test]
fn what_belongs_to_no_document_is_counted() {
    let (_folder, file) = archive(2);
    let raw = rusqlite::Connection::open(&file).unwrap();
    raw.execute(
        "DELETE FROM document WHERE id = (SELECT min(id) FROM document)",
        [],
    )
    .unwrap();
    let check = open(&file).unwrap().check_documents(true).unwrap();
    assert_eq!(
        check.database,
        ["bodies that belong to no document: 1, facts: 1"]
    );
}

#[test]
fn a_damaged_file_is_said_to_be_one() {
    let (_folder, file) = archive(40);
    let mut bytes = fs::read(&file).unwrap();
    let size = bytes.len();
    bytes[size / 3..size / 3 + 9000].fill(0xaa);
    fs::write(&file, &bytes).unwrap();
    let says = match open(&file).and_then(|mut store| store.check_documents(false)) {
        Ok(check) => format!("{:?} {:?}", check.database, check.damaged),
        Err(error) => error.to_string(),
    };
    assert!(says.len() > 10 && !says.contains('\n'), "{says}");
    bytes[..16].fill(0);
    fs::write(&file, &bytes).unwrap();
    let error = open(&file).err().unwrap().to_string();
    assert!(error.contains("not a database"), "{error}");
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.db");
    rusqlite::Connection::open(&file)
        .unwrap()
        .execute_batch("CREATE TABLE document (x)")
        .unwrap();
    for opened in [
        open(&file),
        Store::create(&ArchiveLocation::File(file.clone())),
    ] {
        let error = opened.err().unwrap().to_string();
        assert!(error.contains("another program"), "{error}");
    }
    fs::write(&file, "text").unwrap();
    assert!(open(&file).is_err());
}

#[test]
fn a_file_that_others_may_not_read() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, file) = archive(1);
    assert_eq!(
        fs::metadata(file).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn a_place_that_cannot_be_is_an_error_in_one_line() {
    for place in [
        "/proc/none/archive.db",
        "/dev/null/archive.db",
        "postgres://127.0.0.1:1/none",
        "postgres://?x=y",
    ] {
        let place: ArchiveLocation = place.parse().unwrap();
        let error = Store::create(&place).err().unwrap().to_string();
        assert!(
            error.starts_with("cannot open the archive ") && !error.contains('\n'),
            "{error}"
        );
    }
}

/// They were errors of a database that works, with the exit code 1.
#[test]
fn what_is_no_archive_is_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(
        at("text"),
        "no database, but a text of some length: ".repeat(200),
    )
    .unwrap();
    rusqlite::Connection::open(at("other"))
        .unwrap()
        .execute_batch("CREATE TABLE x (y)")
        .unwrap();
    fs::create_dir(at("folder")).unwrap();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        at("pipe"),
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    )
    .unwrap();
    for name in ["text", "other", "folder", "pipe"] {
        let file = at(name);
        let (done, opened) = std::sync::mpsc::channel();
        // Nobody opens the other end of the pipe.
        std::thread::spawn(move || {
            let location = ArchiveLocation::File(file);
            done.send(
                [Store::open(&location), Store::create(&location)]
                    .map(|opened| opened.err().unwrap()),
            )
            .unwrap();
        });
        for error in opened
            .recv_timeout(std::time::Duration::from_secs(20))
            .expect("it waits")
        {
            assert!(
                matches!(error, StoreError::NoArchive { .. }),
                "{name}: {error}"
            );
        }
    }
}

#[test]
fn a_kind_that_no_document_has_is_refused_with_those_that_there_are() {
    let (_folder, file) = archive(1);
    let mut store = open(&file).unwrap();
    let mut list = |kind: &str| {
        store.list_documents(&DocumentFilter {
            kind: Some(kind.to_owned()),
            ..DocumentFilter::default()
        })
    };
    assert_eq!(
        ["foreign/test", "foreign"].map(|kind| list(kind).unwrap().len()),
        [1, 1]
    );
    assert!(list("sweep").unwrap().is_empty() && list("foreign/iperf3").unwrap().is_empty());
    for kind in ["measurements", "", "x/measurement"] {
        let error = list(kind).unwrap_err();
        let lists = error
            .to_string()
            .contains("kinds are measurement, diagnosis, ");
        assert!(
            matches!(error, StoreError::UnknownKind { .. }) && lists,
            "{error}"
        );
    }
}
