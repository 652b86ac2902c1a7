//! The data that arrives, and its cost in processor time.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::comparison::{Outcome, Quantity, alternate};
use crate::figures::{self, Figures};
use crate::machine::busy_time;
use crate::network::{Joint, Network, free_port};
use crate::process::{Process, RunError};
use crate::program::{Load, Program, Tools, Traffic};

/// Who sends with what to whom.
#[derive(Debug, Clone)]
pub(crate) struct Contestant {
    pub(crate) name: String,
    pub(crate) client: Program,
    pub(crate) server: Program,
    /// Flags of the client, in addition to those that all have.
    pub(crate) flags: Vec<&'static str>,
}

impl Contestant {
    /// The same program at both ends.
    pub(crate) fn alone(name: &str, program: Program, flags: &[&'static str]) -> Self {
        Self {
            name: name.to_owned(),
            client: program,
            server: program,
            flags: flags.to_vec(),
        }
    }
}

/// Time that a server may take to answer, and a client beyond the time of its load.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Quantities that are measured with TCP and with UDP.
const OF_TCP: &[Quantity] = &[
    Quantity::BitsPerSecond,
    Quantity::CpuSecondsPerGigabyte,
    Quantity::BusySecondsPerGigabyte,
];
const OF_UDP: &[Quantity] = &[
    Quantity::DatagramsPerSecond,
    Quantity::ShareLost,
    Quantity::CpuSecondsPerGigabyte,
    Quantity::BusySecondsPerGigabyte,
];

/// Lets `contestants` send `load` in turn; the last of them is what the others are compared with.
pub(crate) fn compare(
    contestants: &[Contestant],
    joint: Joint,
    load: &Load,
    rounds: usize,
    tools: &Tools,
    stop: &AtomicBool,
) -> Outcome {
    let network = match Network::make(joint) {
        Ok(network) => network,
        Err(why) => return Outcome::skipped(&why),
    };
    let names: Vec<String> = contestants
        .iter()
        .map(|contestant| contestant.name.clone())
        .collect();
    let quantities = if load.traffic == Traffic::Tcp {
        OF_TCP
    } else {
        OF_UDP
    };
    alternate(&names, quantities, rounds, |number| {
        let run = run(&contestants[number], &network, load, tools, stop)?;
        quantities
            .iter()
            .map(|quantity| run.value(*quantity))
            .collect()
    })
}

/// A run, with the processor time that passed meanwhile.
pub(crate) struct Run {
    pub(crate) figures: Figures,
    /// Text that the client wrote.
    pub(crate) stdout: String,
    /// Of client and server.
    cpu: Duration,
    /// Of the whole machine.
    busy: Duration,
}

pub(crate) fn run(
    contestant: &Contestant,
    network: &Network,
    load: &Load,
    tools: &Tools,
    stop: &AtomicBool,
) -> Result<Run, RunError> {
    let (address, port) = (network.server_address(), free_port()?);
    // A server of its own for every run, so that none inherits what an earlier one left.
    let mut server = contestant.server.server(tools, address, port, load.traffic);
    network.place_server(&mut server)?;
    let mut server = Process::start(&mut server)?;
    server.wait_for_port(contestant.server.port(port, load.traffic), TIMEOUT, stop)?;
    let (cpu, busy) = (server.cpu(), busy_time());
    let mut client = contestant
        .client
        .client(tools, address, port, load, &contestant.flags);
    network.place_client(&mut client)?;
    let client = Process::start(&mut client)?
        .finish(Duration::from_secs_f64(load.seconds.ceil()) + TIMEOUT, stop)?;
    if contestant.client == Program::Iperf2 && client.succeeded {
        server.wait_until("report", TIMEOUT, stop, |server| {
            reports(server) >= load.streams.into()
        })?;
    }
    let (cpu, busy) = (
        client.cpu + server.cpu().saturating_sub(cpu),
        busy_time().saturating_sub(busy),
    );
    let figures =
        figures::read(contestant.client, &client, &server.stdout()).map_err(RunError::Failed)?;
    Ok(Run {
        figures,
        stdout: client.stdout,
        cpu,
        busy,
    })
}

/// Streams that a server of iperf2 has reported.
fn reports(server: &Process) -> usize {
    server.stdout().matches('\n').count()
}

impl Run {
    fn value(&self, quantity: Quantity) -> Result<f64, RunError> {
        let Figures {
            bytes,
            time,
            datagrams,
        } = self.figures;
        let datagrams = || {
            datagrams
                .ok_or_else(|| RunError::failed("it does not say what became of the datagrams"))
        };
        let gigabytes = bytes as f64 / 1e9;
        Ok(match quantity {
            Quantity::BitsPerSecond => self.figures.bits_per_second(),
            Quantity::DatagramsPerSecond => datagrams()?.arrived as f64 / time.as_secs_f64(),
            Quantity::ShareLost => datagrams()?.share_lost(),
            Quantity::CpuSecondsPerGigabyte => self.cpu.as_secs_f64() / gigabytes,
            Quantity::BusySecondsPerGigabyte => self.busy.as_secs_f64() / gigabytes,
            Quantity::MillisecondsToData | Quantity::PacketsPerSecond | Quantity::PeakMemory => {
                return Err(RunError::failed("it is no figure of a transfer's data"));
            }
        })
    }
}
