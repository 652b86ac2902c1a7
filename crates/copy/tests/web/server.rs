//! A small web server on a loopback port, which does what a test wants.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Bytes between two pauses.
const PIECE: usize = 64 << 10;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Ranges,
    Whole,
    Chunked,
    UntilClose,
}

/// A file, and the way in which it is served.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub state: Arc<Mutex<(Vec<u8>, u32)>>,
    pub sent: Arc<AtomicU64>,
    pub open: Arc<AtomicI64>,
    pub asked: Arc<AtomicU64>,
    pub answer: Answer,
    /// The entity tag; `*` stands for one that follows the state.
    pub etag: &'static str,
    /// Further fields of the head.
    pub more: &'static str,
    /// Pause after each piece.
    pub pace: Duration,
    /// Bytes after which the file changes, once or again and again.
    pub change_after: Option<u64>,
    pub changes: bool,
    /// Bytes of an answer after which its connection breaks.
    pub breaks_after: Option<usize>,
    /// Requests that are first answered with 503, to ask again after a second.
    pub busy: u64,
    /// Connections at a time; others are refused with 503.
    pub permits: i64,
    pub redirections: u64,
}

impl Served {
    pub(crate) fn new(content: Vec<u8>) -> Self {
        Self {
            state: Arc::new(Mutex::new((content, 0))),
            sent: Arc::default(),
            open: Arc::default(),
            asked: Arc::default(),
            answer: Answer::Ranges,
            etag: "*",
            more: "",
            pace: Duration::ZERO,
            change_after: None,
            changes: false,
            breaks_after: None,
            busy: 0,
            permits: i64::MAX,
            redirections: 0,
        }
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        self.state.lock().unwrap().0.clone()
    }

    /// Returns the bytes of the file that were sent, to all clients together.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn change(&self, content: Vec<u8>) {
        let mut state = self.state.lock().unwrap();
        *state = (content, state.1 + 1);
    }

    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        while let Some(range) = read_request(&mut reader)? {
            let asked = self.asked.fetch_add(1, Ordering::Relaxed);
            if !self.answer_request(stream, range, asked)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Answers a request, and returns true if the connection stays.
    fn answer_request(
        &self,
        mut stream: &TcpStream,
        range: Option<(usize, usize)>,
        asked: u64,
    ) -> io::Result<bool> {
        if asked < self.redirections {
            write!(
                stream,
                "HTTP/1.1 302 Found\r\nLocation: to/{asked}\r\nContent-Length: 0\r\n\r\n"
            )?;
            return Ok(true);
        }
        if asked < self.busy || self.open.load(Ordering::Relaxed) > self.permits {
            let busy = "HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(busy.as_bytes())?;
            return Ok(true);
        }
        self.change_if_due();
        let (content, state) = self.state.lock().unwrap().clone();
        let (head, body) = self.head_and_body(&content, state, range);
        stream.write_all(head.as_bytes())?;
        self.send_body(stream, body)
    }

    fn change_if_due(&self) {
        let Some(after) = self.change_after.filter(|after| self.sent() > *after) else {
            return;
        };
        let mut state = self.state.lock().unwrap();
        if state.1 == 0 || self.changes {
            state.0.reverse();
            state.1 += 1;
            self.sent
                .fetch_sub(after.min(self.sent()), Ordering::Relaxed);
        }
    }

    fn head_and_body<'c>(
        &self,
        content: &'c [u8],
        state: u32,
        range: Option<(usize, usize)>,
    ) -> (String, &'c [u8]) {
        let etag = match self.etag {
            "*" => format!("ETag: \"{state}\"\r\n"),
            "" => String::new(),
            etag => format!("ETag: {etag}\r\n"),
        };
        let dates = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        let fields = format!("{etag}{dates}{}", self.more);
        let length = content.len();
        match (self.answer, range) {
            (Answer::Ranges, Some((first, _))) if first >= length => {
                let head = format!(
                    "HTTP/1.1 416 No\r\nContent-Range: bytes */{length}\r\nContent-Length: 0\r\n{fields}\r\n"
                );
                (head, &[])
            }
            (Answer::Ranges, Some((first, last))) => {
                let body = &content[first..length.min(last + 1)];
                let last = first + body.len() - 1;
                let head = format!(
                    "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{last}/{length}\r\n\
                     Content-Length: {}\r\n{fields}\r\n",
                    body.len()
                );
                (head, body)
            }
            (Answer::Chunked, _) => (
                format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{fields}\r\n"),
                content,
            ),
            (Answer::UntilClose, _) => (format!("HTTP/1.1 200 OK\r\n{fields}\r\n"), content),
            _ => (
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{fields}\r\n"),
                content,
            ),
        }
    }

    fn send_body(&self, mut stream: &TcpStream, body: &[u8]) -> io::Result<bool> {
        let most = self.breaks_after.unwrap_or(usize::MAX).min(body.len());
        for piece in body[..most].chunks(PIECE) {
            let is_chunked = self.answer == Answer::Chunked;
            if is_chunked {
                write!(stream, "{:x}\r\n", piece.len())?;
            }
            stream.write_all(piece)?;
            if is_chunked {
                stream.write_all(b"\r\n")?;
            }
            self.sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
            thread::sleep(self.pace);
        }
        if self.answer == Answer::Chunked {
            stream.write_all(b"0\r\n\r\n")?;
        }
        Ok(most == body.len() && self.answer != Answer::UntilClose)
    }
}

/// Reads a request, and returns the range that it asks for; `None` if there is no other request.
#[expect(clippy::option_option, reason = "a request need not ask for a range")]
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Option<(usize, usize)>>> {
    let (mut range, mut line) = (None, String::new());
    while reader.read_line(&mut line)? > 0 {
        if line == "\r\n" {
            return Ok(Some(range));
        }
        if let Some(value) = line.strip_prefix("Range: bytes=") {
            let (first, last) = value.trim().split_once('-').expect("a range has two ends");
            range = Some((
                first.parse().expect("a number"),
                last.parse().expect("a number"),
            ));
        }
        line.clear();
    }
    Ok(None)
}

/// A web server, which ends with the test's process.
#[derive(Debug)]
pub(crate) struct WebServer {
    port: u16,
}

impl WebServer {
    pub(crate) fn start(served: Served) -> Self {
        Self::start_with(move |stream| {
            served.open.fetch_add(1, Ordering::Relaxed);
            let ended = served.serve(stream);
            served.open.fetch_sub(1, Ordering::Relaxed);
            ended
        })
    }

    /// A server that answers each connection with these bytes, whatever it is asked.
    pub(crate) fn start_fixed(answer: Vec<u8>) -> Self {
        Self::start_with(move |mut stream| {
            read_request(&mut BufReader::new(stream))?;
            stream.write_all(&answer)
        })
    }

    /// A server that says `begin`, and then `again` without end; or nothing more if that is empty.
    pub(crate) fn start_endless(begin: &'static [u8], again: &'static [u8]) -> Self {
        Self::start_with(move |mut stream| {
            read_request(&mut BufReader::new(stream))?;
            let begin = if again.starts_with(b"HTTP") {
                again
            } else {
                begin
            };
            stream.write_all(begin)?;
            loop {
                thread::sleep(Duration::from_millis(1));
                stream.write_all(again)?;
            }
        })
    }

    fn start_with(serve: impl Fn(&TcpStream) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(&stream));
            }
        });
        Self { port }
    }

    pub(crate) fn url(&self, target: &str) -> String {
        format!("http://127.0.0.1:{}{target}", self.port)
    }
}
