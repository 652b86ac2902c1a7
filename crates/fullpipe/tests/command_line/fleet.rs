//! A fleet on loopback: a controller, its agents, and whoever would like to be one of them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fullpipe_fleet::InviteCode;
use fullpipe_fleet::service::{JoinRequest, JoinedHost};
use fullpipe_testkit::{Running, free_port, require, wait_for_listener, within, write_secret};
use tempfile::TempDir;

use crate::common::{fullpipe, run};

/// Longest time until the plan has had a turn of each pair, also on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(4);

/// A controller on loopback whose pairs have their turns once in two minutes.
pub(crate) const CONTROLLER: [&str; 7] = [
    "fleet",
    "controller",
    "--bind=127.0.0.1",
    "--names=127.0.0.1",
    "--every=120",
    "--time=1",
    "--busy=90%",
];

/// Longest time of a command that ends by itself.
const SECONDS: u64 = 60;

/// Fails unless a command failed with this code and a sentence that has this.
fn assert_refused(output: &Output, code: i32, sentence: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(sentence), "{sentence:?} is not in {said:?}");
}

/// A controller with its archive.
struct Fleet {
    folder: TempDir,
    port: u16,
    _controller: Running,
}

impl Fleet {
    /// Starts a controller whose pairs have their turns once in two minutes.
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let archive = folder.path().join("fleet.db");
        let mut command = fullpipe(&CONTROLLER);
        command
            .arg(format!("--port={port}"))
            .arg("--store")
            .arg(archive);
        let controller = Running::start(&mut command);
        wait_for_listener(port);
        Self {
            folder,
            port,
            _controller: controller,
        }
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command about the archive, and returns what it prints.
    fn ask(&self, words: &[&str]) -> String {
        let output = run(
            fullpipe(words).arg("--store").arg(self.file("fleet.db")),
            SECONDS,
        );
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn invite(&self, host: Option<&str>) -> String {
        let host = host.map_or_else(|| "--count=1".to_owned(), |host| format!("--host={host}"));
        self.ask(&["fleet", "invite", &host]).trim().to_owned()
    }

    /// The command of an agent, with its folder.
    fn agent(&self, name: &str, words: &[&str]) -> Command {
        let mut command = fullpipe(&["fleet", "agent"]);
        command
            .arg(self.url())
            .args(words)
            .arg("--state")
            .arg(self.file(name));
        command
    }

    /// Starts an agent that others reach.
    fn join(&self, name: &str, policy: &str) -> Running {
        let file = self.file(&format!("{name}.toml"));
        fs::write(&file, policy).unwrap();
        let (code, reach) = (
            self.invite(Some(name)),
            format!("--reach=127.0.0.1:{}", free_port()),
        );
        let words = ["--invite", &code, "--name", name, &reach];
        Running::start(self.agent(name, &words).arg("--policy").arg(file))
    }

    /// Waits until the state of the fleet has all of these words, and returns it.
    fn wait_for_status(&self, words: &[&str]) -> String {
        let begun = Instant::now();
        loop {
            let status = self.ask(&["fleet", "status"]);
            if words.iter().all(|word| status.contains(word)) {
                return status;
            }
            assert!(begun.elapsed() < TIMEOUT, "no {words:?} in {status}");
            sleep(Duration::from_millis(500));
        }
    }
}

#[test]
fn hosts_measure_each_other_and_a_policy_has_the_last_word() {
    let fleet = Fleet::start();
    let _one = fleet.join("one", "");
    let two = fleet.join("two", "");
    let _three = fleet.join("three", "duration = '500ms'");
    fleet.wait_for_status(&["one ", "two ", "three ", "done", "refused"]);
    let listed = fleet.ask(&["store", "list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["stored"][0]["kind"], "measurement", "{listed}");
    fleet.ask(&["fleet", "revoke", "two"]);
    assert_refused(&two.finish(TIMEOUT), 1, "was sent away");
    assert!(!fleet.ask(&["fleet", "status"]).contains("two "));
    let status = fleet.ask(&["fleet", "status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["hosts"].as_array().unwrap().len(), 2, "{status}");
    // It cannot come back with what it has, nor by a code for another host.
    let again = run(&mut fleet.agent("two", &[]), SECONDS);
    assert_refused(&again, 1, "was sent away");
    let code = fleet.invite(Some("four"));
    let words = ["--invite", &code, "--name", "five"];
    let other = run(&mut fleet.agent("five", &words), SECONDS);
    assert_refused(&other, 1, "for the host four");
}

#[test]
fn an_invitation_is_good_once_and_for_this_fleet() {
    let (fleet, other) = (Fleet::start(), Fleet::start());
    let code = fleet.invite(None);
    let words = ["--invite", &code, "--name", "one"];
    let first = Running::start(&mut fleet.agent("one", &words));
    fleet.wait_for_status(&["one ", "here"]);
    let used = ["--invite", &code, "--name", "two"];
    assert_refused(&run(&mut fleet.agent("two", &used), SECONDS), 1, "was used");
    // The code names its authority, which another controller cannot show.
    let code = fleet.invite(None);
    let stray = ["--invite", &code, "--name", "three"];
    let refused = run(&mut other.agent("three", &stray), SECONDS);
    assert_refused(&refused, 1, "cannot be reached");
    let known = ["--invite", &code, "--name", "one"];
    let refused = run(&mut fleet.agent("four", &known), SECONDS);
    assert_refused(&refused, 1, "the fleet has a host one");
    for wrong in ["x y", "-x", "", &"x".repeat(64), "<b>"] {
        let name = format!("--name={wrong}");
        let words = ["--invite", &code, &name];
        let refused = run(&mut fleet.agent("five", &words), SECONDS);
        assert_refused(&refused, 1, "the name of a host has");
    }
    // Another fleet does not know this host's certificate.
    drop(first);
    fs::create_dir(other.file("one")).unwrap();
    let identity = fs::read_to_string(fleet.file("one/identity.json")).unwrap();
    write_secret(other.file("one/identity.json"), &identity);
    let log = other.file("log");
    let mut stray = other.agent("one", &[]);
    stray.stdout(fs::File::create(&log).unwrap());
    let _stray = Child(stray.stderr(Stdio::null()).spawn().unwrap());
    let says = || fs::read_to_string(&log).is_ok_and(|log| log.contains("cannot be reached"));
    assert!(within(Duration::from_secs(SECONDS), says));
}

/// A process that ends with its test.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the status that curl prints of a request; 000 without an answer.
fn curl_status(url: &str, words: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-sk", "--max-time", "20", "-o", "/dev/null"])
        .args(["-w", "%{http_code}"])
        .args(words)
        .arg(url)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn whoever_shows_no_certificate_of_the_fleet_gets_nothing() {
    require!(Curl, Openssl);
    let fleet = Fleet::start();
    let code = fleet.invite(None);
    let _one = Running::start(&mut fleet.agent("one", &["--invite", &code, "--name=one"]));
    fleet.wait_for_status(&["one ", "here"]);
    let file = |name: &str| fleet.file(name).display().to_string();
    let made = Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=one",
        ])
        .args(["-keyout", &file("key.pem"), "-out", &file("cert.pem")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let made = Command::new("openssl")
        .args(["genpkey", "-algorithm", "ed25519", "-out", &file("own.key")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let public = Command::new("openssl")
        .args([
            "pkey",
            "-in",
            &file("own.key"),
            "-pubout",
            "-outform",
            "DER",
        ])
        .output()
        .unwrap();
    // The key is at the end (RFC 8410).
    let public_key = public.stdout[public.stdout.len() - 32..].to_vec();
    let join = JoinRequest {
        code: InviteCode::from_text(&fleet.invite(None)).unwrap().hash(),
        host: "two".to_owned(),
        site: "two".to_owned(),
        reach: None,
        public_key,
    };
    let joined = Command::new("curl")
        .args(["-sk", "--max-time", "20", "-d"])
        .arg(serde_json::to_string(&join).unwrap())
        .arg(fleet.url() + "/v1/join")
        .output()
        .unwrap();
    let joined: JoinedHost = serde_json::from_slice(&joined.stdout).unwrap();
    write_secret(fleet.file("own.pem"), &joined.certificate);
    let status = |path: &str, words: &[&str]| curl_status(&(fleet.url() + path), words);
    let (own, key) = (file("own.pem"), file("own.key"));
    let shown = ["--cert", &own, "--key", &key];
    let with = |words: &[&'static str]| [&shown[..], words].concat();
    assert_eq!(status("/v1/targets", &with(&[])), "200");
    assert_eq!(status("/v1/targets", &[]), "401");
    assert_eq!(status("/v1/slots", &["-d", "{}"]), "401");
    // Its authority is another one: TLS refuses.
    let (foreign, key) = (file("cert.pem"), file("key.pem"));
    assert_eq!(
        status("/v1/targets", &["--cert", &foreign, "--key", &key]),
        "000"
    );
    assert_eq!(
        status("/v1/targets", &["--cert", &own, "--key", &key]),
        "000"
    );
    for (path, words, wanted) in [
        ("/v1/slots", &["-d", "{"][..], "400"),
        ("/v1/slots", &["-d", "{\"more\":1}"], "400"),
        ("/v1/slots/none/document", &["-X", "PUT", "-d", "{}"], "400"),
        ("/v1/renew", &["-d", "{\"public_key\":[1]}"], "400"),
        ("/v1/other", &[], "404"),
        (
            "/v1/join",
            &[
                "-d",
                "{\"code\":\"x\",\"host\":\"a\",\"site\":\"a\",\"reach\":null,\"public_key\":[]}",
            ],
            "400",
        ),
    ] {
        assert_eq!(status(path, &with(words)), wanted, "{path} {words:?}");
    }
    let large = file("large");
    fs::write(&large, vec![b' '; 2 << 20]).unwrap();
    let data = format!("@{large}");
    let words = [&shown[..], &["--data-binary", &data]].concat();
    // Who still sends as the answer comes may not hear it.
    let refused = status("/v1/slots", &words);
    assert!(["413", "000"].contains(&&*refused), "{refused}");
}

#[test]
fn a_plan_that_does_not_fit_and_wrong_words_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("fleet.db");
    let controller = |words: &[&str]| {
        let mut command = fullpipe(&["fleet", "controller", "--port=0", "--bind=127.0.0.1"]);
        run(command.args(words).arg("--store").arg(&archive), SECONDS)
    };
    for (words, sentence) in [
        (&["--every=30"][..], "once in a minute"),
        (&["--time=100"], "1 s to 60 s"),
        (&["--busy=99%"], "0.1 % to 90 %"),
        (&["--names=a b"], "no name and no address"),
        (&["--webhook=http://a"], "names no server"),
    ] {
        let refused = controller(words);
        assert_refused(&refused, 2, sentence);
    }
    let state = folder.path().join("agent");
    let agent = |words: &[&str]| {
        let mut command = fullpipe(&["fleet", "agent"]);
        run(command.args(words).arg("--state").arg(&state), SECONDS)
    };
    for (words, sentence) in [
        (&[][..], "has not joined a fleet"),
        (
            &["https://127.0.0.1:1", "--invite=x"],
            "no code of an invitation",
        ),
        (&["http://127.0.0.1"], "has not joined"),
    ] {
        let refused = agent(words);
        assert_refused(&refused, 2, sentence);
    }
    let policy = folder.path().join("policy.toml");
    fs::write(&policy, "hours = ['1-2']").unwrap();
    let refused = agent(&["--policy", policy.to_str().unwrap()]);
    assert_refused(&refused, 2, "no part of a day");
}
