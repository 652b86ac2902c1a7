//! Captures of every format, written here, against what is read from them.

mod compressed;
mod cut;
mod formats;
mod oracle;
mod redacted;
mod write;
mod wrong;
