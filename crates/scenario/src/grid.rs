use fullpipe_record::{
    Buffer, Change, Encapsulation, Framing, IpVersion, Path, PathDirection, Request, path_rate,
};
use fullpipe_units::{BitRate, ByteCount, Ratio, Span};

use crate::bound::positive_ratio;
use crate::key::parse_within;
use crate::path::path_loss;
use crate::scenario::read_words;
use crate::section::{FileSection, FileSource};
use crate::step::{congestion_control, read_duration, read_streams};
use crate::{FileLocation, RequiredControl, Scenario, ScenarioError, ScenarioStep};

/// A checked grid: many paths, each with one measurement, that together show how good the
/// predictions are.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioGrid {
    /// Name of the grid, for the command line.
    pub name: String,
    /// One line on what it shows.
    pub title: String,
    /// The longest that a cell may last.
    pub longest: Span,
    /// The bounds on all cells together.
    pub bounds: GridBounds,
    /// The cells, in order: scenarios of one step each, whose duration is still to be chosen.
    pub cells: Vec<Scenario>,
}

/// Bounds on all cells of a grid together; `None` where nothing is asked.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GridBounds {
    /// At most this median of |measured ÷ predicted − 1|, over cells that a rule limits.
    pub median: Option<Ratio>,
    /// At most this 95th percentile of it.
    pub p95: Option<Ratio>,
    /// At least this share of the cells that loss limits within their interval.
    pub inside: Option<Ratio>,
}

impl ScenarioGrid {
    /// Reads the text of a grid file; `file` is its name, for errors only.
    ///
    /// # Errors
    ///
    /// The first thing that is no TOML, no key of a grid, or cannot be, with its place.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let source = FileSource { file, text };
        let tables = source.parse_tables()?;
        let root = FileSection::from_root(source, &tables);
        root.has_only(&["name", "title", "longest", "bounds", "block"])?;
        let mut cells = Vec::new();
        let blocks = root.child_sections("block")?;
        let places =
            root.offset_locations(blocks.iter().map(|block| block.offset_of("congestion")));
        for (block, place) in blocks.iter().zip(places) {
            read_block(block, &place, &mut cells)?;
        }
        if cells.is_empty() {
            return Err(root.missing_key("block"));
        }
        Ok(Self {
            name: read_words(&root, "name")?,
            title: read_words(&root, "title")?,
            longest: root
                .read_value("longest", read_duration)?
                .ok_or_else(|| root.missing_key("longest"))?,
            bounds: read_bounds(&root)?,
            cells,
        })
    }
}

fn read_bounds(root: &FileSection<'_>) -> Result<GridBounds, ScenarioError> {
    let Some(section) = root.child_section("bounds")? else {
        return Ok(GridBounds::default());
    };
    section.has_only(&["median", "p95", "inside"])?;
    Ok(GridBounds {
        median: section.read_value("median", positive_ratio)?,
        p95: section.read_value("p95", positive_ratio)?,
        inside: section.read_value("inside", positive_ratio)?,
    })
}

/// The bound on the window of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
enum WindowBound {
    /// Nothing: both hosts' buffers are ample.
    No,
    /// The window that the receiver advertises, in BDPs.
    Window(Ratio),
    /// The receiver's `tcp_rmem`, in BDPs.
    TcpRmem(Ratio),
    /// The sender's `tcp_wmem`, in BDPs.
    TcpWmem(Ratio),
}

/// Every combination of what a block lists; `place` is that of its congestion controls.
fn read_block(
    block: &FileSection<'_>,
    place: &FileLocation,
    cells: &mut Vec<Scenario>,
) -> Result<(), ScenarioError> {
    let lists = BlockLists::read(block)?;
    let lengths = lists.lengths();
    if lengths.iter().fold(cells.len(), |product, length| {
        product.saturating_mul(*length).max(*length)
    }) > MAX_CELLS
    {
        return Err(block.error_at(
            "rate",
            format!("the lists multiply to more than {MAX_CELLS} cells"),
        ));
    }
    for index in 0..lengths.iter().product() {
        add_scenarios((block, place), &lists.cell_at(index), cells)?;
    }
    Ok(())
}

/// The values that a block lists, at least one of each.
struct BlockLists {
    rates: Vec<BitRate>,
    rtts: Vec<Span>,
    queues: Vec<Option<Ratio>>,
    bounded: Vec<WindowBound>,
    losses: Vec<Ratio>,
    controls: Vec<String>,
    streams: Vec<u16>,
}

