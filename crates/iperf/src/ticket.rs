//! Tickets: whoever plans tests permits one client one test, and the server checks that by itself.

use std::collections::HashMap;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use fullpipe_record::{Direction, Request, Transport};
use fullpipe_units::{BitRate, ByteCount, Span, count_noun, without_control_characters};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::key::MAC_LENGTH;
use crate::{ErrorNumber, SharedKey, TestRefusal, json};

/// What one client may do once, at the one server that has the secret of the ticket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestTicket {
    /// Name of the test's place in the plan: 1 to 64 printable characters of ASCII, no space. A
    /// server admits one test of a slot.
    pub slot: String,
    /// Name of the client, of the same characters. Servers print it.
    pub client: String,
    /// The first second in which the server admits the test, since 1970 by its own clock.
    pub opens: u64,
    /// The last second in which the server admits the test.
    pub closes: u64,
    /// Most seconds of load, the omitted time included. It ends [`TestTicket::seconds`] after
    /// [`TestTicket::closes`] at the latest, but for the client's time to answer.
    pub seconds: u64,
    /// Most streams in each direction.
    pub streams: u16,
    /// Most bytes, in both directions together.
    pub bytes: ByteCount,
    /// Highest rate of all streams together; the client must ask for a rate then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// True if datagrams may be sent, too.
    pub udp: bool,
    /// The direction, as the client names it; `None` for any, both at the same time included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
}

/// The text of a ticket, which may be seen, and its key, which is for the client alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedTicket {
    text: String,
    key: SharedKey,
}

/// A text that is no ticket, for this reason.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no ticket that this version of fullpipe knows: {0}")]
pub struct TicketError(String);

/// First characters of a ticket, which change with its form.
const PREFIX: &str = "fpt1.";

/// Prefix of the text that a ticket's key authenticates.
const PURPOSE: &[u8] = b"fullpipe ticket 1";

impl TestTicket {
    /// Returns the ticket for the server that has `secret`, whose other holder issues tickets.
    pub fn seal(&self, secret: &SharedKey) -> SealedTicket {
        // Texts and numbers can always be written.
        let json = serde_json::to_vec(self).unwrap_or_default();
        let text = format!("{PREFIX}{}", BASE64.encode(json));
        SealedTicket {
            key: secret.ticket_key(&text),
            text,
        }
    }

    /// Reads the text of a ticket, which proves nothing.
    ///
    /// # Errors
    /// Fails if it is none, or one of a later version.
    pub fn from_text(text: &str) -> Result<Self, TicketError> {
        let body = text.strip_prefix(PREFIX);
        let body = body.ok_or_else(|| TicketError(format!("it does not begin with {PREFIX}")))?;
        let json = decode_base64(body)?;
        let ticket: Self = json::parse_object(&json)
            .map_err(|why| TicketError(without_control_characters(&why)))?;
        if is_plain_name(&ticket.slot) && is_plain_name(&ticket.client) {
            Ok(ticket)
        } else {
            let why = "its names have 1 to 64 printable characters of ASCII";
            Err(TicketError(why.to_owned()))
        }
    }

    /// Fails if `now`, in seconds since 1970, is outside of the slot.
    fn check_time(&self, now: u64) -> Result<(), TestRefusal> {
        let (number, what) = if now < self.opens {
            let what = format!("opens in {} s", self.opens - now);
            (ErrorNumber::TICKET_EARLY, what)
        } else if now > self.closes {
            let what = format!("closed {} s ago", now - self.closes);
            (ErrorNumber::TICKET_EXPIRED, what)
        } else {
            return Ok(());
        };
        Err(self.refuse(number, &what))
    }

    /// Fails if `request` asks for more than the ticket permits.
    fn check_request(&self, request: &Request) -> Result<(), TestRefusal> {
        if request.transport == Transport::Udp && !self.udp {
            return Err(self.refuse(ErrorNumber::UNIMPLEMENTED, "permits no UDP"));
        }
        if let Some(direction) = self.direction.filter(|own| *own != request.direction) {
            let why = format!("permits {} only", direction.name());
            return Err(self.refuse(ErrorNumber::UNIMPLEMENTED, &why));
        }
        self.check_amount(request)?;
        let lanes = u64::from(request.streams) * request.data_directions().len() as u64;
        let asked = request
            .rate
            .map(|each| BitRate::from_bps(each.bps().saturating_mul(lanes)));
        match self.rate {
            Some(most) if asked.is_none_or(|asked| asked > most) => {
                let asked = asked.map_or("no limit".to_owned(), |asked| asked.to_string());
                let why = format!("permits {most}; {asked} asked for");
                Err(self.refuse(ErrorNumber::TOTAL_RATE, &why))
            }
            _ => Ok(()),
        }
    }

