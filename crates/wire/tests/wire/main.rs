//! Packets against etherparse, which reads and sums them its own way.

mod cutting;
mod hostile;