impl BlockLists {
    fn read(block: &FileSection<'_>) -> Result<Self, ScenarioError> {
        block.has_only(BLOCK_KEYS)?;
        Ok(Self {
            rates: read_list(block, "rate", path_rate)?.ok_or_else(|| block.missing_key("rate"))?,
            rtts: read_list(block, "rtt", read_rtt)?.ok_or_else(|| block.missing_key("rtt"))?,
            queues: read_list(block, "queue", positive_ratio)?
                .map_or_else(|| vec![None], |of| of.into_iter().map(Some).collect()),
            bounded: read_bounded(block)?,
            losses: read_list(block, "loss", path_loss)?.unwrap_or_else(|| vec![Ratio::ZERO]),
            controls: read_list(block, "congestion", congestion_control)?
                .unwrap_or_else(|| vec!["cubic".to_owned()]),
            streams: read_list(block, "streams", read_streams)?.unwrap_or_else(|| vec![1]),
        })
    }

    fn lengths(&self) -> [usize; 7] {
        [
            self.rates.len(),
            self.rtts.len(),
            self.queues.len(),
            self.bounded.len(),
            self.losses.len(),
            self.controls.len(),
            self.streams.len(),
        ]
    }

    /// Returns the combination at `index`; from one to the next the last list changes first.
    fn cell_at(&self, index: usize) -> CellSettings<'_> {
        let mut rest = index;
        CellSettings {
            streams: *take_value(&self.streams, &mut rest),
            control: take_value::<String>(&self.controls, &mut rest),
            loss: *take_value(&self.losses, &mut rest),
            bounded: *take_value(&self.bounded, &mut rest),
            queue: *take_value(&self.queues, &mut rest),
            rtt: *take_value(&self.rtts, &mut rest),
            rate: *take_value(&self.rates, &mut rest),
        }
    }
}

/// Returns the value of the list that `index` counts in its last digit, and takes that off.
fn take_value<'l, V>(list: &'l [V], index: &mut usize) -> &'l V {
    let value = &list[*index % list.len()];
    *index /= list.len();
    value
}

fn add_scenarios(
    (block, place): (&FileSection<'_>, &FileLocation),
    cell: &CellSettings<'_>,
    cells: &mut Vec<Scenario>,
) -> Result<(), ScenarioError> {
    let seed = cells.len() as u64 + 1;
    let queue = cell
        .queue_size()
        .map_err(|why| block.error_at("queue", why))?;
    let scenario = cell
        .to_scenario(queue, seed)
        .map_err(|why| block.error_at(cell.bounded.bound_key(), why))?;
    let needed = RequiredControl {
        name: cell.control.to_owned(),
        place: place.clone(),
    };
    cells.push(Scenario {
        controls: vec![needed],
        ..scenario
    });
    Ok(())
}

impl WindowBound {
    const fn bound_key(self) -> &'static str {
        match self {
            Self::No => "rate",
            Self::Window(_) => "window",
            Self::TcpRmem(_) => "tcp_rmem",
            Self::TcpWmem(_) => "tcp_wmem",
        }
    }
}

fn read_bounded(block: &FileSection<'_>) -> Result<Vec<WindowBound>, ScenarioError> {
    let mut given = None;
    for key in ["window", "tcp_rmem", "tcp_wmem"] {
        let Some(times) = read_list(block, key, positive_ratio)? else {
            continue;
        };
        let bound = match key {
            "window" => WindowBound::Window,
            "tcp_rmem" => WindowBound::TcpRmem,
            _ => WindowBound::TcpWmem,
        };
        if given.is_some() {
            return Err(block.error_at(key, "write one of window, tcp_rmem and tcp_wmem"));
        }
        given = Some(times.into_iter().map(bound).collect());
    }
    Ok(given.unwrap_or_else(|| vec![WindowBound::No]))
}

/// The values of a list that is not empty; `None` where it is not there.
fn read_list<V>(
    block: &FileSection<'_>,
    key: &str,
    read: impl Fn(&str) -> Result<V, String>,
) -> Result<Option<Vec<V>>, ScenarioError> {
    let Some(texts) = block.read_values(key)? else {
        return Ok(None);
    };
    if texts.is_empty() {
        return Err(block.error_at(key, "it lists nothing"));
    }
    texts
        .iter()
        .map(|text| read(text).map_err(|why| block.error_at(key, why)))
        .collect::<Result<_, _>>()
        .map(Some)
}

fn read_rtt(text: &str) -> Result<Span, String> {
    parse_within(
        text,
        Span::from_nanos(1)..,
        "a round-trip time",
        "it must be above 0",
    )
}

/// One combination.
struct CellSettings<'b> {
    rate: BitRate,
    rtt: Span,
    /// In BDPs; one where nothing is asked, and no less than a burst.
    queue: Option<Ratio>,
    bounded: WindowBound,
    loss: Ratio,
    control: &'b str,
    streams: u16,
}

