//! A server on this host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fullpipe_probe::{ServeOptions, TestText, serve_clients};
use fullpipe_record::{ConnectedTest, Interval, Measurement};
use fullpipe_testkit::{free_port, wait_for_listener};

/// The output that no client asks for.
struct Silent;

impl TestText for Silent {
    fn interval_lines(&mut self, _: &Interval) -> String {
        String::new()
    }

    fn result_lines(&self, _: &Measurement) -> String {
        String::new()
    }
}

fn silent(_: SocketAddr, _: &ConnectedTest) -> (String, Box<dyn TestText>) {
    (String::new(), Box::new(Silent))
}

/// Runs `test` with the port of a server on this host.
pub(crate) fn with_server(test: impl FnOnce(u16)) {
    let (port, over) = (free_port(), Arc::new(AtomicBool::new(false)));
    let bind = Some(IpAddr::from(Ipv4Addr::LOCALHOST));
    let options = ServeOptions {
        bind,
        port,
        iperf2: false,
        ..ServeOptions::default()
    };
    let ended = Arc::clone(&over);
    let server = thread::spawn(move || serve_clients(&options, silent, &ended, &mut |_| {}));
    wait_for_listener(port);
    test(port);
    over.store(true, Ordering::Relaxed);
    server.join().unwrap().unwrap();
}
