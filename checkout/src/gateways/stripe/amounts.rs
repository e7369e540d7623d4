//! PURE: amounts as Stripe counts them, which is not always as ISO 4217 does.
//!
//! Source: Stripe's documentation, "Supported currencies", parts "Zero-decimal currencies", "Three-decimal currencies" and
//! "Special cases". An amount that cannot be said exactly is refused, never rounded.

use crate::payment::Money;

/// How our minor units become Stripe's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    /// The same number.
    Same,
    /// The same number, in thousandths of which Stripe takes whole tens only.
    Tens,
    /// No minor unit in ISO 4217, but hundredths at Stripe, for the sake of older callers.
    TimesHundred,
    /// Hundredths in ISO 4217, but whole units at Stripe.
    OverHundred,
    /// Stripe does not take it.
    None,
}

fn scale(currency: &str) -> Scale {
    match currency {
        "BHD" | "JOD" | "KWD" | "OMR" | "TND" => Scale::Tens,
        "ISK" | "UGX" => Scale::TimesHundred,
        "MGA" => Scale::OverHundred,
        "IQD" | "LYD" | "UYI" => Scale::None,
        _ => Scale::Same,
    }
}

/// The amount as Stripe wants it.
///
/// # Errors
/// Why Stripe cannot be asked for it.
pub fn to_stripe(money: &Money) -> Result<i64, String> {
    let amount = money.amount;
    match scale(&money.currency) {
        Scale::Same => Ok(amount),
        Scale::Tens if amount % 10 == 0 => Ok(amount),
        Scale::Tens => Err(format!("{money} is not a multiple of ten thousandths, as Stripe wants it")),
        Scale::TimesHundred => amount.checked_mul(100).ok_or_else(|| format!("{money} is too large")),
        Scale::OverHundred if amount % 100 == 0 => Ok(amount / 100),
        Scale::OverHundred => Err(format!("{money} is not a whole number, as Stripe wants it")),
        Scale::None => Err(format!("Stripe takes no {}", money.currency)),
    }
}

/// What an amount of Stripe's is; `None` where it cannot be said in our minor units.
#[must_use]
pub fn from_stripe(amount: i64, currency: &str) -> Option<Money> {
    let is_code = currency.len() == 3 && currency.bytes().all(|byte| byte.is_ascii_alphabetic());
    let currency = currency.to_ascii_uppercase();
    let amount = match scale(&currency) {
        Scale::Same | Scale::Tens => amount,
        Scale::TimesHundred if amount % 100 == 0 => amount / 100,
        Scale::OverHundred => amount.checked_mul(100)?,
        Scale::TimesHundred | Scale::None => return None,
    };
    is_code.then_some(Money { amount, currency })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn money(amount: i64, currency: &str) -> Money {
        Money { amount, currency: currency.to_owned() }
    }

    #[test]
    fn amounts_are_those_of_the_documentation() {
        for (ours, currency, theirs) in [
            (1_000, "USD", 1_000), // 10 USD
            (500, "JPY", 500),     // 500 JPY: no decimals
            (5_120, "KWD", 5_120), // 5.120 KWD: three decimals
            (5, "ISK", 500),       // 5 ISK: two decimals, always 00
            (5, "UGX", 500),
            (500, "MGA", 5), // 5.00 MGA by ISO 4217: no decimals at Stripe
            (990, "HUF", 990),
        ] {
            assert_eq!(to_stripe(&money(ours, currency)), Ok(theirs), "{currency}");
            let back = from_stripe(theirs, &currency.to_ascii_lowercase());
            assert_eq!(back, Some(money(ours, currency)), "{currency}");
        }
    }

    #[test]
    fn what_cannot_be_said_exactly_is_refused() {
        assert!(to_stripe(&money(5_124, "KWD")).unwrap_err().contains("5.124 KWD"));
        assert!(to_stripe(&money(550, "MGA")).unwrap_err().contains("whole"));
        assert!(to_stripe(&money(1, "IQD")).unwrap_err().contains("IQD"));
        assert!(to_stripe(&money(i64::MAX, "ISK")).is_err());
        assert_eq!(from_stripe(550, "isk"), None);
        for odd in ["", "eu", "euro", "e-r", "€"] {
            assert_eq!(from_stripe(1, odd), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn an_amount_comes_back_as_it_went(amount in 0_i64..1_000_000_000, at in 0_usize..9) {
            let currency = ["EUR", "JPY", "KWD", "ISK", "UGX", "MGA", "BHD", "XAF", "LYD"][at];
            let asked = money(amount, currency);
            if let Ok(theirs) = to_stripe(&asked) {
                prop_assert_eq!(from_stripe(theirs, &currency.to_ascii_lowercase()), Some(asked));
            }
        }
    }
}
