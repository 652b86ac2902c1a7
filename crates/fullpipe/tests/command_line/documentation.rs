//! Completions and manual pages, held against the programs that read them, where these are
//! installed.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{fullpipe, pseudo_terminal, run};
use fullpipe_testkit::note_skipped;
use rustix::termios::{Winsize, tcsetwinsize};

fn printed(arguments: &[&str]) -> String {
    let output = run(&mut fullpipe(arguments), 15);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{arguments:?}: {output:?}"
    );
    String::from_utf8(output.stdout).unwrap()
}

fn is_installed(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        note_skipped("documentation", &format!("{program} is not installed"));
    }
    is_there
}

fn assert_accepted(program: &str, arguments: &[&str], file: &Path) {
    if is_installed(program) {
        let output = run(Command::new(program).args(arguments).arg(file), 15);
        assert!(
            output.status.success(),
            "{program} {}: {output:?}",
            file.display()
        );
    }
}

#[test]
fn shells_accept_their_completions() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["completions", shell]);
        assert!(
            script.contains(&format!("completions {shell} --")),
            "{shell}: {script}"
        );
        let file = folder.path().join(shell);
        fs::write(&file, script).unwrap();
        assert_accepted(shell, &["-n"], &file);
    }
}

#[test]
fn every_command_has_a_page_that_groff_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    assert_eq!(printed(&["man", "--dir", place]), "");
    let pages: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|page| page.unwrap().path())
        .collect();
    for page in [
        "fullpipe.1",
        "fullpipe-measure.1",
        "fullpipe-lab-grid.1",
        "fullpipe-iperf3.1",
        "fullpipe-man.1",
    ] {
        assert!(
            pages.contains(&folder.path().join(page)),
            "{page} is not among {pages:?}"
        );
    }
    for page in &pages {
        assert_accepted("groff", &["-man", "-Tutf8", "-z"], page);
    }
    assert!(
        !pages.contains(&folder.path().join("fullpipe-host-watch.1")),
        "a hidden command has no page"
    );
}

/// Returns the lines of a page in which a flag or a value is named.
fn headers(page: &str) -> impl Iterator<Item = &str> {
    page.lines()
        .zip(page.lines().skip(1))
        .filter(|(macro_line, _)| *macro_line == ".TP")
        .map(|(_, header)| header)
}

#[test]
fn a_page_has_the_text_of_every_flag() {
    // 21 flags of `measure`, 21 of `diagnose` and 12 of `serve` had none: those that `-h` leaves
    // out.
    let folder = tempfile::tempdir().unwrap();
    printed(&["man", "--dir", folder.path().to_str().unwrap()]);
    let mut flags = 0;
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let page = fs::read_to_string(&path).unwrap();
        for header in headers(&page) {
            let text = page.split_once(header).unwrap().1.trim_start_matches('\n');
            assert!(
                !text.is_empty() && !text.starts_with('.'),
                "{}: {header} has no text",
                path.display()
            );
            flags += 1;
        }
    }
    assert!(flags > 400, "{flags}");
}

#[test]
fn a_page_is_found_by_its_command() {
    assert!(printed(&["man", "lab", "up"]).contains(".TH fullpipe-lab-up 1"));
    assert!(printed(&["man", "iperf3"]).contains("\\-\\-get\\-server\\-output"));
    let output = run(&mut fullpipe(&["man", "nosuch"]), 15);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn steps_are_reported_on_standard_error_only_if_asked_for() {
    let quiet = run(
        &mut fullpipe(&["calc", "--json", "--bandwidth", "1G", "--rtt", "10ms"]),
        15,
    );
    let verbose = run(
        &mut fullpipe(&[
            "calc",
            "--json",
            "--bandwidth",
            "1G",
            "--rtt",
            "10ms",
            "-vv",
        ]),
        15,
    );
    assert!(quiet.stderr.is_empty(), "{quiet:?}");
    let figures = |output: &std::process::Output| {
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        document["calculation"].clone()
    };
    assert_eq!(figures(&quiet), figures(&verbose));
}

#[test]
fn lists_of_verdicts_and_of_scenarios_have_80_columns() {
    for command in [&["explain"][..], &["lab", "list"]] {
        let list = printed(command);
        let wide: Vec<&str> = list
            .lines()
            .filter(|line| line.chars().count() > 80)
            .collect();
        assert!(wide.is_empty() && list.lines().count() > 10, "{wide:#?}");
    }
}

/// Returns what `command` prints on a terminal of `columns`.
fn shown_on_terminal(command: &mut Command, columns: u16) -> String {
    let (mut ours, theirs) = pseudo_terminal();
    tcsetwinsize(
        &ours,
        Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        },
    )
    .unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        // A terminal that nobody holds any more is an error to read.
        let _ = ours.read_to_end(&mut text);
        String::from_utf8(text).unwrap().replace('\r', "")
    });
    let status = command
        .stdin(Stdio::null())
        .stdout(theirs)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    command.stdout(Stdio::null());
    assert!(status.success(), "{command:?}");
    reader.join().unwrap()
}

