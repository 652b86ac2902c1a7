//! The near end: it starts the far one, makes the connections, and reports to its user.

mod meter;
mod plan;
mod reached;
mod report;
mod ways;

use std::io::{BufRead, Read};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender as EventSender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fullpipe_control::{configured_host, most_descriptors};
use fullpipe_record::HostSettings;
use fullpipe_sys::random_bytes;
use fullpipe_units::{BitRate, Span};

use self::meter::ProgressMeter;
use self::plan::CopyPlan;
use self::reached::{ConnectedData, ReachedFarEnd};
use crate::address::{MAX_CALLED, at_port, far_addresses, host_addresses};
use crate::bounds::CopyBounds;
use crate::common::{CopyCounts, TransferContext};
use crate::connect::CopyCredentials;
use crate::control::{FrameReader, MessageSender};
use crate::http::WebUrl;
use crate::joining::EarlyConnections;
use crate::options::{CopyError, CopyEvent, CopyOptions, CopyResult, FarHost};
use crate::protocol::{CopyAnswer, CopyMessage, CopyRequest, VERSION};
use crate::pulse::SilenceWatch;
use crate::receiver::ReceiveOptions;
use crate::report::DataRoute;
use crate::root::FolderRoot;
use crate::server::{call_server, server_address};
use crate::session::{BothFigures, DataCarriers, TransferRole, own_settings, settings_of};
use crate::shared::SharedFlag;
use crate::ssh::{
    Link, LinkPipes, await_greeting, kill_link, not_there, release_link, start_ssh, wait_for_end,
};
use crate::threads::start_answering;
use crate::walk::CopySource;
use crate::web::WebCopy;

/// Time between two checks for an interrupt or events.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Copies files until that is done or `interrupt` is set. `report` is called with each event, on
/// this thread.
///
/// # Errors
/// Fails if the places do not fit together, the other end cannot be started, goes away, is silent
/// or breaks the rules. Entries that cannot be copied are in the report.
pub fn copy_files(
    options: &CopyOptions,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(CopyEvent),
) -> CopyResult {
    if let Some(url) = WebCopy::url_of(options)? {
        return copy_from_web(options, url, interrupt, report);
    }
    let plan = CopyPlan::from_options(options)?;
    options.check_transport()?;
    // Connections take two each.
    most_descriptors();
    let (events, received) = channel();
    let (tally, link) = (Arc::new(CopyCounts::default()), Link::default());
    let pulse = SilenceWatch::new(options.timeout.into());
    let run = NearCopy {
        options: options.clone(),
        plan,
        events,
        tally: Arc::clone(&tally),
        link: Arc::clone(&link),
        pulse: Arc::clone(&pulse),
    };
    let followed = FollowedCopy {
        ended: start_copy(move || run.run_copy())?,
        received,
        tally,
        pulse,
    };
    followed.follow(interrupt, report, || kill_link(&link))
}

/// Copies a file of a web server as [`copy_files`] does.
fn copy_from_web(
    options: &CopyOptions,
    url: WebUrl,
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(CopyEvent),
) -> CopyResult {
    most_descriptors();
    let (events, received) = channel();
    let (tally, stop) = (Arc::<CopyCounts>::default(), Arc::<SharedFlag>::default());
    let run = WebCopy::new(
        options.clone(),
        url,
        Arc::clone(&tally),
        events,
        Arc::clone(&stop),
    )?;
    let followed = FollowedCopy {
        ended: start_copy(move || run.run_copy())?,
        received,
        tally,
        // Its connections have deadlines of their own.
        pulse: SilenceWatch::new(options.timeout.into()),
    };
    followed.follow(interrupt, report, || {
        stop.raise_flag();
    })
}

fn start_copy(
    run: impl FnOnce() -> CopyResult + Send + 'static,
) -> Result<Receiver<CopyResult>, CopyError> {
    start_answering("copy", run).map_err(CopyError::from_io("cannot start a thread"))
}

