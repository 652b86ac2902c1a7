//! The shell script that brings the program to a host and starts it there.
//!
//! Its beginning is one argument of ssh, in single quotes for whatever shell the user has there
//! (POSIX shells, csh, fish), so it has no quote, backslash, exclamation mark and newline of its
//! own. It greets, and reads the rest as a line, and one line more (see [`request_lines`]), which are
//! sent before it greets: each round trip counts. The rest takes the program if it is not there yet,
//! and becomes it.

use super::FarEndOptions;
use super::program::ProgramFile;

/// Opening of the line with which the script greets.
pub(super) const GREETING: &str = "fullpipe far end 1 ";

/// Opening of the line that says why the program cannot be had there.
pub(super) const REFUSAL: &str = "fullpipe far end: ";

/// The line after which the script waits for the program's compressed bytes.
pub(super) const ASKS: &str = "fullpipe far end asks";

/// Opening of the line with which the script ends: the path of the program, which follows.
pub(super) const STARTS: &str = "fullpipe far end starts ";

/// The beginning, in parts that are joined by spaces.
const GREETS: &[&str] = &[
    "o=$(umask); umask 077; LC_ALL=C; export LC_ALL;",
    // Prints the SHA-256 of a file; nothing where no program here can tell.
    "digest() { s=$( { sha256sum || shasum -a 256 || openssl dgst -sha256 -r; } < \"$1\" 2>/dev/null);",
    "echo \"${s%% *}\"; };",
    "p=$(command -v fullpipe 2>/dev/null); q=; [ -f \"$p\" ] && q=$(digest \"$p\");",
    "n=$(uname -s) c=$(uname -m); echo; echo \"fullpipe far end 1 $n $c ${q:--}\";",
    "read -r s && eval \"$s\"",
];

/// The rest, which is sent.
const BRINGS: &[&str] = &[
    "clean() { rm -f \"$t\" \"$t.z\"; [ \"$k\" = leave ] && rm -f \"$e/fullpipe\"; rmdir \"$e\" \"$d\" 2>/dev/null; };",
    "read -r h k r w || exit 0; f=; why=\"no folder there may hold programs\";",
    "case $n,$h in Linux,*,$c=*) h=${h#*,$c=}; h=${h%%,*};; *) h=-;; esac;",
    "[ \"$h\" = \"$q\" ] && h=-; if [ \"$h\" = - ]; then f=$p; else u=fullpipe-$(id -u);",
    "for d in \"$XDG_CACHE_HOME/fullpipe\" \"$HOME/.cache/fullpipe\" /var/tmp/$u /dev/shm/$u /tmp/$u; do",
    "case $d in /fullpipe|/.cache/fullpipe) continue;; esac;",
    "mkdir -p \"$d\" 2>/dev/null; [ -O \"$d\" ] && [ -w \"$d\" ] || continue;",
    "g=$d/$h/fullpipe; [ -O \"$g\" ] && [ -x \"$g\" ] && [ \"$(digest \"$g\")\" = \"$h\" ] && f=$g && k=keep && break;",
    // Two that leave nothing do not share a folder, which the first would remove.
    "e=$d/$h; [ \"$k\" = leave ] && e=$d/$h-$$; mkdir -p \"$e\" 2>/dev/null || continue;",
    // A script of one line runs only where programs may.
    "t=$e/$$; { echo exit 0 > \"$t\" && chmod 700 \"$t\" && \"$t\"; } 2>/dev/null || { clean; continue; };",
    "trap clean EXIT; j=; trap 'kill $j 2> /dev/null; exit 1' HUP INT TERM PIPE; exec 3<&0; : > \"$t.z\";",
    // Where the network has gone, sshd waits for hours. A copy that does not grow ends.
    "{ l=; while sleep 20; do m=$(wc -c < \"$t.z\") || exit; [ \"$m\" = \"$l\" ] && kill $$; l=$m; done; }",
    "< /dev/null > /dev/null 2>&1 3<&- &",
    "echo \"fullpipe far end asks\"; read -r n || exit 1; head -c \"$n\" <&3 > \"$t.z\" & j=$!;",
    "wait $j; gzip -dc < \"$t.z\" 2>/dev/null > \"$t\" && s=$(digest \"$t\") && [ \"${s:-$h}\" = \"$h\" ] &&",
    "rm -f \"$t.z\" && mv \"$t\" \"$e/fullpipe\" && f=$e/fullpipe && break;",
    "why=\"$d has no room, or the program came damaged\"; break;",
    "done; fi;",
    "[ -f \"$f\" ] || { echo \"fullpipe far end: $why\"; exit 1; };",
    "[ $r = own ] || sudo -n true 2> /dev/null ||",
    "{ echo \"fullpipe far end: sudo is not there, or asks for a password\"; exit 1; };",
    // What has not run for two months is that of another version.
    "[ \"$h\" = - ] || { touch -a \"$f\"; find \"$d\" -name fullpipe -atime +60 -exec rm -f {} \\; ; rmdir \"$d\"/*; }",
    "2> /dev/null;",
    "case $h$k in -*) ;; *leave) FULLPIPE_REMOVE_PROGRAM=$e; export FULLPIPE_REMOVE_PROGRAM;; esac;",
    "echo \"fullpipe far end starts $f\"; trap - EXIT HUP INT TERM PIPE;",
    "umask $o; unset LC_ALL; exec 3<&-;",
    "eval \"set -- $w\"; set -- \"$f\" \"$@\";",
    "[ $r = own ] || set -- sudo -n env \"SSH_CONNECTION=$SSH_CONNECTION\"",
    "\"FULLPIPE_REMOVE_PROGRAM=$FULLPIPE_REMOVE_PROGRAM\" \"$@\";",
    "exec \"$@\"",
];

