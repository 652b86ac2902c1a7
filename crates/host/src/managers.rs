//! Programs and files that also set this host's settings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use fullpipe_record::HostManager;

use crate::journal_dir::parse_persisted;
use crate::setting::OUR_FILE;

/// Folders of sysctl files, the one that masks the others' files of the same name first
/// (sysctl.d(5)).
const FOLDERS: [&str; 5] = [
    "etc/sysctl.d",
    "run/sysctl.d",
    "usr/local/lib/sysctl.d",
    "usr/lib/sysctl.d",
    "lib/sysctl.d",
];

/// Bytes of a file that are read.
const MAX_FILE: u64 = 1 << 20;

/// Programs that change settings while they run, by the names of their processes.
const PROGRAMS: [(&str, &str); 3] = [
    (
        "tuned",
        "applies a profile when it starts or on request; `tuned-adm active` names it, and its settings win again then",
    ),
    (
        "bpftune",
        "raises and lowers buffers and picks congestion controls as it goes, whatever was set before",
    ),
    (
        "irqbalance",
        "moves interrupts between processors as it goes",
    ),
];

/// The programs that run, and the files below `root` that set what [`host_report()`](crate::host_report())
/// shows.
pub fn setting_managers(root: &Path) -> Vec<HostManager> {
    running_managers(&root.join("proc"))
        .into_iter()
        .chain(sysctl_file_managers(root))
        .collect()
}

fn running_managers(processes: &Path) -> Vec<HostManager> {
    let entries = fs::read_dir(processes).into_iter().flatten().flatten();
    let names: BTreeSet<String> = entries
        .filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit())
        .filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok())
        .collect();
    let running = PROGRAMS
        .into_iter()
        .filter(|(name, _)| names.iter().any(|running| running.trim() == *name));
    running
        .map(|(name, note)| HostManager {
            name: name.to_owned(),
            sets: BTreeMap::new(),
            note: note.to_owned(),
        })
        .collect()
}

/// In the order in which they are read at boot: by file name, and `/etc/sysctl.conf` last.
fn sysctl_file_managers(root: &Path) -> Vec<HostManager> {
    let mut by_name: BTreeMap<String, PathBuf> = BTreeMap::new();
    for folder in FOLDERS {
        for entry in fs::read_dir(root.join(folder))
            .into_iter()
            .flatten()
            .flatten()
        {
            let is_one = entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "conf");
            if is_one {
                by_name
                    .entry(entry.file_name().to_string_lossy().into_owned())
                    .or_insert(entry.path());
            }
        }
    }
    let mut seen = BTreeSet::new();
    let all = by_name.into_values().chain([root.join("etc/sysctl.conf")]);
    // Many systems have a link to the last among the first.
    let files = all.filter(|file| fs::canonicalize(file).is_ok_and(|file| seen.insert(file)));
    files
        .filter_map(|file| sysctl_file_manager(root, &file))
        .collect()
}

fn sysctl_file_manager(root: &Path, file: &Path) -> Option<HostManager> {
    let mut bytes = Vec::new();
    File::open(file)
        .ok()?
        .take(MAX_FILE)
        .read_to_end(&mut bytes)
        .ok()?;
    // Comments may be in another encoding than UTF-8.
    let sets: BTreeMap<String, String> = parse_persisted(&String::from_utf8_lossy(&bytes))
        .into_iter()
        .map(|(name, value)| (dotted_name(&name), value))
        .filter(|(name, _)| is_ours(name))
        .collect();
    let ours = file.file_name().is_some_and(|name| name == OUR_FILE);
    let note = if ours {
        "was written by `fullpipe host apply --persist`"
    } else {
        "sets them again at each boot"
    };
    let name = Path::new("/")
        .join(file.strip_prefix(root).unwrap_or(file))
        .display()
        .to_string();
    (!sets.is_empty()).then(|| HostManager {
        name,
        sets,
        note: note.to_owned(),
    })
}

/// Files may have slashes where names have dots.
fn dotted_name(name: &str) -> String {
    let first = name
        .find(['.', '/'])
        .and_then(|at| name[at..].chars().next());
    if first == Some('/') {
        name.replace('/', ".")
    } else {
        name.to_owned()
    }
}

fn is_ours(name: &str) -> bool {
    name.starts_with("net.core.")
        || name.starts_with("net.ipv4.tcp_")
        || name.starts_with("net.ipv4.udp_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_a_comment_in_another_encoding_is_read() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc")).unwrap();
        fs::write(
            root.path().join("etc/sysctl.conf"),
            b"# f\xfcr Backups\nnet.ipv4.tcp_sack = 0\n",
        )
        .unwrap();
        let found = setting_managers(root.path());
        assert_eq!(
            found[0].sets,
            [("net.ipv4.tcp_sack".to_owned(), "0".to_owned())].into()
        );
    }

    #[test]
    fn files_are_read_as_at_boot_and_a_name_in_etc_masks_the_others() {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in [
            (
                "etc/sysctl.d/50-net.conf",
                "# a comment\nnet/ipv4/tcp_sack = 0\n-net.core.rmem_max=1000\nkernel.x = 1\n",
            ),
            (
                "usr/lib/sysctl.d/50-net.conf",
                "net.ipv4.tcp_timestamps = 0\n",
            ),
            ("usr/lib/sysctl.d/10-x.conf", "net.ipv4.tcp_rmem = 1 2 3\n"),
            ("etc/sysctl.d/README", "net.ipv4.tcp_rmem = 1 2 3\n"),
            ("etc/sysctl.d/60-other.conf", "kernel.pid_max = 1\n"),
            ("etc/sysctl.conf", "net.ipv4.tcp_wmem = 4 5 6\n"),
            ("proc/12/comm", "bpftune\n"),
            ("proc/version", "Linux\n"),
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        std::os::unix::fs::symlink(
            "../sysctl.conf",
            root.path().join("etc/sysctl.d/99-sysctl.conf"),
        )
        .unwrap();
        let found = setting_managers(root.path());
        let names: Vec<&str> = found.iter().map(|manager| manager.name.as_str()).collect();
        let last = "/etc/sysctl.d/99-sysctl.conf";
        assert_eq!(
            names,
            [
                "bpftune",
                "/usr/lib/sysctl.d/10-x.conf",
                "/etc/sysctl.d/50-net.conf",
                last
            ]
        );
        let sets = [("net.core.rmem_max", "1000"), ("net.ipv4.tcp_sack", "0")];
        assert_eq!(
            found[2].sets,
            sets.map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into()
        );
    }
}
