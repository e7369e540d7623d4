//! PURE: what a claim is, the record of it that travels with the hold, and the answer that is rebuilt from it.
//!
//! The gate is the store of idempotency: the memo says what was asked for, so a repeated request is compared with
//! it and answered from it, the same for ever, without a table of its own.

use std::fmt::Write as _;

use lockgate_shared::{
    events::Event,
    gate::Hold,
    ids::{AccountHash, ClaimId, ItemId, SaleId},
    language::Language,
    limits::EMAIL_BYTES_MAX,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    order::{Intake, Placement},
    payment::Money,
};

/// What a shopper asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The item.
    pub item: ItemId,
    /// How many units.
    pub quantity: u32,
    /// Where to write to, already in its plain form.
    pub email: Option<String>,
    /// In which language, where the request said so. The same wish in another language is the same wish.
    pub language: Option<Language>,
}

impl Wish {
    /// SHA-256 over the canonical form of the body, in hex: two bodies that ask for the same have the same.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let canonical = serde_json::json!([self.item.as_str(), self.quantity, self.email]);
        let mut text = String::with_capacity(64);
        for byte in Sha256::digest(canonical.to_string()) {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// Longest part of an address before the `@` (RFC 5321, section 4.5.3.1.1).
const LOCAL_PART_BYTES_MAX: usize = 64;
/// Longest label of a host (RFC 1035, section 2.3.4).
const LABEL_BYTES_MAX: usize = 63;

/// An e-mail address in its plain form, or why it cannot be one. Whether it exists only a mail can show.
///
/// # Errors
/// What is wrong, in words for the shopper.
pub fn check_email(text: &str) -> Result<Option<String>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    if text.len() > EMAIL_BYTES_MAX {
        return Err(format!("has more than {EMAIL_BYTES_MAX} bytes"));
    }
    if text.contains([',', ';']) || text.matches('@').count() > 1 {
        return Err("holds more than one address; give one such as name@example.org, or none".to_owned());
    }
    if !text.split_once('@').is_some_and(|(local, host)| is_local_part(local) && is_mail_host(host)) {
        let detail = "is no address that mail can be sent to; give one such as name@example.org, or none";
        return Err(detail.to_owned());
    }
    Ok(Some(text.to_owned()))
}

/// What stands before the `@`, unquoted (RFC 5322's dot-atom, with RFC 6531's letters). Nothing in it ends a header,
/// begins another address, or is not seen.
fn is_local_part(text: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c);
    text.len() <= LOCAL_PART_BYTES_MAX
        && text.split('.').all(|atom| !atom.is_empty() && atom.chars().all(fits))
}

/// A name of two labels or more. One label, or a bare number, is an address mail on the Internet does not reach.
fn is_mail_host(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_alphanumeric() || c == '-')
    };
    text.rsplit_once('.').is_some_and(|(_, last)| !last.bytes().all(|byte| byte.is_ascii_digit()))
        && text.split('.').all(is_label)
}

/// The record kept with the hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memo {
    /// What was asked for, hashed.
    pub fingerprint: String,
    /// The price of all units.
    pub amount: i64,
    /// Its currency.
    pub currency: String,
    /// Where to write to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// In which language; a memo without it is of a shopper who named none, or of an earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<Language>,
    /// The key the access key was made with, so that a repeated request gets the same one.
    pub kid: String,
}

impl Memo {
    /// As it travels.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Texts and numbers always serialize; an empty memo would be told apart and put aside on reading.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is not a memo of ours.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("the memo cannot be read: {error}"))
    }
}

/// What the hold of a claim says about its order.
///
/// # Errors
/// The memo cannot be read.
pub fn placement_of_hold(sale: &SaleId, hold: &Hold) -> Result<Placement, String> {
    let memo = Memo::parse(&hold.memo)?;
    Ok(Placement {
        order: hold.claim,
        sale: sale.clone(),
        account: hold.account,
        item: hold.item.clone(),
        units: hold.units.clone(),
        price: Money { amount: memo.amount, currency: memo.currency },
        email: memo.email,
        language: memo.language,
        claimed_at: hold.claimed_at,
        hold_expires_at: hold.deadline,
    })
}

