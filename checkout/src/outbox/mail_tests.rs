use std::fs;

use lockgate_shared::language::Language;

use super::*;
use crate::{
    outbox::{mail_tests_facts::message, message::MessageKind, smtp::without_addresses},
    payment::Money,
};

const LINK: &str =
    "https://shop.example/orders/abababab-abab-abab-abab-abababababab?key=A-key_of16bytesxxxxxx";

fn mailer(reply_to: Option<&str>) -> Mailer {
    let settings = MailSettings {
        server: SmtpServer::parse("smtp://127.0.0.1:9").unwrap(),
        from: "Shöp <orders@shop.example>".into(),
        reply_to: reply_to.map(str::to_owned),
    };
    Mailer::new(&settings).unwrap()
}

fn facts(sale: &str) -> Facts<'_> {
    Facts { sale, item: "Phone, black & <big>", zone: Some("Europe/Berlin"), link: LINK }
}

/// Every mail that there is, by a name for its file.
fn every_mail() -> Vec<(String, Message)> {
    let euros = |amount| Some(Money { amount, currency: "EUR".into() });
    let state = |state: &'static str, before: &'static str| (state, before);
    let cases = [
        ("paid", MessageKind::Paid, state("paid", "awaiting_payment"), None, None),
        ("paid-late", MessageKind::Paid, state("paid", "expired"), None, Some(vec![12, 13])),
        ("units-changed", MessageKind::UnitsChanged, state("paid", "paid"), None, Some(vec![12, 13])),
        ("expired", MessageKind::Expired, state("expired", "awaiting_payment"), None, None),
        (
            "expired-wrong-amount",
            MessageKind::Expired,
            state("expired", "awaiting_payment"),
            euros(100),
            None,
        ),
        ("cancelled", MessageKind::Cancelled, state("cancelled", "awaiting_payment"), None, None),
        ("refund-late", MessageKind::RefundDue, state("refund_due", "expired"), euros(49_900), None),
        ("refund-ended", MessageKind::RefundDue, state("refund_due", "paid"), euros(49_900), None),
        ("refund-second", MessageKind::RefundDue, state("paid", "paid"), euros(49_900), None),
        (
            "refund-unfit",
            MessageKind::RefundDue,
            state("awaiting_payment", "awaiting_payment"),
            euros(1),
            None,
        ),
    ];
    let mut mails = Vec::new();
    for language in Language::ALL {
        for (name, kind, (state, before), money, units_before) in cases.clone() {
            let message = message(kind, |content| {
                (content.state, content.state_before) = (state.into(), Some(before.into()));
                (content.money, content.units_before) = (money, units_before);
                content.language = Some(*language);
            });
            mails.push((format!("{name}.{}", language.as_str()), message));
        }
    }
    mails
}

#[tokio::test]
async fn p6_every_mail_is_written_in_the_shopper_s_language() {
    // LOCKGATE_SCREENSHOTS=dir keeps them, to be looked at.
    let temporary = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("LOCKGATE_SCREENSHOTS").map(std::path::PathBuf::from);
    let folder = kept.as_deref().unwrap_or(temporary.path());
    let mailer = mailer(None);
    for (name, message) in every_mail() {
        let letter = letter(&message, &facts("Phone drop"));
        let (html, plain) =
            (HtmlPart { letter: &letter }.render().unwrap(), PlainPart { letter: &letter }.render().unwrap());
        fs::write(folder.join(format!("mail-{name}.html")), &html).unwrap();
        fs::write(folder.join(format!("mail-{name}.txt")), &plain).unwrap();
        fs::write(folder.join(format!("mail-{name}.eml")), compose(&mailer, &message, "Phone drop")).unwrap();
        let language = message.content.language.unwrap();
        assert!(html.contains(&format!("<html lang=\"{}\">", language.as_str())), "{html}");
        assert!(html.contains("black &#38; &#60;big&#62;"), "names are escaped: {html}");
        assert!(plain.contains("Phone, black & <big>"), "{plain}");
        for part in [&plain, &html] {
            assert!(part.contains(LINK) && part.contains(letter.heading), "{part}");
            for paragraph in &letter.paragraphs {
                assert!(part.contains(paragraph.as_str()), "{paragraph}: {part}");
            }
        }
        let amount = match language {
            Language::English => "499.00 EUR",
            Language::German => "499,00 EUR",
        };
        assert!(plain.contains(amount), "{plain}");
        let shows_units = plain.contains("417, 418");
        let keeps = matches!(message.kind, MessageKind::Paid | MessageKind::UnitsChanged);
        assert_eq!(shows_units, keeps, "{plain}");
        if message.kind == MessageKind::Expired {
            let until = match language {
                Language::English => "1 December 2026, 11:10 (Europe/Berlin)",
                Language::German => "1. Dezember 2026, 11:10 Uhr (Europe/Berlin)",
            };
            assert!(plain.contains(until), "{plain}");
            let says_nothing = plain.contains("Nothing was charged") || plain.contains("nichts abgebucht");
            assert_eq!(says_nothing, message.content.money.is_none(), "{plain}");
        }
    }
}

