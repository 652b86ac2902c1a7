//! The near end: it starts the far one, makes the connections, and reports to its user.

use std::io::{self, BufRead, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender as EventSender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_model::improvement::can_tolerate_loss;
use fullpipe_record::{CopyLimit, CopyProgress, CopyReport, CopyTransport, HostSettings};
use fullpipe_transfer::{Excludes, Hello, Message, Ready, VERSION, hexadecimal};
use fullpipe_units::{BitRate, ByteCount, SegCount, Span, printable};

use crate::address::{addresses, at_port};
use crate::bounds::{Bounds, Pace};
use crate::common::{Common, Tally};
use crate::connect::{CONNECT_DEADLINE, Credentials, Listener, dial, dial_at_once};
use crate::control::{Frames, Outgoing};
use crate::data_stream::{Connections, DataStream};
use crate::joining::Early;
use crate::locks::lock;
use crate::options::{CopyError, CopyEvent, CopyOptions, CopyResult, FarHost, Place, Transport};
use crate::part::random;
use crate::pulse::Pulse;
use crate::quic::{self, HANDSHAKE_DEADLINE, QuicConnection, QuicListener, USUAL_STREAMS};
use crate::receiver::{ReceiveOptions, Receiver};
use crate::root::{Root, from_home};
use crate::sender::Sender;
use crate::server::{call, peer};
use crate::session::{BothFigures, Carriers, End, own_settings, settings_of};
use crate::ssh::{Link, Pipes, end, greeted, kill, not_there, release, start};
use crate::summary::{Figures, is_limited};
use crate::tuning::{Choice, MAX_CHOSEN, choose, quic_reason};
use crate::walk::{Source, top};

/// Time between two reports of progress, and two checks for an interrupt or the end.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Time for the handshake of a QUIC connection that nothing waits for but the data, if round trips are short.
const SHORT_HANDSHAKE: Span = Span::from_millis(300);

/// Time for a message to reach the far end.
const MESSAGE_TIME: Duration = Duration::from_secs(1);

/// The round-trip time from which windows of 64 KiB are short.
const LONG_FOR_A_WINDOW: Span = Span::from_millis(2);

/// Copies files until that is done or `interrupt` is set. `report` is called with each event, on this thread.
///
/// # Errors
/// Fails if the places do not fit together, the other end cannot be started, goes away, is silent or breaks the rules.
/// Entries that cannot be copied are in the report.
pub fn copy(options: &CopyOptions, interrupt: &AtomicBool, report: &mut dyn FnMut(CopyEvent)) -> CopyResult {
    let plan = Plan::of(options)?;
    options.check_transport()?;
    let (events, received) = channel();
    let (tally, link) = (Arc::new(Tally::default()), Link::default());
    let pulse = Pulse::new(options.timeout.into());
    let run = Run {
        options: options.clone(),
        plan,
        events,
        tally: Arc::clone(&tally),
        link: Arc::clone(&link),
        pulse: Arc::clone(&pulse),
    };
    let work = thread::Builder::new().name("copy".to_owned()).spawn(move || run.copy());
    let work = work.map_err(CopyError::io("cannot start a thread"))?;
    let mut meter = Meter::new(&tally);
    // The channel stays open for as long as threads of the transfer wait, which may be longer than the work.
    while !work.is_finished() {
        match received.recv_timeout(POLL_INTERVAL) {
            Ok(event) => report(event),
            Err(RecvTimeoutError::Timeout) => {}
            // The work drops its end of the channel last.
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if interrupt.load(Ordering::Relaxed) {
            kill(&link);
            return Err(CopyError::Interrupted);
        }
        if pulse.is_silent() {
            kill(&link);
            return Err(CopyError::Silent(Span::from(pulse.timeout())));
        }
        if let Some(progress) = meter.progress() {
            report(CopyEvent::Progress(progress));
        }
    }
    received.try_iter().for_each(report);
    let copied = work.join().unwrap_or(Err(CopyError::Gone));
    // Ctrl-C in a terminal ends ssh, too.
    if copied.is_err() && interrupt.load(Ordering::Relaxed) { Err(CopyError::Interrupted) } else { copied }
}

/// The places of a copy, of which one is far.
#[derive(Debug)]
struct Plan {
    host: FarHost,
    far_sends: bool,
    near: Vec<PathBuf>,
    far: Vec<Vec<u8>>,
}

impl Plan {
    fn of(options: &CopyOptions) -> Result<Self, CopyError> {
        const ONE_HOST: CopyError =
            CopyError::Places("all sources must be at one end, and the destination at the other");
        let (mut near, mut far, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
        for source in &options.sources {
            match source {
                Place::Near(path) => near.push(path.clone()),
                Place::Far { host, path } => {
                    hosts.push(host.clone());
                    far.push(path.clone());
                }
            }
        }
        let far_sends = near.is_empty();
        match &options.destination {
            Place::Near(path) => near.push(path.clone()),
            Place::Far { host, path } => {
                hosts.push(host.clone());
                far.push(path.clone());
            }
        }
        hosts.dedup();
        let is_near = matches!(options.destination, Place::Near(_));
        let fits = if far_sends { is_near && near.len() == 1 } else { !is_near && far.len() == 1 };
        match (<[FarHost; 1]>::try_from(hosts), fits && !options.sources.is_empty()) {
            (Ok([host]), true) => Ok(Self { host, far_sends, near, far }),
            (Err(hosts), _) if hosts.is_empty() => {
                const NO_HOST: &str =
                    "no path is at another host: write [USER@]HOST:PATH or fullpipe://HOST/PATH for one end";
                Err(CopyError::Places(NO_HOST))
            }
            _ => Err(ONE_HOST),
        }
    }

    /// Returns the names at the top that the far end may send; any if what is in a folder was asked for.
    fn tops(&self) -> Option<Vec<Vec<u8>>> {
        let name = |path: &Vec<u8>| {
            let path = match self.host {
                FarHost::Ssh { .. } => from_home(path),
                FarHost::Server { .. } => path,
            };
            top(path).map(<[u8]>::to_vec)
        };
        self.far.iter().map(name).collect()
    }
}

/// A copy at work.
struct Run {
    options: CopyOptions,
    plan: Plan,
    events: EventSender<CopyEvent>,
    tally: Arc<Tally>,
    link: Link,
    pulse: Arc<Pulse>,
}

/// The connections for data.
struct Connected {
    connections: Connections,
    transport: CopyTransport,
    reason: String,
}

impl Run {
    fn copy(self) -> CopyResult {
        let began = Instant::now();
        let sources = if self.plan.far_sends { Vec::new() } else { self.sources()? };
        let own = own_settings();
        let (Pipes { to, from }, early) = match &self.plan.host {
            FarHost::Ssh { name } => (start(&self.options.ssh, name, &self.options.far_path, &self.link)?, None),
            FarHost::Server { name, port } => {
                call(name, *port, self.options.key.as_ref(), &self.link, &|rtt| self.early_connections(rtt, &own))?
            }
        };
        let (out, writer) = Outgoing::start(to, &self.pulse).map_err(CopyError::io("cannot speak to the far end"))?;
        let copied = self.copy_over(Call { from, out: &out, own: &own, early }, sources, began);
        if let Err(error) = &copied
            && let Some(code) = error.code_for_peer()
        {
            out.send(&Message::Refused { code, why: error.to_string() });
        }
        out.close();
        if copied.is_ok() {
            // Both ends have everything, and the far one ends with its input: to wait for that would take round trips.
            let _ = writer.join();
            release(&self.link);
        } else {
            end(&self.link);
        }
        copied
    }

    fn sources(&self) -> Result<Vec<Source>, CopyError> {
        self.plan.near.iter().map(|path| Source::open(&Root::User, path)).collect()
    }

    /// Returns how many connections to make before the server has answered. Its settings are not known yet; mostly they
    /// are like those of this host.
    fn early_connections(&self, rtt: Span, own: &HostSettings) -> u16 {
        let options = &self.options;
        // What is not to be encrypted takes the port that the server answers with.
        if options.dry_run || options.transport == Transport::Quic || !options.unencrypted.is_empty() {
            return 0;
        }
        self.choice(rtt, [own, own]).count.min(MAX_CHOSEN)
    }

    fn copy_over(&self, call: Call<'_>, sources: Vec<Source>, began: Instant) -> CopyResult {
        let end = self.end(call.out, sources);
        self.copy_with(&end, call, began).inspect_err(|_| end.give_up())
    }

    fn copy_with(&self, end: &End, call: Call<'_>, began: Instant) -> CopyResult {
        let Call { mut from, out, own, early } = call;
        let failed = CopyError::io("cannot make a key");
        let secret = random().map_err(&failed)?;
        let credentials = Credentials::new(&secret, &self.options.unencrypted).map_err(&failed)?;
        // It is there when the far end begins, which saves a round trip.
        out.send(&Message::Hello(self.hello(secret, own)));
        let may_ask = matches!(self.plan.host, FarHost::Ssh { .. });
        // The list needs no answer of a server; ssh may ask for a password first.
        if !may_ask {
            end.begin()?;
        }
        if !greeted(&mut from, may_ask, &self.pulse) {
            return Err(self.not_there(out));
        }
        let frames = &mut Frames::new(from, &self.pulse);
        let ready = ready(frames)?;
        let other = settings_of(&ready.settings);
        let server = peer(&self.link);
        let known = server.map(|(address, _)| address).or_else(|| address(&ready.address));
        let far = Reached {
            out,
            ready: &ready,
            way: &self.plan.host,
            hosts: addresses(known, self.plan.host.name()),
            server,
            credentials: &credentials,
            secret: &secret,
            early: Mutex::new(early),
            settings: [own, &other],
            is_over: AtomicBool::new(false),
        };
        if may_ask {
            end.begin()?;
        }
        let (followed, way, carriers) = thread::scope(|threads| -> Result<_, CopyError> {
            let work = || self.carry(&far, end, began);
            let connecting = thread::Builder::new().name("copy-connect".to_owned()).spawn_scoped(threads, work);
            let connecting = connecting.map_err(CopyError::io("cannot start a thread"))?;
            let followed = end.follow(frames);
            far.is_over.store(true, Ordering::Relaxed);
            let (way, carriers) = connecting.join().map_err(|_| CopyError::Gone)?;
            Ok((followed, way, carriers))
        })?;
        let figures = end.end(followed, &carriers)?;
        Ok(self.report(way, figures, began.elapsed()))
    }

    /// Makes connections for data, and lets them carry it: meanwhile the list crosses.
    fn carry(&self, far: &Reached<'_>, end: &End, began: Instant) -> (Way, Carriers) {
        let Connected { connections, transport, reason } = self.connect(far);
        let (set_up, streams) = (began.elapsed(), connections.count());
        self.note(&reason);
        let rtt = (streams > 0).then_some(connections.rtt);
        let carriers = end.carry(connections, far.settings.map(Clone::clone));
        (Way { transport, rtt, reason, streams, set_up }, carriers)
    }

    /// Returns the error of a far end that did not greet.
    fn not_there(&self, out: &Outgoing) -> CopyError {
        out.close();
        match &self.plan.host {
            FarHost::Ssh { name } => not_there(&self.options.ssh, name, &self.options.far_path, &self.link),
            FarHost::Server { .. } => CopyError::Gone,
        }
    }

    fn note(&self, text: &str) {
        let _ = self.events.send(CopyEvent::Note(text.to_owned()));
    }

    fn hello(&self, secret: [u8; 32], settings: &HostSettings) -> Hello {
        Hello {
            version: VERSION,
            far_sends: self.plan.far_sends,
            dry_run: self.options.dry_run,
            delete: self.options.delete,
            verify_disk: self.options.verify_disk,
            scavenge: self.options.scavenge,
            no_bbr: self.options.no_bbr,
            attributes: self.options.attributes,
            quic: self.may_use_quic(),
            timeout: self.pulse.timeout().as_secs() as u16,
            secret,
            ports: self.options.ports.unwrap_or_default(),
            limit: self.options.limit.map_or(0, BitRate::bps),
            paths: self.plan.far.clone(),
            excludes: self.options.excludes.clone(),
            unencrypted: self.options.unencrypted.iter().map(|network| network.to_string().into_bytes()).collect(),
            settings: serde_json::to_vec(settings).unwrap_or_default(),
        }
    }

    fn end(&self, out: &Outgoing, sources: Vec<Source>) -> End {
        let common = Common::new(out.clone(), Arc::clone(&self.tally), Some(self.events.clone()));
        let excludes = Excludes::new(self.options.excludes.iter().map(Vec::as_slice));
        if !self.plan.far_sends {
            let paces = self.options.limit.map(Pace::new).map(Arc::new).into_iter().collect();
            let common = common.within(Bounds::new(paces, None).of_options(self.options.scavenge, self.options.no_bbr));
            return End::Sender(Arc::new(Sender::new(common, sources, excludes, self.options.attributes)));
        }
        let path = self.plan.near.first().cloned().unwrap_or_default();
        let options = ReceiveOptions {
            root: Root::User,
            path,
            dry_run: self.options.dry_run,
            delete: self.options.delete,
            excludes,
            verify_disk: self.options.verify_disk,
            attributes: self.options.attributes,
            timeout: self.pulse.timeout(),
            tops: self.plan.tops(),
        };
        End::Receiver(Arc::new(Receiver::new(common, options)))
    }

    /// Makes connections for data: to the far end, from it, or none, so that ssh carries the data.
    fn connect(&self, far: &Reached<'_>) -> Connected {
        if self.options.dry_run {
            return far.without_connections("nothing is copied: this is a dry run".to_owned());
        }
        if self.options.transport != Transport::Quic {
            return self.connect_by_tcp(far);
        }
        match self.connect_by_quic(far) {
            Ok(connected) => connected,
            Err(why) => {
                let Connected { connections, transport, reason } = self.connect_by_tcp(far);
                Connected { connections, transport, reason: format!("{reason}; not QUIC, because {why}") }
            }
        }
    }

    fn connect_by_tcp(&self, far: &Reached<'_>) -> Connected {
        let choice = |rtt| self.choice(rtt, far.settings);
        let mut chosen = None;
        let why = match self.reach(far, &mut |rtt| chosen.insert(choice(rtt)).count) {
            Ok(streams) => {
                let rtt = streams.first().and_then(DataStream::rtt).unwrap_or_default();
                return self.connected_by_tcp(far, streams, rtt, chosen.unwrap_or_else(|| choice(rtt)));
            }
            Err(why) => why,
        };
        match self.find_another_way(far) {
            Some(AnotherWay::FromFarEnd(listener, first)) => {
                let rtt = first.rtt().unwrap_or_default();
                let Choice { count, active, reason } = choice(rtt);
                far.carry(count, active, 0);
                let mut streams = vec![*first];
                streams.extend(listener.take(usize::from(count) - 1, CONNECT_DEADLINE));
                let encryption = self.encryption(&streams);
                let reason = format!("{reason}{encryption}; they come from the far end, because {why}");
                let connections = Connections { streams, active, quic: None, rtt };
                return Connected { connections, transport: CopyTransport::TcpFromFarEnd, reason };
            }
            Some(AnotherWay::Quic(connection)) => {
                let mut connected = self.connected_by_quic(far, connection, CopyTransport::Quic);
                connected.reason =
                    format!("{}; not TCP, because {why}, and it cannot reach this host", connected.reason);
                return connected;
            }
            None => {}
        }
        let what = match self.plan.host {
            FarHost::Ssh { .. } => "ssh carries the data, within its own windows",
            FarHost::Server { .. } => "the connection of the messages carries the data",
        };
        let what = if self.options.scavenge { format!("{what}, and does not give way") } else { what.to_owned() };
        far.without_connections(format!("{what}: {why}, and it cannot reach this host"))
    }

    /// Chooses the number of TCP connections. `settings` are those of this host and the other one.
    fn choice(&self, rtt: Span, settings: [&HostSettings; 2]) -> Choice {
        let ends = self.sender_first(settings);
        let may_use_bbr = !self.options.no_bbr && can_tolerate_loss(ends[0]);
        choose(self.options.streams, may_use_bbr, rtt, ends)
    }

    /// Asks the far end for a TCP connection, and meanwhile calls it by QUIC, where this end cannot reach it by TCP.
    fn find_another_way(&self, far: &Reached<'_>) -> Option<AnotherWay> {
        let listener = Listener::start(None, self.options.ports.unwrap_or_default(), far.credentials).ok();
        let called = (self.options.transport == Transport::Auto).then(|| far.begin_to_dial_quic());
        let mut until = Instant::now() + CONNECT_DEADLINE;
        let Some(listener) = listener else {
            return called?.recv_timeout(CONNECT_DEADLINE).ok().map(AnotherWay::Quic);
        };
        far.out.send(&Message::Dial { port: listener.port });
        let mut quic = None;
        while Instant::now() < until && !far.is_over.load(Ordering::Relaxed) {
            if let Some(first) = listener.take(1, POLL_INTERVAL).pop() {
                return Some(AnotherWay::FromFarEnd(listener, Box::new(first)));
            }
            if let Some(connection) = called.as_ref().and_then(|called| called.try_recv().ok()) {
                // A TCP connection takes three more round trips, if it comes.
                until = until.min(Instant::now() + Duration::from((connection.rtt() * 4).max(SHORT_HANDSHAKE)));
                quic = Some(connection);
            }
        }
        quic.map(AnotherWay::Quic)
    }

    /// Chooses among TCP connections that were made, and QUIC in their place or next to them.
    fn connected_by_tcp(&self, far: &Reached<'_>, streams: Vec<DataStream>, rtt: Span, choice: Choice) -> Connected {
        let why = self.reason_for_quic(far, &streams, rtt);
        let dialled = why.map(|why| (why, far.dial_quic((rtt * 4).max(SHORT_HANDSHAKE).into())));
        let (quic, note) = match dialled {
            Some((ReasonForQuic::Scaling, Ok(connection))) => {
                let mut connected = self.connected_by_quic(far, connection, CopyTransport::Quic);
                connected.reason += ": a device on the way takes window scaling away from TCP";
                return connected;
            }
            Some((ReasonForQuic::NoBbr, Ok(connection))) => {
                let note = "; QUIC stands by, because the sender may not use BBR with TCP".to_owned();
                (Some((Arc::new(connection), self.quic_streams())), note)
            }
            Some((_, Err(error))) => (None, format!("; QUIC does not stand by, because UDP does not pass ({error})")),
            None => (None, String::new()),
        };
        let Choice { active, reason, .. } = choice;
        far.carry(streams.len() as u16, active, quic.as_ref().map_or(0, |(_, streams)| *streams));
        let reason = reason + self.encryption(&streams) + &note;
        Connected { connections: Connections { streams, active, quic, rtt }, transport: CopyTransport::Tcp, reason }
    }

    /// Returns the reason for which QUIC would help where TCP connections stand already, if there is one.
    fn reason_for_quic(&self, far: &Reached<'_>, streams: &[DataStream], rtt: Span) -> Option<ReasonForQuic> {
        if !self.may_use_quic() || far.ready.quic_port == 0 {
            return None;
        }
        let has_scaling = far.settings.iter().all(|settings| settings.window_scaling);
        if has_scaling && rtt >= LONG_FOR_A_WINDOW && streams.first().is_some_and(DataStream::lost_scaling) {
            return Some(ReasonForQuic::Scaling);
        }
        let [sender, _] = self.sender_first(far.settings);
        (!self.options.no_bbr && !can_tolerate_loss(sender)).then_some(ReasonForQuic::NoBbr)
    }

    /// Returns the settings of this host and the other one in the order of sender and receiver.
    fn sender_first<'s>(&self, [own, other]: [&'s HostSettings; 2]) -> [&'s HostSettings; 2] {
        if self.plan.far_sends { [other, own] } else { [own, other] }
    }

    /// Returns true if the far end shall listen for QUIC.
    fn may_use_quic(&self) -> bool {
        let is_plain = self.options.unencrypted.is_empty() && !self.options.scavenge && !self.options.dry_run;
        is_plain && self.options.transport != Transport::Tcp
    }

    fn quic_streams(&self) -> u16 {
        self.options.streams.unwrap_or(USUAL_STREAMS)
    }

    fn connect_by_quic(&self, far: &Reached<'_>) -> Result<Connected, String> {
        let why = match far.dial_quic(HANDSHAKE_DEADLINE) {
            Ok(connection) => return Ok(self.connected_by_quic(far, connection, CopyTransport::Quic)),
            Err(error) => {
                let (host, port) = (printable(self.plan.host.name()), far.ready.quic_port);
                format!("{host} cannot be reached at UDP port {port} ({error})")
            }
        };
        let from_far_end =
            QuicListener::start(None, self.options.ports.unwrap_or_default(), far.secret).ok().and_then(|listener| {
                far.out.send(&Message::DialQuic { port: listener.port });
                listener.take(HANDSHAKE_DEADLINE + MESSAGE_TIME)
            });
        let connection = from_far_end.ok_or_else(|| format!("{why}, and it cannot reach this host"))?;
        let Connected { connections, transport, reason } =
            self.connected_by_quic(far, connection, CopyTransport::QuicFromFarEnd);
        let reason = format!("{reason}; it comes from the far end, because {why}");
        Ok(Connected { connections, transport, reason })
    }

    fn connected_by_quic(&self, far: &Reached<'_>, connection: QuicConnection, transport: CopyTransport) -> Connected {
        let (count, rtt) = (self.quic_streams(), connection.rtt());
        far.carry(0, 0, count);
        let reason = quic_reason(self.options.streams, count, rtt);
        let connections = Connections { quic: Some((Arc::new(connection), count)), rtt, ..Connections::none() };
        Connected { connections, transport, reason }
    }

    /// Returns what is to be said of the encryption, if the user did without.
    fn encryption(&self, streams: &[DataStream]) -> &'static str {
        match () {
            () if self.options.unencrypted.is_empty() => "",
            () if streams.iter().any(DataStream::is_encrypted) => {
                "; encrypted, because --insecure-data does not name both addresses"
            }
            () => "; not encrypted, as asked for",
        }
    }

    fn reach(&self, far: &Reached<'_>, count: &mut dyn FnMut(Span) -> u16) -> Result<Vec<DataStream>, String> {
        let joined = far.join_early(count);
        if !joined.is_empty() {
            return Ok(joined);
        }
        let port = far.ready.port;
        if port == 0 {
            return Err("the far end has no free port of the range".to_owned());
        }
        let host = printable(self.plan.host.name());
        let dial_first = |hosts: &[SocketAddr], count: &mut dyn FnMut(Span) -> u16| {
            dial(hosts, port, far.credentials, count).map(|(_, made)| made)
        };
        let made = match far.server {
            Some((address, rtt)) => {
                let at_once = dial_at_once(at_port(address, port), far.credentials, count(rtt));
                match far.hosts.get(1..) {
                    Some(others @ [_, ..]) => at_once.or_else(|_| dial_first(others, count)),
                    _ => at_once,
                }
            }
            None => dial_first(&far.hosts, count),
        };
        made.map_err(|error| format!("{host} cannot be reached at port {port} ({error})"))
    }

    fn report(&self, way: Way, figures: BothFigures, duration: Duration) -> CopyReport {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (tally, data) = (&self.tally, duration.saturating_sub(way.set_up));
        let transferred = ByteCount::new(count(&tally.verified));
        let rate = BitRate::of(transferred, span(data));
        let has_crossed = transferred > ByteCount::ZERO;
        let limit = || match way.transport {
            _ if is_limited(rate, self.options.limit) => Some(CopyLimit::RateLimit),
            CopyTransport::Ssh => Some(CopyLimit::Ssh),
            // Nobody samples its windows.
            CopyTransport::Call => None,
            _ => Some(Figures::limit(&figures.sender, &figures.receiver, way.streams, data)),
        };
        let limit = has_crossed.then(limit).flatten();
        let files = count(&tally.files);
        let transport = if figures.sender.changed_to_quic { CopyTransport::Quic } else { way.transport };
        CopyReport {
            dry_run: self.options.dry_run,
            files,
            bytes: ByteCount::new(count(&tally.bytes)),
            transferred,
            present: count(&tally.present),
            deleted: count(&tally.deleted),
            failed: count(&tally.failed),
            failures: tally.failures(),
            left_out: count(&tally.left_out),
            left_out_entries: tally.left_out_entries(),
            duration: span(duration),
            set_up: span(way.set_up),
            rate,
            digest: tally.digest().filter(|_| files == 1).map(|digest| hexadecimal(&digest)),
            transport: has_crossed.then_some(transport),
            streams: way.streams,
            reason: way.reason,
            rtt: way.rtt,
            congestion_control: figures.sender.congestion_control,
            retransmitted: SegCount::new(figures.sender.retransmitted),
            gave_way: figures.sender.gave_way,
            limit,
        }
    }
}

