//! PURE: what a mail says, in the shopper's language.

use lockgate_shared::{
    clock::Timestamp,
    language::Language,
    wording::{moment_text_in, price_text_in},
};

use super::message::{Content, Message, MessageKind};
use crate::payment::Money;

/// What a mail needs beyond its message.
pub(crate) struct Facts<'a> {
    /// The sale's name, as its page has it.
    pub(crate) sale: &'a str,
    /// The item's name.
    pub(crate) item: &'a str,
    /// The sale's time zone.
    pub(crate) zone: Option<&'a str>,
    /// Opens the order.
    pub(crate) link: &'a str,
}

/// A mail's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    pub(crate) language: Language,
    pub(crate) subject: String,
    pub(crate) heading: &'static str,
    pub(crate) paragraphs: Vec<String>,
    /// What is bought: label and value.
    pub(crate) rows: Vec<(&'static str, String)>,
    pub(crate) link: String,
    pub(crate) link_text: &'static str,
    pub(crate) closing: &'static str,
}

/// The mail of a message.
pub(crate) fn letter(message: &Message, facts: &Facts<'_>) -> Letter {
    let language = message.content.language.unwrap_or_default();
    let (title, heading, paragraphs) = match language {
        Language::English => english(message.kind, &message.content, facts),
        Language::German => german(message.kind, &message.content, facts),
    };
    let (labels, link_text, closing) = match language {
        Language::English => (
            ["Item", "Unit", "Units", "Price", "Order"],
            "See your order",
            "You get this mail because this address was given with the order. The link opens the order without a \
             password, so keep it to yourself.",
        ),
        Language::German => (
            ["Artikel", "Nummer", "Nummern", "Preis", "Bestellung"],
            "Bestellung ansehen",
            "Sie erhalten diese Nachricht, weil diese Adresse mit der Bestellung angegeben wurde. Der Link öffnet die \
             Bestellung ohne Passwort; geben Sie ihn nicht weiter.",
        ),
    };
    let content = &message.content;
    let mut rows = vec![(labels[0], facts.item.to_owned())];
    let keeps_units = matches!(message.kind, MessageKind::Paid | MessageKind::UnitsChanged);
    if keeps_units {
        rows.push((labels[if content.units.len() == 1 { 1 } else { 2 }], numbers(&content.units)));
    }
    rows.push((labels[3], price(language, &content.price)));
    rows.push((labels[4], message.id.order.to_string()));
    Letter {
        language,
        subject: format!("{title}: {}", facts.sale),
        heading,
        paragraphs,
        rows,
        link: facts.link.to_owned(),
        link_text,
        closing,
    }
}

