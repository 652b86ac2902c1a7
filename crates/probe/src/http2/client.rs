//! A client's end of a connection: small objects, and one load.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fullpipe_http::RuleBroken;
use fullpipe_sys::lock;
use fullpipe_units::Span;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{Method, Request, Uri};

use super::pipe::Pipe;
use super::{MAX_FRAME, MAX_QUEUED, WINDOW, no_wake, queue_data, read_body};

/// Bytes of a small object that are kept.
const MAX_OBJECT: usize = 64 << 10;

/// Small objects that a connection asks for at once at most: while a queue holds the answers back,
/// more requests would say no more.
const MAX_ASKED: usize = 32;

/// A client's end of a connection.
pub(crate) struct Http2Client {
    pipe: Pipe,
    requests: SendRequest<Bytes>,
    connection: Connection<Pipe, Bytes>,
    asked: Vec<AskedObject>,
    load: Option<ClientLoad>,
    probes: Option<LoadedProbes>,
    is_drained: bool,
}

/// A small object that was asked for.
struct AskedObject {
    at: Instant,
    answer: PartOfAnswer,
    body: Vec<u8>,
}

enum PartOfAnswer {
    Head(ResponseFuture),
    Body(u16, RecvStream),
}

/// A small object that came.
pub(crate) struct SmallObject {
    pub status: u16,
    pub body: Vec<u8>,
    /// Time from the request until all of it had come.
    pub took: Span,
}

/// The load that a connection is to carry.
#[derive(Clone)]
pub(crate) enum Http2Load {
    /// The object at this URL, again and again.
    Download(Uri),
    /// Data to this URL, without an end.
    Upload(Uri, Bytes),
}

enum ClientLoad {
    Download(Uri, PartOfLoad),
    Upload(ResponseFuture, SendStream<Bytes>, Bytes),
}

enum PartOfLoad {
    Head(ResponseFuture),
    Body(RecvStream),
}

/// Requests for a small object on a connection under load, by a clock that others may change.
#[derive(Clone)]
pub(crate) struct LoadedProbes {
    url: Uri,
    due: Instant,
    shared: Arc<SharedProbes>,
}

/// What all connections under load share of their probes.
#[derive(Default)]
pub(crate) struct SharedProbes {
    /// Time between two probes of one connection; none are sent if it is zero.
    period: Mutex<Duration>,
    times: Mutex<Vec<Span>>,
}

impl SharedProbes {
    /// Sets the time between two probes of one connection.
    pub(crate) fn set_period(&self, period: Duration) {
        *lock(&self.period) = period;
    }

    /// Returns the round trips since the last call.
    pub(crate) fn take_times(&self) -> Vec<Span> {
        std::mem::take(&mut *lock(&self.times))
    }
}

impl Http2Client {
    /// Begins a connection, of which nothing is sent yet.
    ///
    /// # Errors
    /// Fails if the library does.
    pub(crate) fn new() -> Result<Self, RuleBroken> {
        let pipe = Pipe::default();
        pipe.set_room(MAX_QUEUED);
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_frame_size(MAX_FRAME)
            .max_send_buffer_size(MAX_QUEUED);
        let begun = pin!(builder.handshake(pipe.clone())).poll(&mut no_wake());
        let Poll::Ready(Ok((requests, connection))) = begun else {
            return Err("HTTP/2 does not begin");
        };
        Ok(Self {
            pipe,
            requests,
            connection,
            asked: Vec::new(),
            load: None,
            probes: None,
            is_drained: false,
        })
    }

    /// Asks for the small object at `url`.
    ///
    /// # Errors
    /// Fails if the server takes no more requests.
    pub(crate) fn ask_for(&mut self, url: &Uri) -> Result<(), RuleBroken> {
        let (answer, _) = self.send_request(Method::GET, url, true)?;
        self.asked.push(AskedObject {
            at: Instant::now(),
            answer: PartOfAnswer::Head(answer),
            body: Vec::new(),
        });
        Ok(())
    }

    /// Begins a load, with probes of the object at `url` beside it.
    ///
    /// # Errors
    /// Fails if the server takes no more requests.
    pub(crate) fn begin_load(
        &mut self,
        load: Http2Load,
        url: Uri,
        shared: Arc<SharedProbes>,
    ) -> Result<(), RuleBroken> {
        self.load = Some(match load {
            Http2Load::Download(url) => {
                let (answer, _) = self.send_request(Method::GET, &url, true)?;
                ClientLoad::Download(url, PartOfLoad::Head(answer))
            }
            Http2Load::Upload(url, data) => {
                let (answer, body) = self.send_request(Method::POST, &url, false)?;
                ClientLoad::Upload(answer, body, data)
            }
        });
        let due = Instant::now();
        self.probes = Some(LoadedProbes { url, due, shared });
        Ok(())
    }

    fn send_request(
        &mut self,
        method: Method,
        url: &Uri,
        ends: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), RuleBroken> {
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = url.clone();
        let sent = self.requests.send_request(request, ends);
        sent.map_err(|_| "it takes no more requests on a connection")
    }

    /// Takes bytes of the server. Returns the payload of the load in them.
    ///
    /// # Errors
    /// Fails if they break the rules, or if the server refuses or ends the load.
    pub(crate) fn take_input(&mut self, bytes: &[u8]) -> Result<u64, RuleBroken> {
        self.pipe.push_input(bytes);
        self.drive_connection()?;
        let count = self.read_load()?;
        if let Some(probes) = &self.probes {
            let shared = Arc::clone(&probes.shared);
            let came = self.take_objects()?;
            lock(&shared.times).extend(came.iter().map(|object| object.took));
        }
        Ok(count)
    }