/// The way to the far end, before it has answered.
struct Call<'r> {
    from: Box<dyn BufRead + Send>,
    out: &'r Outgoing,
    /// Settings of this host.
    own: &'r HostSettings,
    /// Connections for data that are being made meanwhile.
    early: Option<Early>,
}

/// A far end that has answered, and what both ends know.
struct Reached<'r> {
    out: &'r Outgoing,
    ready: &'r Ready,
    /// Its name, and the way to it.
    way: &'r FarHost,
    /// Its addresses.
    hosts: Vec<SocketAddr>,
    /// That of a server that was called, which is the first of them, and the round-trip time to it.
    server: Option<(SocketAddr, Span)>,
    credentials: &'r Credentials,
    secret: &'r [u8; 32],
    /// Connections for data to a server that were begun before it answered.
    early: Mutex<Option<Early>>,
    /// Settings of this host and of its own.
    settings: [&'r HostSettings; 2],
    /// The transfer has ended, so that no way for data is searched for any more.
    is_over: AtomicBool,
}

/// A way for data where this end cannot reach the far one by TCP.
enum AnotherWay {
    /// The first of TCP connections that the far end makes.
    FromFarEnd(Listener, Box<DataStream>),
    Quic(QuicConnection),
}

/// The reason for which QUIC would help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReasonForQuic {
    /// A device on the way takes window scaling away.
    Scaling,
    /// The sender may not use BBR, if packets are lost.
    NoBbr,
}

