//! The key ring: one secret per key, and from it one independent key per purpose.
//!
//! A ring key is at least 256 bits of random. What signs tickets, admission tokens, service tokens, order access
//! keys, challenges and simulated webhooks is derived from it by HKDF-SHA256 (RFC 5869) under a name of its own, so that a
//! credential of one purpose can never pass for another. Rotation: publish a new key everywhere, activate it,
//! and retire the old one when what it signed has run out.

use std::{collections::HashMap, fmt, path::Path, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit as _};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::limits::{KEY_BYTES_MIN, KEYS_MAX};

/// HMAC-SHA256 (RFC 2104), keyed and ready to be cloned per message.
pub type HmacSha256 = Hmac<Sha256>;

/// What a derived key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Tickets: the place in line.
    Ticket,
    /// Admission tokens: the right to check out.
    AdmissionToken,
    /// Calls between Lockgate's own services.
    Service,
    /// The access key that opens one order.
    OrderAccess,
    /// Webhooks of the simulated payment gateway.
    SimulatedWebhook,
    /// Challenges of the proof of work.
    ProofOfWork,
}

const PURPOSES: [Purpose; 6] = [
    Purpose::Ticket,
    Purpose::AdmissionToken,
    Purpose::Service,
    Purpose::OrderAccess,
    Purpose::SimulatedWebhook,
    Purpose::ProofOfWork,
];

impl Purpose {
    fn label(self) -> &'static [u8] {
        match self {
            Self::Ticket => b"lockgate/v1/ticket",
            Self::AdmissionToken => b"lockgate/v1/admission-token",
            Self::Service => b"lockgate/v1/service",
            Self::OrderAccess => b"lockgate/v1/order-access",
            Self::SimulatedWebhook => b"lockgate/v1/simulated-webhook",
            Self::ProofOfWork => b"lockgate/v1/proof-of-work",
        }
    }
}

/// Where a key stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    /// Verifies, does not sign: known everywhere before it is used, or still trusted after it was used.
    Published,
    /// Signs and verifies. Exactly one key of a ring is active.
    Active,
    /// Neither: kept only so that its name is not given again.
    Retired,
}

/// One key as the ring file holds it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyEntry {
    /// The name that credentials carry: 1 to 32 of `a-z`, `0-9`, `-`.
    pub kid: String,
    /// At least 32 random bytes, base64url without padding.
    pub secret: String,
    /// Where the key stands.
    pub state: KeyState,
}

impl fmt::Debug for KeyEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyEntry {{ kid: {:?}, state: {:?}, secret: hidden }}", self.kid, self.state)
    }
}

/// The ring file: TOML, one `[[keys]]` table per key.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFile {
    /// The keys, oldest first.
    #[serde(default)]
    pub keys: Vec<KeyEntry>,
}

/// A ring that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}; {remedy}")]
pub struct KeyProblem {
    /// File and key.
    pub place: String,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

/// One usable key: everything that is derived from it, ready.
pub struct Key {
    kid: Arc<str>,
    ticket: HmacSha256,
    order_access: HmacSha256,
    proof_of_work: HmacSha256,
    jwt: [JwtKey; 2],
    webhook: [u8; 32],
}

/// A symmetric JWT key and its algorithm, which is a property of the key and never read from a token.
pub struct JwtKey {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Signs.
    pub encoding: EncodingKey,
    /// Verifies.
    pub decoding: DecodingKey,
}

/// The usable keys of a ring, by name.
pub struct KeyRing {
    keys: HashMap<Arc<str>, Arc<Key>>,
    active: Arc<Key>,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyRing {{ active: {:?}, usable: {} }}", self.active.kid, self.keys.len())
    }
}

impl Key {
    /// The name that credentials carry.
    #[must_use]
    pub fn kid(&self) -> &Arc<str> {
        &self.kid
    }

    /// A fresh MAC for a ticket.
    #[must_use]
    pub fn ticket_mac(&self) -> HmacSha256 {
        self.ticket.clone()
    }

    /// A fresh MAC for an order's access key.
    #[must_use]
    pub fn order_access_mac(&self) -> HmacSha256 {
        self.order_access.clone()
    }

    /// A fresh MAC for a proof-of-work challenge.
    #[must_use]
    pub fn proof_of_work_mac(&self) -> HmacSha256 {
        self.proof_of_work.clone()
    }

    /// The key that signs admission tokens.
    #[must_use]
    pub fn admission_token(&self) -> &JwtKey {
        &self.jwt[0]
    }

    /// The key that signs service tokens.
    #[must_use]
    pub fn service(&self) -> &JwtKey {
        &self.jwt[1]
    }

    /// The secret of the simulated gateway's webhooks.
    #[must_use]
    pub fn simulated_webhook(&self) -> &[u8; 32] {
        &self.webhook
    }

