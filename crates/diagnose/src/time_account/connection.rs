//! The uses of time that one connection shows.

use fullpipe_record::ConnectionSamples;

use crate::prelude::*;

/// Segments that leave at once: a message of no more takes one round trip, however much the path
/// and the windows allow (RFC 6928).
const INITIAL_WINDOW: u64 = 10;
/// State of an established connection (`net/tcp_states.h`).
const ESTABLISHED: u8 = 1;
/// Factor on the round-trip time of the idle path that flights of one message may be apart.
const FLIGHT_GAP_FACTOR: f64 = 1.25;
/// Longest tick of the kernel's clocks of the last data (`CONFIG_HZ=100`).
const TICK: Span = Span::from_millis(10);

/// A use of time, the one that counts where several hold first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeUse {
    Data,
    Requests,
    Connecting,
    OtherProgram,
}

/// A use of the time between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeBooking {
    pub(super) of: TimeUse,
    pub(super) from: Span,
    pub(super) to: Span,
    /// Of the connection.
    pub(super) rtt: Span,
}

/// A direction of data, seen from this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataDirection {
    Out,
    In,
}

impl DataDirection {
    const BOTH: [Self; 2] = [Self::Out, Self::In];

    const fn opposite_direction(self) -> Self {
        match self {
            Self::Out => Self::In,
            Self::In => Self::Out,
        }
    }

    /// Returns the bytes and the segments of data that moved so far.
    fn counted_data(self, tcp: &TcpInfo) -> (ByteCount, u64) {
        let (bytes, segments) = match self {
            Self::Out => (tcp.bytes_sent.or(tcp.bytes_acked), segments_out(tcp)),
            Self::In => (tcp.bytes_received, segments_in(tcp)),
        };
        (bytes.unwrap_or_default(), segments)
    }

    const fn time_since_data(self, tcp: &TcpInfo) -> Option<Span> {
        match self {
            Self::Out => tcp.since_data_sent,
            Self::In => tcp.since_data_received,
        }
    }
}

/// Data of one direction between two samples.
#[derive(Debug, Clone, Copy, Default)]
struct MovedData {
    bytes: ByteCount,
    segments: u64,
    /// Time at which the last of it was sent or arrived.
    last: Span,
    /// True if it is no small message.
    is_bulk: bool,
}

/// The time between two samples.
#[derive(Debug, Clone, Copy)]
struct SampleStep {
    from: Span,
    to: Span,
    /// By [`DataDirection`].
    moved: [MovedData; 2],
    /// True if data waited to be sent when it began and when it ended.
    has_unsent: bool,
}

impl SampleStep {
    pub(crate) fn from_samples(from: Span, before: Option<&Sample>, now: &Sample) -> Self {
        let to = now.at.max(from);
        let moved = DataDirection::BOTH.map(|way| {
            let then = before.map(|one| way.counted_data(&one.tcp));
            let (bytes_before, segments_before) = then.unwrap_or_default();
            let (bytes, segments) = way.counted_data(&now.tcp);
            let ago = way.time_since_data(&now.tcp).unwrap_or_default();
            MovedData {
                bytes: bytes.saturating_sub(bytes_before),
                segments: segments.saturating_sub(segments_before),
                last: now.at.saturating_sub(ago).clamp(from, to),
                is_bulk: false,
            }
        });
        Self {
            from,
            to,
            moved,
            has_unsent: before.is_some_and(has_unsent) && has_unsent(now),
        }
    }

    fn moved_by(&self, way: DataDirection) -> MovedData {
        self.moved[way as usize]
    }

    /// Returns true if nothing moved but in this direction.
    fn is_one_way(&self, way: DataDirection) -> bool {
        self.moved_by(way.opposite_direction()).segments == 0
    }

    /// Returns the directions that moved data, the one whose last data is older first.
    fn data_directions(&self) -> impl Iterator<Item = DataDirection> + use<> {
        let mut ways = DataDirection::BOTH;
        // A request may go out in the tick in which the answer before it came, but no answer in
        // that of its request.
        if self.moved_by(DataDirection::In).last <= self.moved_by(DataDirection::Out).last {
            ways.reverse();
        }
        let moved = self.moved;
        ways.into_iter()
            .filter(move |way| moved[*way as usize].segments > 0)
    }

    /// Returns the exchanges of small messages of a step that is longer than one takes, where there
    /// are several.
    fn exchange_count(&self, rtt: Span) -> Option<u64> {
        let number = self.moved.iter().map(|moved| moved.segments).min()?;
        let is_small = self.moved.iter().all(|moved| !moved.is_bulk);
        (is_small && number > 1 && rtt < self.to.saturating_sub(self.from)).then_some(number)
    }
}

fn has_unsent(sample: &Sample) -> bool {
    sample
        .tcp
        .not_sent
        .is_some_and(|unsent| unsent > ByteCount::ZERO)
}

