use fullpipe_record::{Buffer, Direction, Request, Transport, Writer};
use fullpipe_units::{ByteCount, Span};

/// The arguments of `fullpipe measure` that ask for `request`; a test of the command line reads them back.
pub fn measure_arguments(host: &str, request: &Request) -> Vec<String> {
    let mut arguments = vec!["measure".to_owned(), host.to_owned()];
    let mut give = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            arguments.extend([name.to_owned(), value]);
        }
    };
    let bytes = |size: ByteCount| size.get().to_string();
    give("--parallel", Some(request.streams.to_string()));
    give("--length", Some(request.block).filter(|&block| block > ByteCount::ZERO).map(bytes));
    give("--interval", Some(seconds(request.interval)));
    give("--omit", Some(request.omit).filter(|&omit| omit > Span::ZERO).map(seconds));
    match request.bytes {
        Some(size) => give("--bytes", Some(bytes(size))),
        None => give("--time", Some(seconds(request.duration))),
    }
    match request.buffer {
        Buffer::Automatic => {}
        Buffer::Request(size) => give("--buffer", Some(bytes(size))),
        Buffer::Window(size) => give("--window", Some(bytes(size))),
    }
    give("--bitrate", offer(request));
    give("--fq-rate", request.pacing.map(|rate| format!("{}bit/s", rate.bps())));
    give("--congestion", request.congestion.clone());
    give("--mss", request.mss.map(bytes));
    give("--affinity", affinity(request));
    give("--tos", Some(request.tos).filter(|&tos| tos > 0).map(|tos| tos.to_string()));
    give("--title", request.title.clone());
    give("--extra-data", request.extra_data.clone());
    arguments.extend(switches(request).into_iter().filter(|(on, _)| *on).map(|(_, name)| name.to_owned()));
    arguments
}

/// `HERE,THERE`; `,THERE` alone has no meaning for iperf3, and none here.
fn affinity(request: &Request) -> Option<String> {
    let here = if request.near_device { "nic".to_owned() } else { request.processor?.to_string() };
    Some(request.far_processor.map_or_else(|| here.clone(), |there| format!("{here},{there}")))
}

/// `RATE/BURST`; a UDP flood asks for zero, because no rate at all is a gentle one.
fn offer(request: &Request) -> Option<String> {
    let flood = (request.transport == Transport::Udp).then(|| "0".to_owned());
    let rate = request.rate.map(|rate| format!("{}bit/s", rate.bps())).or(flood)?;
    Some(request.burst.map_or_else(|| rate.clone(), |burst| format!("{rate}/{burst}")))
}

/// Whoever emulates a path means what it sends over it, so that nobody is asked for consent.
fn switches(request: &Request) -> [(bool, &'static str); 13] {
    let is_udp = request.transport == Transport::Udp;
    [
        (is_udp, "--udp"),
        (is_udp, "--yes"),
        (request.direction == Direction::Download, "--reverse"),
        (request.direction == Direction::Both, "--bidir"),
        (request.no_delay, "--no-delay"),
        (request.multipath, "--mptcp"),
        (request.sendfile, "--zerocopy"),
        (request.zero_copy, "--msg-zerocopy"),
        (!is_udp && !request.discard, "--rx-copy"),
        (is_udp && !request.offload, "--no-gso"),
        (request.wide_counters, "--udp-counters-64bit"),
        (request.dont_fragment, "--dont-fragment"),
        (request.writer == Writer::Blocking, "--blocking"),
    ]
}

fn seconds(span: Span) -> String {
    format!("{}s", span.as_secs_f64())
}
