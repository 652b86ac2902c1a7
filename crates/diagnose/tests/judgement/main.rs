//! Synthetic and recorded evidence, and the verdicts on it.

mod builder;
mod captured;
mod credit;
mod cures;
mod early_course;
mod edges;
mod gates;
mod golden;
mod hosts;
mod limits;
mod losses;
mod properties;
mod rates;
mod receiving;
mod sure;
mod time_account;
mod traced;
mod traps;
mod typed;
mod unstated;
