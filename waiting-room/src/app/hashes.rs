//! Who is who, by the sale's keys: accounts, their lanes, the ids of their tokens.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use lockgate_shared::{ids::AccountHash, ticket::Ticket};
use sha2::Sha256;

/// The id of the one token a place is exchanged for in an epoch. It follows from the place, so that a store that has
/// lost the exchange cannot cause a second token.
pub(super) fn token_id(key: &[u8; 32], ticket: &Ticket, epoch: u32) -> String {
    let (lane, seq) = (ticket.lane.to_be_bytes(), ticket.seq.to_be_bytes());
    let parts: [&[u8]; 5] = [b"token\0", ticket.account.as_bytes(), &lane, &seq, &epoch.to_be_bytes()];
    URL_SAFE_NO_PAD.encode(&keyed_hash(key, &parts)[..16])
}

pub(crate) fn keyed_hash(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    // HMAC takes keys of any length, so this cannot fail for one of 32 bytes.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return [0; 32];
    };
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

pub(crate) fn account_hash(key: &[u8; 32], purpose: &[u8], name: &[u8]) -> AccountHash {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&keyed_hash(key, &[purpose, name])[..16]);
    AccountHash::from_bytes(bytes)
}

/// The lane of an account.
pub(crate) fn lane_of(key: &[u8; 32], account: AccountHash, lanes: u16) -> u16 {
    let [a, b, c, d, e, f, g, h, ..] = keyed_hash(key, &[account.as_bytes()]);
    let lane = u64::from_be_bytes([a, b, c, d, e, f, g, h]) % u64::from(lanes.max(1));
    u16::try_from(lane).unwrap_or(0)
}
