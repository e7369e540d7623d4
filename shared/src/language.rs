//! The languages in which shoppers are written to, and which of them a request asks for.

use http::{HeaderMap, header};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::negotiate::parse_range;

/// A language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Language {
    /// English, also for whoever asks for none or for one that is not here.
    #[default]
    English,
    /// German.
    German,
}

impl Language {
    /// Every language.
    pub const ALL: &'static [Self] = &[Self::English, Self::German];

    /// Its tag (RFC 5646), as in `lang="…"`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::German => "de",
        }
    }

    /// Reads a tag by its first part: `de-AT` is German.
    #[must_use]
    pub fn parse(tag: &str) -> Option<Self> {
        let first = tag.split('-').next().unwrap_or_default();
        Self::ALL.iter().copied().find(|language| language.as_str().eq_ignore_ascii_case(first))
    }

    /// What a request asks for: `?lang=`, else the highest ranked of `Accept-Language` (RFC 9110, section 12.5.4)
    /// that is here. `None` when it names none that is.
    #[must_use]
    pub fn asked_for(query: Option<&str>, headers: &HeaderMap) -> Option<Self> {
        let by_query = query
            .into_iter()
            .flat_map(|query| query.split('&'))
            .filter_map(|pair| pair.strip_prefix("lang="))
            .find_map(Self::parse);
        by_query.or_else(|| {
            let ranges = headers
                .get_all(header::ACCEPT_LANGUAGE)
                .iter()
                .filter_map(|value| value.to_str().ok())
                .flat_map(|line| line.split(','))
                .filter_map(parse_range)
                .filter(|(_, quality)| *quality > 0)
                .filter_map(|(tag, quality)| Some((Self::parse(tag)?, quality)));
            // The first of those that rank the same.
            let best = ranges.reduce(|best, next| if next.1 > best.1 { next } else { best });
            best.map(|(language, _)| language)
        })
    }
}

impl Serialize for Language {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Reads an optional tag; one that only a later release knows is none.
impl<'de> Deserialize<'de> for Language {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tag = String::deserialize(deserializer)?;
        Ok(Self::parse(&tag).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: Option<&str>, accept: &str) -> Option<Language> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_LANGUAGE, accept.parse().unwrap());
        Language::asked_for(query, &headers)
    }

    #[test]
    fn c1_the_highest_ranked_language_that_is_here_is_taken() {
        let cases = [
            ("de", Some(Language::German)),
            ("de-AT,de;q=0.9,en;q=0.8", Some(Language::German)),
            ("en-GB, de;q=0.9", Some(Language::English)),
            ("fr, de;q=0.2, en;q=0.3", Some(Language::English)),
            ("de;q=0, en;q=0.1", Some(Language::English)),
            ("DE", Some(Language::German)),
            ("de;q=0", None),
            ("fr, *;q=0.5", None),
            ("deu", None),
            ("", None),
        ];
        for (accept, expected) in cases {
            assert_eq!(asked(None, accept), expected, "{accept}");
        }
        assert_eq!(Language::asked_for(None, &HeaderMap::new()), None);
    }

    #[test]
    fn the_address_outranks_the_header() {
        assert_eq!(asked(Some("lang=de"), "en"), Some(Language::German));
        assert_eq!(asked(Some("a=b&lang=en"), "de"), Some(Language::English));
        assert_eq!(
            asked(Some("lang=fr"), "de"),
            Some(Language::German),
            "one that is not here is not asked for"
        );
    }
}