fn segments_out(tcp: &TcpInfo) -> u64 {
    tcp.data_segs_out.map_or(0, SegCount::get)
}

fn segments_in(tcp: &TcpInfo) -> u64 {
    tcp.data_segs_in.map_or(0, SegCount::get)
}

/// Returns the uses of time that a connection shows, which may overlap.
pub(super) fn connection_bookings(connection: &ConnectionSamples<'_>) -> Vec<TimeBooking> {
    let samples = &connection.samples;
    let rtts = samples
        .iter()
        .filter_map(|sample| sample.tcp.min_rtt.or(sample.tcp.rtt));
    let (Some(first), Some(rtt)) = (samples.first(), rtts.filter(|rtt| *rtt > Span::ZERO).min())
    else {
        return Vec::new();
    };
    let opened = if connection.is_old {
        first.at
    } else {
        opening_time(first, rtt)
    };
    let steps = connection_steps(connection, opened, rtt);
    let has_answer = connection.is_old && first.tcp.since_data_received < first.tcp.since_data_sent;
    let way = if has_answer {
        DataDirection::In
    } else {
        DataDirection::Out
    };
    let mut walk = ConnectionWalk {
        rtt,
        at: opened,
        way,
        asked: opened,
        flights: [None; 2],
        bookings: Vec::new(),
    };
    if !connection.is_old {
        walk.book_time(
            TimeUse::Connecting,
            connection.found.min(opened.saturating_sub(rtt)),
            opened,
        );
    }
    for step in &steps {
        walk.book_step(step);
    }
    let end = samples
        .iter()
        .rev()
        .find(|sample| sample.tcp.state == Some(ESTABLISHED));
    // Where nothing was sent, nothing is waited for.
    if let Some(end) =
        end.filter(|end| walk.way == DataDirection::Out && segments_out(&end.tcp) > 0)
    {
        walk.await_answer(walk.at, end.at);
    }
    walk.bookings
}

/// Returns the time at which a connection was opened, so that the answers that came before its
/// first sample had a round trip each.
fn opening_time(first: &Sample, rtt: Span) -> Span {
    let tcp = &first.tcp;
    let answered = segments_out(tcp).min(segments_in(tcp));
    let last = if segments_in(tcp) > 0 {
        tcp.since_data_received
    } else {
        tcp.since_data_sent
    };
    first
        .at
        .saturating_sub(last.unwrap_or_default())
        .saturating_sub(rtt * answered)
}

fn connection_steps(
    connection: &ConnectionSamples<'_>,
    opened: Span,
    rtt: Span,
) -> Vec<SampleStep> {
    let samples = &connection.samples;
    let before_first = samples
        .first()
        .filter(|_| !connection.is_old)
        .map(|first| SampleStep::from_samples(opened, None, first));
    let between = samples
        .windows(2)
        .map(|pair| SampleStep::from_samples(pair[0].at, Some(pair[0]), pair[1]));
    let mut steps: Vec<SampleStep> = before_first.into_iter().chain(between).collect();
    let mss = samples
        .iter()
        .filter_map(|sample| sample.tcp.snd_mss)
        .max()
        .unwrap_or_default();
    for way in DataDirection::BOTH {
        mark_bulk(&mut steps, way, mss * INITIAL_WINDOW, rtt);
    }
    steps
}

/// Marks the data of one direction that is of no small message: of none that fits `window`.
fn mark_bulk(steps: &mut [SampleStep], way: DataDirection, window: ByteCount, rtt: Span) {
    let fast = (0..steps.len()).map(|index| is_fast(steps, index, way, window, rtt));
    let is_bulk: Vec<bool> = fast
        .zip(is_long(steps, way, window))
        .map(|(is_fast, is_long)| is_fast || is_long)
        .collect();
    for (step, is_bulk) in steps.iter_mut().zip(is_bulk) {
        step.moved[way as usize].is_bulk = is_bulk && step.moved_by(way).segments > 0;
    }
}

/// Returns true if more than `window` moved in the round trip around the end of a step, before it
/// or after it.
fn is_fast(
    steps: &[SampleStep],
    index: usize,
    way: DataDirection,
    window: ByteCount,
    rtt: Span,
) -> bool {
    let step = &steps[index];
    let [earliest, latest] = [step.to.saturating_sub(rtt), step.from + rtt];
    let before: Vec<&SampleStep> = steps[..=index]
        .iter()
        .rev()
        .take_while(|one| one.to > earliest)
        .collect();
    let after: Vec<&SampleStep> = steps[index..]
        .iter()
        .take_while(|one| one.from < latest)
        .collect();
    [before, after].iter().any(|around| {
        let bytes: ByteCount = around.iter().map(|one| one.moved_by(way).bytes).sum();
        let time = around
            .iter()
            .map(|one| one.to.saturating_sub(one.from))
            .sum::<Span>()
            .max(rtt);
        bytes.as_f64() * rtt.as_secs_f64() > window.as_f64() * time.as_secs_f64()
    })
}

