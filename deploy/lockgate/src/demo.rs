//! The demo sale: what `lockgate` serves when it was told nothing.

use lockgate_shared::{clock::Timestamp, sale::SaleDefinition};

/// The demo sale's id.
pub const ID: &str = lockgate_shared::sale::DEMO_SALE_ID;
/// Seconds from the start until admission opens; the doors are open at once.
const OPENS_AFTER_SECONDS: u64 = 20;
/// Seconds until the demo is over.
const CLOSES_AFTER_SECONDS: u64 = 7 * 86_400;

/// The demo sale as of `now`.
///
/// # Errors
/// Never, unless the template and the rules for sale files disagree: what they say.
pub fn sale(now: Timestamp) -> Result<SaleDefinition, String> {
    let text = include_str!("demo.toml")
        .replace("DOORS", &now.minus_seconds(60).to_string())
        .replace("OPENS", &now.plus_seconds(OPENS_AFTER_SECONDS).to_string())
        .replace("CLOSES", &now.plus_seconds(CLOSES_AFTER_SECONDS).to_string());
    lockgate_shared::sale::parse_toml("demo", &text)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_is_a_valid_sale_that_opens_within_a_minute() {
        let now = Timestamp::from_seconds(1_800_000_000);
        let sale = sale(now).unwrap();
        assert_eq!(sale.id.as_str(), ID);
        assert!(sale.doors_open_at < now && sale.opens_at.since(now).as_secs() < 60);
    }
}