fn numbers(units: &[u32]) -> String {
    units.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn price(language: Language, money: &Money) -> String {
    price_text_in(language, money.amount, &money.currency)
}

/// Why money goes back.
enum Why {
    /// It came after the units had gone back.
    Late,
    /// The order was paid, and is no longer.
    Ended,
    /// The order is paid by another payment.
    Second,
    /// It cannot pay this order.
    Unfit,
}

fn why(content: &Content) -> Why {
    match (content.state.as_str(), content.state_before.as_deref()) {
        ("paid", _) => Why::Second,
        ("refund_due" | "refunded", Some("paid")) => Why::Ended,
        ("refund_due" | "refunded", Some("expired" | "cancelled" | "refunded")) => {
            let is_price = content.money.as_ref().is_some_and(|money| *money == content.price);
            if is_price { Why::Late } else { Why::Unfit }
        }
        _ => Why::Unfit,
    }
}

type Words = (&'static str, &'static str, Vec<String>);

fn english(kind: MessageKind, content: &Content, facts: &Facts<'_>) -> Words {
    let money = |money: &Option<Money>| price(Language::English, money.as_ref().unwrap_or(&content.price));
    let until = |at: Timestamp| moment_text_in(Language::English, at, facts.zone);
    let charged = match &content.money {
        Some(_) => format!("The {} that arrived goes back in full.", money(&content.money)),
        None => "Nothing was charged.".to_owned(),
    };
    let before = content.units_before.as_deref().map(numbers);
    match kind {
        MessageKind::Paid => {
            let mut said = vec![format!("Your payment of {} has arrived.", money(&None))];
            if before.is_some() {
                said.push(
                    "It came after the units first held for you had gone back, so you have others instead.".into(),
                );
            }
            said.push("This is yours:".into());
            ("Paid", "Paid. Thank you!", said)
        }
        MessageKind::UnitsChanged => (
            "Your units have changed",
            "Your units have changed",
            vec![format!(
                "Your order stays paid. You now have the units below in place of {}.",
                before.unwrap_or_default()
            )],
        ),
        MessageKind::Expired => (
            "Not paid in time",
            "The time to pay is over",
            vec![
                format!("Your order was held until {} and was not paid by then.", until(content.hold_expires_at)),
                charged,
                "If units are left, you can line up again.".into(),
            ],
        ),
        MessageKind::Cancelled => (
            "Your order could not be kept",
            "Your order could not be kept",
            vec![
                "After a fault on our side, the units held for you belong to another order. Yours is cancelled. We are \
                 sorry."
                    .into(),
                charged,
            ],
        ),
        MessageKind::RefundDue | MessageKind::Refunded | MessageKind::PaymentRefunded => english_refund(content),
    }
}

fn english_refund(content: &Content) -> Words {
    let money = price(Language::English, content.money.as_ref().unwrap_or(&content.price));
    let reason = match why(content) {
        Why::Late => format!("Your payment of {money} came after the units had gone back."),
        Why::Ended => format!("Your order was ended after you had paid {money} for it."),
        Why::Second => format!("A second payment of {money} arrived. Your order stays paid by the first."),
        Why::Unfit => format!("A payment of {money} arrived that cannot pay this order."),
    };
    let back = "It is returned in full, the way it came. It may take some days until your bank shows it.";
    ("Your money goes back", "Your money is on its way back", vec![reason, back.into()])
}

fn german(kind: MessageKind, content: &Content, facts: &Facts<'_>) -> Words {
    let money = |money: &Option<Money>| price(Language::German, money.as_ref().unwrap_or(&content.price));
    let until = |at: Timestamp| moment_text_in(Language::German, at, facts.zone);
    let charged = match &content.money {
        Some(_) => format!("Die eingegangenen {} gehen vollständig zurück.", money(&content.money)),
        None => "Es wurde nichts abgebucht.".to_owned(),
    };
    let before = content.units_before.as_deref().map(numbers);
    match kind {
        MessageKind::Paid => {
            let mut said = vec![format!("Ihre Zahlung über {} ist eingegangen.", money(&None))];
            if before.is_some() {
                said.push(
                    "Sie kam, als die zuerst reservierten Stücke schon wieder frei waren. Sie haben dafür andere \
                     bekommen."
                        .into(),
                );
            }
            said.push("Das gehört Ihnen:".into());
            ("Bezahlt", "Bezahlt. Vielen Dank!", said)
        }
        MessageKind::UnitsChanged => (
            "Andere Nummern",
            "Ihre Nummern haben sich geändert",
            vec![format!(
                "Ihre Bestellung bleibt bezahlt. Statt {} haben Sie jetzt die folgenden Nummern.",
                before.unwrap_or_default()
            )],
        ),
        MessageKind::Expired => (
            "Nicht rechtzeitig bezahlt",
            "Die Zeit zum Bezahlen ist vorbei",
            vec![
                format!(
                    "Ihre Bestellung war bis {} reserviert und wurde bis dahin nicht bezahlt.",
                    until(content.hold_expires_at)
                ),
                charged,
                "Wenn noch etwas übrig ist, können Sie sich wieder anstellen.".into(),
            ],
        ),
        MessageKind::Cancelled => (
            "Bestellung nicht möglich",
            "Ihre Bestellung ist leider nicht möglich",
            vec![
                "Durch einen Fehler bei uns gehören die für Sie reservierten Stücke zu einer anderen Bestellung. Ihre ist \
                 storniert. Das tut uns leid."
                    .into(),
                charged,
            ],
        ),
        MessageKind::RefundDue | MessageKind::Refunded | MessageKind::PaymentRefunded => german_refund(content),
    }
}

fn german_refund(content: &Content) -> Words {
    let money = price(Language::German, content.money.as_ref().unwrap_or(&content.price));
    let reason = match why(content) {
        Why::Late => format!("Ihre Zahlung über {money} kam, als die Stücke schon wieder frei waren."),
        Why::Ended => format!("Ihre Bestellung wurde beendet, nachdem Sie {money} dafür bezahlt hatten."),
        Why::Second => format!(
            "Eine zweite Zahlung über {money} ist eingegangen. Ihre Bestellung bleibt durch die erste bezahlt."
        ),
        Why::Unfit => {
            format!("Eine Zahlung über {money} ist eingegangen, die zu dieser Bestellung nicht passt.")
        }
    };
    let back = "Das Geld geht vollständig auf dem Weg zurück, auf dem es kam. Bis Ihre Bank es zeigt, kann es einige Tage \
                dauern.";
    ("Ihr Geld geht zurück", "Ihr Geld ist auf dem Weg zu Ihnen", vec![reason, back.into()])
}
