//! The pages, as text: askama templates in `web/`, and the words that go into them.

use askama::Template;
use lockgate_shared::{
    catalog::StoredSale,
    gate::StockSnapshot,
    sale::{EntryRule, ProofWhen, SaleDefinition},
    wording::{moment_text, price_text},
};

use crate::{
    answers::PersonalStatus,
    captcha::Widget,
    draw::is_lottery,
    http::{CAPTCHA_REQUIRED, PROOF_REQUIRED},
    phase::{Phase, item_state},
    snapshot::{PublicStatus, Snapshot},
};

#[derive(Template)]
#[template(path = "sales.html")]
struct SalesPage<'a> {
    sales: Vec<SaleLine<'a>>,
}

struct SaleLine<'a> {
    id: &'a str,
    name: &'a str,
    headline: String,
}

#[derive(Template)]
#[template(path = "sale.html")]
struct SalePage<'a> {
    id: &'a str,
    name: &'a str,
    headline: String,
    message: Option<&'a str>,
    doors_open_at: String,
    opens_at: String,
    closes_at: String,
    may_enter: bool,
    needs_eligibility: bool,
    needs_code: bool,
    error_code: Option<&'static str>,
    entry_error: Option<&'static str>,
    needs_proof: bool,
    widget: Option<&'a Widget>,
    refresh_seconds: Option<u64>,
    items: Vec<ItemLine<'a>>,
    per_account_limit: u32,
}

struct ItemLine<'a> {
    name: &'a str,
    price: String,
    state: &'static str,
}

#[derive(Template)]
#[template(path = "queue.html")]
struct QueuePage<'a> {
    id: &'a str,
    name: &'a str,
    headline: &'static str,
    detail: String,
    message: Option<&'a str>,
    number: Option<u64>,
    now_serving: u64,
    people_ahead: Option<u64>,
    admit_label: Option<&'static str>,
    may_rejoin: bool,
    may_leave: bool,
    refresh_seconds: u64,
}

#[derive(Template)]
#[template(path = "no_ticket.html")]
struct NoTicketPage<'a> {
    id: &'a str,
    name: &'a str,
}

#[derive(Template)]
#[template(path = "busy.html")]
struct BusyPage<'a> {
    name: &'a str,
}

/// A template that cannot be rendered is a defect; the shopper gets an empty page rather than a panic.
fn rendered(page: &impl Template) -> String {
    page.render().unwrap_or_else(|error| {
        tracing::error!(%error, "a page could not be rendered");
        String::new()
    })
}

/// The list of sales.
#[must_use]
pub fn sales_page(sales: &[(std::sync::Arc<StoredSale>, Phase)]) -> String {
    let sales = sales
        .iter()
        .map(|(sale, phase)| SaleLine {
            id: sale.definition.id.as_str(),
            name: &sale.definition.name,
            headline: headline(&sale.definition, *phase),
        })
        .collect();
    rendered(&SalesPage { sales })
}

/// A sale's page: the same bytes for everyone.
#[must_use]
pub fn sale_page(
    sale: &StoredSale,
    stock: Option<&StockSnapshot>,
    status: &PublicStatus,
    phase: Phase,
    widget: Option<&Widget>,
) -> String {
    let needs_proof = sale.definition.proof_of_work.is_some_and(|asked| asked.when == ProofWhen::Always);
    sale_page_saying(sale, stock, status, phase, Entry { needs_proof, widget, refused: None })
}

/// What the form for entering says and does.
#[derive(Clone, Copy)]
struct Entry<'a> {
    needs_proof: bool,
    widget: Option<&'a Widget>,
    /// The problem's code, and words for people.
    refused: Option<(&'static str, &'static str)>,
}

