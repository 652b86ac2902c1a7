//! Bytes over loopback in one connection: direct, through this relay, through a bare loop of
//! `splice(2)`, and through socat and `HAProxy` (with `splice`) if they are installed. Prints the
//! rate of each, the processor time that each relay takes for a gigabyte, and how this relay
//! compares in the same round.
//!
//!     cargo run --release -p fullpipe-relay --example loopback

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use fullpipe_relay::{RelayOptions, RelayRole, relay_connections};
use fullpipe_units::Span;

const BYTES: usize = 6_000_000_000;
const ROUNDS: usize = 5;
/// The first argument of a process that relays, and of one that only moves bytes.
const RELAY: &str = "relay";
const BARE: &str = "bare";
/// Ticks of `/proc/PID/stat` in a second.
const TICKS: f64 = 100.0;
const GIGABYTES: f64 = BYTES as f64 / 1e9;
/// Bytes that the pipe of the bare loop holds, as those of the relay do.
const PIPE_BYTES: usize = 1 << 20;

/// Figures of one transfer.
#[derive(Clone, Copy)]
struct Transfer {
    /// Gbit/s.
    rate: f64,
    /// Seconds of processor that the relay took for a gigabyte.
    cpu: f64,
}

/// The transfers of one round; none of a program that is not installed.
struct Round {
    direct: Transfer,
    relay: Option<Transfer>,
    bare: Option<Transfer>,
    socat: Option<Transfer>,
    haproxy: Option<Transfer>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[..] {
        [_, word, port, to] if word == RELAY => serve(port.parse()?, to),
        [_, word, port, to] if word == BARE => bare(port.parse()?, to),
        _ => {
            let rounds: Vec<Round> = (0..ROUNDS).map(|_| round()).collect::<Result<_, _>>()?;
            compare(&rounds)
        }
    }
}

fn round() -> Result<Round, Box<dyn Error>> {
    let target = TcpListener::bind("127.0.0.1:0")?;
    let to = target.local_addr()?;
    let direct = Transfer {
        rate: rate(transfer(&target, to.port())?),
        cpu: 0.0,
    };
    writeln!(std::io::stdout(), "direct: {:.1} Gbit/s", direct.rate)?;
    Ok(Round {
        direct,
        relay: through(
            "fullpipe relay",
            own(RELAY, 9431, &to.to_string())?,
            9431,
            &target,
        )?,
        bare: through(
            "bare splice",
            own(BARE, 9434, &to.to_string())?,
            9434,
            &target,
        )?,
        socat: through("socat", socat(9432, to.port()), 9432, &target)?,
        haproxy: through(
            "haproxy with splice",
            haproxy(9433, to.port())?,
            9433,
            &target,
        )?,
    })
}

/// Prints ratios within the same round: their median and, in brackets, the least and the greatest.
fn compare(rounds: &[Round]) -> Result<(), Box<dyn Error>> {
    let ratio = |of: fn(&Round) -> Option<f64>| {
        let mut ratios: Vec<f64> = rounds.iter().filter_map(of).collect();
        ratios.sort_by(f64::total_cmp);
        match &ratios[..] {
            [] => "none".to_owned(),
            [least, .., greatest] => format!(
                "{:.2} [{least:.2}, {greatest:.2}]",
                ratios[ratios.len() / 2]
            ),
            [only] => format!("{only:.2}"),
        }
    };
    let lines = [
        (
            "rate, of direct",
            ratio(|round| Some(round.relay?.rate / round.direct.rate)),
        ),
        (
            "rate of the bare loop, of direct",
            ratio(|round| Some(round.bare?.rate / round.direct.rate)),
        ),
        (
            "rate, of the bare loop",
            ratio(|round| Some(round.relay?.rate / round.bare?.rate)),
        ),
        (
            "rate, of socat",
            ratio(|round| Some(round.relay?.rate / round.socat?.rate)),
        ),
        (
            "processor, of HAProxy",
            ratio(|round| Some(round.relay?.cpu / round.haproxy?.cpu)),
        ),
        (
            "processor of the bare loop, of HAProxy",
            ratio(|round| Some(round.bare?.cpu / round.haproxy?.cpu)),
        ),
    ];
    for (name, ratio) in lines {
        writeln!(std::io::stdout(), "{name}: {ratio}")?;
    }
    Ok(())
}

/// This program as a process that does what `word` says.
fn own(word: &str, port: u16, to: &str) -> Result<Command, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([word, &port.to_string(), to]);
    Ok(command)
}

fn socat(port: u16, to: u16) -> Command {
    let mut command = Command::new("socat");
    command.args([
        format!("TCP-LISTEN:{port},fork,reuseaddr"),
        format!("TCP:127.0.0.1:{to}"),
    ]);
    command
}

