//! The text of a test while it runs.

use std::fmt::Display;

use fullpipe_record::{Cpu, Direction, EndReport, Interval, Measurement, Request, Transport};
use fullpipe_units::ByteCount;

use super::line::{Arrived, Columns, Count, Line, SEPARATOR};
use super::view::{Course, Totals, arrived, count, count_together, is_empty_rest, times};
use super::{Connections, Role, TestHeader, TextOptions, json, socket};

/// Returns a server's line before its `number`th test, from 1.
pub fn listening(port: u16, number: u64) -> String {
    const RULE: &str = "-----------------------------------------------------------\n";
    format!("{RULE}Server listening on {port} (test #{number})\n{RULE}")
}

/// Returns the first lines of verbose output; a client has a title before each line.
pub fn greeting(header: &TestHeader, title: Option<&str>) -> String {
    titled(title, format!("{}\n{}\n", header.version, header.system))
}

/// iperf3's text of one test.
#[derive(Debug)]
pub struct Text {
    options: TextOptions,
    request: Request,
    /// True if there has been an interval.
    began: bool,
    course: Course,
}

impl Text {
    /// Begins the text of a test with this `request`.
    pub fn new(options: TextOptions, request: Request) -> Self {
        Self { options, request, began: false, course: Course::default() }
    }

    /// Returns the line that names the other end, for a test that failed before its data connections were open.
    pub fn peer(&self, header: &TestHeader) -> String {
        titled(self.request.title.as_deref(), self.peer_line(header))
    }

    fn peer_line(&self, TestHeader { host, port, .. }: &TestHeader) -> String {
        match self.options.role {
            Role::Client => format!("Connecting to host {host}, port {port}\n"),
            Role::Server => format!("Accepted connection from {host}, port {port}\n"),
        }
    }

    /// Returns the lines that follow the set-up of the data connections.
    pub fn connected(&mut self, header: &TestHeader, connections: &Connections) -> String {
        let asked = std::mem::replace(&mut self.request, connections.request.clone());
        let verbose = self.options.verbose;
        let TestHeader { host, .. } = header;
        let mut text = String::new();
        if verbose && self.options.role == Role::Client {
            text += &format!("Control connection MSS {}\n", shown(connections.mss.map(ByteCount::get)));
            if asked.block == ByteCount::ZERO {
                text += &format!("Setting UDP block size to {}\n", self.request.block.get());
            }
        }
        if verbose {
            text += &format!("Time: {}\n", json::date(header.at));
        }
        text += &self.peer_line(header);
        if self.options.role == Role::Client && self.request.direction == Direction::Download {
            text += &format!("Reverse mode, remote host {host} is sending\n");
        }
        if verbose {
            text += &self.terms(connections);
        }
        for readback in &connections.sockets {
            let ((local, local_port), (remote, remote_port)) =
                (json::split(&readback.local), json::split(&readback.remote));
            text += &format!(
                "[{:3}] local {local} port {local_port} connected to {remote} port {remote_port}\n",
                socket(readback.stream)
            );
        }
        if verbose {
            text += &self.starting();
        }
        self.finished(text)
    }

    /// Returns the lines of an interval. If data goes both ways, each time has two intervals, the upload first.
    pub fn interval(&mut self, interval: &Interval) -> String {
        if is_empty_rest(interval, &self.request) {
            return String::new();
        }
        self.course.note(interval, &self.request, self.options.role);
        let (request, options) = (&self.request, self.options);
        let sends = options.role.sends(interval.direction);
        let leads = request.directions().first() == Some(&interval.direction);
        let mut text = String::new();
        if leads && !self.began {
            text += &self.head();
            self.began = true;
        } else if leads && request.streams > 1 {
            text += SEPARATOR;
        }
        let (from, to) = times(interval, &self.request);
        let tag = self.tag(interval.direction);
        let word = if interval.omitted { "(omitted)" } else { "" };
        for stream in &interval.streams {
            let name = format!("{:3}", socket(stream.stream));
            let count = count(stream, self.request.transport, sends);
            text += &Line { name: &name, tag, from, to, bytes: stream.bytes, count, word }.text(options.unit);
        }
        if self.request.streams > 1 {
            let count = count_together(interval, self.request.transport, sends);
            text += &Line { name: "SUM", tag, from, to, bytes: interval.bytes, count, word }.text(options.unit);
        }
        self.finished(text)
    }

