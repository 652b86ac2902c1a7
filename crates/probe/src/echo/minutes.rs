//! Echo requests to many hosts, one a second each, counted by the minute.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fullpipe_units::{Span, median};

use super::flow::EchoFlow;
use super::prober::random_u64;
use crate::engine::LocalEndpoint;

/// Time between two requests to a host.
const INTERVAL: Duration = Duration::from_secs(1);

/// Echo requests to a host within a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EchoedMinute {
    /// The minute, counted since 1970.
    pub minute: u64,
    /// Requests.
    pub sent: u32,
    /// Requests without an answer within a second.
    pub lost: u32,
    /// Median round-trip time; `None` without answers.
    pub rtt: Option<Span>,
}

/// The requests to a host.
struct EchoedHost {
    flow: EchoFlow,
    number: u64,
    /// When the request left, by the wall clock.
    left: Option<Span>,
    sent: u32,
    rtts: Vec<Span>,
}

/// Sends an echo request a second to each of `hosts` until it is interrupted, and reports each
/// minute by the place of its host. The kernels of the hosts answer (ICMP).
///
/// # Errors
/// Fails if this user may open neither ping sockets (`net.ipv4.ping_group_range`) nor raw ones
/// (`CAP_NET_RAW`), or if there are too few descriptors.
pub fn echo_minutes(
    hosts: &[IpAddr],
    interrupt: &AtomicBool,
    report: &mut dyn FnMut(usize, EchoedMinute),
) -> io::Result<()> {
    let local = LocalEndpoint::default();
    let mut flows = Vec::new();
    for host in hosts {
        let target = SocketAddr::new(*host, 0);
        flows.push(EchoedHost {
            flow: EchoFlow::of_icmp(target, &local, random_u64()?)?,
            number: 0,
            left: None,
            sent: 0,
            rtts: Vec::new(),
        });
    }
    let mut minute = wall_clock().as_secs_f64() as u64 / 60;
    let mut due = Instant::now();
    while !interrupt.load(Ordering::Relaxed) {
        for host in &mut flows {
            host.send_request();
        }
        due += INTERVAL;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        for host in &mut flows {
            host.take_answers();
        }
        let now = wall_clock().as_secs_f64() as u64 / 60;
        if now != minute {
            for (place, host) in flows.iter_mut().enumerate() {
                report(place, host.take_minute(minute));
            }
            minute = now;
        }
    }
    Ok(())
}

fn wall_clock() -> Span {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().into()
}

impl EchoedHost {
    fn send_request(&mut self) {
        self.number += 1;
        self.sent += 1;
        self.left = Some(wall_clock());
        // The kernel may report an error about an earlier request in place of sending this one.
        if self.flow.send_request(self.number).is_err() {
            let _ = self.flow.send_request(self.number);
        }
    }

    /// Takes the answers of the second that has passed; later ones count as lost.
    fn take_answers(&mut self) {
        while let Some((number, at)) = self.flow.next_departure() {
            if number == self.number {
                self.left = at.or(self.left);
            }
        }
        loop {
            match self.flow.next_answer() {
                Ok(Some(answer)) if answer.number == self.number => {
                    let came = answer.came.unwrap_or_else(wall_clock);
                    let left = self.left.take();
                    self.rtts.extend(left.map(|left| came.saturating_sub(left)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An answer that is late, or an error about an earlier request.
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn take_minute(&mut self, minute: u64) -> EchoedMinute {
        let rtts = std::mem::take(&mut self.rtts);
        let sent = std::mem::take(&mut self.sent);
        EchoedMinute {
            minute,
            sent,
            lost: sent.saturating_sub(rtts.len() as u32),
            rtt: median::<Span>(rtts),
        }
    }
}
