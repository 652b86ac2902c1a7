//! Combinations per second on one core, parsing and printing included:
//! `cargo bench -p fullpipe-model`. It gates nothing.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::time::Instant;

use fullpipe_model::calc::{CalculationBatch, CombinationAxes, HostPair, read_values};
use fullpipe_record::{HostSettings, Inputs, Quantity};

fn main() -> io::Result<()> {
    let hosts = HostPair {
        sender: HostSettings::of_linux_6_18(),
        receiver: HostSettings::of_linux_6_18(),
    };
    let none: &[(Quantity, &str)] = &[];
    let lists = [
        (Quantity::Window, "64KiB..16MiB"),
        (Quantity::Loss, "0,1e-6,1e-5,1e-4"),
        (Quantity::Congestion, "cubic,bbr"),
    ];
    report(
        "rows of base units",
        &file(300_000, |i| {
            format!("{},{}\n", 1_000_000 * i, i as f64 / 1e6)
        }),
        none,
        &hosts,
    )?;
    report(
        "rows with units",
        &file(300_000, |i| format!("{i}Mbit/s,{i}us\n")),
        none,
        &hosts,
    )?;
    let lossy = |i| format!("{},{},0.000001\n", 1_000_000 * i, i as f64 / 1e6);
    report(
        "rows with loss",
        &file(300_000, lossy).replacen("rtt", "rtt,loss", 1),
        none,
        &hosts,
    )?;
    report(
        "rows × 72 of lists",
        &file(5_000, |i| format!("{i}M,{i}us\n")),
        &lists,
        &hosts,
    )
}

fn file(rows: u64, row: impl Fn(u64) -> String) -> String {
    (1..=rows).fold("bandwidth,rtt\n".to_owned(), |file, i| file + &row(i))
}

fn report(name: &str, file: &str, lists: &[(Quantity, &str)], hosts: &HostPair) -> io::Result<()> {
    let lists = lists
        .iter()
        .map(|(quantity, text)| read_values(*quantity, text).expect("the lists are sound"));
    let axes = CombinationAxes::new(Inputs::default(), lists).expect("the lists are sound");
    let mut out = Vec::new();
    let seconds = (0..3)
        .map(|_| seconds(file, &axes, hosts, &mut out))
        .fold(f64::INFINITY, f64::min);
    let combinations = String::from_utf8_lossy(&out).lines().count() - 1;
    let millions = combinations as f64 / seconds / 1e6;
    writeln!(
        io::stdout(),
        "{name:<20} {millions:.2} million combinations per second per core"
    )
}

#[expect(clippy::disallowed_methods, reason = "a benchmark is about time")]
fn seconds(file: &str, axes: &CombinationAxes, hosts: &HostPair, out: &mut Vec<u8>) -> f64 {
    out.clear();
    let begun = Instant::now();
    let batch =
        CalculationBatch::of_file(file.as_bytes(), axes, hosts).expect("the header is sound");
    batch
        .run(NonZeroUsize::MIN, out)
        .expect("the rows are sound");
    begun.elapsed().as_secs_f64()
}
