use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use landlock::{AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr};

use crate::{postgres, slurm};

/// Something that not every machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Namespaces, which an emulated path is made of.
    Lab,
    /// The program `iperf3`.
    Iperf3,
    /// The program `iperf`, which is iperf2.
    Iperf2,
    /// The program `chromium`.
    Chromium,
    /// axe-core in `target/npm`, which judges whether everybody can use a page.
    AxeCore,
    /// M-Lab's and Cloudflare's clients for browsers in `target/npm`.
    BrowserClients,
    /// The program `librespeed-cli`, LibreSpeed's client.
    LibrespeedClient,
    /// The program `curl`.
    Curl,
    /// The server of OpenSSH, and `ssh`.
    Sshd,
    /// The server `nginx`.
    Nginx,
    /// The program `nghttp`, a client of HTTP/2 whose windows can be set.
    Nghttp,
    /// The program `promtool`, of Prometheus.
    Promtool,
    /// The program `openssl`, which carries any bytes inside TLS.
    Openssl,
    /// The program `ndt7-client`, M-Lab's client of ndt7.
    Ndt7Client,
    /// The program `ndt-server`, M-Lab's server of ndt7.
    NdtServer,
    /// The program `rsync`.
    Rsync,
    /// The server `vsftpd`.
    Vsftpd,
    /// The program `tcpdump`.
    Tcpdump,
    /// The program `tshark`.
    Tshark,
    /// The program `tcptrace`.
    Tcptrace,
    /// The rights of root.
    Root,
    /// The program `tc`, of iproute2, which has `ip` too.
    Tc,
    /// The program `nft`, of nftables.
    Nft,
    /// The program `unshare`, of util-linux.
    Unshare,
    /// User namespaces for ordinary users, tried by root as one of them.
    UserNamespaces,
    /// Landlock of the kernel, which confines a thread to files.
    Landlock,
    /// The program `strace`, which slows system calls down.
    Strace,
    /// The program `socat`.
    Socat,
    /// The program `ethtool`.
    Ethtool,
    /// Files that are disks: loop devices, and `mkfs.ext4` of e2fsprogs.
    Loop,
    /// The server of PostgreSQL, with `initdb` and `psql`.
    Postgres,
    /// The daemons of Slurm and its client, with munge.
    Slurm,
    /// The program `ansible-playbook`, and Debian's Python, which reads YAML.
    Ansible,
}

impl Need {
    /// Why the machine lacks it; `None` if it does not.
    fn lacking(self) -> Option<String> {
        match self {
            Self::Lab => lacking_lab(),
            Self::Iperf3 => lacking_program("iperf3", "--version"),
            Self::Iperf2 => lacking_program("iperf", "--version"),
            Self::Tc => lacking_program("tc", "-V"),
            Self::Nft => lacking_program("nft", "--version"),
            Self::Chromium => lacking_program("chromium", "--version"),
            Self::AxeCore => lacking_module(AXE_CORE),
            Self::BrowserClients => {
                lacking_module("@m-lab/ndt7").or_else(|| lacking_module("@cloudflare/speedtest"))
            }
            Self::LibrespeedClient => lacking_program("librespeed-cli", "--version"),
            Self::Curl => lacking_program("curl", "--version"),
            Self::Sshd => {
                lacking_program("ssh", "-V").or_else(|| lacking_program("/usr/sbin/sshd", "-V"))
            }
            Self::Nginx => lacking_program("/usr/sbin/nginx", "-v"),
            Self::Nghttp => lacking_program("nghttp", "--version"),
            Self::Promtool => lacking_program("promtool", "--version"),
            Self::Openssl => lacking_program("openssl", "version"),
            Self::Ndt7Client => lacking_program("ndt7-client", "-h"),
            Self::NdtServer => lacking_program("ndt-server", "-h"),
            Self::Rsync => lacking_program("rsync", "--version"),
            Self::Vsftpd => lacking_program("/usr/sbin/vsftpd", "-v"),
            Self::Tcpdump => lacking_program("tcpdump", "--version"),
            Self::Tshark => lacking_program("tshark", "--version"),
            Self::Tcptrace => lacking_program("tcptrace", "-v"),
            Self::Unshare => lacking_program("unshare", "--version"),
            Self::UserNamespaces => lacking_user_namespaces(),
            Self::Landlock => lacking_landlock(),
            Self::Strace => lacking_program("strace", "-V"),
            Self::Socat => lacking_program("socat", "-V"),
            Self::Ethtool => lacking_program("ethtool", "--version"),
            Self::Loop => lacking_loop(),
            Self::Postgres => postgres::programs()
                .is_none()
                .then(|| "PostgreSQL is not installed".to_owned()),
            Self::Slurm => {
                slurm::missing_program().map(|program| format!("{program} is not installed"))
            }
            Self::Ansible => lacking_program("/usr/bin/ansible-playbook", "--version"),
            Self::Root => {
                (!rustix::process::geteuid().is_root()).then(|| "this user is not root".to_owned())
            }
        }
    }
}

