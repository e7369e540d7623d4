//! Reads the shop's word that an account may enter: a JWT `{sub: account, aud: sale id, exp}` under one of the
//! sale's keys.

use std::{collections::HashMap, fmt, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey};
use lockgate_shared::{
    clock::Timestamp,
    ids::SaleId,
    jwt::{self, JwtError},
    limits::{ACCOUNT_NAME_BYTES_MAX, KEY_BYTES_MIN},
    sale::{EligibilityAlgorithm, EligibilityKey, SaleProblem},
};
use serde::Deserialize;

/// How far the shop's clock may be ahead of ours, for `nbf` and `iat`.
const LEEWAY: Duration = Duration::from_secs(60);

/// The keys of one sale, ready to verify.
#[derive(Default)]
pub struct Verifier {
    keys: HashMap<String, Option<(Algorithm, DecodingKey)>>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.keys.keys()).finish()
    }
}

/// Why nobody may enter by this token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotEligible {
    /// The token itself is not accepted.
    #[error("{0}")]
    Token(#[from] JwtError),
    /// It is for another sale.
    #[error("it is for another sale")]
    OtherSale,
    /// It names no account, or a name that is too long.
    #[error("it names no account of 1 to {ACCOUNT_NAME_BYTES_MAX} bytes")]
    NoAccount,
    /// Its key is the sale's, but this process was not given its secret.
    #[error("its key is not set up here")]
    KeyNotSetUp,
}

impl NotEligible {
    /// The reason as programs are told it.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Token(JwtError::Malformed) => "malformed",
            Self::Token(JwtError::UnknownKey) => "unknown_key",
            Self::Token(JwtError::BadSignature) => "bad_signature",
            Self::Token(JwtError::Expired) => "expired",
            Self::Token(JwtError::NotYetValid) => "not_yet_valid",
            Self::OtherSale => "other_sale",
            Self::NoAccount => "no_account",
            Self::KeyNotSetUp => "key_not_set_up",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    sub: String,
    aud: Audience,
    exp: i64,
    #[serde(default)]
    nbf: Option<i64>,
    #[serde(default)]
    iat: Option<i64>,
    #[serde(default, rename = "jti")]
    _jti: Option<String>,
    #[serde(default, rename = "iss")]
    _iss: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn names(&self, sale: &SaleId) -> bool {
        match self {
            Self::One(one) => one == sale.as_str(),
            Self::Many(many) => many.iter().any(|one| one == sale.as_str()),
        }
    }
}