/// A copy on a thread of its own, as the thread of its user sees it.
struct FollowedCopy {
    ended: Receiver<CopyResult>,
    received: Receiver<CopyEvent>,
    tally: Arc<CopyCounts>,
    pulse: Arc<SilenceWatch>,
}

impl FollowedCopy {
    /// Reports what happens until the copy has ended. `stop` lets it end before.
    fn follow(
        self,
        interrupt: &AtomicBool,
        report: &mut dyn FnMut(CopyEvent),
        stop: impl Fn(),
    ) -> CopyResult {
        let mut meter = ProgressMeter::new(&self.tally);
        let copied = loop {
            let ended = self.ended.recv_timeout(POLL_INTERVAL);
            self.received.try_iter().for_each(&mut *report);
            match ended {
                Ok(copied) => break copied,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break Err(CopyError::Gone),
            }
            if interrupt.load(Ordering::Relaxed) {
                stop();
                return Err(CopyError::Interrupted);
            }
            if self.pulse.is_silent() {
                stop();
                return Err(CopyError::Silent(Span::from(self.pulse.silence_timeout())));
            }
            if let Some(progress) = meter.take_progress() {
                report(CopyEvent::Progress(progress));
            }
        };
        // Ctrl-C in a terminal ends ssh, too.
        if copied.is_err() && interrupt.load(Ordering::Relaxed) {
            Err(CopyError::Interrupted)
        } else {
            copied
        }
    }
}

/// A copy at work.
struct NearCopy {
    options: CopyOptions,
    plan: CopyPlan,
    events: EventSender<CopyEvent>,
    tally: Arc<CopyCounts>,
    link: Link,
    pulse: Arc<SilenceWatch>,
}

impl NearCopy {
    fn run_copy(self) -> CopyResult {
        let began = Instant::now();
        let sources = if self.plan.far_sends {
            Vec::new()
        } else {
            self.open_sources()?
        };
        let own = own_settings();
        let hello = self.copy_request(&own)?;
        let (LinkPipes { to, from }, early) = self.call_far_end(&own)?;
        let (out, writer) = MessageSender::start_writer(to, &self.pulse)
            .map_err(CopyError::from_io("cannot speak to the far end"))?;
        let copied = self.copy_over(
            PendingCall {
                from,
                out: &out,
                own: &own,
                hello,
                early,
            },
            sources,
            began,
        );
        out.close_after(&copied);
        if copied.is_ok() {
            // Both ends have everything, and the far one ends with its input: to wait for that
            // would take round trips.
            let _ = writer.join();
            release_link(&self.link);
        } else {
            wait_for_end(&self.link);
        }
        copied
    }

    fn open_sources(&self) -> Result<Vec<CopySource>, CopyError> {
        self.plan
            .near
            .iter()
            .map(|path| CopySource::open_source(&FolderRoot::User, path))
            .collect()
    }

    /// Starts the far end, or calls it.
    fn call_far_end(
        &self,
        own: &HostSettings,
    ) -> Result<(LinkPipes, Option<EarlyConnections>), CopyError> {
        let options = &self.options;
        match &self.plan.host {
            FarHost::Ssh { name } => {
                let pipes = start_ssh(&options.ssh, name, &options.far_path, &self.link)?;
                Ok((pipes, None))
            }
            FarHost::Server { name, port } => {
                call_server(name, *port, options.key.as_ref(), &self.link, &|rtt| {
                    self.early_connections(rtt, own)
                })
            }
        }
    }

    fn copy_over(
        &self,
        call: PendingCall<'_>,
        sources: Vec<CopySource>,
        began: Instant,
    ) -> CopyResult {
        let end = self.transfer_role(&call, sources);
        self.copy_with(&end, call, began)
            .inspect_err(|_| end.give_up())
    }

