//! Prices and times as people read them, the same on every page and in every message.

use crate::{clock::Timestamp, language::Language};

/// A time people read: in the sale's zone, else UTC, always saying which.
#[must_use]
pub fn moment_text(moment: Timestamp, zone: Option<&str>) -> String {
    moment_text_in(Language::English, moment, zone)
}

/// [`moment_text`] in a language.
#[must_use]
pub fn moment_text_in(language: Language, moment: Timestamp, zone: Option<&str>) -> String {
    let utc = jiff::Timestamp::from_microsecond(moment.micros()).unwrap_or_default();
    let zone_name = zone.unwrap_or("UTC");
    let zone = jiff::tz::TimeZone::get(zone_name).unwrap_or(jiff::tz::TimeZone::UTC);
    let local = zone.to_datetime(utc);
    let clock = local.strftime("%H:%M:%S").to_string();
    let clock = clock.strip_suffix(":00").unwrap_or(&clock);
    match language {
        Language::English => format!("{}, {clock} ({zone_name})", local.strftime("%-d %B %Y")),
        Language::German => {
            let month = GERMAN_MONTHS[usize::from(local.month().unsigned_abs()).clamp(1, 12) - 1];
            format!("{}. {month} {}, {clock} Uhr ({zone_name})", local.day(), local.year())
        }
    }
}

const GERMAN_MONTHS: [&str; 12] = [
    "Januar",
    "Februar",
    "März",
    "April",
    "Mai",
    "Juni",
    "Juli",
    "August",
    "September",
    "Oktober",
    "November",
    "Dezember",
];

/// [`price_text`] in a language.
#[must_use]
pub fn price_text_in(language: Language, minor_units: i64, currency: &str) -> String {
    let text = price_text(minor_units, currency);
    match language {
        Language::English => text,
        Language::German => text.replacen('.', ",", 1),
    }
}

/// A price people read, such as `499.00 EUR`. ISO 4217 counts most currencies in hundredths; these are the others a
/// shop meets.
#[must_use]
pub fn price_text(minor_units: i64, currency: &str) -> String {
    let digits: u32 = match currency {
        "BIF" | "CLP" | "DJF" | "GNF" | "ISK" | "JPY" | "KMF" | "KRW" | "PYG" | "RWF" | "UGX" | "UYI"
        | "VND" | "VUV" | "XAF" | "XOF" | "XPF" => 0,
        "BHD" | "IQD" | "JOD" | "KWD" | "LYD" | "OMR" | "TND" => 3,
        _ => 2,
    };
    if digits == 0 {
        return format!("{minor_units} {currency}");
    }
    let unit = 10_u64.pow(digits);
    let (whole, part) = (minor_units.unsigned_abs() / unit, minor_units.unsigned_abs() % unit);
    let sign = if minor_units < 0 { "-" } else { "" };
    format!("{sign}{whole}.{part:0width$} {currency}", width = digits as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_and_times_are_readable() {
        assert_eq!(price_text(49_900, "EUR"), "499.00 EUR");
        assert_eq!(price_text(5, "USD"), "0.05 USD");
        assert_eq!(price_text(-5, "USD"), "-0.05 USD");
        assert_eq!(price_text(1_200, "JPY"), "1200 JPY");
        assert_eq!(price_text(1_234, "KWD"), "1.234 KWD");
        let moment = Timestamp::parse("2026-12-01T10:00:00Z").unwrap();
        assert_eq!(moment_text(moment, Some("Europe/Berlin")), "1 December 2026, 11:00 (Europe/Berlin)");
        assert_eq!(moment_text(moment.plus_seconds(1), None), "1 December 2026, 10:00:01 (UTC)");
    }

    #[test]
    fn prices_and_times_follow_the_language() {
        let moment = Timestamp::parse("2026-03-01T10:00:00Z").unwrap();
        assert_eq!(
            moment_text_in(Language::German, moment, Some("Europe/Berlin")),
            "1. März 2026, 11:00 Uhr (Europe/Berlin)"
        );
        assert_eq!(price_text_in(Language::German, 49_900, "EUR"), "499,00 EUR");
        assert_eq!(price_text_in(Language::German, 1_200, "JPY"), "1200 JPY");
        assert_eq!(price_text_in(Language::English, 49_900, "EUR"), "499.00 EUR");
    }
}
