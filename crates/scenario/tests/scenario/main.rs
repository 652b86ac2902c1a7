//! Scenario files from outside: what good ones mean, and what bad ones are told.

mod bad;
mod bounds;
mod good;
mod grid;