    /// Returns true while more bytes of the server may be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.pipe.has_room()
    }

    /// Moves what is to be sent into an empty buffer, about `room` bytes of it. Returns how much of
    /// the load is in it.
    pub(crate) fn push_output(&mut self, room: usize, into: &mut Vec<u8>) -> u64 {
        self.pipe.set_room(room * 2);
        self.ask_if_due();
        let mut handed = 0;
        if let Some(ClientLoad::Upload(_, body, data)) = &mut self.load {
            handed = queue_data(body, data, room, None).unwrap_or_default();
        }
        // What it says is known once the next bytes come.
        let _ = self.drive_connection();
        self.pipe.take_output(into);
        self.is_drained = into.is_empty();
        handed
    }

    /// Returns the time until a probe is due.
    pub(crate) fn time_until_due(&self) -> Duration {
        let probes = self.probes.as_ref();
        probes.map_or(Duration::MAX, |probes| {
            probes.due.saturating_duration_since(Instant::now())
        })
    }

    /// Ends the load, and its probes.
    pub(crate) fn close(&mut self) {
        self.load = None;
        self.probes = None;
    }

    /// Returns true if no load is under way, and nothing is left to send.
    pub(crate) fn has_ended(&self) -> bool {
        self.load.is_none() && self.is_drained
    }

    /// Returns the small objects that came since the last call.
    ///
    /// # Errors
    /// Fails if the server reset one, or the connection.
    pub(crate) fn take_objects(&mut self) -> Result<Vec<SmallObject>, RuleBroken> {
        let (mut came, mut broken) = (Vec::new(), false);
        self.asked.retain_mut(|asked| match asked.read_object() {
            Poll::Pending => true,
            Poll::Ready(object) => {
                broken |= object.is_none();
                came.extend(object);
                false
            }
        });
        if broken {
            return Err("it did not answer a request");
        }
        Ok(came)
    }

    fn ask_if_due(&mut self) {
        let (now, is_busy) = (Instant::now(), self.asked.len() >= MAX_ASKED);
        let Some(probes) = self.probes.as_mut().filter(|probes| now >= probes.due) else {
            return;
        };
        let period = *lock(&probes.shared.period);
        probes.due = now + period.max(Duration::from_millis(1));
        if !period.is_zero() && !is_busy {
            let url = probes.url.clone();
            // A connection that takes no more requests breaks at its load.
            let _ = self.ask_for(&url);
        }
    }

    fn drive_connection(&mut self) -> Result<(), RuleBroken> {
        match Pin::new(&mut self.connection).poll(&mut no_wake()) {
            Poll::Pending => Ok(()),
            Poll::Ready(_) => Err("it ended the connection, or broke the rules of HTTP/2"),
        }
    }

    /// Reads and discards what came of a download, and sees what became of an upload.
    fn read_load(&mut self) -> Result<u64, RuleBroken> {
        let mut again = None;
        let count = match &mut self.load {
            None => 0,
            Some(ClientLoad::Upload(answer, ..)) => match Pin::new(answer).poll(&mut no_wake()) {
                Poll::Pending => 0,
                Poll::Ready(_) => return Err("it refused an upload, or ended it"),
            },
            Some(ClientLoad::Download(url, part)) => {
                let (count, has_ended) = part.read_body()?;
                again = Some(url.clone()).filter(|_| has_ended);
                count
            }
        };
        if let Some(url) = again {
            let (answer, _) = self.send_request(Method::GET, &url, true)?;
            self.load = Some(ClientLoad::Download(url, PartOfLoad::Head(answer)));
        }
        Ok(count)
    }
}

impl PartOfLoad {
    /// Reads and discards what came. Returns how much that was, and whether it was the last.
    fn read_body(&mut self) -> Result<(u64, bool), RuleBroken> {
        if let Self::Head(answer) = self {
            match Pin::new(answer).poll(&mut no_wake()) {
                Poll::Pending => return Ok((0, false)),
                Poll::Ready(Ok(answer)) if answer.status() == 200 => {
                    *self = Self::Body(answer.into_body());
                }
                Poll::Ready(_) => return Err("it refused a download"),
            }
        }
        let mut count = 0;
        let Self::Body(body) = self else {
            return Ok((count, false));
        };
        let read = read_body(body, |bytes| {
            count += bytes.len() as u64;
            true
        });
        match read {
            Poll::Ready(false) => Err("it ended a download"),
            read => Ok((count, read.is_ready())),
        }
    }
}

impl AskedObject {
    /// Reads what came of it; ready with `None` if it was reset, or is not small.
    fn read_object(&mut self) -> Poll<Option<SmallObject>> {
        if let PartOfAnswer::Head(answer) = &mut self.answer {
            match Pin::new(answer).poll(&mut no_wake()) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(None),
                Poll::Ready(Ok(answer)) => {
                    let status = answer.status().as_u16();
                    self.answer = PartOfAnswer::Body(status, answer.into_body());
                }
            }
        }
        let PartOfAnswer::Body(status, body) = &mut self.answer else {
            return Poll::Pending;
        };
        let is_whole = ready!(read_body(body, |bytes| {
            let is_small = self.body.len() + bytes.len() <= MAX_OBJECT;
            if is_small {
                self.body.extend_from_slice(bytes);
            }
            is_small
        }));
        Poll::Ready(is_whole.then(|| SmallObject {
            status: *status,
            body: std::mem::take(&mut self.body),
            took: self.at.elapsed().into(),
        }))
    }
}