/// Returns the command for the other host's login shell.
pub(super) fn shell_command() -> String {
    format!("sh -c '{}'", GREETS.join(" "))
}

/// Returns the rest of the script, and the line that asks for a program: for each machine the
/// SHA-256 of its program, in hexadecimal; where it is of none of them, or has its program on its
/// path, the host runs that. Then whether the program may stay there; by whom it is run; and its
/// arguments.
pub(super) fn request_lines(
    programs: &[ProgramFile],
    options: &FarEndOptions,
    words: &[String],
) -> String {
    let digests = programs
        .iter()
        .map(|program| format!(",{}={}", program.machine, program.digest));
    let stay = if options.leaves_nothing {
        "leave"
    } else {
        "keep"
    };
    let user = if options.uses_sudo { "sudo" } else { "own" };
    let words: Vec<String> = words.iter().map(|word| quoted_word(word)).collect();
    format!(
        "{}\n-{} {stay} {user} {}\n",
        BRINGS.join(" "),
        digests.collect::<String>(),
        words.join(" ")
    )
}

/// Returns a word in single quotes, which POSIX shells read as it was.
pub(super) fn quoted_word(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_beginning_has_nothing_that_another_shell_reads_otherwise() {
        let command = shell_command();
        let script = &command["sh -c '".len()..command.len() - 1];
        assert!(!script.contains(['\'', '\\', '!', '\n']), "{script}");
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        let words = ["host", "it's", "$(x) y"].map(str::to_owned);
        let asked = |lines: String| lines.lines().nth(1).map(str::to_owned).unwrap();
        let options = |leaves_nothing| FarEndOptions {
            ssh: Vec::new(),
            binaries: None,
            leaves_nothing,
            uses_sudo: leaves_nothing,
        };
        assert_eq!(
            asked(request_lines(&[], &options(true), &words)),
            "- leave sudo 'host' 'it'\\''s' '$(x) y'"
        );
        let program = |machine: &str, digest: &str| ProgramFile {
            machine: machine.to_owned(),
            file: PathBuf::new(),
            digest: digest.to_owned(),
        };
        let programs = [program("x86_64", "ab"), program("aarch64", "cd")];
        assert_eq!(
            asked(request_lines(&programs, &options(false), &[])),
            "-,x86_64=ab,aarch64=cd keep own "
        );
    }
}
