//! Scenario files from outside: the meaning of good ones, and the errors of bad ones.

mod bad;
mod bounds;
mod good;
mod grid;