impl Verifier {
    /// Makes the sale's keys ready; `environment` reads an environment variable. A key that cannot be used is a
    /// problem, and refuses what it signed, without hindering the others.
    #[must_use]
    pub fn new(
        keys: &[EligibilityKey],
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> (Self, Vec<SaleProblem>) {
        let mut problems = Vec::new();
        let mut ready = HashMap::new();
        for (index, key) in keys.iter().enumerate() {
            let usable = usable(key, environment).map_err(|(field, problem, remedy)| {
                problems.push(SaleProblem::new(
                    format!("eligibility_keys[{index}].{field}"),
                    "",
                    problem,
                    remedy,
                ));
            });
            ready.insert(key.kid.clone(), usable.ok());
        }
        (Self { keys: ready }, problems)
    }

    /// The account that `token` lets into `sale`.
    ///
    /// # Errors
    /// Why it lets nobody in.
    pub fn account(&self, token: &str, sale: &SaleId, now: Timestamp) -> Result<String, NotEligible> {
        let header = jwt::header(token)?;
        if header.typ.as_deref().is_some_and(|typ| !typ.eq_ignore_ascii_case("JWT")) {
            return Err(JwtError::Malformed.into());
        }
        let kid = header.kid.as_deref().ok_or(JwtError::UnknownKey)?;
        let key = self.keys.get(kid).ok_or(JwtError::UnknownKey)?;
        let (algorithm, key) = key.as_ref().ok_or(NotEligible::KeyNotSetUp)?;
        let claims: Claims = jwt::claims(token, &header, *algorithm, key)?;
        if now.seconds() >= claims.exp {
            return Err(JwtError::Expired.into());
        }
        let latest = now.plus(LEEWAY).seconds();
        if claims.nbf.max(claims.iat).is_some_and(|from| from > latest) {
            return Err(JwtError::NotYetValid.into());
        }
        if !claims.aud.names(sale) {
            return Err(NotEligible::OtherSale);
        }
        if claims.sub.is_empty() || claims.sub.len() > ACCOUNT_NAME_BYTES_MAX {
            return Err(NotEligible::NoAccount);
        }
        Ok(claims.sub)
    }
}

type Unusable = (&'static str, String, &'static str);

fn usable(
    key: &EligibilityKey,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<(Algorithm, DecodingKey), Unusable> {
    match key.algorithm {
        EligibilityAlgorithm::Hs256 => {
            let name = key.secret_env.as_deref().unwrap_or_default();
            let remedy =
                "set it to the shop's secret as base64url without padding, at least 32 bytes, and restart";
            let fault =
                |what: &str| ("secret_env", format!("the environment variable {name} {what}"), remedy);
            let text = environment(name).ok_or_else(|| fault("is not set"))?;
            let secret =
                URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|_| fault("is not base64url"))?;
            if secret.len() < KEY_BYTES_MIN {
                return Err(fault("holds fewer than 32 bytes"));
            }
            let key = DecodingKey::from_secret(&secret).map_err(|_| fault("is no key"))?;
            Ok((Algorithm::HS256, key))
        }
        EligibilityAlgorithm::EdDsa => {
            let text = key.public_key.as_deref().unwrap_or_default();
            let key = DecodingKey::from_ed_components(text).map_err(|_| {
                let remedy = "write the raw 32 bytes of the public key as base64url without padding";
                ("public_key", "is no Ed25519 public key".to_owned(), remedy)
            })?;
            Ok((Algorithm::EdDSA, key))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use jsonwebtoken::{EncodingKey, Header};
    use serde_json::{Value, json};

    use super::*;

    pub(crate) const SECRET: [u8; 32] = *b"an eligibility secret of the sho";
    const NOW: i64 = 1_800_000_000;

    /// What the environment of a well configured process says.
    pub(crate) fn environment(name: &str) -> Option<String> {
        (name == "SHOP_ELIGIBILITY_KEY").then(|| URL_SAFE_NO_PAD.encode(SECRET))
    }

    /// A token of the shop's with these claims.
    pub(crate) fn signed(claims: &Value) -> String {
        let mut header = Header::new(Algorithm::HS256);
        header.kid = Some("shop-1".into());
        let key = EncodingKey::from_secret(&SECRET).unwrap();
        jsonwebtoken::encode(&header, claims, &key).unwrap()
    }

    fn key() -> EligibilityKey {
        EligibilityKey {
            kid: "shop-1".into(),
            algorithm: EligibilityAlgorithm::Hs256,
            secret_env: Some("SHOP_ELIGIBILITY_KEY".into()),
            public_key: None,
        }
    }

    fn account(token: &str) -> Result<String, NotEligible> {
        let (verifier, problems) = Verifier::new(&[key()], &environment);
        assert_eq!(problems, []);
        verifier.account(token, &"demo".parse().unwrap(), Timestamp::from_seconds(NOW))
    }

    #[test]
    fn the_shops_word_is_read() {
        let plain = json!({"sub": "ann@shop", "aud": "demo", "exp": NOW + 60});
        assert_eq!(account(&signed(&plain)), Ok("ann@shop".into()));
        let full = json!({"sub": "ann", "aud": ["x", "demo"], "exp": NOW + 1, "nbf": NOW, "iat": NOW + 30, "iss": "shop", "jti": "1"});
        assert_eq!(account(&signed(&full)), Ok("ann".into()));
    }

    #[test]
    fn s7_everything_else_is_refused_with_its_reason() {
        let refused = |claims: Value| account(&signed(&claims)).unwrap_err();
        let exp = NOW + 60;
        assert_eq!(refused(json!({"sub": "a", "aud": "demo", "exp": NOW})), JwtError::Expired.into());
        assert_eq!(refused(json!({"sub": "a", "aud": "other", "exp": exp})), NotEligible::OtherSale);
        assert_eq!(
            refused(json!({"sub": "a", "aud": "demo", "exp": exp, "nbf": NOW + 61})),
            JwtError::NotYetValid.into()
        );
        assert_eq!(refused(json!({"sub": "", "aud": "demo", "exp": exp})), NotEligible::NoAccount);
        assert_eq!(
            refused(json!({"sub": "a".repeat(257), "aud": "demo", "exp": exp})),
            NotEligible::NoAccount
        );
        for odd in [
            json!({"sub": "a", "aud": "demo"}),
            json!({"sub": "a", "aud": "demo", "exp": "1900000000"}),
            json!({"sub": "a", "aud": "demo", "exp": 1e300}),
            json!({"sub": 7, "aud": "demo", "exp": exp}),
            json!({"sub": "a", "aud": "demo", "exp": exp, "role": "admin"}),
        ] {
            assert_eq!(refused(odd.clone()), JwtError::Malformed.into(), "{odd}");
        }
        let good = signed(&json!({"sub": "a", "aud": "demo", "exp": exp}));
        let (message, _) = good.rsplit_once('.').unwrap();
        assert!(
            account(message).is_err() && account(&format!("{message}.")).is_err() && account("").is_err()
        );
        let unsigned = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","kid":"shop-1"}"#);
        let claims = message.split('.').nth(1).unwrap();
        assert_eq!(account(&format!("{unsigned}.{claims}.")), Err(JwtError::BadSignature.into()));
    }

    #[test]
    fn a_key_without_its_secret_is_a_problem_and_refuses() {
        for value in [None, Some("short".to_owned()), Some("not base64url!".to_owned())] {
            let (verifier, problems) = Verifier::new(&[key()], &|_| value.clone());
            assert_eq!(problems.len(), 1, "{value:?}");
            assert!(
                !value.is_some_and(|value| problems[0].to_string().contains(&value)),
                "the value is never repeated"
            );
            let token = signed(&json!({"sub": "a", "aud": "demo", "exp": NOW + 60}));
            let given = verifier.account(&token, &"demo".parse().unwrap(), Timestamp::from_seconds(NOW));
            assert_eq!(given, Err(NotEligible::KeyNotSetUp));
        }
    }
}
