//! A server under way: its tests, and what it last reported.

use std::collections::VecDeque;
use std::net::SocketAddr;

use fullpipe_probe::ServerEvent;
use fullpipe_record::{Direction, Interval, Request};
use fullpipe_report::chart::displayable_text;
use fullpipe_units::{BitRate, ByteCount, OptionText, Span};
use ratatui_core::layout::Size;
use ratatui_core::text::Line;

use crate::live::frame::{LivePage, RATE, bold_style, clock_text, dim_line};
use crate::live::measurement::describe_load;

/// Reports that are kept, more than a terminal has room for.
const MAX_REPORTS: usize = 200;

/// Tests that are kept. A server admits fewer; the ends of some may have been lost in a flood of
/// events.
const MAX_TESTS: usize = 2_000;

/// An event of a server, with its line in the log, if it has one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServerUpdate {
    /// The event.
    pub(crate) event: ServerEvent,
    /// The line.
    pub(crate) line: Option<String>,
}

/// The state of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerPage {
    addresses: Vec<SocketAddr>,
    /// The tests under way, the oldest first.
    tests: VecDeque<RunningTest>,
    reports: VecDeque<String>,
    ended: u64,
    failed: u64,
    bytes: ByteCount,
}

/// A test under way.
#[derive(Debug, Clone)]
struct RunningTest {
    client: SocketAddr,
    /// The load in words.
    load: String,
    begun: Span,
    up: BitRate,
    down: BitRate,
    bytes: ByteCount,
    rtt: Option<Span>,
}

impl ServerPage {
    fn begin_test(&mut self, now: Span, client: SocketAddr, request: Option<&Request>) {
        self.end_test(client);
        if self.tests.len() == MAX_TESTS {
            self.tests.pop_front();
        }
        let load = request.map_or_else(|| "iperf2, upload".to_owned(), describe_load);
        self.tests.push_back(RunningTest {
            client,
            load,
            begun: now,
            up: BitRate::ZERO,
            down: BitRate::ZERO,
            bytes: ByteCount::ZERO,
            rtt: None,
        });
    }

    fn end_test(&mut self, client: SocketAddr) {
        self.tests.retain(|test| test.client != client);
    }

    fn add_interval(&mut self, client: SocketAddr, interval: &Interval) {
        let Some(test) = self.tests.iter_mut().find(|test| test.client == client) else {
            return;
        };
        match interval.direction {
            Direction::Download => test.down = interval.rate,
            Direction::Upload | Direction::Both => test.up = interval.rate,
        }
        test.bytes += interval.bytes;
        test.rtt = interval.rtt.or(test.rtt);
    }

    /// Draws at most `most` tests, or all in a word.
    fn test_lines(&self, now: Span, most: usize) -> Vec<Line<'static>> {
        if self.tests.is_empty() {
            return vec![dim_line("no test at the moment".to_owned())];
        }
        let head = table_row("client", ["rate", "bytes", "RTT", "time"], "load");
        let drawn = if self.tests.len() > most {
            most.saturating_sub(1)
        } else {
            self.tests.len()
        };
        let mut lines = vec![dim_line(head)];
        lines.extend(
            self.tests
                .iter()
                .take(drawn)
                .map(|test| test.test_line(now)),
        );
        if self.tests.len() > drawn {
            lines.push(dim_line(format!("and {} more", self.tests.len() - drawn)));
        }
        lines
    }

    fn totals_line(&self) -> Line<'static> {
        let text = format!(
            "{} under way, {} ended with {}, {} failed",
            self.tests.len(),
            self.ended,
            self.bytes,
            self.failed
        );
        Line::styled(text, bold_style())
    }
}

impl RunningTest {
    fn test_line(&self, now: Span) -> Line<'static> {
        let rate: BitRate = [self.up, self.down].into_iter().sum();
        let rtt = self.rtt.map_text(|rtt| rtt.to_string());
        let since = clock_text(now.saturating_sub(self.begun));
        let figures = [&*rate.to_string(), &*self.bytes.to_string(), &*rtt, &*since];
        let row = table_row(&self.client.to_string(), figures, &self.load);
        Line::styled(row, RATE)
    }
}

/// Returns a row of the table of tests, or its head.
fn table_row(client: &str, [rate, bytes, rtt, time]: [&str; 4], load: &str) -> String {
    format!("{client:<21} {rate:>12} {bytes:>10} {rtt:>8} {time:>8}  {load}")
}

impl LivePage for ServerPage {
    type Update = ServerUpdate;

