use super::*;
use crate::setting::Setting;

#[test]
fn a_journal_is_known_by_its_name() {
    let boot = "01234567-89ab-cdef-0123-456789abcdef";
    let here = Origin {
        boot: boot.to_owned(),
        namespace: 4_026_532_008,
        cookie: 3,
        initial: false,
    };
    assert_eq!(boot_of(&here.file_name()), Some(boot));
    for name in [
        "host.jsonl",
        "other.jsonl",
        "host-x-1-1.jsonl",
        "lock",
        &here.file_name().replace("jsonl", "new"),
    ] {
        assert_eq!(boot_of(name), None, "{name}");
    }
}

/// Any text that a journal said to have been in our file was written there for the next boot.
#[test]
fn a_journal_brings_nothing_but_settings_of_the_network_into_a_file_for_the_next_boot() {
    let line = |text: &str| {
        let change = |before, wanted| {
            Line::Change(JournalEntry {
                setting: Setting::Persisted,
                before,
                wanted,
                made: None,
            })
        };
        let changes = [
            change(Some(text.to_owned()), None),
            change(None, Some(text.to_owned())),
        ];
        changes.map(|change| {
            parse_line(super::line_text(&change).unwrap().trim_end().as_bytes()).is_ok()
        })
    };
    let ours = "# Written by fullpipe\n\nnet.ipv4.tcp_rmem = 4096 131072 6291456\n-net.core.rmem_max=1\n; no\n";
    assert_eq!(line(ours), [true; 2]);
    for text in [
        "kernel.core_pattern = |/tmp/x\n",
        "net.core.rmem_max = 1\nvm.panic_on_oom = 1",
        "words",
        "# \u{1b}[2J",
    ] {
        assert_eq!(line(text), [false; 2], "{text}");
    }
    let other = Line::Change(JournalEntry {
        setting: Setting::Sysctl("kernel.x".to_owned()),
        before: None,
        wanted: None,
        made: None,
    });
    assert!(parse_line(super::line_text(&other).unwrap().trim_end().as_bytes()).is_err());
}

#[test]
fn a_long_word_of_a_journal_is_cut_in_the_sentence_about_it() {
    let long = "x".repeat(1 << 20);
    for line in [
        format!(r#"{{"{long}":1}}"#),
        format!(r#"{{"change":{{"setting":{{"sysctl":"{long}"}}}}}}"#),
    ] {
        assert!(parse_line(line.as_bytes()).unwrap_err().len() <= 300);
    }
}

/// Such a pipe was opened, which blocked until somebody would write into it.
#[test]
fn a_pipe_with_the_name_of_a_journal_is_no_journal() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin {
        boot: "0".repeat(BOOT),
        namespace: 7,
        cookie: 3,
        initial: false,
    };
    let path = folder.path().join(origin.file_name());
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        &path,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    )
    .unwrap();
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let error = Journal::for_origin(folder.path(), &origin)
            .unwrap_err()
            .to_string();
        let (journals, unreadable) = Journal::read_all(folder.path()).unwrap();
        done.send((error, journals.len(), unreadable.len()))
            .unwrap();
    });
    let (error, journals, unreadable) = ended
        .recv_timeout(std::time::Duration::from_secs(20))
        .expect("it waits");
    assert!(
        error.contains("it is no regular file") && (journals, unreadable) == (0, 1),
        "{error}"
    );
}

#[test]
fn a_namespace_is_the_same_whether_or_not_the_first_process_is_in_it() {
    let origin = Origin {
        boot: "one".to_owned(),
        namespace: 7,
        cookie: 3,
        initial: false,
    };
    let with = |change: fn(&mut Origin)| {
        let mut other = origin.clone();
        change(&mut other);
        origin.seen_from(&other)
    };
    assert_eq!(with(|_| {}), JournalRelation::Ours);
    assert_eq!(with(|other| other.initial = true), JournalRelation::Ours);
    assert_eq!(with(|other| other.cookie = 4), JournalRelation::Elsewhere);
    assert_eq!(
        with(|other| other.boot = "two".to_owned()),
        JournalRelation::Gone
    );
}