    fn derive(kid: &str, secret: &[u8]) -> Result<Self, String> {
        let [ticket, admission, service, order_access, webhook, proof_of_work] =
            PURPOSES.map(|purpose| expand(secret, purpose));
        let mac = |key: [u8; 32]| HmacSha256::new_from_slice(&key).map_err(|error| error.to_string());
        let jwt = |key: [u8; 32]| -> Result<JwtKey, String> {
            Ok(JwtKey {
                algorithm: Algorithm::HS256,
                encoding: EncodingKey::from_secret(&key).map_err(|error| error.to_string())?,
                decoding: DecodingKey::from_secret(&key).map_err(|error| error.to_string())?,
            })
        };
        Ok(Self {
            kid: kid.into(),
            ticket: mac(ticket)?,
            order_access: mac(order_access)?,
            proof_of_work: mac(proof_of_work)?,
            jwt: [jwt(admission)?, jwt(service)?],
            webhook,
        })
    }
}

fn expand(secret: &[u8], purpose: Purpose) -> [u8; 32] {
    let mut key = [0; 32];
    let expanded = Hkdf::<Sha256>::new(None, secret).expand(purpose.label(), &mut key);
    debug_assert!(expanded.is_ok(), "32 bytes are far below HKDF's limit of 8160");
    key
}

impl KeyFile {
    /// Reads a ring file.
    ///
    /// # Errors
    /// It cannot be read or is not a ring.
    pub fn read(path: &Path) -> Result<Self, KeyProblem> {
        let place = path.display().to_string();
        let problem = |problem: String, remedy: &str| KeyProblem {
            place: place.clone(),
            problem,
            remedy: remedy.into(),
        };
        let text = std::fs::read_to_string(path).map_err(|error| {
            problem(format!("cannot be read ({error})"), "make one with `lockgate keys new`")
        })?;
        // The message of a TOML error quotes the line it is about, which may hold a secret.
        toml::from_str(&text).map_err(|error| {
            let line =
                error.span().map_or(0, |span| text[..span.start.min(text.len())].lines().count().max(1));
            problem(
                format!("line {line} is not what a key ring holds"),
                "each [[keys]] table has kid, secret, state",
            )
        })
    }

    /// A new key, published, from 32 random bytes.
    #[must_use]
    pub fn new_key(kid: &str, random: [u8; 32]) -> KeyEntry {
        KeyEntry { kid: kid.into(), secret: URL_SAFE_NO_PAD.encode(random), state: KeyState::Published }
    }

    /// Makes `kid` the key that signs; the one before it goes on verifying.
    ///
    /// # Errors
    /// There is no such key, or it is retired.
    pub fn activate(&mut self, kid: &str) -> Result<(), String> {
        match self.keys.iter().find(|key| key.kid == kid) {
            None => return Err(format!("there is no key '{kid}' in the ring")),
            Some(key) if key.state == KeyState::Retired => return Err(format!("key '{kid}' is retired")),
            Some(_) => {}
        }
        for key in &mut self.keys {
            if key.kid == kid {
                key.state = KeyState::Active;
            } else if key.state == KeyState::Active {
                key.state = KeyState::Published;
            }
        }
        Ok(())
    }

    /// Stops trusting `kid` and forgets its secret: everything it signed is refused from then on.
    ///
    /// # Errors
    /// There is no such key, or it is the active one.
    pub fn retire(&mut self, kid: &str) -> Result<(), String> {
        match self.keys.iter_mut().find(|key| key.kid == kid) {
            None => Err(format!("there is no key '{kid}' in the ring")),
            Some(key) if key.state == KeyState::Active => {
                Err(format!("key '{kid}' is active; activate another one first"))
            }
            Some(key) => {
                key.state = KeyState::Retired;
                key.secret = String::new();
                Ok(())
            }
        }
    }

    /// The file's text.
    ///
    /// # Errors
    /// Never in practice; the serializer's words.
    pub fn to_toml(&self) -> Result<String, String> {
        toml::to_string(self).map_err(|error| error.to_string())
    }
}

