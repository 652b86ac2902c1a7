//! Two ends of a copy in a network and a set of mounts of their own, and the faults that happen to
//! them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_testkit::{Running, fullpipe, within, write_program, write_secret};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::tree::Tree;
use crate::{Fault, TIMEOUT, Way, When};

/// The user of both ends: one who may not write to each file.
pub(crate) const USER: u32 = 65534;

/// A port that is taken, so that data crosses inside ssh, and that of the server.
const TAKEN: &str = "5999";
const SHARE: &str = "5202";

/// Size of the destination's disk, where it is one of its own.
const DISK: &str = "40m";

/// Time between two checks whether it is time for a fault.
const POLL_INTERVAL: Duration = Duration::from_millis(3);

/// A program in the place of ssh that is a process of its own, with a far end that has another
/// session: it writes down its number, which is that of its group, and passes bytes on.
const SSH: &str = r#"#!/bin/sh
[ -n "$GROUP" ] || exec env GROUP=1 setsid "$0" "$@"
shift
run=${0%/*}/run
echo $$ > "$run/ssh"
mkfifo "$run/in.$$" "$run/out.$$"
setsid sh -c "exec $*" < "$run/in.$$" > "$run/out.$$" &
cat < "$run/out.$$" &
exec cat > "$run/in.$$"
"#;

/// The place of a course.
pub(crate) struct Stage {
    folder: tempfile::TempDir,
    /// Keeps the network and the mounts.
    holder: Running,
    server: Option<Running>,
    way: Way,
    up: bool,
    disk: Option<Fault>,
}

impl Stage {
    /// Makes it; `disk` is the fault that the destination's disk will have, if any.
    pub(crate) fn new(way: Way, up: bool, disk: Option<Fault>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        for name in ["from", "to", "run", "thin"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            chown(folder.path().join(name), Some(USER), Some(USER)).unwrap();
        }
        write_secret(folder.path().join("key"), "correct horse battery");
        chown(folder.path().join("key"), Some(USER), Some(USER)).unwrap();
        write_program(folder.path().join("ssh"), SSH);
        let holder = hold(folder.path(), disk);
        let mut stage = Self {
            folder,
            holder,
            server: None,
            way,
            up,
            disk,
        };
        stage.serve();
        stage
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// The folder with what is copied.
    pub(crate) fn source(&self) -> PathBuf {
        self.path("from").into()
    }

    /// The folder to which it is copied, as the holder sees it.
    pub(crate) fn destination(&self) -> PathBuf {
        format!("/proc/{}/root{}", self.holder.pid(), self.path("to")).into()
    }

    /// Makes what is at the destination durable, if its disk is one of its own.
    pub(crate) fn make_durable(&self) {
        if self.disk.is_some() {
            self.must(&["sync", "-f", &self.path("to")]);
        }
    }

    /// Returns true if the disk may have lost what was written.
    pub(crate) fn may_lose(&self) -> bool {
        matches!(self.disk, Some(Fault::DiskReadOnly | Fault::DiskFails))
    }

    /// Returns the copy, at some 160 Mbit/s.
    pub(crate) fn copy(&self) -> Command {
        let (from, to) = (self.path("from/a"), self.path("to"));
        let far = |path: &str| match self.way {
            Way::Server => format!("fullpipe://127.0.0.1/{}", if self.up { "" } else { "a" }),
            _ => format!("localhost:{path}"),
        };
        let places = if self.up {
            [from, far(&to)]
        } else {
            [far(&from), to]
        };
        let program = fullpipe().get_program().to_str().unwrap().to_owned();
        let mut command = self.within(&[&program, "copy", "--json", "--bwlimit", "160Mbit/s"]);
        match self.way {
            Way::Server => command.args(["--key-file", &self.path("key")]),
            _ => command.args(["-e", &self.path("ssh"), "--far-path", &program]),
        };
        command.args([
            "--transport",
            if self.way == Way::Quic { "quic" } else { "tcp" },
        ]);
        if self.way == Way::InsideSsh {
            command.args(["--ports", TAKEN]);
        }
        command.args(places);
        command
    }

    /// Returns a program of the user within the network and the mounts.
    fn within(&self, program: &[&str]) -> Command {
        let user = USER.to_string();
        let mut command = enter(self.holder.pid());
        command.args(["-S", &user, "-G", &user, "--"]).args(program);
        command
    }

    /// Runs a program of root there.
    fn run(&self, program: &[&str]) -> Output {
        Running::start(enter(self.holder.pid()).arg("--").args(program)).finish(TIMEOUT)
    }

    /// Runs a program of root there, which can do its work.
    fn must(&self, program: &[&str]) {
        let output = self.run(program);
        assert!(output.status.success(), "{program:?}: {output:?}");
    }

    /// Starts the server, if this copy has one.
    fn serve(&mut self) {
        if self.way != Way::Server {
            return;
        }
        let shared = self.path(if self.up { "to" } else { "from" });
        let program = fullpipe().get_program().to_str().unwrap().to_owned();
        let key = self.path("key");
        let flags = [
            "serve",
            "--no-iperf2",
            "--share",
            &shared,
            "--share-port",
            SHARE,
            "--key-file",
            &key,
        ];
        let server = Running::start(&mut self.within(&[&[program.as_str()], &flags[..]].concat()));
        let port: u16 = SHARE.parse().unwrap();
        let listens = || {
            let tables = ["tcp", "tcp6"]
                .map(|name| fs::read_to_string(format!("/proc/{}/net/{name}", server.pid())));
            let listens =
                |line: &str| line.contains(&format!(":{port:04X} ")) && line.contains(" 0A ");
            tables
                .iter()
                .flatten()
                .any(|table| table.lines().any(listens))
        };
        assert!(within(TIMEOUT, listens), "nobody listens");
        self.server = Some(server);
    }

    /// Waits for the moment of a fault, or the end of the copy.
    pub(crate) fn wait_until(&self, near: &Running, when: When, tree: &Tree) {
        let began = Instant::now();
        let (to, limit) = (self.destination(), began + TIMEOUT);
        let is_time = || match when {
            When::After(time) => began.elapsed() >= time,
            When::Arrived(part) => tree.arrived(&to) >= part,
        };
        while Instant::now() < limit && !has_ended(near) && !is_time() {
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Lets a fault happen. Returns whether the copy had not ended.
    pub(crate) fn strike(&mut self, fault: Fault, near: &Running) -> bool {
        let struck = !has_ended(near);
        match fault {
            Fault::NearEndKilled => kill(near.pid()),
            Fault::FarEndKilled => match &mut self.server {
                Some(server) => server.kill(),
                None => self
                    .processes()
                    .into_iter()
                    .filter(|pid| is_far_end(*pid))
                    .for_each(kill),
            },
            Fault::SshKilled => {
                let number = fs::read_to_string(self.path("run/ssh")).unwrap_or_default();
                if let Some(group) = number.trim().parse().ok().and_then(Pid::from_raw) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
            }
            Fault::DataCut if self.way == Way::Quic => drop(self.run(&["ss", "-K", "-u", "-a"])),
            Fault::DataCut => self.cut("!=", "and", near),
            Fault::CallCut => self.cut("=", "or", near),
            Fault::DiskFull => self.fill(&self.path("to")),
            Fault::DiskReadOnly => {
                self.must(&["mount", "-o", "remount,abort", &self.path("to")]);
            }
            Fault::DiskFails => self.fill(&self.path("thin")),
        }
        struck
    }

    /// Cuts the connections of which one port compares so with that of the call.
    fn cut(&self, compares: &str, joined: &str, near: &Running) {
        let port = port_of_call(near.pid()).unwrap_or_default();
        let which = format!("( sport {compares} :{port} {joined} dport {compares} :{port} )");
        drop(self.run(&["ss", "-K", "-t", "state", "established", &which]));
    }

    /// Lets a file system in memory be full now.
    fn fill(&self, path: &str) {
        let there = format!("/proc/{}/root{path}", self.holder.pid());
        let full = || {
            let state = rustix::fs::statvfs(&there).unwrap();
            // No size at all would be no limit.
            let used = (state.f_blocks - state.f_bfree).max(1) * state.f_frsize;
            self.run(&["mount", "-o", &format!("remount,size={used}"), path])
                .status
                .success()
        };
        // It may have grown in between.
        assert!(within(TIMEOUT, full), "it cannot be made so small");
    }

    /// Waits until both ends have ended, and makes right again what was wrong.
    pub(crate) fn settle(&mut self, fault: Fault) {
        if self.disk == Some(fault) || fault == Fault::FarEndKilled {
            self.server = None;
        }
        let server = self.server.as_ref().map(Running::pid);
        let others = || {
            self.processes()
                .into_iter()
                .filter(|pid| Some(*pid) != server)
                .collect::<Vec<_>>()
        };
        let alone = || others().is_empty();
        assert!(
            within(TIMEOUT, alone),
            "{fault:?}: {:?} do not end",
            others().into_iter().map(line).collect::<Vec<_>>()
        );
        if self.disk == Some(fault) {
            self.mend(fault);
        }
        if self.server.is_none() {
            self.serve();
        }
    }

    fn mend(&self, fault: Fault) {
        let to = self.path("to");
        let remount =
            |path: &str| self.must(&["mount", "-o", &format!("remount,size={DISK}"), path]);
        match fault {
            Fault::DiskFull => return remount(&to),
            Fault::DiskFails => remount(&self.path("thin")),
            _ => {}
        }
        // What is not on the disk is lost with the mount.
        self.must(&["umount", &to]);
        self.must(&["mount", "-o", "loop", &self.path("thin/disk"), &to]);
    }

    /// The processes in the network, but for its holder.
    fn processes(&self) -> Vec<u32> {
        let network = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let own = network(self.holder.pid()).expect("the holder is there");
        let numbers = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        numbers
            .filter(|pid| *pid != self.holder.pid() && network(*pid).as_ref() == Some(&own))
            .collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.processes().into_iter().for_each(kill);
    }
}

/// Starts a process that holds a network, in which a port is taken, and mounts.
fn hold(folder: &Path, disk: Option<Fault>) -> Running {
    let owner = format!("size={DISK},uid={USER},gid={USER},mode=755");
    let mounts = match disk {
        None => String::new(),
        Some(Fault::DiskFull) => format!("mount -t tmpfs -o {owner} none to"),
        // The disk of the file system is thin: it fails to write once there is no room for it.
        Some(_) => format!(
            "mount -t tmpfs -o {owner} none thin\n\
             truncate -s {DISK} thin/disk\n\
             mkfs.ext4 -q -F -E root_owner={USER}:{USER},lazy_itable_init=1 thin/disk\n\
             mount -o loop thin/disk to"
        ),
    };
    let script = format!(
        "set -e\ncd \"$0\"\nip link set lo up\n{mounts}\ntouch ready\n\
         exec socat -u TCP6-LISTEN:{TAKEN},ipv6only=0 /dev/null"
    );
    let holder = Running::start(
        Command::new("unshare")
            .args(["-nm", "sh", "-c", &script])
            .arg(folder),
    );
    let is_ready = || folder.join("ready").exists() && line(holder.pid()).starts_with("socat");
    assert!(within(TIMEOUT, is_ready), "{:?}", holder.finish(TIMEOUT));
    holder
}

/// Returns a command that starts a program in the network and with the mounts of a process.
fn enter(pid: u32) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["-t", &pid.to_string(), "-n", "-m"]);
    command
}

/// Returns the near port of the call of a server: of the connections of a process, that of the
/// first descriptor.
fn port_of_call(pid: u32) -> Option<u16> {
    let tables = ["tcp", "tcp6"]
        .map(|name| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default());
    let connections: Vec<Vec<&str>> = tables
        .iter()
        .flat_map(|table| table.lines().skip(1))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let folder = format!("/proc/{pid}/fd");
    let descriptors = fs::read_dir(&folder)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut descriptors: Vec<u32> = descriptors.collect();
    descriptors.sort_unstable();
    let port = |descriptor| {
        let link = fs::read_link(format!("{folder}/{descriptor}")).ok()?;
        let socket = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        let connection = connections
            .iter()
            .find(|fields| fields.get(9) == Some(&socket))?;
        u16::from_str_radix(connection[1].rsplit(':').next()?, 16).ok()
    };
    descriptors.into_iter().find_map(port)
}

/// Returns the command line of a process.
fn line(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cmdline"))
        .unwrap_or_default()
        .replace('\0', " ")
}

fn is_far_end(pid: u32) -> bool {
    line(pid).contains("copy --far")
}

fn kill(pid: u32) {
    // It may have ended.
    let _ = Pid::from_raw(pid.cast_signed()).map(|pid| kill_process(pid, Signal::KILL));
}

/// Returns whether a process has ended, but for its number.
fn has_ended(near: &Running) -> bool {
    let state = fs::read_to_string(format!("/proc/{}/stat", near.pid())).unwrap_or_default();
    state
        .rsplit(") ")
        .next()
        .is_none_or(|state| state.starts_with('Z'))
}
