//! The text of a test while it runs.

use fullpipe_record::{ConnectedTest, Cpu, EndReport, Interval, Request};

use super::line::{ARRIVED_COLUMNS, LineCounts, LineDatagrams, ResultLine, SEPARATOR, head_line};
use super::view::{
    DirectionTotals, IntervalSums, count_together, datagram_counts, interval_times, is_empty_rest,
    stream_counts,
};
use super::{TestHeader, TestRole, TextOptions, json, socket_number};
use crate::text::prelude::*;

/// Returns a server's line before its `number`th test, from 1.
pub fn listening_line(port: u16, number: u64) -> String {
    const RULE: &str = "-----------------------------------------------------------\n";
    format!("{RULE}Server listening on {port} (test #{number})\n{RULE}")
}

/// Returns the first lines of verbose output; a client has a title before each line.
pub fn greeting_lines(header: &TestHeader, title: Option<&str>) -> String {
    prefix_lines(title, format!("{}\n{}\n", header.version, header.system))
}

/// iperf3's text of one test.
#[derive(Debug)]
pub struct TextOutput {
    options: TextOptions,
    request: Request,
    /// True if there has been an interval.
    began: bool,
    course: IntervalSums,
}

impl TextOutput {
    /// Begins the text of a test with this `request`.
    pub fn new(options: TextOptions, request: Request) -> Self {
        Self {
            options,
            request,
            began: false,
            course: IntervalSums::default(),
        }
    }

    /// Returns the line that names the other end, for a test that failed before its data
    /// connections were open.
    pub fn unconnected_peer_line(&self, header: &TestHeader) -> String {
        prefix_lines(self.request.title.as_deref(), self.peer_line(header))
    }

    fn peer_line(&self, TestHeader { host, port, .. }: &TestHeader) -> String {
        match self.options.role {
            TestRole::Client => format!("Connecting to host {host}, port {port}\n"),
            TestRole::Server => format!("Accepted connection from {host}, port {port}\n"),
        }
    }

    /// Returns the lines that follow the set-up of the data connections.
    pub fn connection_lines(&mut self, header: &TestHeader, connections: &ConnectedTest) -> String {
        let asked = std::mem::replace(&mut self.request, connections.request.clone());
        let verbose = self.options.verbose;
        let TestHeader { host, .. } = header;
        let mut text = String::new();
        if verbose && self.options.role == TestRole::Client {
            text += &format!(
                "Control connection MSS {}\n",
                text_or(connections.mss.map(ByteCount::get), "0")
            );
            if asked.block == ByteCount::ZERO {
                text += &format!("Setting UDP block size to {}\n", self.request.block.get());
            }
        }
        if verbose {
            text += &format!("Time: {}\n", json::format_date(header.at));
        }
        text += &self.peer_line(header);
        if self.options.role == TestRole::Client && self.request.direction == Direction::Download {
            text += &format!("Reverse mode, remote host {host} is sending\n");
        }
        if verbose {
            text += &self.parameter_lines(connections);
        }
        for readback in &connections.sockets {
            let ((local, local_port), (remote, remote_port)) = (
                json::split_address(&readback.local),
                json::split_address(&readback.remote),
            );
            text += &format!(
                "[{:3}] local {local} port {local_port} connected to {remote} port {remote_port}\n",
                socket_number(readback.stream)
            );
        }
        if verbose {
            text += &self.start_line();
        }
        self.add_title(text)
    }

    /// Returns the lines of an interval. If data goes both ways, each time has two intervals, the
    /// upload first.
    pub fn interval_lines(&mut self, interval: &Interval) -> String {
        if is_empty_rest(interval, &self.request) {
            return String::new();
        }
        self.course
            .add_interval(interval, &self.request, self.options.role);
        let request = &self.request;
        let leads = request.data_directions().first() == Some(&interval.direction);
        let mut text = String::new();
        if leads && !self.began {
            text += &self.head_line();
            self.began = true;
        } else if leads && request.streams > 1 {
            text += SEPARATOR;
        }
        text += &self.stream_lines(interval);
        self.add_title(text)
    }

    /// Returns a line for each stream, and one for their sum where there are several.
    fn stream_lines(&self, interval: &Interval) -> String {
        let transport = self.request.transport;
        let sends = self.options.role.is_sender(interval.direction);
        let streams = interval.streams.iter().map(|stream| {
            let name = format!("{:3}", socket_number(stream.stream));
            (name, stream.bytes, stream_counts(stream, transport, sends))
        });
        let sum = (self.request.streams > 1).then(|| {
            let count = count_together(interval, transport, sends);
            ("SUM".to_owned(), interval.bytes, count)
        });
        let (from, to) = interval_times(interval, &self.request);
        let lines = streams.chain(sum).map(|(name, bytes, count)| {
            ResultLine {
                name: &name,
                tag: self.direction_tag(interval.direction),
                from,
                to,
                bytes,
                count,
                word: text_if(interval.omitted, "(omitted)"),
            }
            .to_text(self.options.unit)
        });
        lines.collect()
    }