/// Returns of each step whether it belongs to a message of more than `window`, to which nothing
/// came back meanwhile.
fn is_long(steps: &[SampleStep], way: DataDirection, window: ByteCount) -> Vec<bool> {
    let messages = steps.chunk_by(|before, now| before.is_one_way(way) == now.is_one_way(way));
    let judged = messages.flat_map(|message| {
        let bytes: ByteCount = message.iter().map(|step| step.moved_by(way).bytes).sum();
        vec![message[0].is_one_way(way) && bytes > window; message.len()]
    });
    judged.collect()
}

/// Data that moved one way, up to now.
#[derive(Debug, Clone, Copy)]
struct DataFlight {
    last: Span,
    /// Segments that went the opposite way since then.
    replies: u64,
}

/// State of the walk along a connection.
struct ConnectionWalk {
    rtt: Span,
    /// Time and way of the last data; at first, that at which the connection was opened.
    at: Span,
    way: DataDirection,
    /// Time of the first data of ours since the last of the other end.
    asked: Span,
    /// The last data of each way that is no small message.
    flights: [Option<DataFlight>; 2],
    bookings: Vec<TimeBooking>,
}

impl ConnectionWalk {
    fn book_time(&mut self, of: TimeUse, from: Span, to: Span) {
        if from < to {
            self.bookings.push(TimeBooking {
                of,
                from,
                to,
                rtt: self.rtt,
            });
        }
    }

    /// Books the time from a request until an answer came or the watching ended.
    fn await_answer(&mut self, asked: Span, until: Span) {
        let travels = (asked + self.rtt).min(until);
        self.book_time(TimeUse::Requests, asked, travels);
        self.book_time(TimeUse::OtherProgram, travels, until);
    }

    fn book_step(&mut self, step: &SampleStep) {
        if step.has_unsent {
            self.book_time(TimeUse::Data, step.from, step.to);
        }
        let exchanges = step.exchange_count(self.rtt);
        if let Some(number) = exchanges {
            self.book_exchanges(step, number);
        }
        for way in step.data_directions() {
            let moved = step.moved_by(way);
            if exchanges.is_none() {
                self.book_message(step, way, moved);
            }
            if way != self.way {
                self.asked = moved.last;
            }
            (self.at, self.way) = (moved.last.max(self.at), way);
            if let Some(flight) = &mut self.flights[way.opposite_direction() as usize] {
                flight.replies += moved.segments;
            }
            if moved.is_bulk {
                self.flights[way as usize] = Some(DataFlight {
                    last: moved.last,
                    replies: 0,
                });
            }
        }
    }

    /// Books the exchanges of small messages of one step, of which there are several.
    fn book_exchanges(&mut self, step: &SampleStep, number: u64) {
        let [out, answer] = DataDirection::BOTH.map(|way| step.moved_by(way).last);
        let travel = (self.at + self.rtt * number).min(answer.max(self.at));
        self.book_time(TimeUse::Requests, self.at, travel);
        if out >= answer {
            self.book_time(TimeUse::OtherProgram, travel, answer);
        }
    }

    /// Returns true if what moved may answer what went out at `asked`.
    fn can_answer(&self, asked: Span, way: DataDirection, moved: MovedData) -> bool {
        way == DataDirection::In
            && self.way == DataDirection::Out
            && moved.last + TICK >= asked + self.rtt
    }

    fn book_message(&mut self, step: &SampleStep, way: DataDirection, moved: MovedData) {
        let is_answer = self.can_answer(self.at, way, moved);
        // The first of it that came since the last sample is not seen.
        let travel = if is_answer { self.rtt } else { Span::ZERO };
        let first = if moved.is_bulk {
            (self.at + travel).max(step.from).min(moved.last)
        } else {
            moved.last
        };
        // Where replies wait for each other, there is one for each flight.
        let may_wait = way == DataDirection::Out || is_answer;
        let gap = self.rtt.scale_by(FLIGHT_GAP_FACTOR).max(TICK);
        let goes_on = self.flights[way as usize].filter(|flight| {
            let waits = flight.replies == 1 && may_wait;
            first.saturating_sub(flight.last) <= gap && !waits
        });
        match (way, goes_on) {
            (_, Some(flight)) => self.book_time(TimeUse::Data, flight.last, moved.last),
            (DataDirection::In, None) if is_answer => self.await_answer(self.at, first),
            (DataDirection::In, None) if self.can_answer(self.asked, way, moved) => {
                self.await_answer(self.asked, first);
            }
            (DataDirection::In, None) => self.book_time(TimeUse::OtherProgram, self.at, first),
            (DataDirection::Out, None) => {}
        }
        self.book_time(TimeUse::Data, first, moved.last);
    }
}