impl Reached<'_> {
    /// Says which connections carry data.
    fn carry(&self, count: u16, active: u16, quic: u16) {
        self.out.send(&Message::Streams { count, active, quic });
    }

    /// Returns as many connections as `count` says, of those that were begun before the server answered.
    fn join_early(&self, count: &mut dyn FnMut(Span) -> u16) -> Vec<DataStream> {
        match (&self.server, lock(&self.early).take()) {
            (Some((_, rtt)), Some(early)) => early.join(self.secret, count(*rtt)),
            _ => Vec::new(),
        }
    }

    fn without_connections(&self, reason: String) -> Connected {
        self.carry(0, 0, 0);
        let transport = match self.way {
            FarHost::Ssh { .. } => CopyTransport::Ssh,
            FarHost::Server { .. } => CopyTransport::Call,
        };
        Connected { connections: Connections::none(), transport, reason }
    }

    /// Begins to call the far end by QUIC; the connection comes out of what is returned, unless it cannot be made.
    fn begin_to_dial_quic(&self) -> mpsc::Receiver<QuicConnection> {
        let (made, receiver) = channel();
        let (hosts, port, secret) = (self.hosts.clone(), self.ready.quic_port, *self.secret);
        let work = move || {
            if let Ok(connection) = quic::dial(&hosts, port, &secret, HANDSHAKE_DEADLINE) {
                // Nobody waits for it if TCP was quicker.
                let _ = made.send(connection);
            }
        };
        if port != 0 {
            // Without a thread there is none.
            let _ = thread::Builder::new().name("copy-dial".to_owned()).spawn(work);
        }
        receiver
    }

    fn dial_quic(&self, deadline: Duration) -> io::Result<QuicConnection> {
        if self.ready.quic_port == 0 {
            return Err(io::Error::other("it has no free port of the range"));
        }
        quic::dial(&self.hosts, self.ready.quic_port, self.secret, deadline)
    }
}