/// `HAProxy` with its own sizes, in the foreground and in one process.
fn haproxy(port: u16, to: u16) -> Result<Command, Box<dyn Error>> {
    let settings = format!(
        "defaults\n mode tcp\n option splice-request\n option splice-response\n timeout connect 5s\n \
         timeout client 60s\n timeout server 60s\n\
         listen relay\n bind 127.0.0.1:{port}\n server target 127.0.0.1:{to}\n"
    );
    let file = std::env::temp_dir().join(format!("fullpipe-haproxy-{}.cfg", std::process::id()));
    std::fs::write(&file, settings)?;
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(file);
    Ok(command)
}

fn serve(port: u16, to: &str) -> Result<(), Box<dyn Error>> {
    let options = RelayOptions {
        address: Some([127, 0, 0, 1].into()),
        port,
        allow: Vec::new(),
        max_connections: 16,
        max_connections_per_address: 16,
        drain: Span::ZERO,
        interval: None,
        role: RelayRole::Alone { to: to.parse()? },
    };
    Ok(relay_connections(
        &options,
        &AtomicBool::new(false),
        &mut |_| {},
    )?)
}

/// Moves the bytes of one connection as fast as `splice` does, without anything that a relay must
/// do.
fn bare(port: u16, to: &str) -> Result<(), Box<dyn Error>> {
    let (from, _) = TcpListener::bind(("127.0.0.1", port))?.accept()?;
    let to = TcpStream::connect(to)?;
    from.set_nonblocking(true)?;
    to.set_nonblocking(true)?;
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setpipe_size(&write, PIPE_BYTES)?;
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    loop {
        let mut left = match splice(&from, None, &write, None, PIPE_BYTES, flags) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(&from, PollFlags::IN)], None)?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        while left > 0 {
            match splice(&read, None, &to, None, left, flags) {
                Ok(count) => left -= count,
                Err(Errno::AGAIN) => drop(poll(&mut [PollFd::new(&to, PollFlags::OUT)], None)?),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns what a transfer through `command`, which listens on `port`, is; `None` if it is not
/// installed.
fn through(
    name: &str,
    mut command: Command,
    port: u16,
    target: &TcpListener,
) -> Result<Option<Transfer>, Box<dyn Error>> {
    let mut child = match command.stdout(Stdio::null()).spawn() {
        Ok(child) => child,
        Err(error) => {
            writeln!(std::io::stdout(), "{name}: {error}")?;
            return Ok(None);
        }
    };
    sleep(Duration::from_millis(500));
    let done = transfer(target, port);
    let cpu = processor_seconds(&child);
    child.kill()?;
    child.wait()?;
    let made = Transfer {
        rate: rate(done?),
        cpu: cpu.ok_or("no processor time")? / GIGABYTES,
    };
    writeln!(
        std::io::stdout(),
        "{name}: {:.1} Gbit/s, {:.3} s of processor a gigabyte",
        made.rate,
        made.cpu
    )?;
    Ok(Some(made))
}

/// Returns the time until the target has everything.
fn transfer(target: &TcpListener, port: u16) -> Result<Duration, Box<dyn Error>> {
    let sender = thread::spawn(move || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        let chunk = vec![7; 256 << 10];
        let mut left = BYTES;
        while left > 0 {
            let now = left.min(chunk.len());
            stream.write_all(&chunk[..now])?;
            left -= now;
        }
        Ok(())
    });
    let (mut stream, _) = target.accept()?;
    let began = Instant::now();
    let mut buffer = vec![0; 1 << 20];
    let mut received = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            count => received += count,
        }
    }
    let lasted = began.elapsed();
    sender.join().map_err(|_| "the sender panicked")??;
    if received == BYTES {
        Ok(lasted)
    } else {
        Err(format!("{received} of {BYTES} bytes came").into())
    }
}

/// Returns the processor time of a process and of its children.
fn processor_seconds(process: &Child) -> Option<f64> {
    let pid = process.id();
    let children =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let of_children: f64 = children
        .split_whitespace()
        .filter_map(|pid| own_seconds(pid.parse().ok()?))
        .sum();
    own_seconds(pid).map(|own| own + of_children)
}

/// Returns the processor time of a process, with that of children which it has waited for.
fn own_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: Option<Vec<f64>> = fields
        .get(11..15)?
        .iter()
        .map(|field| field.parse().ok())
        .collect();
    Some(ticks?.iter().sum::<f64>() / TICKS)
}

/// Returns Gbit/s.
fn rate(lasted: Duration) -> f64 {
    GIGABYTES * 8.0 / lasted.as_secs_f64()
}
