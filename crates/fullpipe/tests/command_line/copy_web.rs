//! Copies of a file of a real web server, over TLS, and of a real FTP server.

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

/// A server of the file of a folder, which sends 4 MiB/s on each connection.
struct FileServer {
    folder: tempfile::TempDir,
    url: String,
    _server: Running,
}

impl FileServer {
    /// Starts a server on a port of this host, with the configuration that is made of its folder
    /// and that port.
    fn start(program: &str, scheme: &str, configure: impl Fn(&Path, u16) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let configuration = folder.path().join("configuration");
        fs::write(&configuration, configure(folder.path(), port)).unwrap();
        let mut command = Command::new(program);
        if scheme == "https" {
            command.arg("-c");
        }
        let server = Running::start(command.arg(configuration));
        wait_for_listener(port);
        Self {
            folder,
            url: format!("{scheme}://127.0.0.1:{port}/file"),
            _server: server,
        }
    }

    /// Starts nginx with a certificate of its own.
    fn start_nginx() -> Self {
        Self::start("/usr/sbin/nginx", "https", |folder, port| {
            let at = folder.display();
            let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
            fs::write(folder.join("certificate"), certified.cert.pem()).unwrap();
            fs::write(folder.join("key"), certified.signing_key.serialize_pem()).unwrap();
            format!(
                "daemon off;\nmaster_process off;\nerror_log stderr;\npid {at}/pid;\nevents {{}}\nhttp {{\n\
                 access_log off;\nclient_body_temp_path {at};\nproxy_temp_path {at};\nfastcgi_temp_path {at};\n\
                 uwsgi_temp_path {at};\nscgi_temp_path {at};\nserver {{ listen 127.0.0.1:{port} ssl; root {at};\n\
                 ssl_certificate {at}/certificate; ssl_certificate_key {at}/key; limit_rate 4m; }}\n}}\n"
            )
        })
    }

    /// Starts vsftpd for anonymous users.
    fn start_vsftpd() -> Self {
        Self::start("/usr/sbin/vsftpd", "ftp", |folder, port| {
            let at = folder.display();
            format!(
                "background=NO\nlisten=YES\nlisten_address=127.0.0.1\nlisten_port={port}\n\
                 run_as_launching_user=YES\nanonymous_enable=YES\nanon_root={at}\nanon_max_rate=4194304\n\
                 secure_chroot_dir={at}\nseccomp_sandbox=NO\nxferlog_enable=NO\n"
            )
        })
    }

    /// Changes the file to other content, of a time so many seconds after another one.
    fn put_file(&self, content: &[u8], seconds: u64) {
        fs::write(self.file(), content).unwrap();
        let file = fs::File::options().write(true).open(self.file()).unwrap();
        let changed = std::time::UNIX_EPOCH + Duration::from_secs(784_111_777 + seconds);
        file.set_modified(changed).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("file")
    }

    fn copy_command(&self, to: &Path) -> Command {
        let mut command = fullpipe();
        command.env("SSL_CERT_FILE", self.folder.path().join("certificate"));
        command.arg("copy").arg(&self.url).arg(to);
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

/// Kills copies of a file, continues them, and begins anew once the file has changed.
fn copy_with_kills_and_a_change(server: &FileServer) {
    let folder = tempfile::tempdir().unwrap();
    let content = random_bytes(48 << 20);
    server.put_file(&content, 0);
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
    server.put_file(&content, 7);
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
fn a_copy_from_nginx_is_killed_continued_and_begun_anew_after_a_change() {
    require!(Nginx);
    copy_with_kills_and_a_change(&FileServer::start_nginx());
}

#[test]
fn a_copy_from_vsftpd_is_killed_continued_and_begun_anew_after_a_change() {
    require!(Vsftpd);
    copy_with_kills_and_a_change(&FileServer::start_vsftpd());
}

#[test]
fn a_certificate_of_an_unknown_authority_is_refused() {
    require!(Nginx);
    let server = FileServer::start_nginx();
    let folder = tempfile::tempdir().unwrap();
    fs::write(server.file(), "content").unwrap();
    let mut command = server.copy_command(folder.path());
    let output = Running::start(command.env_remove("SSL_CERT_FILE")).finish(TIMEOUT);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.contains("certificate is not accepted"), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
