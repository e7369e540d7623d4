//! Service tokens: Lockgate's services prove themselves to one another by a JWT that lives a minute.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    jwt::{self, JwtError},
    keys::KeyRing,
    limits::SERVICE_TOKEN_SECONDS,
};

const TYP: &str = "lockgate-service+jwt";
/// Clocks of two hosts may differ by this much, in seconds.
const LEEWAY_SECONDS: i64 = 5;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    aud: String,
    iat: i64,
    exp: i64,
}

/// Signs service tokens for one audience and reuses each for half its life.
pub struct ServiceSigner {
    ring: Arc<KeyRing>,
    audience: &'static str,
    current: ArcSwapOption<(i64, String)>,
}

impl ServiceSigner {
    /// A signer for calls to `audience`.
    #[must_use]
    pub fn new(ring: Arc<KeyRing>, audience: &'static str) -> Self {
        Self { ring, audience, current: ArcSwapOption::empty() }
    }

    /// A token valid at `now`.
    ///
    /// # Errors
    /// [`JwtError::Malformed`], which the types rule out.
    pub fn token(&self, now: Timestamp) -> Result<Arc<(i64, String)>, JwtError> {
        let now = now.seconds();
        if let Some(current) = self.current.load_full()
            && (0..SERVICE_TOKEN_SECONDS / 2).contains(&(now - current.0))
        {
            return Ok(current);
        }
        let claims = Claims { aud: self.audience.into(), iat: now, exp: now + SERVICE_TOKEN_SECONDS };
        let key = self.ring.active();
        let signed = jwt::sign(TYP, key.kid(), key.service().algorithm, &key.service().encoding, &claims)?;
        let fresh = Arc::new((now, signed));
        self.current.store(Some(Arc::clone(&fresh)));
        Ok(fresh)
    }
}

/// Accepts a service token meant for `audience` at `now`.
///
/// # Errors
/// Why it is not accepted.
pub fn verify(token: &str, ring: &KeyRing, audience: &str, now: Timestamp) -> Result<(), JwtError> {
    let header = jwt::header(token)?;
    if header.typ.as_deref() != Some(TYP) {
        return Err(JwtError::Malformed);
    }
    let key = header.kid.as_deref().and_then(|kid| ring.get(kid)).ok_or(JwtError::UnknownKey)?.service();
    let claims: Claims = jwt::claims(token, &header, key.algorithm, &key.decoding)?;
    let now = now.seconds();
    if claims.aud != audience {
        return Err(JwtError::Malformed);
    }
    if now >= claims.exp.saturating_add(LEEWAY_SECONDS) {
        return Err(JwtError::Expired);
    }
    if claims.iat > now.saturating_add(LEEWAY_SECONDS)
        || claims.exp.saturating_sub(claims.iat) > SERVICE_TOKEN_SECONDS
    {
        return Err(JwtError::NotYetValid);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{demo_ring, other_ring};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1_800_000_000 + seconds)
    }

    #[test]
    fn is_reused_for_half_its_life_and_then_renewed() {
        let signer = ServiceSigner::new(Arc::new(demo_ring()), "stock-gate");
        let first = signer.token(at(0)).unwrap();
        assert_eq!(signer.token(at(29)).unwrap(), first);
        assert_ne!(signer.token(at(31)).unwrap(), first);
        // A clock set back must not keep a token that is "from the future".
        assert_ne!(signer.token(at(-100)).unwrap().0, first.0);
    }

    #[test]
    fn s2_only_the_right_ring_audience_and_minute() {
        let ring = demo_ring();
        let signer = ServiceSigner::new(Arc::new(demo_ring()), "stock-gate");
        let token = &signer.token(at(0)).unwrap().1;
        assert_eq!(verify(token, &ring, "stock-gate", at(0)), Ok(()));
        assert_eq!(verify(token, &ring, "checkout", at(0)), Err(JwtError::Malformed));
        assert_eq!(verify(token, &ring, "stock-gate", at(66)), Err(JwtError::Expired));
        assert_eq!(verify(token, &ring, "stock-gate", at(-60)), Err(JwtError::NotYetValid));
        assert!(verify(token, &other_ring(), "stock-gate", at(0)).is_err());
        assert!(crate::admission_token::AdmissionToken::verify(token, &ring, at(0)).is_err());
    }
}
