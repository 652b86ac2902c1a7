use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::need::{AXE_CORE, npm_file};

/// Chromium as it speaks over two pipes, which a shell gives the numbers that it expects.
const COMMAND: &str = "exec chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run \
                       --remote-debugging-pipe \"--user-data-dir=$0\" about:blank 3<&0 4>&1 </dev/null >/dev/null 2>&1";

/// A headless Chromium with one page, by its protocol for developers. It ends when this is dropped.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Option<String>,
    calls: u64,
    events: Vec<Value>,
    profile: PathBuf,
}

impl Browser {
    /// Starts a browser with an empty page.
    ///
    /// # Panics
    /// If Chromium cannot be started or does not speak the protocol.
    pub fn start() -> Self {
        Self::start_in(Command::new("sh"))
    }

    /// Starts a browser by a command that runs a shell, such as one in a host of a lab.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn start_in(mut shell: Command) -> Self {
        // Two browsers with one profile would be one.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "chromium-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let profile = crate::need::target_folder().join(name);
        shell
            .arg("-c")
            .arg(COMMAND)
            .arg(&profile)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = shell.spawn().expect("a shell can be started");
        let input = child.stdin.take().expect("the input is a pipe");
        let output = BufReader::new(child.stdout.take().expect("the output is a pipe"));
        let mut browser = Self {
            child,
            input,
            output,
            session: None,
            calls: 0,
            events: Vec::new(),
            profile,
        };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attached = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", &attached)["sessionId"]
            .as_str()
            .map(str::to_owned);
        browser.session = session;
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Opens a file, and returns when all of it is loaded. Events of the page before are forgotten.
    ///
    /// # Panics
    /// If Chromium ends.
    pub fn open(&mut self, file: &Path) {
        self.open_url(&format!("file://{}", file.display()));
    }

    /// Opens an address, and returns when all of it is loaded. Events of the page before are
    /// forgotten. An address that differs by its fragment alone is loaded again.
    ///
    /// # Panics
    /// If Chromium ends.
    pub fn open_url(&mut self, url: &str) {
        self.load("about:blank");
        self.load(url);
    }

    fn load(&mut self, url: &str) {
        self.events.clear();
        self.call("Page.navigate", &json!({"url": url}));
        while self.events("Page.loadEventFired").next().is_none() {
            let event = self.read();
            self.events.push(event);
        }
    }

    /// Returns the value of an expression on the page, or that which it promises.
    ///
    /// # Panics
    /// If it throws, or the promise is broken.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let done = self.call(
            "Runtime.evaluate",
            &json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(done["exceptionDetails"].is_null(), "{expression}: {done}");
        done["result"]["value"].clone()
    }

    /// Returns what axe-core finds wrong on the page for people who see, hear or move differently:
    /// the name of each rule, and an element that breaks it.
    ///
    /// # Panics
    /// If axe-core is not there.
    pub fn accessibility_faults(&mut self) -> Value {
        let axe = std::fs::read_to_string(npm_file(AXE_CORE)).expect("axe-core can be read");
        self.evaluate(&format!("{axe}; 0"));
        self.evaluate(
            "axe.run({ preload: false }).then(({ violations }) => \
             violations.map(({ id, nodes }) => [id, nodes[0].html]))",
        )
    }

    /// Shows the page this wide, in CSS pixels, with these media features, as
    /// `prefers-color-scheme` and `dark`.
    pub fn show(&mut self, width: u32, features: &[(&str, &str)]) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let feature = |(name, value): &(&str, &str)| json!({"name": name, "value": value});
        let features: Vec<Value> = features.iter().map(feature).collect();
        self.call("Emulation.setEmulatedMedia", &json!({"features": features}));
    }

    /// Presses and releases a key by its name, as `Tab`, and its number for Windows.
    pub fn key(&mut self, name: &str, number: u32) {
        for kind in ["keyDown", "keyUp"] {
            let key =
                json!({"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": number});
            self.call("Input.dispatchKeyEvent", &key);
        }
    }

    /// Returns the events of this kind so far, as `Network.requestWillBeSent`.
    pub fn events<'b>(&'b self, method: &'b str) -> impl Iterator<Item = &'b Value> {
        self.events
            .iter()
            .filter(move |event| event["method"] == method)
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.calls += 1;
        let mut call = json!({"id": self.calls, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        let sent = write!(self.input, "{call}\0").and_then(|()| self.input.flush());
        sent.unwrap_or_else(|error| panic!("{method}: {error}"));
        loop {
            let message = self.read();
            if message["id"] == self.calls {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn read(&mut self) -> Value {
        let mut message = Vec::new();
        self.output
            .read_until(0, &mut message)
            .expect("Chromium speaks");
        assert_eq!(message.pop(), Some(0), "Chromium has ended");
        serde_json::from_slice(&message).expect("Chromium speaks JSON")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Asked to end, it ends its helpers as well. A call that fails would panic for a second
        // time.
        let close = json!({"id": self.calls + 1, "method": "Browser.close"});
        if write!(self.input, "{close}\0")
            .and_then(|()| self.input.flush())
            .is_err()
        {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
