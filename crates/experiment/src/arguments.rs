use fullpipe_record::{Buffer, Direction, Request, Writer};
use fullpipe_units::Span;

/// The arguments of `fullpipe measure` that ask for `request`; a test of the command line reads them back.
pub fn measure_arguments(host: &str, request: &Request) -> Vec<String> {
    let mut arguments = vec!["measure".to_owned(), host.to_owned()];
    let mut flag = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    flag("--parallel", request.streams.to_string());
    flag("--length", request.block.get().to_string());
    flag("--interval", seconds(request.interval));
    if request.omit > Span::ZERO {
        flag("--omit", seconds(request.omit));
    }
    match request.bytes {
        Some(bytes) => flag("--bytes", bytes.get().to_string()),
        None => flag("--time", seconds(request.duration)),
    }
    match request.buffer {
        Buffer::Automatic => {}
        Buffer::Request(size) => flag("--buffer", size.get().to_string()),
        Buffer::Window(size) => flag("--window", size.get().to_string()),
    }
    if let Some(name) = &request.congestion {
        flag("--congestion", name.clone());
    }
    if let Some(mss) = request.mss {
        flag("--mss", mss.get().to_string());
    }
    if request.direction == Direction::Download {
        arguments.push("--reverse".to_owned());
    }
    if request.writer == Writer::Blocking {
        arguments.push("--blocking".to_owned());
    }
    arguments
}

fn seconds(span: Span) -> String {
    format!("{}s", span.as_secs_f64())
}
