//! Captures of every format, written here, against what is read from them.

mod compressed;
mod cut;
mod disordered;
mod formats;
mod live;
mod oracle;
mod recorded;
mod redacted;
mod write;
mod wrong;