/// The way that data took, for the report.
struct Way {
    transport: CopyTransport,
    rtt: Option<Span>,
    reason: String,
    streams: u16,
    /// Time until it was there.
    set_up: Duration,
}

fn ready<R: Read>(frames: &mut Frames<R>) -> Result<Ready, CopyError> {
    let frame = frames.next_message().map_err(|_| CopyError::Gone)?.ok_or(CopyError::Gone)?;
    match Message::read(frame)? {
        Message::Ready(ready) => Ok(ready),
        Message::Refused { code, why } => Err(CopyError::Refused { code, why }),
        _ => Err(CopyError::Protocol("the far end does not answer the request".to_owned())),
    }
}

/// Returns the address of the far end as that knows it. The scope of a link-local one is not of this host.
fn address(text: &[u8]) -> Option<SocketAddr> {
    Some(SocketAddr::new(str::from_utf8(text).ok()?.parse().ok()?, 0))
}

fn span(duration: Duration) -> Span {
    Span::from_nanos(duration.as_nanos() as u64)
}

/// Makes progress of counts.
struct Meter<'t> {
    tally: &'t Tally,
    at: Instant,
    verified: u64,
}

impl<'t> Meter<'t> {
    fn new(tally: &'t Tally) -> Self {
        Self { tally, at: Instant::now(), verified: 0 }
    }

