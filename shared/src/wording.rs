//! Prices and times as people read them, the same on every page and in every message.

use crate::clock::Timestamp;

/// A time people read: in the sale's zone, else UTC, always saying which.
#[must_use]
pub fn moment_text(moment: Timestamp, zone: Option<&str>) -> String {
    let utc = jiff::Timestamp::from_microsecond(moment.micros()).unwrap_or_default();
    let zone_name = zone.unwrap_or("UTC");
    let zone = jiff::tz::TimeZone::get(zone_name).unwrap_or(jiff::tz::TimeZone::UTC);
    let words = zone.to_datetime(utc).strftime("%-d %B %Y, %H:%M:%S").to_string();
    format!("{} ({zone_name})", words.strip_suffix(":00").unwrap_or(&words))
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
}
