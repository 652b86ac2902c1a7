//! The path from outside: closed forms, properties, and a golden table.

mod burst;
mod closed_forms;
mod golden;
mod properties;
