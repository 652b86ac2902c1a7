//! Bytes over loopback in one connection: direct, through this relay, and through socat and `HAProxy` (with `splice`)
//! if they are installed. Prints the rate of each, and the processor time that each relay takes for a gigabyte.
//!
//!     cargo run --release -p fullpipe-relay --example loopback

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use fullpipe_relay::{RelayOptions, Role, relay};
use fullpipe_units::Span;

const BYTES: usize = 6_000_000_000;
const ROUNDS: usize = 3;
/// The first argument of the process that relays.
const RELAY: &str = "relay";
/// Ticks of `/proc/PID/stat` in a second.
const TICKS: f64 = 100.0;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, port, to] = &arguments[..]
        && word == RELAY
    {
        return serve(port.parse()?, to);
    }
    for _ in 0..ROUNDS {
        let target = TcpListener::bind("127.0.0.1:0")?;
        let to = target.local_addr()?;
        line("direct", transfer(&target, to.port())?, None);
        let commands = [
            ("fullpipe relay", 9431, ours(9431, &to.to_string())?),
            ("socat", 9432, socat(9432, to.port())),
            ("haproxy with splice", 9433, haproxy(9433, to.port())?),
        ];
        for (name, port, mut command) in commands {
            match command.stdout(Stdio::null()).spawn() {
                Ok(child) => through(name, child, port, &target)?,
                Err(error) => writeln!(std::io::stdout(), "{name}: {error}")?,
            }
        }
    }
    Ok(())
}

fn ours(port: u16, to: &str) -> Result<Command, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([RELAY, &port.to_string(), to]);
    Ok(command)
}

fn socat(port: u16, to: u16) -> Command {
    let mut command = Command::new("socat");
    command.args([format!("TCP-LISTEN:{port},fork,reuseaddr"), format!("TCP:127.0.0.1:{to}")]);
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
        role: Role::Alone { to: to.parse()? },
    };
    Ok(relay(&options, &AtomicBool::new(false), &mut |_| {})?)
}

fn through(name: &str, mut child: Child, port: u16, target: &TcpListener) -> Result<(), Box<dyn Error>> {
    sleep(Duration::from_millis(500));
    let done = transfer(target, port);
    let cpu = processor_seconds(child.id());
    child.kill()?;
    child.wait()?;
    line(name, done?, cpu);
    Ok(())
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
    if received == BYTES { Ok(lasted) } else { Err(format!("{received} of {BYTES} bytes came").into()) }
}

/// Returns the processor time of a process and of its children.
fn processor_seconds(pid: u32) -> Option<f64> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let of_children: f64 = children.split_whitespace().filter_map(|pid| own_seconds(pid.parse().ok()?)).sum();
    own_seconds(pid).map(|own| own + of_children)
}

/// Returns the processor time of a process, with that of children which it has waited for.
fn own_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: Option<Vec<f64>> = fields.get(11..15)?.iter().map(|field| field.parse().ok()).collect();
    Some(ticks?.iter().sum::<f64>() / TICKS)
}

fn line(name: &str, lasted: Duration, cpu: Option<f64>) {
    let gigabytes = BYTES as f64 / 1e9;
    let rate = gigabytes * 8.0 / lasted.as_secs_f64();
    let cpu = cpu.map_or_else(String::new, |seconds| format!(", {:.3} s of processor a gigabyte", seconds / gigabytes));
    // Nobody reads on: nothing is left to do.
    let _ = writeln!(std::io::stdout(), "{name}: {rate:.1} Gbit/s{cpu}");
}
