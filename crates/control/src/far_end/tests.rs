use std::fs::{File, FileTimes};
use std::path::Path;
use std::time::SystemTime;

use fullpipe_testkit::write_program;

use super::*;

/// Returns options whose ssh runs the command here, by the shell `shell`, with this environment.
fn local(shell: &str, environment: &str, folder: &Path) -> FarEndOptions {
    let script = format!("{environment}; exec {shell} -c \"$2\"");
    FarEndOptions {
        ssh: ["sh", "-c", &script, "ssh"].map(str::to_owned).to_vec(),
        binaries: Some(folder.to_owned()),
        leaves_nothing: false,
        uses_sudo: false,
    }
}

fn host() -> SshHost {
    SshHost::new(Some("me"), "h", None).unwrap()
}

/// A folder with a program for this machine that says what it was asked.
fn folder_with_program(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let file = folder
        .path()
        .join(format!("fullpipe-{}", std::env::consts::ARCH));
    write_program(&file, text);
    folder
}

const ECHOES: &str =
    "#!/bin/sh\necho \"$0\"; printf '<%s>' \"$@\"; echo; read -r said; echo \"$said\"\n";

fn start_echo(options: &FarEndOptions) -> Result<[String; 3], FarEndError> {
    let words = ["a b", "it's", "$HOME"].map(str::to_owned);
    let mut far = FarProgram::start(&host(), options, &words)?;
    far.write(b"hello\n")?;
    let mut line = || far.next_line(ANSWER_DEADLINE, "in a test");
    Ok([line()?, line()?, line()?])
}

#[test]
fn a_program_is_brought_once_and_found_again_by_each_shell() {
    let programs = folder_with_program(ECHOES);
    for shell in [
        "sh",
        "dash",
        "bash",
        "bash -r",
        "busybox ash",
        "fish",
        "csh",
        "zsh",
    ] {
        let program = shell.split(' ').next().unwrap();
        if Command::new(program)
            .arg("-c")
            .arg("true")
            .output()
            .is_err()
        {
            continue;
        }
        let home = tempfile::tempdir().unwrap();
        let environment = format!(
            "export HOME={}; unset XDG_CACHE_HOME; echo Welcome",
            home.path().display()
        );
        let options = local(shell, &environment, programs.path());
        for round in 0..2 {
            let [name, words, said] =
                start_echo(&options).unwrap_or_else(|error| panic!("{shell} {round}: {error}"));
            assert!(
                name.starts_with(home.path().to_str().unwrap()),
                "{shell}: {name}"
            );
            assert_eq!(
                (&*words, &*said),
                ("<a b><it's><$HOME>", "hello"),
                "{shell}"
            );
        }
        let kept: Vec<_> = std::fs::read_dir(home.path().join(".cache/fullpipe"))
            .unwrap()
            .collect();
        assert_eq!(kept.len(), 1);
    }
}

#[test]
fn a_damaged_program_is_replaced() {
    let programs = folder_with_program(ECHOES);
    let home = tempfile::tempdir().unwrap();
    let options = local(
        "sh",
        &format!("export HOME={}", home.path().display()),
        programs.path(),
    );
    let [name, ..] = start_echo(&options).unwrap();
    std::fs::write(&name, "#!/bin/sh\necho evil\n").unwrap();
    assert_eq!(start_echo(&options).unwrap()[0], name);
}

#[test]
fn a_program_that_nobody_ran_for_long_is_removed() {
    let programs = folder_with_program(ECHOES);
    let home = tempfile::tempdir().unwrap();
    let environment = format!("export HOME={}", home.path().display());
    let options = local("sh", &environment, programs.path());
    let [name, ..] = start_echo(&options).unwrap();
    let cache = home.path().join(".cache/fullpipe");
    for (version, age) in [("old", 90), ("new", 1)] {
        let file = cache.join(version).join("fullpipe");
        std::fs::create_dir(cache.join(version)).unwrap();
        let used = SystemTime::now() - Duration::from_hours(24 * age);
        let times = FileTimes::new().set_accessed(used).set_modified(used);
        File::create(file).unwrap().set_times(times).unwrap();
    }
    assert_eq!(start_echo(&options).unwrap()[0], name);
    let kept = |version: &str| cache.join(version).exists();
    assert_eq!([kept("old"), kept("new")], [false, true]);
}

#[test]
fn the_program_is_run_by_sudo_if_that_is_asked_for() {
    let programs = folder_with_program(ECHOES);
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().display();
    let sudo = format!(
        "export HOME={folder} PATH={folder}:$PATH SSH_CONNECTION=here; umask 022; \
         printf '#!/bin/sh\\n[ \"$*\" = \"-n true\" ] || {{ [ \"$1 $2 $3\" = \"-n env SSH_CONNECTION=here\" ] && \
         shift && exec \"$@\"; }}\\n' > {folder}/sudo; chmod 755 {folder}/sudo"
    );
    let mut options = local("sh", &sudo, programs.path());
    options.uses_sudo = true;
    let [_, words, said] = start_echo(&options).unwrap();
    assert_eq!((&*words, &*said), ("<a b><it's><$HOME>", "hello"));
    let without = format!("export HOME={folder}; sudo() {{ return 1; }}");
    let mut options = local("sh", &without, programs.path());
    options.uses_sudo = true;
    let error = start_echo(&options).unwrap_err().to_string();
    assert!(error.contains("sudo is not there"), "{error}");
}

#[test]
fn hosts_that_cannot_run_it_are_told_apart_in_a_sentence() {
    let programs = folder_with_program(ECHOES);
    let lost = "export HOME=/nonexistent; id() { echo nobody/x/y; }; export -f id 2>/dev/null";
    for (ssh, sentence) in [
        ("exit 255", "exit status: 255"),
        ("echo Welcome; exit 127", "exit status: 127"),
        (
            "echo 'fullpipe far end 1 Darwin arm64 -'; cat",
            "runs Darwin on arm64",
        ),
        (
            "echo 'fullpipe far end 1 Linux'; cat",
            "answers as no far end",
        ),
        ("yes", "prints without an end"),
        ("head -c 40000000 /dev/zero", "a line without an end"),
        (
            "printf 'fullpipe far end 1 Linux x86_64 -\\nfullpipe far end: no \\033[2Jroom\\n'; cat",
            "cannot run fullpipe: no [2Jroom",
        ),
    ] {
        let mut options = local("sh", lost, programs.path());
        options.ssh[2] = ssh.to_owned();
        let error = start_echo(&options).unwrap_err().to_string();
        assert!(error.contains(sentence), "{ssh}: {error}");
    }
    let mut options = local("sh", lost, programs.path());
    options.ssh = vec!["/nonexistent/ssh".to_owned()];
    assert!(
        start_echo(&options)
            .unwrap_err()
            .to_string()
            .contains("cannot be started")
    );
}

/// The reason once was lost where ssh ended before all of the program was written.
#[test]
fn a_host_without_room_says_so() {
    let content = fullpipe_sys::random_bytes::<256>().unwrap().repeat(4000);
    let text = fullpipe_units::to_hexadecimal(&content);
    let programs = folder_with_program(&format!("#!/bin/sh\n# {text}\n"));
    let home = tempfile::tempdir().unwrap();
    // Its standard error is no file that could be too large, as that of the test may be.
    let environment = format!(
        "exec 2>/dev/null; ulimit -f 8; export HOME={}",
        home.path().display()
    );
    let error = start_echo(&local("sh", &environment, programs.path())).unwrap_err();
    assert!(error.to_string().contains("has no room"), "{error}");
    let left: Vec<_> = std::fs::read_dir(home.path().join(".cache"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
