use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes a program of a text, for instance a script that begins with `#!/bin/sh`, that can be
/// started at once.
///
/// Another process writes it. Were it written here, a process that another thread starts at that
/// moment would hold it open for writing until its own program begins, and the kernel starts no
/// program that somebody may write to (execve(2), `ETXTBSY`).
///
/// # Panics
/// If it cannot be written.
pub fn write_program(path: impl AsRef<Path>, text: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat > \"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(path.as_ref())
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh can be started");
    let mut input = writer.stdin.take().expect("its input is a pipe");
    let written = input.write_all(text.as_bytes());
    drop(input);
    let ended = writer.wait().expect("it can be waited for");
    assert!(
        written.is_ok() && ended.success(),
        "{} cannot be written: {written:?}, {ended}",
        path.as_ref().display()
    );
}