    fn copy_with(&self, end: &TransferRole, call: PendingCall<'_>, began: Instant) -> CopyResult {
        let PendingCall {
            from,
            out,
            own,
            hello,
            early,
        } = call;
        let secret = hello.secret;
        let credentials = CopyCredentials::new(&secret, &self.options.unencrypted)
            .map_err(CopyError::from_io("cannot make a key"))?;
        // It is there when the far end begins, which saves a round trip.
        out.send_message(&CopyMessage::Hello(hello));
        // The list needs no answer of a server.
        if !self.may_ask() {
            end.start_listing()?;
        }
        let (mut frames, ready) = self.await_answer(from, out)?;
        let other = settings_of(&ready.settings);
        let server = server_address(&self.link);
        let far = ReachedFarEnd {
            out,
            ready: &ready,
            way: &self.plan.host,
            hosts: match server {
                Some((address, _)) => with_first(
                    at_port(address, 0),
                    host_addresses(self.plan.host.host_name()),
                ),
                None => self.data_addrs(&ready),
            },
            server,
            credentials: &credentials,
            secret: &secret,
            early: Mutex::new(early),
            settings: [own, &other],
            is_over: SharedFlag::default(),
        };
        if self.may_ask() {
            end.start_listing()?;
        }
        let (figures, way) = self.run_transfer(&far, end, &mut frames, began)?;
        Ok(self.to_report(way, figures, began.elapsed()))
    }

    /// Returns the addresses of a far end behind ssh.
    fn data_addrs(&self, ready: &CopyAnswer) -> Vec<SocketAddr> {
        let FarHost::Ssh { name } = &self.plan.host else {
            return Vec::new();
        };
        // The scope of a link-local one is not of this host.
        let says = str::from_utf8(&ready.address)
            .ok()
            .and_then(|text| text.parse().ok());
        far_addresses(
            self.plan.host.host_name(),
            says.map(|says: IpAddr| says.to_canonical()),
            || configured_host(&self.options.ssh, name),
        )
    }

    /// Returns true if the far end is started through ssh, which may ask for a password first.
    fn may_ask(&self) -> bool {
        matches!(self.plan.host, FarHost::Ssh { .. })
    }

    /// Waits until the far end has answered.
    fn await_answer<R: BufRead>(
        &self,
        mut from: R,
        out: &MessageSender,
    ) -> Result<(FrameReader<R>, CopyAnswer), CopyError> {
        if !await_greeting(&mut from, self.may_ask(), &self.pulse) {
            return Err(self.not_there(out));
        }
        let mut frames = FrameReader::new(from, &self.pulse);
        let ready = read_answer(&mut frames)?;
        Ok((frames, ready))
    }

    /// Carries out what the far end says, while connections for data are made, until everything is
    /// done.
    fn run_transfer<R: Read>(
        &self,
        far: &ReachedFarEnd<'_>,
        end: &TransferRole,
        frames: &mut FrameReader<R>,
        began: Instant,
    ) -> Result<(BothFigures, DataRoute), CopyError> {
        thread::scope(|threads| {
            let connecting = thread::Builder::new()
                .name("copy-connect".to_owned())
                .spawn_scoped(threads, || self.connect_and_carry(far, end, began))
                .map_err(CopyError::from_io("cannot start a thread"))?;
            let followed = end.handle_messages(frames);
            far.is_over.raise_flag();
            let (way, carriers) = connecting.join().map_err(|_| CopyError::Gone)?;
            Ok((end.end_transfer(followed, &carriers)?, way))
        })
    }

    /// Makes connections for data, and lets them carry it: meanwhile the list crosses.
    fn connect_and_carry(
        &self,
        far: &ReachedFarEnd<'_>,
        end: &TransferRole,
        began: Instant,
    ) -> (DataRoute, DataCarriers) {
        let ConnectedData {
            connections,
            transport,
            reason,
        } = self.connect_data(far);
        let (set_up, streams) = (began.elapsed(), connections.stream_count());
        self.send_note(&reason);
        let rtt = (streams > 0).then_some(connections.rtt);
        let carriers = end.carry_data(connections, far.settings.map(Clone::clone));
        let route = DataRoute {
            transport,
            rtt,
            reason,
            streams,
            set_up,
        };
        (route, carriers)
    }

