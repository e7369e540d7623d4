//! Who takes the money, beside the simulated gateway; and what is refused where the money is real.

use std::sync::Arc;

use lockgate_checkout::{Gateway, Stripe, payment::Money, stripe::amounts::to_stripe};
use lockgate_shared::{catalog::Catalog, sale::SaleDefinition};

use crate::{config::Config, demo, exit::Failure};

/// The gateway that takes real payments, if one is set up.
///
/// # Errors
/// Its HTTP client cannot be built.
pub fn gateway(config: &Config) -> Result<Option<Arc<dyn Gateway>>, Failure> {
    let Some(settings) = config.stripe() else {
        return Ok(None);
    };
    let stripe = Stripe::new(&settings).map_err(|error| Failure::running(format!("stripe: {error}")))?;
    Ok(Some(Arc::new(stripe)))
}

/// What of a sale the gateway cannot charge.
pub fn prices(config: &Config, sale: &SaleDefinition) -> Vec<String> {
    if config.stripe().is_none() {
        return Vec::new();
    }
    let odd = sale.items.iter().filter_map(|item| {
        let price = Money { amount: item.price, currency: item.currency.clone() };
        let problem = to_stripe(&price).err()?;
        Some(format!("price of item '{}': {problem}; give another price or currency", item.item))
    });
    odd.collect()
}

/// Refuses to charge anybody for a sale that was made up, or that nobody defined. `shows_demo` is whether one would be
/// made up now.
///
/// # Errors
/// There is no sale, or it is the demo.
pub fn refuse_play(config: &Config, catalog: &Catalog, shows_demo: bool) -> Result<(), Failure> {
    if !config.takes_real_money() {
        return Ok(());
    }
    let remedy = "give a sale file with --sale, or use a test key (sk_test_…, rk_test_…)";
    let sales = catalog.sales();
    if let Some(demo) = sales.iter().find(|sale| sale.definition.id.as_str() == demo::ID) {
        return Err(Failure::usage(format!(
            "stripe.secret_key: is a live key, but this house serves the demo sale '{}'; use another data folder, give \
             your own sale another id, or use a test key (sk_test_…, rk_test_…)",
            demo.definition.id
        )));
    }
    if sales.is_empty() {
        let what = if shows_demo { "only the demo sale would be served" } else { "no sale is defined" };
        return Err(Failure::usage(format!("stripe.secret_key: is a live key, but {what}; {remedy}")));
    }
    Ok(())
}