    /// Returns the totals, which end the text.
    pub fn results(&self, seen: &Measurement) -> String {
        let mut text = SEPARATOR.to_owned();
        if self.options.verbose {
            text += "Test Complete. Summary Results:\n";
        }
        let ways = Totals::of(seen, &self.course, self.options.role);
        // A server has printed before a client that sends reports its retransmissions.
        let knows = self.options.role == Role::Client || ways.iter().any(|way| way.sends);
        let columns = match self.request.transport {
            Transport::Tcp if knows => Columns::Retransmits,
            Transport::Tcp => Columns::Plain,
            Transport::Udp => Columns::Arrived,
        };
        text += &columns.head(self.goes_both_ways());
        for way in ways {
            text += &self.totals(&way);
            if self.options.verbose {
                text += &self.ends(seen, way.sends);
            }
        }
        self.finished(text)
    }

    /// Returns the server's output, where it was requested. Unlike iperf3, it escapes control characters.
    pub fn server_output(&self, output: &str) -> String {
        let commands = |c: char| c.is_control() && c != '\n' && c != '\t';
        let harmless = output.replace(commands, "\u{fffd}");
        self.finished(format!("\nServer output:\n{harmless}\n"))
    }

    /// Returns a client's last line.
    pub fn done(&self) -> String {
        self.finished("\niperf Done.\n".to_owned())
    }

    /// Puts the title before every line of a client.
    fn finished(&self, text: String) -> String {
        titled(self.request.title.as_deref().filter(|_| self.options.role == Role::Client), text)
    }

    fn goes_both_ways(&self) -> bool {
        self.request.direction == Direction::Both
    }

    fn head(&self) -> String {
        let roles = self.request.directions().iter().map(|&direction| self.options.role.sends(direction));
        let (sends, receives) = roles.fold((false, false), |(s, r), sends| (s || sends, r || !sends));
        Columns::of_intervals(self.request.transport, sends, receives).head(self.goes_both_ways())
    }