#[test]
fn text_is_as_wide_as_the_terminal_from_60_to_120_columns() {
    // It had 80 columns on every terminal, so that words broke on a narrow one.
    for arguments in [&["explain", "loss/policer"][..], &["calc", "--help"]] {
        let widest = |columns| {
            let text = shown_on_terminal(fullpipe(arguments).env("NO_COLOR", "1"), columns);
            let prose = text
                .lines()
                .filter(|line| !line.contains("  ") && !line.contains("://"));
            prose.map(|line| line.chars().count()).max().unwrap_or(0)
        };
        for (columns, most) in [(60, 60), (100, 100), (120, 120), (250, 120)] {
            let found = widest(columns);
            assert!(
                found <= most && found > most - 12,
                "{arguments:?}: {found} of {columns} columns"
            );
        }
        let piped = printed(arguments);
        assert!(
            piped
                .lines()
                .all(|line| line.chars().count() <= 80 || line.contains("  ")),
            "{piped}"
        );
    }
}

/// Returns what bash completes `line` to, whose home is `home`.
fn completed(line: &str, home: &Path) -> Vec<String> {
    let binary = Path::new(env!("CARGO_BIN_EXE_fullpipe"));
    let script = "source <(fullpipe completions bash) && read -ra COMP_WORDS <<<\"$COMP_LINE\" && \
                  if [[ $COMP_LINE == *' ' ]]; then COMP_WORDS+=(''); fi && COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) && \
                  _fullpipe fullpipe \"${COMP_WORDS[COMP_CWORD]}\" && printf '%s\\n' \"${COMPREPLY[@]}\"";
    let path = format!("{}:/usr/bin:/bin", binary.parent().unwrap().display());
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script])
        .env("PATH", path)
        .env("HOME", home);
    let output = run(
        bash.env("COMP_LINE", line)
            .env("COMP_POINT", line.len().to_string()),
        15,
    );
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn bash_completes_values_hosts_and_the_commands_of_others() {
    // It offered commands and flags alone.
    if !is_installed("bash") {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".ssh")).unwrap();
    fs::write(
        home.path().join(".ssh/known_hosts"),
        "alpha.example ssh-ed25519 AAAA\n",
    )
    .unwrap();
    fs::write(home.path().join(".ssh/config"), "Host beta\n").unwrap();
    for (line, expected) in [
        ("fullpipe mea", &["measure"][..]),
        ("fullpipe measure ", &["alpha.example", "beta"]),
        ("fullpipe measure --rev", &["--reverse"]),
        ("fullpipe lab up de", &["demo"]),
        ("fullpipe lab grid ", &["accuracy", "queues"]),
        ("fullpipe lab exec demo rec", &["receiver"]),
        (
            "fullpipe explain send-",
            &[
                "send-buffer",
                "send-buffer/so-sndbuf",
                "send-buffer/tcp-wmem-max",
            ],
        ),
        ("fullpipe man hist", &["history"]),
        ("fullpipe man host und", &["undo"]),
        ("fullpipe copy alp", &["alpha.example:"]),
        ("fullpipe lab exec demo sender -- sha512s", &["sha512sum"]),
    ] {
        let found = completed(line, home.path());
        assert!(
            expected
                .iter()
                .all(|value| found.contains(&(*value).to_owned())),
            "{line}: {found:?}"
        );
        assert!(line.ends_with(' ') || found.len() <= 4, "{line}: {found:?}");
    }
}

#[test]
fn systemd_accepts_the_units() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib");
    for name in [
        "fullpipe.service",
        "fullpipe-fleet-agent.service",
        "fullpipe-measure@.service",
        "fullpipe-measure@.timer",
    ] {
        let unit = fs::read_to_string(source.join(name)).unwrap();
        // The program need not be installed.
        let unit = unit.replace("/usr/bin/fullpipe", "/bin/true");
        fs::write(
            folder.path().join(name.replace('@', "@alpha.example")),
            unit,
        )
        .unwrap();
    }
    for entry in fs::read_dir(folder.path()).unwrap() {
        assert_accepted("systemd-analyze", &["verify"], &entry.unwrap().path());
    }
}
