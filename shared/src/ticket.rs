//! The ticket: a place in line that proves itself.
//!
//! A ticket is one base64url string over `version | kid | sale | lane | seq | account | entered at | MAC`, the MAC
//! being HMAC-SHA256 (RFC 2104) under the ring's ticket key. Verifying one takes a MAC and no store call, and a
//! ticket outlives every store: nobody loses their place because a server lost its memory. It is opaque to clients.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::Mac as _;

use crate::{
    clock::Timestamp,
    ids::{AccountHash, SaleId},
    keys::KeyRing,
    limits::CREDENTIAL_BYTES_MAX,
};

/// A verified (or to be signed) place in line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The sale whose line this is.
    pub sale: SaleId,
    /// The lane, from 0.
    pub lane: u16,
    /// The place within the lane, from 0.
    pub seq: u64,
    /// Whose place it is.
    pub account: AccountHash,
    /// When it was taken.
    pub entered_at: Timestamp,
}

/// A string that is no valid ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// Not a ticket at all, or of another version.
    #[error("this is not a ticket")]
    Malformed,
    /// Signed by a key this ring does not know or no longer trusts.
    #[error("the ticket's key is not known here")]
    UnknownKey,
    /// Changed, or not signed by us.
    #[error("the ticket's signature does not match")]
    BadSignature,
}

const VERSION: u8 = 1;
const MAC_BYTES: usize = 32;

impl Ticket {
    /// Signs the ticket with the ring's active key.
    #[must_use]
    pub fn sign(&self, ring: &KeyRing) -> String {
        let key = ring.active();
        let mut bytes = Vec::with_capacity(192);
        bytes.push(VERSION);
        push_text(&mut bytes, key.kid());
        push_text(&mut bytes, self.sale.as_str());
        bytes.extend_from_slice(&self.lane.to_be_bytes());
        bytes.extend_from_slice(&self.seq.to_be_bytes());
        bytes.extend_from_slice(self.account.as_bytes());
        bytes.extend_from_slice(&self.entered_at.micros().to_be_bytes());
        let mut mac = key.ticket_mac();
        mac.update(&bytes);
        bytes.extend_from_slice(&mac.finalize().into_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads a ticket and checks its signature in constant time.
    ///
    /// # Errors
    /// Why it is not a ticket of this ring.
    pub fn verify(text: &str, ring: &KeyRing) -> Result<Self, TicketError> {
        if text.len() > CREDENTIAL_BYTES_MAX {
            return Err(TicketError::Malformed);
        }
        let mut buffer = [0; CREDENTIAL_BYTES_MAX];
        let length = URL_SAFE_NO_PAD.decode_slice(text, &mut buffer).map_err(|_| TicketError::Malformed)?;
        let bytes = &buffer[..length];
        let split = bytes.len().checked_sub(MAC_BYTES).ok_or(TicketError::Malformed)?;
        let (signed, mac) = bytes.split_at(split);
        let mut rest = signed;
        if take::<1>(&mut rest)? != [VERSION] {
            return Err(TicketError::Malformed);
        }
        let key = ring.get(take_text(&mut rest)?).ok_or(TicketError::UnknownKey)?;
        let mut expected = key.ticket_mac();
        expected.update(signed);
        expected.verify_slice(mac).map_err(|_| TicketError::BadSignature)?;
        let ticket = Self {
            sale: take_text(&mut rest)?.parse().map_err(|_| TicketError::Malformed)?,
            lane: u16::from_be_bytes(take(&mut rest)?),
            seq: u64::from_be_bytes(take(&mut rest)?),
            account: AccountHash::from_bytes(take(&mut rest)?),
            entered_at: Timestamp::from_micros(i64::from_be_bytes(take(&mut rest)?)),
        };
        if rest.is_empty() { Ok(ticket) } else { Err(TicketError::Malformed) }
    }
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    debug_assert!(text.len() <= usize::from(u8::MAX), "kids and sale ids are bounded far below this");
    bytes.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
    bytes.extend_from_slice(text.as_bytes());
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], TicketError> {
    let (head, tail) = rest.split_first_chunk().ok_or(TicketError::Malformed)?;
    *rest = tail;
    Ok(*head)
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Result<&'a str, TicketError> {
    let [length] = take::<1>(rest)?;
    let (head, tail) = rest.split_at_checked(usize::from(length)).ok_or(TicketError::Malformed)?;
    *rest = tail;
    std::str::from_utf8(head).map_err(|_| TicketError::Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::demo_ring;

    fn ticket() -> Ticket {
        Ticket {
            sale: "demo".parse().unwrap(),
            lane: 3,
            seq: 41,
            account: AccountHash::from_bytes([7; 16]),
            entered_at: Timestamp::from_seconds(1_800_000_000),
        }
    }

    #[test]
    fn s2_any_changed_bit_is_refused() {
        let ring = demo_ring();
        let signed = ticket().sign(&ring);
        assert_eq!(Ticket::verify(&signed, &ring), Ok(ticket()));
        let bytes = URL_SAFE_NO_PAD.decode(&signed).unwrap();
        for position in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[position / 8] ^= 1 << (position % 8);
            assert!(Ticket::verify(&URL_SAFE_NO_PAD.encode(&changed), &ring).is_err(), "bit {position}");
        }
    }

    #[test]
    fn s2_another_spelling_of_the_same_bytes_is_refused() {
        let ring = demo_ring();
        let signed = ticket().sign(&ring);
        for spelling in
            [format!("{signed}="), format!("{signed} "), format!(" {signed}"), signed.replace('_', "/")]
        {
            assert!(spelling == signed || Ticket::verify(&spelling, &ring).is_err(), "{spelling}");
        }
    }

    proptest! {
        #[test]
        fn any_ticket_reads_back(lane in any::<u16>(), seq in any::<u64>(), account in any::<[u8; 16]>(), at in 0..i64::MAX) {
            let ring = demo_ring();
            let ticket = Ticket { lane, seq, account: AccountHash::from_bytes(account), entered_at: Timestamp::from_micros(at), ..ticket() };
            prop_assert_eq!(Ticket::verify(&ticket.sign(&ring), &ring), Ok(ticket));
        }

        #[test]
        fn any_text_is_refused_calmly(text in ".{0,300}") {
            prop_assert!(Ticket::verify(&text, &demo_ring()).is_err());
        }
    }
}