    /// Returns the progress, if it is time for that and something is wanted.
    fn progress(&mut self) -> Option<CopyProgress> {
        let elapsed = self.at.elapsed();
        let wanted = self.tally.wanted.load(Ordering::Relaxed);
        if elapsed < PROGRESS_INTERVAL || wanted == 0 {
            return None;
        }
        let verified = self.tally.verified.load(Ordering::Relaxed);
        let rate = BitRate::of(ByteCount::new(verified - self.verified), span(elapsed));
        (self.at, self.verified) = (Instant::now(), verified);
        Some(CopyProgress { verified: ByteCount::new(verified), wanted: ByteCount::new(wanted), rate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(sources: &[&str], destination: &str) -> Result<Plan, String> {
        let place = |text: &&str| Place::read(text.as_bytes()).unwrap();
        let options = CopyOptions {
            sources: sources.iter().map(place).collect(),
            destination: place(&destination),
            ssh: vec!["ssh".to_owned()],
            far_path: "fullpipe".to_owned(),
            dry_run: false,
            delete: false,
            excludes: Vec::new(),
            limit: None,
            ports: None,
            streams: None,
            transport: Transport::Auto,
            verify_disk: false,
            scavenge: false,
            no_bbr: false,
            attributes: false,
            timeout: Span::from_secs(30),
            unencrypted: Vec::new(),
            key: None,
        };
        Plan::of(&options).map_err(|error| error.to_string())
    }

    #[test]
    fn one_end_is_near_and_one_far() {
        let up = plan(&["a", "b"], "me@host:dir").unwrap();
        assert_eq!((up.far_sends, up.host.name(), up.near.len(), up.far.len()), (false, "host", 2, 1));
        let down = plan(&["host:a", "host:b"], "dir").unwrap();
        assert_eq!((down.far_sends, down.near.len(), down.far.len()), (true, 1, 2));
        for (sources, destination) in
            [(&["a"][..], "b"), (&["h:a"], "h:b"), (&["h:a", "i:b"], "c"), (&["a", "h:b"], "c"), (&["a"], "b")]
        {
            assert!(plan(sources, destination).is_err(), "{sources:?} {destination}");
        }
    }

    #[test]
    fn the_far_end_may_send_only_what_was_asked_for() {
        let tops = |sources: &[&str]| plan(sources, "dir").unwrap().tops();
        assert_eq!(tops(&["h:/a/b", "h:c"]), Some(vec![b"b".to_vec(), b"c".to_vec()]));
        assert_eq!(tops(&["h:~/a", "h:wait..", "h:b/~"]), Some(vec![b"a".to_vec(), b"wait..".to_vec(), b"~".to_vec()]));
        for whole in ["h:/a/b/", "h:", "h:~", "h:~/", "h:..", "h:a/..", "h:a/.", "h:/"] {
            assert_eq!(tops(&[whole]), None, "{whole}");
        }
        // A server has no folder of a user.
        assert_eq!(tops(&["fullpipe://h/~"]), Some(vec![b"~".to_vec()]));
    }
}
