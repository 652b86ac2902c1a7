//! A server's end of a connection.

use std::mem::take;
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use fullpipe_http::{Answer, RequestHead, RequestRefusal, RuleBroken};
use fullpipe_record::{Direction, Http2Wait};
use fullpipe_units::{ByteCount, Span};
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};

use super::pipe::Pipe;
use super::{MAX_FRAME, MAX_QUEUED, WINDOW, no_wake, queue_data, read_body};

/// Streams of a connection that may be open at once.
const MAX_STREAMS: u32 = 100;

/// Bytes of the fields of a request at most.
const MAX_FIELDS: u32 = 16 << 10;

/// Bytes that are read at most of a body that nobody wants.
const MAX_UNWANTED: usize = 64 << 10;

/// Bytes that are kept at most of what comes before a load.
const MAX_FIRST_INPUT: usize = 16 << 10;

/// Length of what a client sends before its frames (RFC 9113, section 3.4).
const PREFACE_LENGTH: usize = 24;

/// Types of frames (RFC 9113, section 6).
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;

/// `SETTINGS_INITIAL_WINDOW_SIZE` (RFC 9113, section 6.5.2).
const WINDOW_SETTING: [u8; 2] = [0, 4];

/// Windows before any setting (RFC 9113, section 6.9.2).
const INITIAL_WINDOW: u64 = 65_535;

/// What a request gets.
pub(crate) enum Http2Reply {
    /// This answer, whatever else the connection carries.
    Answer(Answer),
    /// So many bytes, once the connection may carry them.
    Download(u64),
    /// Its body is counted and discarded, once the connection may carry it.
    Upload,
}

/// Replies to the head of a request.
pub(crate) type Http2Replies =
    Box<dyn Fn(&RequestHead) -> Result<Http2Reply, RequestRefusal> + Send>;

/// A server's end of a connection: small answers are given at once, loads when they are permitted.
pub(crate) struct Http2Server {
    pipe: Pipe,
    state: ServerState,
    replies: Http2Replies,
    /// What downloads consist of, over and over.
    data: Bytes,
    /// Loads that nobody has permitted yet.
    waiting: Vec<WaitingLoad>,
    loads: Vec<Load>,
    /// Bodies that nobody wants, and how much of each is still read: a client that is reset while it
    /// sends may drop its answer.
    unwanted: Vec<(RecvStream, usize)>,
    permitted: Option<PermittedLoads>,
    /// True if the client gave up one of the permitted loads before it was complete.
    gave_up: bool,
    /// True if nothing was left to send when it was last asked for.
    is_drained: bool,
    held_back: HeldBack,
    /// What came first, until a load begins.
    first_input: Vec<u8>,
    /// Requests so far.
    requests: u64,
}

enum ServerState {
    Greeting(Handshake<Pipe, Bytes>),
    Open(Connection<Pipe, Bytes>),
    Closed,
}

/// A load that a request asks for.
pub(crate) struct WaitingLoad {
    pub head: RequestHead,
    reply: Http2Reply,
    body: RecvStream,
    respond: SendResponse<Bytes>,
}

/// A load under way.
enum Load {
    Download(SendStream<Bytes>, u64),
    Upload(RecvStream, SendResponse<Bytes>),
}

/// The loads that may run: of one direction, with one name of their result.
struct PermittedLoads {
    direction: Direction,
    id: String,
}

/// Time in which the windows of the other end let nothing be sent.
#[derive(Clone, Copy, Default)]
struct HeldBack {
    since: Option<Span>,
    past: Http2Wait,
    handed: u64,
    /// The windows when the load began, if they are known.
    offered: Option<u64>,
}

impl WaitingLoad {
    /// Returns the direction of the load, as this end has it.
    pub(crate) fn direction(&self) -> Direction {
        match self.reply {
            Http2Reply::Upload => Direction::Download,
            _ => Direction::Upload,
        }
    }
}

