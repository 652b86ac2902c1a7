//! Packets against etherparse, which reads and sums them its own way.

mod cutting;
mod editing;
mod hostile;