    fn apply_update(&mut self, now: Span, update: ServerUpdate) {
        match update.event {
            ServerEvent::Listening(address) => self.addresses.push(address),
            ServerEvent::Began {
                client, request, ..
            } => self.begin_test(now, client, Some(&request)),
            ServerEvent::BeganIperf2 { client } => self.begin_test(now, client, None),
            ServerEvent::Interval { client, interval } => self.add_interval(client, &interval),
            ServerEvent::Ended { client, bytes, .. } => {
                self.end_test(client);
                self.ended += 1;
                self.bytes += bytes;
            }
            ServerEvent::Failed { client, .. } => {
                self.end_test(client);
                self.failed += 1;
            }
            ServerEvent::ListeningForWeb(_)
            | ServerEvent::NotListening { .. }
            | ServerEvent::Connected { .. }
            | ServerEvent::UnreportedFlows { .. }
            | ServerEvent::Rejected { .. }
            | ServerEvent::Idle => {}
        }
        self.reports
            .extend(update.line.map(|line| displayable_text(&line)));
        if self.reports.len() > MAX_REPORTS {
            self.reports.pop_front();
        }
    }

    fn title(&self) -> (String, String) {
        let addresses: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        ("fullpipe serve".to_owned(), addresses.join(", "))
    }

    fn page_lines(&self, now: Span, room: Size) -> Vec<Line<'static>> {
        let height = usize::from(room.height);
        let mut lines = vec![self.totals_line(), Line::default()];
        lines.extend(self.test_lines(now, (height / 2).max(3)));
        lines.push(Line::default());
        let most = height.saturating_sub(lines.len());
        let from = self.reports.len().saturating_sub(most);
        lines.extend(self.reports.iter().skip(from).cloned().map(dim_line));
        lines.truncate(height);
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::frame::tests::shown as drawn;

    fn client(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    fn interval(direction: Direction, mbps: u64) -> Box<Interval> {
        let rate = BitRate::from_mbps(mbps);
        let second = Span::from_secs(1);
        Box::new(Interval {
            rtt: Some(Span::from_millis(20)),
            ..Interval::from_bytes(direction, [Span::ZERO, second], rate.bytes_in(second))
        })
    }

    fn page(tests: u16) -> ServerPage {
        let mut page = ServerPage::default();
        let mut apply = |at: u64, event: ServerEvent, line: &str| {
            let line = Some(line.to_owned()).filter(|line| !line.is_empty());
            page.apply_update(Span::from_secs(at), ServerUpdate { event, line });
        };
        apply(
            0,
            ServerEvent::Listening(SocketAddr::from(([0, 0, 0, 0], 5201))),
            "listening on 0.0.0.0:5201",
        );
        for port in 1..=tests {
            let (client, request) = (
                client(port),
                Request {
                    streams: port,
                    ..Request::default()
                },
            );
            apply(
                port.into(),
                ServerEvent::Began {
                    client,
                    request,
                    ticket: None,
                },
                &format!("{client}: receiving"),
            );
            let interval = interval(Direction::Upload, 100 * u64::from(port));
            apply(port.into(), ServerEvent::Interval { client, interval }, "");
        }
        let ended = ServerEvent::Ended {
            client: client(2),
            bytes: ByteCount::from_mib(200),
            rate: BitRate::from_mbps(200),
            measurement: None,
        };
        apply(9, ended, "192.0.2.1:2: done at 200 Mbit/s, 200 MiB");
        page
    }

    #[test]
    fn a_server_on_terminals_of_three_sizes() {
        let (page, now) = (page(4), Span::from_secs(10));
        insta::assert_snapshot!("server_80x24", drawn(&page, now, 80, 24));
        insta::assert_snapshot!("server_120x40", drawn(&page, now, 120, 40));
        insta::assert_snapshot!("server_40x10", drawn(&page, now, 40, 10));
    }

    #[test]
    fn a_flood_of_tests_is_bounded_and_drawn_in_a_word() {
        let mut page = page(40);
        let picture = drawn(&page, Span::from_secs(60), 80, 24);
        assert!(
            picture.contains("39 under way") && picture.contains(" more\n"),
            "{picture}"
        );
        for port in 0..3_000 {
            let event = ServerEvent::BeganIperf2 {
                client: client(port),
            };
            page.apply_update(
                Span::ZERO,
                ServerUpdate {
                    event,
                    line: Some("\u{1b}[2J".repeat(1_000)),
                },
            );
        }
        assert!(page.tests.len() <= MAX_TESTS && page.reports.len() <= MAX_REPORTS);
        assert!(!drawn(&page, Span::ZERO, 80, 24).contains('\u{1b}'));
    }
}