impl Http2Server {
    pub(crate) fn new(data: Bytes, replies: Http2Replies) -> Self {
        let pipe = Pipe::default();
        pipe.set_room(MAX_QUEUED);
        let greeting = Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_frame_size(MAX_FRAME)
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_FIELDS)
            .max_send_buffer_size(MAX_QUEUED)
            .handshake(pipe.clone());
        Self {
            pipe,
            state: ServerState::Greeting(greeting),
            replies,
            data,
            waiting: Vec::new(),
            loads: Vec::new(),
            unwanted: Vec::new(),
            permitted: None,
            gave_up: false,
            is_drained: false,
            held_back: HeldBack::default(),
            first_input: Vec::new(),
            requests: 0,
        }
    }

    /// Takes bytes of the client. Returns the payload of loads in them.
    ///
    /// # Errors
    /// Fails if they break the rules.
    pub(crate) fn take_input(&mut self, bytes: &[u8]) -> Result<u64, RuleBroken> {
        if self.permitted.is_none() {
            // One byte more shows that it is not all.
            let room = MAX_FIRST_INPUT + 1 - self.first_input.len();
            self.first_input
                .extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        self.pipe.push_input(bytes);
        self.drive_connection()?;
        self.discard_unwanted();
        Ok(self.read_uploads())
    }

    /// Returns true while more bytes of the client may be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.pipe.has_room()
    }

    /// Moves what is to be sent at `at` into an empty buffer, about `room` bytes of it. Returns how
    /// much of the load is in it.
    pub(crate) fn push_output(&mut self, at: Span, room: usize, into: &mut Vec<u8>) -> u64 {
        // All that is handed over goes out with its frames, so that no answer waits behind it.
        self.pipe.set_room(room * 2);
        let handed = self.queue_downloads(room / self.loads.len().max(1));
        // What it says is known once the next bytes come.
        let _ = self.drive_connection();
        self.pipe.take_output(into);
        self.is_drained = into.is_empty();
        let is_sending = matches!(self.loads.first(), Some(Load::Download(..)));
        self.held_back.handed += handed;
        self.held_back.note_state(at, self.is_drained && is_sending);
        handed
    }

    /// Returns the first load that nobody has permitted yet.
    pub(crate) fn waiting_load(&self) -> Option<&WaitingLoad> {
        self.waiting.first()
    }

    /// Begins all loads of the direction of the first one, whose result is named `id`. Those that
    /// are asked for until they have ended follow at once.
    pub(crate) fn permit_loads(&mut self, id: &str) {
        let Some(first) = self.waiting.first() else {
            return;
        };
        self.held_back = HeldBack {
            offered: offered_window(&self.first_input),
            ..HeldBack::default()
        };
        self.gave_up = false;
        self.permitted = Some(PermittedLoads {
            direction: first.direction(),
            id: id.to_owned(),
        });
        for load in take(&mut self.waiting) {
            self.begin_load(load);
        }
    }

    /// Refuses all loads that wait.
    pub(crate) fn refuse_loads(&mut self, answer: &Answer) {
        for load in take(&mut self.waiting) {
            self.answer(load.respond, load.body, answer.clone());
        }
    }

    /// Returns true if no load is under way, and nothing is left to send.
    pub(crate) fn has_ended(&self) -> bool {
        self.loads.is_empty() && self.is_drained
    }

    /// Returns true if the client gave up a load of this test, or left while one was under way.
    pub(crate) fn was_given_up(&self) -> bool {
        self.gave_up || !self.loads.is_empty()
    }

    /// Ends the loads under way, and what they were permitted by.
    pub(crate) fn close_loads(&mut self) {
        for load in self.loads.drain(..) {
            if let Load::Download(mut stream, _) = load {
                stream.send_reset(Reason::CANCEL);
            }
        }
        self.permitted = None;
    }

    /// Takes no more requests, and says so.
    pub(crate) fn shut_down(&mut self) {
        if let ServerState::Open(open) = &mut self.state {
            open.abrupt_shutdown(Reason::NO_ERROR);
        }
    }

    /// Returns true once the client has closed the connection, or broken its rules.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, ServerState::Closed)
    }

    /// Returns the wait for the windows of the client up to `at`.
    pub(crate) fn wait_until(&self, at: Span) -> Http2Wait {
        self.held_back.total_until(at)
    }

    /// Returns the number of requests so far.
    pub(crate) fn request_count(&self) -> u64 {
        self.requests
    }

    /// Lets the library read, answer and write, until it can do no more.
    fn drive_connection(&mut self) -> Result<(), RuleBroken> {
        loop {
            match &mut self.state {
                ServerState::Closed => return Ok(()),
                ServerState::Greeting(greeting) => match Pin::new(greeting).poll(&mut no_wake()) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(Ok(open)) => self.state = ServerState::Open(open),
                    Poll::Ready(Err(_)) => return self.end_connection(),
                },
                ServerState::Open(open) => match open.poll_accept(&mut no_wake()) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(Some(Ok((request, respond)))) => {
                        self.take_request(request, respond);
                    }
                    Poll::Ready(Some(Err(_))) => return self.end_connection(),
                    Poll::Ready(None) => {
                        self.state = ServerState::Closed;
                    }
                },
            }
        }
    }

    fn end_connection(&mut self) -> Result<(), RuleBroken> {
        self.state = ServerState::Closed;
        Err("the other end broke the rules of HTTP/2, or gave up")
    }

    fn take_request(&mut self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        self.requests += 1;
        let (head, body) = request.into_parts();
        let target = head
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str());
        let authority = head
            .uri
            .authority()
            .map(|name| ("host", name.as_str().as_bytes()));
        let fields = head.headers.iter();
        let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
        let fields = authority.into_iter().chain(fields);
        let has_body = !body.is_end_stream();
        let head = RequestHead::from_http2(head.method.as_str(), target, fields, has_body);
        let replied = head.and_then(|head| Ok(((self.replies)(&head)?, head)));
        match replied {
            Err(refusal) => self.answer(respond, body, Answer::from(refusal)),
            Ok((Http2Reply::Answer(answer), head)) => {
                self.answer(respond, body, answer.to_method(&head.method));
            }
            Ok((reply, head)) => {
                let load = WaitingLoad {
                    head,
                    reply,
                    body,
                    respond,
                };
                if self.permitted.is_some() {
                    self.begin_load(load);
                } else {
                    self.waiting.push(load);
                }
            }
        }
    }

    /// Sends an answer, whatever the body of the request has.
    fn answer(&mut self, mut respond: SendResponse<Bytes>, body: RecvStream, answer: Answer) {
        send_answer(&mut respond, answer);
        if !body.is_end_stream() {
            self.unwanted.push((body, MAX_UNWANTED));
        }
    }

    /// Reads and discards bodies that nobody wants.
    fn discard_unwanted(&mut self) {
        self.unwanted.retain_mut(|(body, left)| {
            let read = read_body(body, |bytes| {
                *left = left.saturating_sub(bytes.len());
                *left > 0
            });
            read.is_pending()
        });
    }

    /// Begins a load if it goes the way that is permitted, and refuses it otherwise.
    fn begin_load(&mut self, mut load: WaitingLoad) {
        let Some(permitted) = &self.permitted else {
            return;
        };
        if load.direction() != permitted.direction {
            let why = "a connection carries loads of one direction at once";
            let refusal = RequestRefusal { status: 503, why };
            return self.answer(load.respond, load.body, Answer::from(refusal));
        }
        match load.reply {
            Http2Reply::Download(bytes) => {
                let head = Answer::of_described_data(bytes, &permitted.id);
                if let Ok(stream) = load.respond.send_response(http_head(&head), bytes == 0) {
                    self.loads.push(Load::Download(stream, bytes));
                }
            }
            _ => self.loads.push(Load::Upload(load.body, load.respond)),
        }
    }

    /// Hands data of the downloads to the library, as much as the client's windows and `room`
    /// permit. Returns how much.
    fn queue_downloads(&mut self, room: usize) -> u64 {
        let mut handed = 0;
        let data = &self.data;
        self.loads.retain_mut(|load| {
            let Load::Download(stream, left) = load else {
                return true;
            };
            let Some(count) = queue_data(stream, data, room, Some(*left)) else {
                self.gave_up = true;
                return false;
            };
            *left -= count;
            handed += count;
            *left > 0
        });
        self.end_permission();
        handed
    }

    /// Reads and discards what came of uploads, and answers those that are complete.
    fn read_uploads(&mut self) -> u64 {
        let mut count = 0;
        let permitted = self.permitted.as_ref();
        let id = permitted.map_or("", |permitted| &permitted.id);
        self.loads.retain_mut(|load| {
            let Load::Upload(body, respond) = load else {
                return true;
            };
            let read = read_body(body, |bytes| {
                count += bytes.len() as u64;
                true
            });
            match read {
                Poll::Pending => {}
                Poll::Ready(true) => send_answer(respond, Answer::of_described_data(0, id)),
                Poll::Ready(false) => self.gave_up = true,
            }
            read.is_pending()
        });
        self.end_permission();
        count
    }

    fn end_permission(&mut self) {
        if self.loads.is_empty() {
            self.permitted = None;
        }
    }
}

