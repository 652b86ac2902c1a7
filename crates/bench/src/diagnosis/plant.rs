//! Plants of limits that neither path nor settings nor load can plant.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use fullpipe_lab::Host;
use fullpipe_units::{Ratio, Span};
use serde::Deserialize;

/// A change of the hosts or their programs, as the plan has it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Plant {
    /// Each call of this name by the program of that end takes longer (`strace --inject`).
    SlowCall(Host, String),
    /// Each call of this function of the C library (`send` or `recv`) by the program of that end
    /// begins with work for its processor.
    BusyCall(Host, String),
    /// That end reads its data from a file, or writes it to one, and each chunk takes longer.
    SlowFile(Host),
    /// A control group gives the program of that end no more than a share of a processor, and each
    /// of its calls begins with work, as in [`Plant::BusyCall`].
    Quota(Host, String),
    /// A command of the shell is run in a host before the load.
    Prepared(Host, String),
    /// So many other connections between the same hosts begin before the load and end after it.
    CrossTraffic(u16),
    /// The load is asked for by iperf2's protocol, which does not pass buffers on to the far end.
    Iperf2,
    /// The load is OpenSSH's, through a channel, and is watched at the end that sends.
    SshChannel,
}

/// Folders of the processor's control groups.
const GROUPS_V1: &str = "/sys/fs/cgroup/cpu";
const GROUPS_V2: &str = "/sys/fs/cgroup";

/// Time after which a quota is refilled, where the quota is then long enough for the kernel.
const PERIOD: Span = Span::from_millis(20);

/// The least quota that the kernel takes.
const MIN_QUOTA: Span = Span::from_millis(1);

/// A control group with a quota, which goes with it.
#[derive(Debug)]
pub(crate) struct Quota {
    folder: PathBuf,
    /// The file that takes a process in.
    members: &'static str,
}

impl Quota {
    /// A group whose processes together get `share` of one processor.
    ///
    /// # Errors
    /// If this machine has no such groups, or they are not ours to make.
    pub(crate) fn make(share: Ratio) -> io::Result<Self> {
        // Cases that run side by side have a group each.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let v2 = PathBuf::from(GROUPS_V2).join("cgroup.controllers").exists();
        let root = PathBuf::from(if v2 { GROUPS_V2 } else { GROUPS_V1 });
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = root.join(format!("fullpipe-bench-{}-{number}", std::process::id()));
        if !folder.exists() {
            fs::create_dir(&folder)?;
        }
        let made = Self {
            folder,
            members: if v2 { "cgroup.procs" } else { "tasks" },
        };
        let quota = PERIOD.scale_by(share.get()).max(MIN_QUOTA);
        let period = quota.scale_by(1.0 / share.get()).as_micros();
        let quota = quota.as_micros();
        if v2 {
            fs::write(made.folder.join("cpu.max"), format!("{quota} {period}"))?;
        } else {
            fs::write(made.folder.join("cpu.cfs_period_us"), period.to_string())?;
            fs::write(made.folder.join("cpu.cfs_quota_us"), quota.to_string())?;
        }
        Ok(made)
    }

    /// The words before a command that run it inside.
    pub(crate) fn wrap(&self) -> Vec<String> {
        let enter = format!(
            "echo 0 > {}/{} && exec \"$0\" \"$@\"",
            self.folder.display(),
            self.members
        );
        ["sh", "-c", &enter].map(str::to_owned).to_vec()
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // The lab's programs are being killed; a group that stays in spite of that is empty soon,
        // and harmless.
        for _ in 0..20 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A function of the C library that works before it does what it is there for. The work is counted
/// in time of the processor, which stands still while a quota withholds it.
const BUSY: &str = r"
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

ssize_t CALL(int socket, void *data, size_t length, int flags) {
  // Asking for the time is the kernel's work, so it is asked seldom.
  for (long end = now() + NANOS; now() < end;) {
    for (volatile int step = 0; step < 2000; step++) {}
  }
  return syscall(NUMBER, socket, data, length, flags, 0, 0);
}
";

/// The words before a command that make it work before each call of `call`; the library that does
/// is put into `folder`.
///
/// # Errors
/// If there is no C compiler, or it makes no library of it.
pub(crate) fn busy(call: &str, by: Span, folder: &Path) -> io::Result<Vec<String>> {
    let (source, library) = (folder.join("busy.c"), folder.join("busy.so"));
    fs::write(&source, BUSY)?;
    let number = if call == "send" {
        "SYS_sendto"
    } else {
        "SYS_recvfrom"
    };
    let defined = [
        format!("-DCALL={call}"),
        format!("-DNUMBER={number}"),
        format!("-DNANOS={}", by.as_nanos()),
    ];
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-fno-builtin", "-o"])
        .arg(&library)
        .args(defined)
        .arg(&source)
        .status()?;
    if status.success() {
        Ok(vec![
            "env".to_owned(),
            format!("LD_PRELOAD={}", library.display()),
        ])
    } else {
        Err(io::Error::other("cc made no library of it"))
    }
}

/// The words before a command that slow one of its system calls down.
pub(crate) fn slowed(call: &str, by: Span) -> Vec<String> {
    let trace = format!("trace={call}");
    let inject = format!("inject={call}:delay_enter={}us", by.as_micros());
    let words = [
        "strace",
        "-f",
        "-qq",
        "--seccomp-bpf",
        "-o",
        "/dev/null",
        "-e",
        &trace,
        "-e",
        &inject,
    ];
    words.map(str::to_owned).to_vec()
}