impl KeyRing {
    /// Derives every usable key. `place` names the file in problems.
    ///
    /// # Errors
    /// Every problem found, at once: no or several active keys, weak secrets, doubled or wrong names.
    pub fn new(file: &KeyFile, place: &str) -> Result<Self, Vec<KeyProblem>> {
        let mut problems = Vec::new();
        let mut report = |place: String, problem: String, remedy: &str| {
            problems.push(KeyProblem { place, problem, remedy: remedy.into() });
        };
        let mut keys: HashMap<Arc<str>, Arc<Key>> = HashMap::new();
        let mut active = None;
        if file.keys.len() > KEYS_MAX {
            report(place.into(), format!("holds {} keys", file.keys.len()), "drop retired keys; 64 at most");
        }
        for entry in file.keys.iter().take(KEYS_MAX) {
            let here = format!("{place}, key '{}'", entry.kid);
            if let Err(problem) = check_kid(&entry.kid) {
                report(here.clone(), problem, "rename it");
            }
            if entry.state == KeyState::Retired {
                continue;
            }
            match usable(entry) {
                Ok(key) => {
                    let key = Arc::new(key);
                    if keys.insert(key.kid.clone(), key.clone()).is_some() {
                        report(here.clone(), "stands twice in the ring".into(), "remove one");
                    }
                    if entry.state == KeyState::Active && active.replace(key).is_some() {
                        report(
                            here,
                            "is a second active key".into(),
                            "run `lockgate keys activate` for one of them",
                        );
                    }
                }
                Err(problem) => report(here, problem, "make a new key with `lockgate keys new`"),
            }
        }
        match active {
            Some(active) if problems.is_empty() => Ok(Self { keys, active }),
            Some(_) => Err(problems),
            None => {
                let remedy = "run `lockgate keys new` and `lockgate keys activate`".into();
                problems.push(KeyProblem {
                    place: place.into(),
                    problem: "holds no active key".into(),
                    remedy,
                });
                Err(problems)
            }
        }
    }

    /// The key that signs.
    #[must_use]
    pub fn active(&self) -> &Arc<Key> {
        &self.active
    }

    /// The key named `kid`, unless it is retired or unknown.
    #[must_use]
    pub fn get(&self, kid: &str) -> Option<&Arc<Key>> {
        self.keys.get(kid)
    }

    /// Every usable key, in no order.
    pub fn usable(&self) -> impl Iterator<Item = &Arc<Key>> {
        self.keys.values()
    }
}

fn usable(entry: &KeyEntry) -> Result<Key, String> {
    let secret =
        URL_SAFE_NO_PAD.decode(&entry.secret).map_err(|_| "has a secret that is not base64url".to_owned())?;
    if secret.len() < KEY_BYTES_MIN {
        return Err(format!("has a secret of {} bytes; at least {KEY_BYTES_MIN} are needed", secret.len()));
    }
    // A typed-in passphrase or a constant repeats few byte values; 32 random bytes hold 30 distinct ones on average.
    let distinct = secret.iter().collect::<std::collections::HashSet<_>>().len();
    if distinct < 16 {
        return Err(format!("has a secret of only {distinct} distinct byte values, which is not random"));
    }
    Key::derive(&entry.kid, &secret)
}

fn check_kid(kid: &str) -> Result<(), String> {
    let plain = kid.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    if kid.is_empty() || kid.len() > 32 || !plain {
        return Err("has a name that is not 1 to 32 of a-z, 0-9 and '-'".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u8) -> [u8; 32] {
        std::array::from_fn(|i| (i as u8).wrapping_mul(37).wrapping_add(seed))
    }

    fn file(states: &[KeyState]) -> KeyFile {
        let keys = states.iter().enumerate().map(|(i, state)| KeyEntry {
            state: *state,
            ..KeyFile::new_key(&format!("k{i}"), random(i as u8))
        });
        KeyFile { keys: keys.collect() }
    }

    #[test]
    fn derived_keys_differ_by_purpose_and_by_secret() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..3 {
            for purpose in PURPOSES {
                assert!(seen.insert(expand(&random(seed), purpose)), "{purpose:?}");
            }
        }
    }

    #[test]
    fn weak_and_contradictory_rings_are_refused_with_every_problem() {
        let mut ring = file(&[KeyState::Active, KeyState::Active, KeyState::Published]);
        ring.keys[2].secret = URL_SAFE_NO_PAD.encode([b'a'; 32]);
        let problems = KeyRing::new(&ring, "keys.toml").unwrap_err();
        let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(text.len(), 2, "{text:?}");
        assert!(text[0].contains("second active") && text[1].contains("not random"), "{text:?}");
        assert!(KeyRing::new(&KeyFile::default(), "keys.toml").unwrap_err()[0].problem.contains("no active"));
    }

    #[test]
    fn rotation_overlaps_and_a_retired_key_is_gone() {
        let mut ring = file(&[KeyState::Active, KeyState::Published]);
        assert!(ring.retire("k0").is_err());
        ring.activate("k1").unwrap();
        let usable = KeyRing::new(&ring, "t").unwrap();
        assert_eq!(&**usable.active().kid(), "k1");
        assert!(usable.get("k0").is_some());
        ring.retire("k0").unwrap();
        assert!(KeyRing::new(&ring, "t").unwrap().get("k0").is_none());
        assert!(ring.activate("k0").is_err());
    }

    #[test]
    fn no_secret_is_ever_printed() {
        let ring = file(&[KeyState::Active]);
        let secret = ring.keys[0].secret.clone();
        assert!(!format!("{ring:?}").contains(&secret));
        assert!(!format!("{:?}", KeyRing::new(&ring, "t").unwrap()).contains(&secret));
    }
}