impl HeldBack {
    fn note_state(&mut self, at: Span, is_held: bool) {
        if is_held && self.past.window == ByteCount::ZERO {
            // Some of what was handed over may have been granted again by now.
            let window = self.offered.unwrap_or(self.handed).min(self.handed);
            self.past.window = ByteCount::new(window);
        }
        if !is_held {
            self.past = self.total_until(at);
        }
        self.since = self.since.or(Some(at)).filter(|_| is_held);
    }

    fn total_until(&self, at: Span) -> Http2Wait {
        let running = self.since.map(|since| at.saturating_sub(since));
        Http2Wait {
            time: self.past.time + running.unwrap_or_default(),
            ..self.past
        }
    }
}

/// Returns the bytes that the windows of a client let be sent before it has taken any, by the frames
/// of its `first` input: the smaller one of a stream and of all of them (RFC 9113, section 6.9.2).
/// `None` if that is more input than is kept.
fn offered_window(first: &[u8]) -> Option<u64> {
    let mut rest = first.get(PREFACE_LENGTH..)?;
    let [mut of_all, mut of_stream] = [INITIAL_WINDOW; 2];
    while let Some((head, payload)) = rest.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some(payload) = payload.get(..length) else {
            break;
        };
        let number = |bytes: &[u8]| {
            bytes
                .try_into()
                .map(u32::from_be_bytes)
                .map_or(0, u64::from)
        };
        match (head[3], &head[5..]) {
            (SETTINGS, _) => {
                let mut settings = payload.chunks_exact(6).rev();
                let window = settings.find(|one| one[..2] == WINDOW_SETTING);
                of_stream = window.map_or(of_stream, |one| number(&one[2..]));
            }
            (WINDOW_UPDATE, [0, 0, 0, 0]) => of_all += number(payload),
            (WINDOW_UPDATE, _) => of_stream += number(payload),
            _ => {}
        }
        rest = &rest[9 + length..];
    }
    (first.len() <= MAX_FIRST_INPUT).then_some(of_all.min(of_stream))
}

/// Sends an answer, unless its stream is gone already.
fn send_answer(respond: &mut SendResponse<Bytes>, answer: Answer) {
    let is_empty = answer.body.is_empty();
    if let Ok(mut stream) = respond.send_response(http_head(&answer), is_empty)
        && !is_empty
    {
        let _ = stream.send_data(answer.body, true);
    }
}

fn http_head(answer: &Answer) -> Response<()> {
    let mut head = Response::new(());
    *head.status_mut() = StatusCode::from_u16(answer.status).unwrap_or_default();
    for (name, value) in &answer.fields {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            head.headers_mut().append(name, value);
        }
    }
    head
}

#[cfg(test)]
mod tests;