impl CellSettings<'_> {
    /// # Errors
    /// A window or a buffer that no host can have.
    fn to_scenario(&self, queue: ByteCount, seed: u64) -> Result<Scenario, String> {
        let ample = self.bdp().scale_by(AMPLE).clamp(MIN_AMPLE, MAX_AMPLE);
        let (mut rmem, mut wmem, mut buffer) = (ample, ample, Buffer::Automatic);
        match self.bounded {
            WindowBound::No => {}
            WindowBound::Window(times) => buffer = Buffer::Window(self.buffer_size(times)?),
            WindowBound::TcpRmem(times) => rmem = self.buffer_size(times)?,
            WindowBound::TcpWmem(times) => wmem = self.buffer_size(times)?,
        }
        let request = Request {
            streams: self.streams,
            congestion: Some(self.control.to_owned()),
            buffer,
            ..Request::default()
        };
        let title = self.bound_words();
        let name = format!(
            "{} × {}, {title}, {} × {}",
            self.rate, self.rtt, self.streams, self.control
        );
        let step = ScenarioStep {
            request,
            ..ScenarioStep::with_name(name.clone())
        };
        Ok(Scenario {
            name,
            title,
            source: None,
            path: self.to_path(queue),
            stretches: None,
            seed,
            sender: vec![Change::TcpWmemMax(wmem)],
            receiver: vec![Change::TcpRmemMax(rmem)],
            relay: Vec::new(),
            steps: vec![step],
            bounds: Vec::new(),
            controls: Vec::new(),
        })
    }

    fn bdp(&self) -> ByteCount {
        self.rate.bytes_in(self.rtt)
    }

    /// # Errors
    /// A size that no host can have.
    fn buffer_size(&self, times: Ratio) -> Result<ByteCount, String> {
        let bytes = self.bdp().scale_by(times.get());
        let valid = (MIN_BUFFER..MAX_BUFFER).contains(&bytes);
        let (rate, rtt, times) = (self.rate, self.rtt, times.get());
        valid.then_some(bytes).ok_or_else(|| {
            format!(
                "{times} BDPs of {rate} × {rtt} are {bytes}; it must be from {MIN_BUFFER} to below {MAX_BUFFER}"
            )
        })
    }

    /// # Errors
    /// A queue without room for a packet.
    fn queue_size(&self) -> Result<ByteCount, String> {
        let Some(times) = self.queue else {
            return Ok(self.bdp().max(MIN_QUEUE));
        };
        let bytes = self.bdp().scale_by(times.get());
        let (rate, rtt, times) = (self.rate, self.rtt, times.get());
        (bytes >= PACKET).then_some(bytes).ok_or_else(|| {
            format!("{times} BDPs of {rate} × {rtt} are {bytes}, and one packet is {PACKET}; make it longer")
        })
    }

    /// An Ethernet path that loses data, but no acknowledgements.
    fn to_path(&self, queue: ByteCount) -> Path {
        let both = PathDirection {
            rate: Some(self.rate),
            delay: Span::ZERO,
            queue: Some(queue),
            loss: Some(Ratio::ZERO),
            mtu: ByteCount::new(1500),
            framing: Framing::Ethernet,
            ip: IpVersion::V4,
            encapsulation: Encapsulation::default(),
            effects: fullpipe_record::Effects::default(),
        };
        let mut path = Path::with_symmetric_rtt(&both, self.rtt);
        path.forward.loss = Some(self.loss);
        path
    }

    /// Returns the bound on the transfer, in few words, and the queue where one is asked for.
    fn bound_words(&self) -> String {
        let queue = self.queue.map(|times| format!("queue {} BDP", times.get()));
        let bound = match self.bounded {
            WindowBound::Window(times) => Some(format!("window {} BDP", times.get())),
            WindowBound::TcpRmem(times) => Some(format!("tcp_rmem {} BDP", times.get())),
            WindowBound::TcpWmem(times) => Some(format!("tcp_wmem {} BDP", times.get())),
            WindowBound::No if self.loss > Ratio::ZERO => Some(format!("loss {}", self.loss)),
            WindowBound::No => None,
        };
        match (bound, queue) {
            (Some(bound), Some(queue)) => format!("{bound}, {queue}"),
            (bound, queue) => bound.or(queue).unwrap_or_else(|| "the link".to_owned()),
        }
    }
}

/// Buffers that never bound a window, in BDPs: two for the path and its queue, twice that to
/// resend, and what of a receive buffer is not window.
const AMPLE: f64 = 8.0;
const MIN_AMPLE: ByteCount = ByteCount::from_mib(16);
const MAX_AMPLE: ByteCount = ByteCount::from_mib(1024);
/// A page; and what a C `int` can say.
const MIN_BUFFER: ByteCount = ByteCount::from_kib(4);
const MAX_BUFFER: ByteCount = ByteCount::from_mib(2048);
const BLOCK_KEYS: &[&str] = &[
    "rate",
    "rtt",
    "queue",
    "window",
    "tcp_rmem",
    "tcp_wmem",
    "loss",
    "congestion",
    "streams",
];
/// A day at ten seconds each.
const MAX_CELLS: usize = 10_000;
/// A full one on Ethernet.
const PACKET: ByteCount = ByteCount::new(1538);
/// Ten packets: as many as a sender may send at once when it begins.
const MIN_QUEUE: ByteCount = ByteCount::new(10 * PACKET.get());