/// A sale's page for whoever could not enter by its form: it says so beside the form.
#[must_use]
pub fn refused_page(snapshot: &Snapshot, phase: Phase, code: &'static str) -> String {
    let sale = &snapshot.sale;
    let needs_proof = code == PROOF_REQUIRED || sale.definition.proof_of_work.is_some();
    let words = match sale.definition.entry {
        _ if code == PROOF_REQUIRED => {
            "What your browser has to compute before you join is not done yet, or it was used before. Wait until it \
             says that it is ready, then press the button again. It needs JavaScript for that."
        }
        _ if code == CAPTCHA_REQUIRED => {
            "The check that you are a person is not done yet, or it has run out. Please do it below, then press the \
             button again."
        }
        EntryRule::Allowlist => {
            "We could not find this code together with this e-mail address. Please check both: the code is in the \
             message you were sent, and the address is the one that message came to."
        }
        EntryRule::Eligibility | EntryRule::Open => {
            "This entry pass is not accepted. It may have run out: please get a new one from the shop."
        }
    };
    let entry = Entry { needs_proof, widget: snapshot.widget.as_deref(), refused: Some((code, words)) };
    sale_page_saying(sale, snapshot.stock.as_deref(), &snapshot.status, phase, entry)
}

fn sale_page_saying(
    sale: &StoredSale,
    stock: Option<&StockSnapshot>,
    status: &PublicStatus,
    phase: Phase,
    entry: Entry<'_>,
) -> String {
    let definition = &sale.definition;
    let zone = definition.time_zone.as_deref();
    let items = definition.items.iter().map(|item| ItemLine {
        name: &item.name,
        price: price_text(item.price, &item.currency),
        state: match item_state(stock, &item.item) {
            "sold_out" => "sold out",
            "all_held" => "all held, may return",
            _ => "available",
        },
    });
    let mut headline = headline(definition, phase);
    if matches!(phase, Phase::DoorsOpen | Phase::Drawing | Phase::Open | Phase::Paused) && status.waiting > 0
    {
        headline = format!("{headline} {} waiting.", status.waiting);
    }
    rendered(&SalePage {
        id: definition.id.as_str(),
        name: &definition.name,
        headline,
        message: sale.controls.message.as_deref(),
        doors_open_at: moment_text(definition.doors_open_at, zone),
        opens_at: moment_text(definition.opens_at, zone),
        closes_at: moment_text(definition.closes_at, zone),
        may_enter: !matches!(phase, Phase::Scheduled | Phase::Closed),
        needs_eligibility: definition.entry == EntryRule::Eligibility,
        needs_code: definition.entry == EntryRule::Allowlist,
        error_code: entry.refused.map(|(code, _)| code),
        entry_error: entry.refused.map(|(_, words)| words),
        needs_proof: entry.needs_proof,
        widget: entry.widget,
        // Only while there is nothing to fill in: a refresh would take away what somebody is typing.
        refresh_seconds: (phase == Phase::Scheduled).then_some(15),
        items: items.collect(),
        per_account_limit: definition.per_account_limit,
    })
}

/// Somebody's place in line.
#[must_use]
pub fn queue_page(definition: &SaleDefinition, status: &PersonalStatus) -> String {
    let (headline, detail) = place_words(definition, status);
    let admit_label = match status.state {
        "your_turn" => Some("Go in now"),
        "admitted" => Some("Go on to the checkout"),
        _ => None,
    };
    rendered(&QueuePage {
        id: definition.id.as_str(),
        name: &definition.name,
        headline,
        detail,
        message: status.message.as_deref(),
        number: status.number.filter(|_| status.people_ahead.is_some()),
        now_serving: status.now_serving,
        people_ahead: status.people_ahead.filter(|_| status.state == "waiting"),
        admit_label,
        may_rejoin: matches!(status.state, "turn_missed" | "left") && status.phase != "closed",
        may_leave: matches!(status.state, "entered" | "waiting" | "your_turn"),
        refresh_seconds: status.poll_after_ms.div_ceil(1_000).max(2),
    })
}

