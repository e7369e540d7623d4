//! The admission token: the right to check out, as a JWT that any verifier reads without a look-up.
//!
//! HS256 under the ring's admission key; `typ` is `lockgate-admission+jwt` (explicit typing, RFC 8725 section 3.11).
//! Raising a sale's epoch revokes every token issued before.

use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    ids::{AccountHash, SaleId},
    jwt::{self, JwtError},
    keys::KeyRing,
};

const TYP: &str = "lockgate-admission+jwt";
const ISSUER: &str = "lockgate";
const AUDIENCE: &str = "lockgate-checkout";

/// What an admission token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdmissionToken {
    iss: String,
    aud: String,
    /// The account that was admitted.
    pub sub: AccountHash,
    /// The sale it was admitted to.
    pub sale: SaleId,
    /// The token's id: one per admission.
    pub jti: String,
    /// Issued at, seconds since the Unix epoch.
    pub iat: i64,
    /// Not valid before, seconds since the Unix epoch.
    pub nbf: i64,
    /// Not valid from then on, seconds since the Unix epoch.
    pub exp: i64,
    /// The sale's revocation epoch when it was issued.
    pub epoch: u32,
}

/// What distinguishes one admission from another.
#[derive(Clone, Debug)]
pub struct Admission<'a> {
    /// The account that was admitted.
    pub account: AccountHash,
    /// The sale it was admitted to.
    pub sale: &'a SaleId,
    /// The token's id.
    pub jti: &'a str,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// When it runs out.
    pub expires_at: Timestamp,
    /// The sale's revocation epoch.
    pub epoch: u32,
}

impl AdmissionToken {
    /// Signs a token with the ring's active key.
    ///
    /// # Errors
    /// [`JwtError::Malformed`], which the types rule out.
    pub fn sign(admission: &Admission<'_>, ring: &KeyRing) -> Result<String, JwtError> {
        let issued = admission.issued_at.seconds();
        let claims = Self {
            iss: ISSUER.into(),
            aud: AUDIENCE.into(),
            sub: admission.account,
            sale: admission.sale.clone(),
            jti: admission.jti.into(),
            iat: issued,
            nbf: issued,
            exp: admission.expires_at.seconds(),
            epoch: admission.epoch,
        };
        let key = ring.active();
        let jwt_key = key.admission_token();
        jwt::sign(TYP, key.kid(), jwt_key.algorithm, &jwt_key.encoding, &claims)
    }

    /// Verifies signature, kind, issuer, audience and times at `now`. Sale and epoch are the caller's to compare.
    ///
    /// # Errors
    /// Why it is not accepted.
    pub fn verify(token: &str, ring: &KeyRing, now: Timestamp) -> Result<Self, JwtError> {
        let header = jwt::header(token)?;
        if header.typ.as_deref() != Some(TYP) {
            return Err(JwtError::Malformed);
        }
        let kid = header.kid.as_deref().ok_or(JwtError::UnknownKey)?;
        let key = ring.get(kid).ok_or(JwtError::UnknownKey)?.admission_token();
        let claims: Self = jwt::claims(token, &header, key.algorithm, &key.decoding)?;
        if claims.iss != ISSUER || claims.aud != AUDIENCE {
            return Err(JwtError::Malformed);
        }
        if now.seconds() < claims.nbf {
            return Err(JwtError::NotYetValid);
        }
        if now.seconds() >= claims.exp {
            return Err(JwtError::Expired);
        }
        Ok(claims)
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

    use super::*;
    use crate::testing::{demo_ring, other_ring};

    const NOW: i64 = 1_800_000_000;

    fn sign(ring: &KeyRing) -> String {
        let admission = Admission {
            account: AccountHash::from_bytes([9; 16]),
            sale: &"demo".parse().unwrap(),
            jti: "j1",
            issued_at: Timestamp::from_seconds(NOW),
            expires_at: Timestamp::from_seconds(NOW + 600),
            epoch: 0,
        };
        AdmissionToken::sign(&admission, ring).unwrap()
    }

    fn verify_at(token: &str, seconds: i64) -> Result<AdmissionToken, JwtError> {
        AdmissionToken::verify(token, &demo_ring(), Timestamp::from_seconds(seconds))
    }

    /// The token with another header or other claims and a signature by the right key, so that only the rule
    /// under test can refuse it.
    fn resigned(header: Option<&str>, claims: Option<&str>) -> String {
        let ring = demo_ring();
        let token = sign(&ring);
        let mut parts = token.split('.').map(str::to_owned);
        let (old_header, old_claims) = (parts.next().unwrap(), parts.next().unwrap());
        let header = header.map_or(old_header, |text| URL_SAFE_NO_PAD.encode(text));
        let claims = claims.map_or(old_claims, |text| URL_SAFE_NO_PAD.encode(text));
        let message = format!("{header}.{claims}");
        let key = ring.active().admission_token();
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key.encoding, key.algorithm).unwrap();
        format!("{message}.{signature}")
    }

