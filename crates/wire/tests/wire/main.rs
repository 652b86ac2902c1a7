//! Packets against etherparse, which reads and sums them its own way.

mod captured_oracle;
mod cutting;
mod editing;
mod encapsulation;
mod hostile;
mod redaction;
