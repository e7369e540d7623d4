//! Access keys: who holds one may see, pay and cancel one order, without an account. Derived, so nothing is stored.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::Mac as _;
use lockgate_shared::{
    ids::ClaimId,
    keys::{Key, KeyRing},
};
use subtle::ConstantTimeEq as _;

/// Bytes of an access key: 128 bits, out of reach of guessing.
const ACCESS_BYTES: usize = 16;

/// Makes and checks access keys.
#[derive(Clone)]
pub(crate) struct OrderAccess {
    ring: Arc<KeyRing>,
}

impl OrderAccess {
    /// Over a key ring.
    #[must_use]
    pub(crate) fn new(ring: Arc<KeyRing>) -> Self {
        Self { ring }
    }

    /// The name of the key that makes access keys now.
    #[must_use]
    pub(crate) fn kid(&self) -> &str {
        self.ring.active().kid()
    }

    /// The access key of an order, made with the key `kid`, or with the active one if that is retired.
    #[must_use]
    pub(crate) fn key(&self, order: ClaimId, kid: &str) -> String {
        let key = self.ring.get(kid).unwrap_or_else(|| self.ring.active());
        URL_SAFE_NO_PAD.encode(mac(key, order))
    }

    /// Whether `given` is an access key of the order under any usable key. Every key is tried, so that the time
    /// taken tells nothing.
    #[must_use]
    pub(crate) fn opens(&self, order: ClaimId, given: &str) -> bool {
        let Ok(given) = URL_SAFE_NO_PAD.decode(given) else {
            return false;
        };
        self.ring.usable().fold(false, |found, key| found | bool::from(mac(key, order)[..].ct_eq(&given)))
    }
}

fn mac(key: &Key, order: ClaimId) -> [u8; ACCESS_BYTES] {
    let mut mac = key.order_access_mac();
    mac.update(order.uuid().as_bytes());
    let mut bytes = [0; ACCESS_BYTES];
    bytes.copy_from_slice(&mac.finalize().into_bytes()[..ACCESS_BYTES]);
    bytes
}

#[cfg(test)]
mod tests {
    use lockgate_shared::testing::{demo_ring, other_ring};

    use super::*;

    #[test]
    fn s2_an_access_key_opens_its_own_order_only() {
        let access = OrderAccess::new(Arc::new(demo_ring()));
        let id = |n| ClaimId::from(uuid::Uuid::from_bytes([n; 16]));
        let key = access.key(id(1), access.kid());
        assert_eq!(key, access.key(id(1), "gone"), "a retired key falls back to the active one");
        assert!(access.opens(id(1), &key));
        assert!(!access.opens(id(2), &key));
        for bad in ["", "x", &key[..21], &format!("{key}A"), &key.to_lowercase()] {
            assert!(!access.opens(id(1), bad), "{bad}");
        }
        assert!(!OrderAccess::new(Arc::new(other_ring())).opens(id(1), &key));
    }
}