    fn header_json(more: &str) -> String {
        let ring = demo_ring();
        format!(r#"{{"alg":"HS256","typ":"{TYP}","kid":"{}"{more}}}"#, ring.active().kid())
    }

    #[test]
    fn lives_from_nbf_to_exp() {
        let token = sign(&demo_ring());
        assert_eq!(verify_at(&token, NOW).unwrap().jti, "j1");
        assert_eq!(verify_at(&token, NOW - 1), Err(JwtError::NotYetValid));
        assert!(verify_at(&token, NOW + 599).is_ok());
        assert_eq!(verify_at(&token, NOW + 600), Err(JwtError::Expired));
    }

    #[test]
    fn s7_headers_that_steer_the_verifier_are_refused() {
        assert!(
            verify_at(&resigned(Some(&header_json("")), None), NOW).is_ok(),
            "the attack frame itself is sound"
        );
        for more in [
            r#","crit":["exp"]"#,
            r#","jku":"https://evil.example/keys""#,
            r#","x5u":"https://evil.example/x""#,
            r#","jwk":{"kty":"oct","k":"AAAA"}"#,
            r#","alg":"HS256""#,
        ] {
            assert!(verify_at(&resigned(Some(&header_json(more)), None), NOW).is_err(), "{more}");
        }
        let ring = demo_ring();
        for alg in ["none", "None", "NONE", "nOnE", "HS512", "RS256", "EdDSA", "", "hs256"] {
            let header = format!(r#"{{"alg":"{alg}","typ":"{TYP}","kid":"{}"}}"#, ring.active().kid());
            assert!(verify_at(&resigned(Some(&header), None), NOW).is_err(), "{alg}");
        }
        for kid in ["../../dev/null", "' OR 1=1 --", "$(id)", "", "k9"] {
            let header = format!(r#"{{"alg":"HS256","typ":"{TYP}","kid":"{kid}"}}"#);
            assert_eq!(verify_at(&resigned(Some(&header), None), NOW), Err(JwtError::UnknownKey), "{kid}");
        }
        for typ in ["JWT", "lockgate-service+jwt", "at+jwt"] {
            let header = format!(r#"{{"alg":"HS256","typ":"{typ}","kid":"{}"}}"#, ring.active().kid());
            assert_eq!(verify_at(&resigned(Some(&header), None), NOW), Err(JwtError::Malformed), "{typ}");
        }
    }

    #[test]
    fn s7_claims_of_the_wrong_shape_are_refused() {
        let claims = |exp: &str, more: &str| {
            format!(
                r#"{{"iss":"lockgate","aud":"lockgate-checkout","sub":"CQkJCQkJCQkJCQkJCQkJCQ","sale":"demo","jti":"j","iat":{NOW},"nbf":{NOW},"exp":{exp},"epoch":0{more}}}"#
            )
        };
        let later = (NOW + 600).to_string();
        assert!(verify_at(&resigned(None, Some(&claims(&later, ""))), NOW).is_ok());
        for exp in ["\"1900000000\"", "-1", "1e300", "null", "true", "[]", "9999999999999999999999"] {
            assert!(verify_at(&resigned(None, Some(&claims(exp, ""))), NOW).is_err(), "{exp}");
        }
        for more in [r#","exp":1900000000"#, r#","sub":"CQkJCQkJCQkJCQkJCQkJCQ""#, r#","admin":true"#] {
            assert!(verify_at(&resigned(None, Some(&claims(&later, more))), NOW).is_err(), "{more}");
        }
        let foreign = claims(&later, "").replace("lockgate-checkout", "other");
        assert_eq!(verify_at(&resigned(None, Some(&foreign)), NOW), Err(JwtError::Malformed));
    }

    #[test]
    fn s2_signatures_are_exact() {
        let ring = demo_ring();
        let token = sign(&ring);
        let (message, signature) = token.rsplit_once('.').unwrap();
        assert!(verify_at(message, NOW).is_err());
        assert!(verify_at(&format!("{message}."), NOW).is_err());
        assert!(verify_at(&format!("{message}.{}", "A".repeat(signature.len())), NOW).is_err());
        assert!(verify_at(&sign(&other_ring()), NOW).is_err());
        // 32 bytes end in a character with 2 unused bits: three other spellings decode alike in a lax decoder.
        let last = signature.chars().last().unwrap();
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let index = alphabet.find(last).unwrap();
        for twin in (index & !3)..(index & !3) + 4 {
            let spelled =
                format!("{message}.{}{}", &signature[..signature.len() - 1], &alphabet[twin..=twin]);
            assert_eq!(verify_at(&spelled, NOW).is_ok(), twin == index);
        }
    }
}