fn compose(mailer: &Mailer, message: &Message, sale: &str) -> String {
    String::from_utf8(mailer.compose(message, &facts(sale)).unwrap().formatted()).unwrap()
}

#[tokio::test]
async fn a_mail_has_the_headers_by_which_a_repetition_is_recognised() {
    let message = message(MessageKind::Paid, |_| {});
    let mailer = mailer(Some("help@shop.example"));
    let text = compose(&mailer, &message, "Phone drop");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    for line in [
        "To: buyer@example.org",
        "Reply-To: help@shop.example",
        "Message-ID: <msg_abababababababababababababababab_3@shop.example>",
        "Date: Tue, 01 Dec 2026 10:00:00 +0000",
        "Subject: Paid: Phone drop",
        "Auto-Submitted: auto-generated",
        "MIME-Version: 1.0",
    ] {
        assert!(head.lines().any(|found| found == line), "{line}: {head}");
    }
    assert!(head.contains("Content-Type: multipart/alternative"), "{head}");
    let (plain, html) = (body.find("text/plain").unwrap(), body.find("text/html").unwrap());
    assert!(plain < html, "the last part is the preferred one");
    let ids = |text: &str| text.lines().find(|line| line.starts_with("Message-ID")).map(str::to_owned);
    assert_eq!(ids(&compose(&mailer, &message, "Phone drop")), ids(&text));
}

#[tokio::test]
async fn no_name_and_no_address_brings_a_header_of_its_own() {
    let mailer = mailer(None);
    for sale in [
        "Drop\r\nBcc: victim@example.org",
        "Drop\nBcc: victim@example.org",
        "Drop\r\n\r\nHello",
        "Dröp\r\nX: y",
    ] {
        let text = compose(&mailer, &message(MessageKind::Paid, |_| {}), sale);
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        let names = ["bcc:", "x:", "hello"];
        let own = head.lines().any(|line| names.iter().any(|name| line.to_lowercase().starts_with(name)));
        assert!(!own, "{head}");
        assert!(head.contains("MIME-Version"), "no header was pushed into the body: {head}");
    }
    for address in
        ["a@b\r\nBcc: x@y.example", "a@b.example, x@y.example", "<a@b.example>", "a b@c.example", ""]
    {
        let message = message(MessageKind::Paid, |content| content.email = Some(address.into()));
        let refused = mailer.compose(&message, &facts("Drop")).unwrap_err();
        assert!(
            refused.is_for_good && (address.is_empty() || !refused.problem.contains(address)),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn an_address_that_checkout_takes_is_one_that_a_mail_is_written_to() {
    let long = format!("{}@e.org", "a".repeat(64));
    for address in [
        "ä.b+c@example.org",
        "o'brien@exa-mple.co.uk",
        "!#$%&'*+-/=?^_`{|}~@e.org",
        "a@münchen.example",
        &long,
    ] {
        let taken = crate::claim::check_email(address).unwrap();
        let message = message(MessageKind::Paid, |content| content.email = taken);
        let mail = mailer(None).compose(&message, &facts("Drop")).unwrap();
        let to: Vec<String> = mail.envelope().to().iter().map(ToString::to_string).collect();
        assert_eq!(to, [address]);
    }
}

#[test]
fn what_a_server_repeats_of_an_address_is_not_kept() {
    let told =
        without_addresses("550 5.1.1 <buyer@example.org>: Recipient\r\n unknown to (\"Buyer\" b@x.example)");
    assert!(!told.contains("buyer@") && !told.contains("b@x") && told.contains("Recipient"), "{told}");
    assert!(without_addresses(&"ä ".repeat(1_000)).chars().count() <= 300);
}

#[test]
fn a_server_s_address_is_read_with_its_rules() {
    let read = |text: &str| SmtpServer::parse(text).map(|server| format!("{server:?} {:?}", server.login));
    let ok = |text: &str| read(text).unwrap();
    assert_eq!(ok("smtps://mail.example"), "mail.example:465 (Tls) None");
    assert_eq!(ok("smtp://mail.example"), "mail.example:587 (StartTls) None");
    assert_eq!(ok("smtp://mail.example:25/"), "mail.example:25 (StartTls) None");
    assert_eq!(ok("smtp://127.0.0.1:2525"), "127.0.0.1:2525 (None) None");
    assert_eq!(ok("smtp://[::1]:2525"), "::1:2525 (None) None");
    assert_eq!(ok("smtp://localhost"), "localhost:587 (None) None");
    assert_eq!(ok("smtps://a%40b:p%3A%2f%c3%a4@m.example"), "m.example:465 (Tls) Some((\"a@b\", \"p:/ä\"))");
    for bad in [
        "",
        "mail.example",
        "http://m",
        "smtp://",
        "smtp://a@m",
        "smtp://a:b@",
        "smtp://m:x",
        "smtp://m:0",
        "smtp://m/x",
        "smtp://m?tls=none",
        "smtp://a:%4@m",
        "smtp://a:%ff@m",
        "smtp://a b@m",
    ] {
        let told = read(bad).unwrap_err();
        assert!(bad.len() < 8 || !told.contains(bad), "{told}");
    }
}