    /// Fails if `request` has too many streams, or ends too late by itself.
    fn check_amount(&self, request: &Request) -> Result<(), TestRefusal> {
        let (longest, duration) = (
            Span::from_secs(self.seconds),
            request.omit + request.duration,
        );
        let (number, why) = match request.bytes {
            _ if request.streams > self.streams => {
                let most = count_noun(self.streams, "stream");
                let why = format!("permits {most}; {} asked for", request.streams);
                (ErrorNumber::STREAMS, why)
            }
            Some(asked) if asked > self.bytes => {
                let why = format!("permits {}; {asked} asked for", self.bytes);
                (ErrorNumber::MAX_DURATION, why)
            }
            None if duration > longest => {
                let why = format!("permits {longest}; {duration} asked for");
                (ErrorNumber::MAX_DURATION, why)
            }
            _ => return Ok(()),
        };
        Err(self.refuse(number, &why))
    }

    /// Returns a refusal for what the ticket does, or has happened to it.
    fn refuse(&self, number: ErrorNumber, what: &str) -> TestRefusal {
        let Self { slot, client, .. } = self;
        TestRefusal::new(
            number,
            format!("the ticket of {client} for slot {slot} {what}"),
        )
    }
}

impl SealedTicket {
    /// Reads a ticket with its key, as it is in files: one line, of which white space at its ends is
    /// no part.
    ///
    /// # Errors
    /// Fails if it is none.
    pub fn from_line(line: &[u8]) -> Result<Self, TicketError> {
        let not_one = || TicketError("it is not TICKET.KEY".to_owned());
        let line = str::from_utf8(line.trim_ascii()).map_err(|_| not_one())?;
        let (text, key) = line.rsplit_once('.').ok_or_else(not_one)?;
        TestTicket::from_text(text)?;
        let key: [u8; MAC_LENGTH] = decode_base64(key)?.try_into().map_err(|_| not_one())?;
        Ok(Self {
            text: text.to_owned(),
            key: SharedKey::from_bytes(&key),
        })
    }

    /// Returns the line for [`SealedTicket::from_line`], which is secret.
    pub fn to_line(&self) -> String {
        format!("{}.{}", self.text, BASE64.encode(self.key.as_bytes()))
    }

    /// Returns the text, without the key.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the key.
    pub const fn key(&self) -> &SharedKey {
        &self.key
    }
}

impl SharedKey {
    /// Returns the key of the ticket with this text, of which this is the secret.
    pub(crate) fn ticket_key(&self, text: &str) -> Self {
        Self::from_bytes(&self.tag_parts(&[PURPOSE, text.as_bytes()]))
    }
}

/// The slots of which a server has admitted the test, as long as their tickets could be used again.
#[derive(Debug, Default)]
pub struct UsedSlots {
    /// The last second of each slot.
    closes: HashMap<String, u64>,
}

impl UsedSlots {
    /// Most slots that are remembered, about 2 MB. No ticket is taken beyond that.
    const MOST: usize = 10_000;

    /// Seconds for which a slot that is over is remembered, should the clock be set back.
    const KEPT: u64 = 3600;

    /// Returns the ticket with this `text`, whose key the client has proved, and notes that its
    /// slot is used: at `now`, in seconds since 1970, it permits `request`.
    ///
    /// # Errors
    /// Fails if it does not, or cannot be read, or its slot has been used.
    pub fn redeem_ticket(
        &mut self,
        text: &str,
        request: &Request,
        now: u64,
    ) -> Result<TestTicket, TestRefusal> {
        let ticket = TestTicket::from_text(text)
            .map_err(|why| TestRefusal::new(ErrorNumber::PARAMETERS, why.to_string()))?;
        ticket.check_time(now)?;
        ticket.check_request(request)?;
        self.closes
            .retain(|_, closes| closes.saturating_add(Self::KEPT) >= now);
        if self.closes.contains_key(&ticket.slot) {
            return Err(ticket.refuse(ErrorNumber::TICKET_USED, "was used before"));
        }
        if self.closes.len() >= Self::MOST {
            let why = "comes after too many others";
            return Err(ticket.refuse(ErrorNumber::BUSY, why));
        }
        self.closes.insert(ticket.slot.clone(), ticket.closes);
        Ok(ticket)
    }
}

fn decode_base64(text: &str) -> Result<Vec<u8>, TicketError> {
    BASE64
        .decode(text)
        .map_err(|_| TicketError("it is not in base64url".to_owned()))
}

fn is_plain_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests;
