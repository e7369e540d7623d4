//! Strict reading of JSON Web Tokens (RFC 7519, with the advice of RFC 8725), on top of `jsonwebtoken`.
//!
//! A header holds `alg`, `typ` and `kid` and nothing else: whatever could make a verifier fetch, trust or guess a
//! key (`jwk`, `jku`, `x5u`, `crit` …) is refused unread. The algorithm is a property of the key. Members given
//! twice are refused. Times are arguments.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::limits::CREDENTIAL_BYTES_MAX;

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// Not a token of the kind expected here.
    #[error("it is not a token of the expected kind")]
    Malformed,
    /// Signed by a key this verifier does not know.
    #[error("its key is not known here")]
    UnknownKey,
    /// Changed, or not signed by that key.
    #[error("its signature does not match")]
    BadSignature,
    /// Its time is over.
    #[error("it has expired")]
    Expired,
    /// Its time has not come.
    #[error("it is not valid yet")]
    NotYetValid,
}

/// The only header members that are read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StrictHeader {
    /// The algorithm the token claims; compared with the key's, never followed.
    pub alg: String,
    /// The kind of token.
    pub typ: Option<String>,
    /// The key's name.
    pub kid: Option<String>,
}

/// Reads the header alone, to find the key by its name.
///
/// # Errors
/// [`JwtError::Malformed`].
pub fn header(token: &str) -> Result<StrictHeader, JwtError> {
    if token.len() > CREDENTIAL_BYTES_MAX || token.bytes().filter(|b| *b == b'.').count() != 2 {
        return Err(JwtError::Malformed);
    }
    let (encoded, _) = token.split_once('.').ok_or(JwtError::Malformed)?;
    let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| JwtError::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| JwtError::Malformed)
}

/// Checks the signature and reads the claims. Times, audience and issuer are the caller's to check.
///
/// # Errors
/// The algorithm is not the key's, the signature does not match, or the claims are not of type `C`.
pub fn claims<C: DeserializeOwned>(
    token: &str,
    header: &StrictHeader,
    algorithm: Algorithm,
    key: &DecodingKey,
) -> Result<C, JwtError> {
    if header.alg.parse::<Algorithm>() != Ok(algorithm) {
        return Err(JwtError::BadSignature);
    }
    let mut validation = Validation::new(algorithm);
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    match jsonwebtoken::decode::<C>(token, key, &validation) {
        Ok(data) => Ok(data.claims),
        Err(error) => Err(match error.kind() {
            jsonwebtoken::errors::ErrorKind::InvalidSignature => JwtError::BadSignature,
            _ => JwtError::Malformed,
        }),
    }
}

/// Signs `claims` as a token of kind `typ`.
///
/// # Errors
/// [`JwtError::Malformed`] when the claims do not serialize, which none of ours do.
pub fn sign<C: Serialize>(
    typ: &str,
    kid: &str,
    algorithm: Algorithm,
    key: &EncodingKey,
    claims: &C,
) -> Result<String, JwtError> {
    let mut header = Header::new(algorithm);
    header.typ = Some(typ.to_owned());
    header.kid = Some(kid.to_owned());
    jsonwebtoken::encode(&header, claims, key).map_err(|_| JwtError::Malformed)
}
