//! A fleet without sockets: turns of a mesh, and months of agents and controllers with every fault.

mod changes;
mod ledger;
mod planner;
mod simulation;

/// Shows a figure in the output of a failed test, or to who asks for it.
#[expect(clippy::print_stdout, reason = "shown with a failure only")]
fn show(line: &str) {
    println!("{line}");
}