    /// Returns the totals, which end the text.
    pub fn result_lines(&self, seen: &Measurement) -> String {
        let mut text = SEPARATOR.to_owned();
        if self.options.verbose {
            text += "Test Complete. Summary Results:\n";
        }
        let ways = DirectionTotals::from_measurement(seen, &self.course, self.options.role);
        // A server has printed before a client that sends reports its retransmissions.
        let knows = self.options.role == TestRole::Client || ways.iter().any(|way| way.sends);
        let columns = match self.request.transport {
            Transport::Tcp => text_if(knows, "         Retr"),
            Transport::Udp => ARRIVED_COLUMNS,
        };
        text += &head_line(columns, self.goes_both_ways());
        for way in ways {
            text += &self.total_lines(&way);
            if self.options.verbose {
                text += &self.processor_lines(seen, way.sends);
            }
        }
        self.add_title(text)
    }

    /// Returns the server's output, where it was requested. Unlike iperf3, it escapes control
    /// characters.
    pub fn server_output(&self, output: &str) -> String {
        let harmless = output.replace(
            |c: char| c.is_control() && c != '\n' && c != '\t',
            "\u{fffd}",
        );
        self.add_title(format!("\nServer output:\n{harmless}\n"))
    }

    /// Returns a client's last line.
    pub fn done_line(&self) -> String {
        self.add_title("\niperf Done.\n".to_owned())
    }

    /// Puts the title before every line of a client.
    fn add_title(&self, text: String) -> String {
        prefix_lines(
            self.request
                .title
                .as_deref()
                .filter(|_| self.options.role == TestRole::Client),
            text,
        )
    }

    fn goes_both_ways(&self) -> bool {
        self.request.direction == Direction::Both
    }

    fn head_line(&self) -> String {
        let ways = self.request.data_directions().iter();
        let mut roles = ways.map(|&direction| self.options.role.is_sender(direction));
        let columns = match self.request.transport {
            Transport::Tcp => text_if(roles.any(|sends| sends), "         Retr  Cwnd"),
            Transport::Udp if roles.all(|sends| sends) => "         Total Datagrams",
            Transport::Udp => ARRIVED_COLUMNS,
        };
        head_line(columns, self.goes_both_ways())
    }