/// What an event of the gate says about an order.
///
/// # Errors
/// No order can be made of it.
pub fn intake_of_event(sale: &SaleId, event: &Event) -> Result<Intake, String> {
    use lockgate_shared::events::EventKind;
    let memo = match (Memo::parse(&event.memo), event.kind) {
        (Ok(memo), _) => memo,
        // Without an order nobody can pay, so units that are to come back may: an order that is never payable
        // lets them.
        (Err(_), EventKind::Expiring | EventKind::Released) => Memo {
            fingerprint: String::new(),
            amount: 0,
            currency: "XXX".to_owned(),
            email: None,
            language: None,
            kid: String::new(),
        },
        (Err(problem), EventKind::Claimed | EventKind::Committed) => return Err(problem),
    };
    let placement = Placement {
        order: event.claim,
        sale: sale.clone(),
        account: event.account,
        item: event.item.clone(),
        units: event.units.clone(),
        price: Money { amount: memo.amount, currency: memo.currency },
        email: memo.email,
        language: memo.language,
        claimed_at: event.claimed_at,
        hold_expires_at: event.deadline,
    };
    Ok(match event.kind {
        EventKind::Claimed => Intake::Claimed(placement),
        EventKind::Expiring => Intake::Expiring(placement),
        EventKind::Committed => Intake::Committed(placement),
        EventKind::Released => Intake::Released(placement),
    })
}

/// The claim a key names for an account.
#[must_use]
pub fn claim_id(sale: &SaleId, account: &AccountHash, key: &str) -> ClaimId {
    ClaimId::derive(sale, account, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(item: &str, quantity: u32, email: Option<&str>) -> Wish {
        Wish { item: item.parse().unwrap(), quantity, email: email.map(str::to_owned), language: None }
    }

    #[test]
    fn fingerprints_tell_bodies_apart() {
        let first = wish("phone", 1, None).fingerprint();
        assert_eq!(first, wish("phone", 1, None).fingerprint());
        assert_eq!(first.len(), 64);
        for other in [wish("phone", 2, None), wish("phone2", 1, None), wish("phone", 1, Some("a@b"))] {
            assert_ne!(first, other.fingerprint());
        }
        let in_german = Wish { language: Some(Language::German), ..wish("phone", 1, None) };
        assert_eq!(first, in_german.fingerprint(), "another language is no other wish");
    }

    #[test]
    fn addresses_are_plausible_and_carry_nothing_else() {
        assert_eq!(check_email("").unwrap(), None);
        assert_eq!(check_email(" ä.b+c@example.org ").unwrap().unwrap(), "ä.b+c@example.org");
        for good in [
            "o'brien+x@exa-mple.co.uk",
            "a@1.example",
            "a@münchen.example",
            &format!("{}@e.org", "a".repeat(64)),
        ] {
            assert_eq!(check_email(good).unwrap().as_deref(), Some(good));
        }
        let long = format!("{}@example.org", "a".repeat(250));
        let turned = ["gro.elpmaxe@\u{202e}a", "a\u{2066}b@c", "a\u{200f}b@c", "a\u{7f}b@c", "a\u{200b}@c"];
        for bad in turned {
            assert!(check_email(bad).is_err(), "{bad:?}");
        }
        for bad in ["a", "@b", "a@", "a@b@c", "a b@c", "a@b\r\nBcc: x@y", "a@b,c@d", "<a@b>", &long] {
            assert!(check_email(bad).is_err(), "{bad}");
        }
        for several in ["a@b.c, d@e.f", "a@b.c,d@e.f", "a@b.c; d@e.f", "a@b.c d@e.f"] {
            assert!(check_email(several).unwrap_err().contains("more than one"), "{several}");
        }
        let long_local = format!("{}@example.org", "a".repeat(65));
        for unsent in [
            "a..b@example.org",
            ".a@example.org",
            "a.@example.org",
            "a\\@example.org",
            "(a)@example.org",
            "a@b",
            "a@-x-.org",
            "a@example.org.",
            "a@.org",
            "a@exa_mple.org",
            "a@[127.0.0.1]",
            "a@127.0.0.1",
            "a@x!.org",
            &long_local,
        ] {
            assert!(check_email(unsent).unwrap_err().contains("no address that mail"), "{unsent}");
        }
    }

    #[test]
    fn a_memo_reads_back() {
        let memo = Memo {
            fingerprint: "f".into(),
            amount: 1,
            currency: "EUR".into(),
            email: None,
            language: Some(Language::German),
            kid: "k1".into(),
        };
        assert_eq!(Memo::parse(&memo.to_text()), Ok(memo));
        let old = r#"{"fingerprint":"f","amount":1,"currency":"EUR","kid":"k1"}"#;
        assert_eq!(Memo::parse(old).unwrap().language, None);
        let of_a_later_release = old.replace('{', r#"{"language":"tlh","#);
        assert_eq!(Memo::parse(&of_a_later_release).unwrap().language, Some(Language::English));
        assert!(Memo::parse("").is_err());
    }
}