/// Returns whether a test at `place` must be skipped because something of `needs` is missing here;
/// prints so.
///
/// # Panics
/// If something is missing and `FULLPIPE_REQUIRE=all`.
pub fn missing(place: &str, needs: &[Need]) -> bool {
    let reasons: Vec<String> = needs.iter().filter_map(|need| need.lacking()).collect();
    if reasons.is_empty() {
        return false;
    }
    let reason = reasons.join("; ");
    assert!(
        std::env::var("FULLPIPE_REQUIRE").as_deref() != Ok("all"),
        "{place}: {reason}"
    );
    note_skipped(place, &reason);
    true
}

/// Prints, and notes in `target/skipped.txt`, that a test at `place` is skipped, or a part of it,
/// and the reason.
pub fn note_skipped(place: &str, reason: &str) {
    let line = format!("skipped {place}: {reason}\n");
    // Straight to the descriptor, because the test runner swallows what `eprintln!` says in a test
    // that passes.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
    let _ = note(&line);
}

fn note(line: &str) -> std::io::Result<()> {
    let file = target_folder().join("skipped.txt");
    fs::create_dir_all(target_folder())?;
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)?
        .write_all(line.as_bytes())
}

/// The workspace's `target` folder.
pub(crate) fn target_folder() -> PathBuf {
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::env::var_os("CARGO_TARGET_DIR").map_or(workspace, PathBuf::from)
}

/// The file of axe-core.
pub(crate) const AXE_CORE: &str = "axe-core/axe.min.js";

/// Returns a file of a library of JavaScript, by its path in `target/npm/node_modules`.
pub fn npm_file(path: &str) -> PathBuf {
    target_folder().join("npm/node_modules").join(path)
}

fn lacking_module(path: &str) -> Option<String> {
    let why = || format!("npm install --prefix target/npm was not run for {path}");
    (!npm_file(path).exists()).then(why)
}

fn lacking_lab() -> Option<String> {
    // The same namespaces that a lab makes, so that a container or AppArmor that forbids them is
    // noticed.
    let mut probe = Command::new("unshare");
    probe.args(["--net", "--mount", "--pid", "--fork", "--ipc", "--uts"]);
    if !rustix::process::geteuid().is_root() {
        probe.args(["--user", "--map-root-user"]);
    }
    match probe
        .arg("true")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
    {
        Ok(status) if !status.success() => Some("namespaces are refused to this user".to_owned()),
        // Without the program to try it, the test itself finds out.
        _ => None,
    }
}

fn lacking_loop() -> Option<String> {
    let has_devices = Path::new("/dev/loop-control").exists();
    lacking_program("mkfs.ext4", "-V")
        .or_else(|| (!has_devices).then(|| "there are no loop devices".to_owned()))
}

fn lacking_landlock() -> Option<String> {
    // Nothing is confined by what is only prepared.
    let prepared = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::ReadFile);
    prepared.err().map(|error| error.to_string())
}

/// Nobody's number, which owns nothing.
const NOBODY: &str = "65534";

fn lacking_user_namespaces() -> Option<String> {
    let mut probe = Command::new("setpriv");
    probe.args([
        "--reuid",
        NOBODY,
        "--regid",
        NOBODY,
        "--clear-groups",
        "unshare",
        "--user",
        "--map-root-user",
        "true",
    ]);
    match probe.stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => None,
        Ok(_) => Some("user namespaces are refused to ordinary users".to_owned()),
        Err(error) => Some(format!("setpriv: {error}")),
    }
}

fn lacking_program(name: &str, argument: &str) -> Option<String> {
    let found = Command::new(name)
        .arg(argument)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    found.err().map(|error| format!("{name}: {error}"))
}
