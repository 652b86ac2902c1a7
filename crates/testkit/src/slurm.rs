use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{free_port, random_digits, within, write_secret};

/// Longest that the daemons take to start, or jobs to end once they are asked to.
const PATIENCE: Duration = Duration::from_mins(1);

/// Settings of a cluster without accounting, whose node has two processors whatever the machine has.
/// A task that is repeated waits until its credentials have expired (`cred_expire`, 120 s if not set).
const SETTINGS: &str = "
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1
MinJobAge=3600
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=2
PartitionName=test Nodes={host} Default=YES MaxTime=10
";

/// A cluster of Slurm that is this machine alone, with a folder, a key, and ports of its own. It
/// ends with its test.
#[derive(Debug)]
pub struct Slurm {
    folder: TempDir,
    /// In the order in which they are started.
    daemons: Vec<Child>,
}

impl Slurm {
    /// Starts the daemons.
    ///
    /// # Panics
    /// If they do not answer within a minute.
    pub fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("slurm").tempdir();
        let folder = folder.expect("a folder can be made");
        let daemons = Vec::new();
        let mut cluster = Self { folder, daemons };
        cluster.write_settings();
        cluster.start_munge();
        for daemon in ["slurmctld", "slurmd"] {
            let mut command = Command::new(format!("/usr/sbin/{daemon}"));
            cluster.spawn(command.arg("-D").arg("-f").arg(cluster.file("slurm.conf")));
        }
        let is_idle = || cluster.ask("sinfo", &["--noheader", "--format=%T"]) == "idle";
        assert!(within(PATIENCE, is_idle), "the cluster has no idle node");
        cluster
    }

    /// Returns a command of Slurm for this cluster, such as `sbatch`.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env("SLURM_CONF", self.file("slurm.conf"));
        command
    }

    /// Returns what a command of Slurm prints; nothing if it fails, as before the daemons answer.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn ask(&self, name: &str, arguments: &[&str]) -> String {
        let output = self.command(name).args(arguments).output();
        let output = output.unwrap_or_else(|error| panic!("{name}: {error}"));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_settings(&self) {
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let host = host.split('.').next().unwrap_or_default();
        let settings = SETTINGS
            .replace("{host}", host)
            .replace("{folder}", &self.folder.path().display().to_string())
            .replace("{controller_port}", &free_port().to_string())
            .replace("{node_port}", &free_port().to_string());
        fs::write(self.file("slurm.conf"), settings).expect("a file can be written");
        for folder in ["state", "spool"] {
            fs::create_dir(self.file(folder)).expect("a folder can be made");
        }
    }

    /// Starts the daemon that authenticates the others to one another.
    fn start_munge(&mut self) {
        let key = String::from_utf8_lossy(&random_digits(64)).into_owned();
        write_secret(self.file("munge.key"), &key);
        let mut munge = Command::new("/usr/sbin/munged");
        munge.args(["--foreground", "--force", "--num-threads=1"]);
        for (option, file) in [
            ("--key-file", "munge.key"),
            ("--socket", "munge.socket"),
            ("--pid-file", "munge.pid"),
            ("--seed-file", "munge.seed"),
            ("--log-file", "munge.log"),
        ] {
            munge.arg(format!("{option}={}", self.file(file).display()));
        }
        self.spawn(&mut munge);
        let listens = within(PATIENCE, || self.file("munge.socket").exists());
        assert!(listens, "munged does not start");
    }

    fn spawn(&mut self, daemon: &mut Command) {
        daemon.stdin(Stdio::null()).stdout(Stdio::null());
        let started = daemon.stderr(Stdio::null()).spawn();
        self.daemons
            .push(started.unwrap_or_else(|error| panic!("{daemon:?}: {error}")));
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // What jobs have started ends before the daemons that would end it.
        self.ask("scancel", &["--user=root"]);
        within(PATIENCE, || self.ask("squeue", &["--noheader"]).is_empty());
        for mut daemon in self.daemons.drain(..).rev() {
            let pid = Pid::from_raw(daemon.id().cast_signed());
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
            if !within(PATIENCE, || {
                daemon.try_wait().is_ok_and(|end| end.is_some())
            }) {
                let _ = daemon.kill().and_then(|()| daemon.wait());
            }
        }
    }
}

/// The programs that a cluster takes.
pub(crate) fn missing_program() -> Option<&'static str> {
    let programs = [
        "/usr/sbin/munged",
        "/usr/sbin/slurmctld",
        "/usr/sbin/slurmd",
        "/usr/bin/sbatch",
    ];
    programs
        .into_iter()
        .find(|program| !Path::new(program).exists())
}
