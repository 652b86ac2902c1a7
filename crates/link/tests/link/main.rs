//! The path from outside: closed forms, properties, and a golden table.

mod aimd;
mod burst;
mod closed_forms;
mod cutting;
mod effects;
mod golden;
mod managed;
mod properties;