    /// Returns the direction of a line if data goes both ways.
    fn direction_tag(&self, direction: Direction) -> &'static str {
        match (self.goes_both_ways(), self.options.role, direction) {
            (false, ..) => "",
            (true, TestRole::Client, Direction::Download) => "[RX-C]",
            (true, TestRole::Client, _) => "[TX-C]",
            (true, TestRole::Server, Direction::Download) => "[TX-S]",
            (true, TestRole::Server, _) => "[RX-S]",
        }
    }

    /// Returns the lines with cookie, segment size and rate.
    fn parameter_lines(&self, connections: &ConnectedTest) -> String {
        let mut text = format!("      Cookie: {}\n", connections.cookie);
        if self.request.transport == Transport::Tcp {
            text += &match (self.request.mss, connections.mss) {
                (Some(asked), _) => format!("      TCP MSS: {}\n", asked.get()),
                (None, default) => format!(
                    "      TCP MSS: {} (default)\n",
                    text_or(default.map(ByteCount::get), "0")
                ),
            };
        }
        if let Some(rate) = self.request.rate {
            text += &format!("      Target Bitrate: {}\n", rate.bps());
        }
        text
    }

    fn start_line(&self) -> String {
        let request = &self.request;
        let end = match request.bytes {
            Some(bytes) => format!("{} bytes to send", bytes.get()),
            None => format!("{:.0} second test", request.duration.as_secs_f64()),
        };
        format!(
            "Starting Test: protocol: {}, {} streams, {} byte blocks, omitting {:.0} seconds, {end}, tos {}\n",
            request.transport.name(),
            request.streams,
            request.block.get(),
            request.omit.as_secs_f64(),
            request.tos
        )
    }

    fn total_lines(&self, totals: &DirectionTotals) -> String {
        let mut text = String::new();
        for stream in &totals.streams {
            let name = format!("{:3}", socket_number(stream.stream));
            let [sent, came] = self.end_counts(
                stream.retransmits.unwrap_or_default().get(),
                stream.datagrams_sent.unwrap_or_default(),
                datagram_counts(stream.datagrams),
            );
            text += &self.end_line(totals, "sender", &name, stream.sent, sent);
            let late = stream
                .datagrams
                .map_or(0, |seen| seen.out_of_order_like_iperf3);
            if late > 0 {
                let tag = self.direction_tag(totals.direction);
                let time = format!("{:4.1}-{:4.1}", 0.0, totals.sending);
                text += &format!("[SUM]{tag} {time} sec  {late} datagrams received out-of-order\n");
            }
            text += &self.end_line(totals, "receiver", &name, stream.received, came);
        }
        if self.request.streams > 1 {
            let [sent, came] = self.end_counts(
                totals.retransmit_count(),
                totals.datagrams_sent(),
                totals.datagram_counts(),
            );
            text += &self.end_line(totals, "sender", "SUM", totals.sent_bytes(), sent);
            text += &self.end_line(totals, "receiver", "SUM", totals.received_bytes(), came);
        }
        text
    }

    /// Returns the counts of the lines of the sender and of the receiver.
    fn end_counts(
        &self,
        retransmits: u64,
        datagrams: u64,
        arrived: LineDatagrams,
    ) -> [LineCounts; 2] {
        match self.request.transport {
            Transport::Tcp => [LineCounts::Retransmits(retransmits), LineCounts::Nothing],
            Transport::Udp => {
                let sent = LineDatagrams {
                    datagrams,
                    ..LineDatagrams::default()
                };
                [LineCounts::Arrived(sent), LineCounts::Arrived(arrived)]
            }
        }
    }

    /// Returns the line of an end, `sender` or `receiver`. A server has printed before the client
    /// reports its figures.
    fn end_line(
        &self,
        totals: &DirectionTotals,
        word: &str,
        name: &str,
        bytes: ByteCount,
        count: LineCounts,
    ) -> String {
        let is_sender = word == "sender";
        if self.options.role == TestRole::Server && totals.sends != is_sender {
            return self.unavailable_line(name, word);
        }
        ResultLine {
            name,
            tag: self.direction_tag(totals.direction),
            from: 0.0,
            to: if is_sender {
                totals.sending
            } else {
                totals.receiving
            },
            bytes,
            count,
            word,
        }
        .to_text(self.options.unit)
    }

    fn unavailable_line(&self, name: &str, end: &str) -> String {
        let is_said = self.request.transport == Transport::Tcp || name != "SUM";
        format_if(self.options.verbose && is_said, || {
            format!("[{name}] ({end} statistics not available)\n")
        })
    }

    /// Returns the processor time of an end that sends, and the congestion control. Only a client
    /// knows those of the other end at this time.
    fn processor_lines(&self, seen: &Measurement, sends: bool) -> String {
        let mut text = String::new();
        let [local, remote] = [&seen.local, &seen.remote].map(|end| processor_text(end.cpu));
        if sends {
            text += &format!("CPU Utilization: local/sender {local}, remote/receiver {remote}\n");
        }
        if sends && self.goes_both_ways() {
            text += &format!("CPU Utilization: local/receiver {local}, remote/sender {remote}\n");
        }
        let there = Some(&seen.remote).filter(|_| self.options.role == TestRole::Client);
        let (sender, receiver) = if sends {
            (Some(&seen.local), there)
        } else {
            (there, Some(&seen.local))
        };
        for (name, end) in [("snd", sender), ("rcv", receiver)] {
            if let Some(congestion) = end.and_then(congestion_control) {
                text += &format!("{name}_tcp_congestion {congestion}\n");
            }
        }
        text
    }
}

fn prefix_lines(title: Option<&str>, text: String) -> String {
    match title {
        Some(title) => text
            .split_inclusive('\n')
            .fold(String::new(), |all, line| all + title + ":  " + line),
        None => text,
    }
}

/// Returns the congestion control of an end's data connections, if it is known.
pub(crate) fn congestion_control(end: &EndReport) -> Option<&str> {
    let named = end.sockets.first().map(|socket| socket.congestion.as_str());
    named
        .or(end.congestion.as_deref())
        .filter(|name| !name.is_empty())
}

/// Returns processor time as `12.3% (0.4%u/11.9%s)`.
fn processor_text(cpu: Option<Cpu>) -> String {
    let cpu = cpu.unwrap_or_default();
    format!(
        "{:.1}% ({:.1}%u/{:.1}%s)",
        cpu.total_share().as_percent(),
        cpu.user.as_percent(),
        cpu.system.as_percent()
    )
}