/// What the queue page says to a browser without a ticket.
#[must_use]
pub fn no_ticket_page(definition: &SaleDefinition) -> String {
    rendered(&NoTicketPage { id: definition.id.as_str(), name: &definition.name })
}

/// What the queue page says while the line's store cannot be asked.
#[must_use]
pub fn busy_page(definition: &SaleDefinition) -> String {
    rendered(&BusyPage { name: &definition.name })
}

fn headline(definition: &SaleDefinition, phase: Phase) -> String {
    let zone = definition.time_zone.as_deref();
    match phase {
        Phase::Scheduled => format!("The doors open {}.", moment_text(definition.doors_open_at, zone)),
        Phase::DoorsOpen if is_lottery(definition) => format!(
            "The doors are open. Places are drawn by lot {}: it does not matter when you join before.",
            moment_text(definition.opens_at, zone)
        ),
        Phase::Drawing => "The places in the line are being drawn.".into(),
        Phase::DoorsOpen => {
            format!("The doors are open. The sale begins {}.", moment_text(definition.opens_at, zone))
        }
        Phase::Open => "The sale is open.".into(),
        Phase::Paused => "The line stands still for a moment.".into(),
        Phase::SoldOut => "Everything is sold or held at the moment. Held items may return.".into(),
        Phase::Closed => "The sale is over.".into(),
    }
}

fn place_words(definition: &SaleDefinition, status: &PersonalStatus) -> (&'static str, String) {
    let zone = definition.time_zone.as_deref();
    match status.state {
        "entered" if is_lottery(definition) && status.phase == "doors_open" => {
            let drawn = moment_text(definition.opens_at, zone);
            ("You take part in the draw.", format!("Places are drawn {drawn}. Then you get your number."))
        }
        "entered" if status.phase == "drawing" => {
            ("You take part in the draw.", "The places are being drawn. Your number comes with the draw.".into())
        }
        "entered" => ("You are in line.", "Your number comes in a moment.".into()),
        "waiting" => ("You are in line.", wait_words(definition, status)),
        "your_turn" => (
            "It is your turn.",
            match status.turn_expires_at {
                Some(until) => format!("Go in before {}; then your turn passes on.", moment_text(until, zone)),
                None => "Go in now, before your turn passes on.".into(),
            },
        ),
        "admitted" => ("You are in.", "Choose your items before your time runs out.".into()),
        "turn_missed" => (
            "Your turn has passed.",
            "It was not taken up in time, or the time inside ran out. You can join the line again, at its end.".into(),
        ),
        "left" => ("You have left the line.", "You can join again, at its end.".into()),
        "sold_out" => (
            "Everything is sold or held at the moment.",
            "Items that are held but not paid for return. Keep your place if you want to wait for them.".into(),
        ),
        _ => ("The sale is over.", "Thank you for waiting.".into()),
    }
}

fn wait_words(definition: &SaleDefinition, status: &PersonalStatus) -> String {
    match (&status.wait_seconds, status.phase) {
        (Some(wait), _) if wait.high < 60 => "Less than a minute to go.".into(),
        (Some(wait), _) => {
            let (low, high) = (wait.low / 60, wait.high.div_ceil(60));
            if low == high || low == 0 {
                format!("About {high} min to go.")
            } else {
                format!("Between {low} and {high} min to go.")
            }
        }
        (None, "doors_open") => {
            let begins = moment_text(definition.opens_at, definition.time_zone.as_deref());
            format!("The sale begins {begins}. Then the line moves.")
        }
        (None, _) => "The line stands still for a moment. Your place is kept.".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_operators_write_is_escaped() {
        let page = rendered(&NoTicketPage { id: "x", name: "<script>alert(1)</script>" });
        assert!(!page.contains("<script>"), "{page}");
        assert!(page.contains("<html lang=\"en\">") && page.matches("<h1>").count() == 1);
    }
}
