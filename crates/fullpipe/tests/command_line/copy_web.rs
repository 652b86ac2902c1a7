//! Copies of a file of a real web server, over TLS.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use fullpipe_testkit::{
    Running, free_port, fullpipe, random_bytes, require, wait_for_listener, within,
};

const TIMEOUT: Duration = Duration::from_mins(1);

/// Runs of the copy that are killed.
const KILLS: u64 = 3;

/// nginx with a certificate of its own, which sends 4 MiB/s on each connection.
struct Nginx {
    folder: tempfile::TempDir,
    port: u16,
    _server: Running,
}

impl Nginx {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (at, port) = (folder.path().display(), free_port());
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        fs::write(folder.path().join("certificate"), certified.cert.pem()).unwrap();
        fs::write(
            folder.path().join("key"),
            certified.signing_key.serialize_pem(),
        )
        .unwrap();
        let configuration = format!(
            "daemon off;\nmaster_process off;\nerror_log stderr;\npid {at}/pid;\nevents {{}}\nhttp {{\n\
             access_log off;\nclient_body_temp_path {at};\nproxy_temp_path {at};\nfastcgi_temp_path {at};\n\
             uwsgi_temp_path {at};\nscgi_temp_path {at};\nserver {{ listen 127.0.0.1:{port} ssl; root {at};\n\
             ssl_certificate {at}/certificate; ssl_certificate_key {at}/key; limit_rate 4m; }}\n}}\n"
        );
        fs::write(folder.path().join("nginx.conf"), configuration).unwrap();
        let mut command = Command::new("/usr/sbin/nginx");
        let server = Running::start(command.arg("-c").arg(folder.path().join("nginx.conf")));
        wait_for_listener(port);
        Self {
            folder,
            port,
            _server: server,
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("file")
    }

    fn copy_command(&self, to: &Path) -> Command {
        let mut command = fullpipe();
        command.env("SSL_CERT_FILE", self.folder.path().join("certificate"));
        command
            .arg("copy")
            .arg(format!("https://127.0.0.1:{}/file", self.port))
            .arg(to);
        command
    }

    fn copy(&self, to: &Path) -> Output {
        Running::start(&mut self.copy_command(to)).finish(TIMEOUT)
    }

    /// Kills a copy once so many chunks have come in all.
    fn kill_copy_after(&self, to: &Path, chunks: u64) {
        let mut running = Running::start(&mut self.copy_command(to));
        assert!(
            within(TIMEOUT, || recorded_chunks(to) >= chunks),
            "{chunks}"
        );
        running.kill();
    }
}

/// Returns the number of records in the journal of a file in a folder.
fn recorded_chunks(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let journal = entries.map(|entry| entry.path()).find(|path| {
        path.extension()
            .is_some_and(|end| end == "fullpipe-journal")
    });
    let length = journal
        .and_then(|path| fs::metadata(path).ok())
        .map_or(0, |found| found.len());
    length.saturating_sub(48) / 48
}

#[test]
fn a_copy_from_nginx_is_killed_continued_and_begun_anew_after_a_change() {
    require!(Nginx);
    let server = Nginx::start();
    let folder = tempfile::tempdir().unwrap();
    let content = random_bytes(48 << 20);
    fs::write(server.file(), &content).unwrap();
    for kill in 1..=KILLS {
        server.kill_copy_after(folder.path(), kill * 6);
    }
    let output = server.copy(folder.path());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("of it before"),
        "{output:?}"
    );
    assert!(fs::read(folder.path().join("file")).unwrap() == content);
    // Another file of the same size, which was changed at another time.
    let content = random_bytes(48 << 20);
    fs::remove_file(folder.path().join("file")).unwrap();
    server.kill_copy_after(folder.path(), 6);
    let changed = fs::File::create(server.file()).unwrap();
    fs::write(server.file(), &content).unwrap();
    let later = std::time::SystemTime::now() + Duration::from_secs(7);
    changed.set_modified(later).unwrap();
    let output = server.copy(folder.path());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("of another state"),
        "{output:?}"
    );
    assert!(fs::read(folder.path().join("file")).unwrap() == content);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_certificate_of_an_unknown_authority_is_refused() {
    require!(Nginx);
    let server = Nginx::start();
    let folder = tempfile::tempdir().unwrap();
    fs::write(server.file(), "content").unwrap();
    let mut command = server.copy_command(folder.path());
    let output = Running::start(command.env_remove("SSL_CERT_FILE")).finish(TIMEOUT);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.contains("certificate is not accepted"), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
