//! Bytes that are the same for everyone, ready to be sent: plain and compressed, each with its own tag.

use std::{fmt::Write as _, io::Write as _, sync::OnceLock};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::HeaderValue;
use sha2::{Digest as _, Sha256};

/// One body in both codings. Their tags differ (RFC 9110, section 8.8.3.3).
#[derive(Debug)]
pub struct Prepared {
    plain: Bytes,
    plain_etag: HeaderValue,
    /// Compressed once, by the first who takes it so; a sale nobody looks at costs nothing.
    gzip: OnceLock<Bytes>,
    gzip_etag: HeaderValue,
}

impl Prepared {
    /// Prepares `body`.
    #[must_use]
    pub fn new(body: String) -> Self {
        let mut hash = String::with_capacity(32);
        for byte in &Sha256::digest(&body)[..16] {
            let _ = write!(hash, "{byte:02x}");
        }
        let tag = |suffix: &str| {
            HeaderValue::try_from(format!("\"{hash}{suffix}\"")).unwrap_or(HeaderValue::from_static("\"\""))
        };
        let (plain_etag, gzip_etag) = (tag(""), tag("-gzip"));
        Self { plain: body.into(), plain_etag, gzip: OnceLock::new(), gzip_etag }
    }

    /// The tag of one of the codings; known without compressing anything.
    #[must_use]
    pub fn etag(&self, gzip: bool) -> &HeaderValue {
        if gzip { &self.gzip_etag } else { &self.plain_etag }
    }

    /// The body as it is.
    #[must_use]
    pub fn plain(&self) -> &Bytes {
        &self.plain
    }

    /// The body compressed.
    #[must_use]
    pub fn gzip(&self) -> &Bytes {
        self.gzip.get_or_init(|| compressed(&self.plain))
    }
}

fn compressed(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::best());
    // Writing into memory cannot fail; whatever came out is a gzip stream of what went in.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn both_codings_hold_the_same_and_have_tags_of_their_own() {
        let prepared = Prepared::new("line ".repeat(200));
        let mut read = String::new();
        flate2::read::GzDecoder::new(&prepared.gzip()[..]).read_to_string(&mut read).unwrap();
        assert_eq!(read.as_bytes(), &prepared.plain()[..]);
        assert!(prepared.gzip().len() < prepared.plain().len() / 4);
        assert_ne!(prepared.etag(true), prepared.etag(false));
        let other = Prepared::new("line".into());
        assert_ne!(other.etag(false), prepared.etag(false));
    }
}