    /// Returns the direction of a line if data goes both ways.
    fn tag(&self, direction: Direction) -> &'static str {
        match (self.goes_both_ways(), self.options.role, direction) {
            (false, ..) => "",
            (true, Role::Client, Direction::Download) => "[RX-C]",
            (true, Role::Client, _) => "[TX-C]",
            (true, Role::Server, Direction::Download) => "[TX-S]",
            (true, Role::Server, _) => "[RX-S]",
        }
    }

    /// Returns the lines with cookie, segment size and rate.
    fn terms(&self, connections: &Connections) -> String {
        let mut text = format!("      Cookie: {}\n", connections.cookie);
        if self.request.transport == Transport::Tcp {
            text += &match (self.request.mss, connections.mss) {
                (Some(asked), _) => format!("      TCP MSS: {}\n", asked.get()),
                (None, default) => format!("      TCP MSS: {} (default)\n", shown(default.map(ByteCount::get))),
            };
        }
        if let Some(rate) = self.request.rate {
            text += &format!("      Target Bitrate: {}\n", rate.bps());
        }
        text
    }

    fn starting(&self) -> String {
        let request = &self.request;
        let end = match request.bytes {
            Some(bytes) => format!("{} bytes to send", bytes.get()),
            None => format!("{:.0} second test", request.duration.as_secs_f64()),
        };
        format!(
            "Starting Test: protocol: {}, {} streams, {} byte blocks, omitting {:.0} seconds, {end}, tos {}\n",
            json::protocol(request.transport),
            request.streams,
            request.block.get(),
            request.omit.as_secs_f64(),
            request.tos
        )
    }

    fn totals(&self, totals: &Totals) -> String {
        let mut text = String::new();
        for stream in &totals.streams {
            let name = format!("{:3}", socket(stream.stream));
            let (sent, came) = match self.request.transport {
                Transport::Tcp => (Count::Retransmits(stream.retransmits.unwrap_or_default().get()), Count::Nothing),
                Transport::Udp => {
                    (sent(stream.datagrams_sent.unwrap_or_default()), Count::Arrived(arrived(stream.datagrams)))
                }
            };
            text += &self.sender(totals, &name, stream.sent, sent);
            let late = stream.datagrams.map_or(0, |seen| seen.out_of_order_like_iperf3);
            if late > 0 {
                let tag = self.tag(totals.direction);
                let time = format!("{:4.1}-{:4.1}", 0.0, totals.sending);
                text += &format!("[SUM]{tag} {time} sec  {late} datagrams received out-of-order\n");
            }
            text += &self.receiver(totals, &name, stream.received, came);
        }
        if self.request.streams > 1 {
            let (sent, came) = match self.request.transport {
                Transport::Tcp => (Count::Retransmits(totals.retransmits()), Count::Nothing),
                Transport::Udp => (sent(totals.datagrams_sent()), Count::Arrived(totals.arrived())),
            };
            text += &self.sender(totals, "SUM", totals.sent(), sent);
            text += &self.receiver(totals, "SUM", totals.received(), came);
        }
        text
    }

    /// Returns the line of the sending end. A server has printed before the client reports its figures.
    fn sender(&self, totals: &Totals, name: &str, bytes: ByteCount, count: Count) -> String {
        if self.options.role == Role::Server && !totals.sends {
            return self.unavailable(name, "sender");
        }
        let tag = self.tag(totals.direction);
        Line { name, tag, from: 0.0, to: totals.sending, bytes, count, word: "sender" }.text(self.options.unit)
    }

    fn receiver(&self, totals: &Totals, name: &str, bytes: ByteCount, count: Count) -> String {
        if self.options.role == Role::Server && totals.sends {
            return self.unavailable(name, "receiver");
        }
        let tag = self.tag(totals.direction);
        Line { name, tag, from: 0.0, to: totals.receiving, bytes, count, word: "receiver" }.text(self.options.unit)
    }

    fn unavailable(&self, name: &str, end: &str) -> String {
        let is_said = self.request.transport == Transport::Tcp || name != "SUM";
        if self.options.verbose && is_said {
            format!("[{name}] ({end} statistics not available)\n")
        } else {
            String::new()
        }
    }

    /// Returns the processor time of an end that sends, and the congestion control. Only a client knows those of the
    /// other end at this time.
    fn ends(&self, seen: &Measurement, sends: bool) -> String {
        let mut text = String::new();
        let roles = |here, there| {
            let (local, remote) = (processor(seen.local.cpu), processor(seen.remote.cpu));
            format!("CPU Utilization: local/{here} {local}, remote/{there} {remote}\n")
        };
        if sends {
            text += &roles("sender", "receiver");
        }
        if sends && self.goes_both_ways() {
            text += &roles("receiver", "sender");
        }
        let there = Some(&seen.remote).filter(|_| self.options.role == Role::Client);
        let (sender, receiver) = if sends { (Some(&seen.local), there) } else { (there, Some(&seen.local)) };
        for (name, end) in [("snd", sender), ("rcv", receiver)] {
            if let Some(congestion) = end.and_then(congestion) {
                text += &format!("{name}_tcp_congestion {congestion}\n");
            }
        }
        text
    }
}

fn titled(title: Option<&str>, text: String) -> String {
    match title {
        Some(title) => text.split_inclusive('\n').fold(String::new(), |all, line| all + title + ":  " + line),
        None => text,
    }
}

/// Returns the congestion control of an end's data connections, if it is known.
pub(crate) fn congestion(end: &EndReport) -> Option<&str> {
    let named = end.sockets.first().map(|socket| socket.congestion.as_str());
    named.or(end.congestion.as_deref()).filter(|name| !name.is_empty())
}

/// Returns processor time as `12.3% (0.4%u/11.9%s)`.
fn processor(cpu: Option<Cpu>) -> String {
    let cpu = cpu.unwrap_or_default();
    format!("{:.1}% ({:.1}%u/{:.1}%s)", cpu.total().percent(), cpu.user.percent(), cpu.system.percent())
}

/// Returns the counts of the sender's line, which shows no loss.
fn sent(datagrams: u64) -> Count {
    Count::Arrived(Arrived { datagrams, ..Arrived::default() })
}

fn shown(value: Option<impl Display>) -> String {
    value.map_or_else(|| "0".to_owned(), |value| value.to_string())
}
