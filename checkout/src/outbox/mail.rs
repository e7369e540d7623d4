//! Mails to buyers: where they go out, and how they are composed.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};

use askama::Template;
use lettre::{
    Address, Message as Mail,
    message::{
        Mailbox, MultiPart,
        header::{HeaderName, HeaderValue},
    },
};

use super::{
    Undelivered,
    letter::{Letter, letter},
    message::Message,
    smtp::Relay,
};

pub(crate) use super::letter::Facts;

/// How the connection is kept private.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Privacy {
    /// TLS from the first byte.
    Tls,
    /// STARTTLS, or nothing is sent.
    StartTls,
    /// On this machine only.
    None,
}

/// An SMTP server, as it is written in one address.
#[derive(Clone, PartialEq, Eq)]
pub struct SmtpServer {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) privacy: Privacy,
    pub(super) login: Option<(String, String)>,
}

impl std::fmt::Debug for SmtpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} ({:?})", self.host, self.port, self.privacy)
    }
}

impl SmtpServer {
    /// Reads `smtps://user:password@host:465` (TLS), or `smtp://user:password@host:587`, which means STARTTLS and nothing
    /// without it, but for a server on this machine.
    ///
    /// # Errors
    /// What is wrong, without the address: it may hold a password.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("has no scheme")?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) || rest.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(
                "holds more than user, password, host and port; write other characters of a password as %xx"
                    .into(),
            );
        }
        let (login, place) = match rest.rsplit_once('@') {
            None => (None, rest),
            Some((login, place)) => {
                let (user, password) = login.split_once(':').ok_or("names a user without a password")?;
                (Some((decoded(user)?, decoded(password)?)), place)
            }
        };
        let authority: http::uri::Authority = place.parse().map_err(|_| "names no host")?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err("names no host".into());
        }
        let has_port = place.len() > authority.host().len();
        if has_port && authority.port_u16().is_none_or(|port| port == 0) {
            return Err("has a port that is none".into());
        }
        let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let (privacy, port) = match scheme {
            "smtps" => (Privacy::Tls, 465),
            "smtp" if is_here => (Privacy::None, 587),
            "smtp" => (Privacy::StartTls, 587),
            _ => return Err("begins with neither smtp:// nor smtps://".into()),
        };
        Ok(Self { host, port: authority.port_u16().unwrap_or(port), privacy, login })
    }
}

/// `%xx` decoded.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || "has a % that is not followed by two hexadecimal digits of UTF-8".to_owned();
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()).ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// Who writes, such as `Shop <orders@shop.example>`.
///
/// # Errors
/// It is no such address.
pub fn check_mailbox(text: &str) -> Result<String, String> {
    let plain = !text.chars().any(char::is_control);
    match text.parse::<Mailbox>() {
        Ok(_) if plain => Ok(text.to_owned()),
        _ => Err(format!("'{text}' is no mail address")),
    }
}

/// Where mails go out, and from whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailSettings {
    /// The server.
    pub server: SmtpServer,
    /// Who writes.
    pub from: String,
    /// Who reads answers, if somebody else does.
    pub reply_to: Option<String>,
}

/// Sends mails.
pub(crate) struct Mailer {
    relay: Relay,
    from: Mailbox,
    reply_to: Option<Mailbox>,
}

#[derive(Template)]
#[template(path = "mail.html")]
struct HtmlPart<'a> {
    letter: &'a Letter,
}

#[derive(Template)]
#[template(path = "mail.txt", escape = "none")]
struct PlainPart<'a> {
    letter: &'a Letter,
}

impl Mailer {
    pub(crate) fn new(settings: &MailSettings) -> Result<Self, String> {
        let mailbox = |text: &str| text.parse::<Mailbox>().map_err(|error| format!("{text}: {error}"));
        let from = mailbox(&settings.from)?;
        Ok(Self {
            relay: Relay::new(&settings.server, from.email.domain())?,
            reply_to: settings.reply_to.as_deref().map(mailbox).transpose()?,
            from,
        })
    }

    /// The mail of a message, as it goes out.
    pub(crate) fn compose(&self, message: &Message, facts: &Facts<'_>) -> Result<Mail, Undelivered> {
        let dead = |problem: String| Undelivered::for_good(problem);
        let letter = letter(message, facts);
        let address =
            message.content.email.as_deref().ok_or_else(|| dead("the order has no address".into()))?;
        let to: Address = address
            .parse()
            .map_err(|_| dead("the order's address is none that mail can be sent to".into()))?;
        let rendered = |part: Result<String, askama::Error>| part.map_err(|error| dead(error.to_string()));
        let (plain, html) = (
            rendered(PlainPart { letter: &letter }.render())?,
            rendered(HtmlPart { letter: &letter }.render())?,
        );
        // A header ends with its line, so no name may bring one.
        let subject: String = letter.subject.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let at =
            SystemTime::UNIX_EPOCH + Duration::from_micros(message.created_at.micros().max(0).unsigned_abs());
        let mut builder = Mail::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            .subject(subject)
            .date(at)
            .message_id(Some(format!("<{}@{}>", message.id, self.from.email.domain())))
            .raw_header(HeaderValue::new(
                HeaderName::new_from_ascii_str("Auto-Submitted"),
                "auto-generated".to_owned(),
            ));
        if let Some(reply_to) = &self.reply_to {
            builder = builder.reply_to(reply_to.clone());
        }
        builder
            .multipart(MultiPart::alternative_plain_html(plain, html))
            .map_err(|error| dead(error.to_string()))
    }

    pub(crate) async fn send(&self, mail: &Mail) -> Result<(), Undelivered> {
        self.relay.send(mail).await
    }
}

#[cfg(test)]
#[path = "mail_tests.rs"]
mod tests;