    /// Returns the error of a far end that did not greet.
    fn not_there(&self, out: &MessageSender) -> CopyError {
        out.close_direction();
        match &self.plan.host {
            FarHost::Ssh { name } => {
                not_there(&self.options.ssh, name, &self.options.far_path, &self.link)
            }
            FarHost::Server { .. } => CopyError::Gone,
        }
    }

    fn send_note(&self, text: &str) {
        let _ = self.events.send(CopyEvent::Note(text.to_owned()));
    }

    /// Returns the request, unless it is too long for one message.
    fn copy_request(&self, own: &HostSettings) -> Result<CopyRequest, CopyError> {
        const TOO_LONG: CopyError = CopyError::Places(
            "one copy names at most 65535 paths at the other end and 65535 patterns, each of at most 65535 bytes, and \
             all of at most 1 MiB",
        );
        let secret = random_bytes().map_err(CopyError::from_io("cannot make a key"))?;
        Some(self.build_request(secret, own))
            .filter(CopyRequest::fits_frame)
            .ok_or(TOO_LONG)
    }

    fn build_request(&self, secret: [u8; 32], settings: &HostSettings) -> CopyRequest {
        let unencrypted = self.options.unencrypted.iter();
        CopyRequest {
            version: VERSION,
            far_sends: self.plan.far_sends,
            dry_run: self.options.dry_run,
            delete: self.options.delete,
            verify_disk: self.options.verify_disk,
            scavenge: self.options.scavenge,
            no_bbr: self.options.no_bbr,
            no_compress: self.options.no_compress,
            attributes: self.options.attributes,
            quic: self.may_use_quic(),
            timeout: self.pulse.silence_timeout().as_secs() as u16,
            secret,
            ports: self.options.ports.unwrap_or_default(),
            limit: self.options.limit.map_or(0, BitRate::bps),
            paths: self.plan.far.clone(),
            excludes: self.options.excludes.clone(),
            unencrypted: unencrypted
                .map(|network| network.to_string().into_bytes())
                .collect(),
            settings: serde_json::to_vec(settings).unwrap_or_default(),
        }
    }

    fn transfer_role(&self, call: &PendingCall<'_>, sources: Vec<CopySource>) -> TransferRole {
        let (tally, events) = (Arc::clone(&self.tally), Some(self.events.clone()));
        let common = TransferContext::new(call.out.clone(), tally, events);
        if !self.plan.far_sends {
            let bounds = CopyBounds::default().with_request(&call.hello, true);
            return TransferRole::new_sender(common.with_bounds(bounds), sources, &call.hello);
        }
        let path = self.plan.near.first().cloned().unwrap_or_default();
        let timeout = self.pulse.silence_timeout();
        let options = ReceiveOptions {
            tops: self.plan.expected_tops(),
            ..ReceiveOptions::from_request(&call.hello, (FolderRoot::User, path), timeout)
        };
        TransferRole::new_receiver(common, options)
    }
}

/// The way to the far end, before it has answered.
struct PendingCall<'r> {
    from: Box<dyn BufRead + Send>,
    out: &'r MessageSender,
    /// Settings of this host.
    own: &'r HostSettings,
    /// The request.
    hello: CopyRequest,
    /// Connections for data that are being made meanwhile.
    early: Option<EarlyConnections>,
}

fn read_answer<R: Read>(frames: &mut FrameReader<R>) -> Result<CopyAnswer, CopyError> {
    match CopyMessage::read(frames.next_message()?)? {
        CopyMessage::Ready(ready) => Ok(ready),
        CopyMessage::Refused { code, why } => Err(CopyError::Refused { code, why }),
        _ => Err(CopyError::from_rule(
            "the far end does not answer the request",
        )),
    }
}

fn with_first(first: SocketAddr, mut others: Vec<SocketAddr>) -> Vec<SocketAddr> {
    others.retain(|other| *other != first);
    others.insert(0, first);
    others.truncate(MAX_CALLED);
    others
}
