use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::within;

/// Folder of the programs of PostgreSQL in Debian, one below it for each version.
const PROGRAMS: &str = "/usr/lib/postgresql";

/// A server of PostgreSQL with a folder of its own, which is reached by a socket in that folder
/// only. It ends with its test. Root runs it as the user `postgres`, because it refuses to run as
/// root.
#[derive(Debug)]
pub struct Postgres {
    folder: TempDir,
    server: Option<Child>,
}

impl Postgres {
    /// Makes the folder and starts the server.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("pg")
            .tempdir()
            .expect("a folder can be made");
        if let Some((user, group)) = other_user() {
            chown(folder.path(), Some(user), Some(group)).expect("root can give a folder away");
        }
        let mut made = program("initdb");
        made.args([
            "--no-sync",
            "--auth=trust",
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C",
            "--pgdata",
        ]);
        let output = made
            .arg(folder.path().join("data"))
            .output()
            .expect("initdb can be started");
        assert!(
            output.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let mut server = Self {
            folder,
            server: None,
        };
        server.run();
        server
    }

    /// Starts the server, again after [`Postgres::crash`].
    ///
    /// # Panics
    /// If it does not answer within a minute.
    pub fn run(&mut self) {
        let is_up = within(Duration::from_mins(1), || {
            // After a crash it refuses to start until the last of its processes has noticed.
            if self
                .server
                .as_mut()
                .is_none_or(|server| server.try_wait().is_ok_and(|end| end.is_some()))
            {
                self.server = Some(self.spawned());
            }
            let mut ready = program("pg_isready");
            ready.arg("--quiet").arg("--host").arg(self.folder.path());
            ready.status().is_ok_and(|status| status.success())
        });
        assert!(
            is_up,
            "PostgreSQL does not start in {}",
            self.folder.path().display()
        );
    }

    fn spawned(&self) -> Child {
        let mut server = program("postgres");
        server
            .arg("-D")
            .arg(self.folder.path().join("data"))
            .arg("-k")
            .arg(self.folder.path());
        server.args([
            "-c",
            "listen_addresses=",
            "-c",
            "max_connections=20",
            "-c",
            "shared_buffers=8MB",
        ]);
        server
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        server.spawn().expect("postgres can be started")
    }

    /// Makes an empty database and returns its URL.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn database(&self, name: &str) -> String {
        self.execute("postgres", &format!("CREATE DATABASE {name}"));
        format!(
            "postgres:///{name}?host={}&user=postgres",
            self.folder.path().display()
        )
    }

    /// The socket that the server listens on.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join(".s.PGSQL.5432")
    }

    /// Executes statements in a database.
    ///
    /// # Panics
    /// If they fail.
    pub fn execute(&self, database: &str, sql: &str) {
        let mut psql = program("psql");
        psql.args([
            "--quiet",
            "--no-psqlrc",
            "--username=postgres",
            "--dbname",
            database,
            "--command",
            sql,
        ]);
        let output = psql
            .arg("--host")
            .arg(self.folder.path())
            .output()
            .expect("psql can be started");
        assert!(
            output.status.success(),
            "{sql}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Kills the server as `kill -9` does; it has no chance to write anything.
    pub fn crash(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let Some(server) = &mut self.server else {
            return;
        };
        // A quick end, with which its processes end too.
        let _ = Pid::from_raw(server.id().cast_signed()).map(|pid| kill_process(pid, Signal::QUIT));
        let _ = server.wait();
    }
}

/// Returns a command of PostgreSQL, as the user that owns the server.
fn program(name: &str) -> Command {
    let mut command = Command::new(
        programs()
            .unwrap_or_else(|| PathBuf::from(PROGRAMS))
            .join(name),
    );
    if let Some((user, group)) = other_user() {
        command.uid(user).gid(group);
    }
    command.current_dir("/");
    command
}

/// Returns the folder with the programs of an installed version.
pub(crate) fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir(PROGRAMS)
        .ok()?
        .filter_map(Result::ok)
        .map(|version| version.path().join("bin"));
    versions
        .filter(|folder| folder.join("initdb").exists() && folder.join("psql").exists())
        .max()
}

/// Returns the user that runs the server in place of root.
fn other_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string(Path::new("/etc/passwd")).ok()?;
    let line = users.lines().find(|line| line.starts_with("postgres:"))?;
    let mut fields = line.split(':').skip(2).map(str::parse);
    Some((fields.next()?.ok()?, fields.next()?.ok()?))
}
