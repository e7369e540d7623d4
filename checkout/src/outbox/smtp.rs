//! The conversation with the mail server (RFC 5321), command by command: what a refusal means depends on where it comes.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use lettre::{
    Message as Mail,
    transport::smtp::{
        Error,
        authentication::{Credentials, Mechanism},
        client::{AsyncSmtpConnection, TlsParameters},
        commands::{Data, Mail as MailFrom, Rcpt},
        extension::{ClientId, Extension, MailBodyParameter, MailParameter},
    },
};
use tokio::time::timeout;

use super::{
    Undelivered,
    mail::{Privacy, SmtpServer},
};

/// Longest the server may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(15);
/// Longest it may take to say that a connection that was kept still stands, or to take a goodbye.
const ASIDE_LIMIT: Duration = Duration::from_secs(3);
/// Connections kept for the next mail.
const KEPT_MAX: usize = 8;
/// How long one is kept.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The server that mails go out by.
pub(super) struct Relay {
    server: SmtpServer,
    tls: Option<TlsParameters>,
    hello: ClientId,
    kept: Mutex<Vec<(AsyncSmtpConnection, Instant)>>,
}

impl Relay {
    pub(super) fn new(server: &SmtpServer, hello: &str) -> Result<Self, String> {
        let tls = match server.privacy {
            Privacy::None => None,
            Privacy::Tls | Privacy::StartTls => {
                Some(TlsParameters::new(server.host.clone()).map_err(|error| error.to_string())?)
            }
        };
        let hello = ClientId::Domain(hello.to_owned());
        Ok(Self { server: server.clone(), tls, hello, kept: Mutex::default() })
    }

    pub(super) async fn send(&self, mail: &Mail) -> Result<(), Undelivered> {
        let mut connection = match self.kept_one().await {
            Some(connection) => connection,
            None => self.connect().await.map_err(|error| refuses_us(&error))?,
        };
        let sent = hand_over(&mut connection, mail).await;
        if sent.is_ok() {
            self.keep(connection);
        } else {
            let _ = timeout(ASIDE_LIMIT, connection.quit()).await;
        }
        sent
    }

    async fn connect(&self) -> Result<AsyncSmtpConnection, Error> {
        let place = (self.server.host.as_str(), self.server.port);
        let (from_first_byte, later) = match self.server.privacy {
            Privacy::StartTls => (None, self.tls.clone()),
            Privacy::Tls | Privacy::None => (self.tls.clone(), None),
        };
        let limit = Some(CONNECT_LIMIT);
        let mut connection =
            AsyncSmtpConnection::connect_tokio1(place, limit, &self.hello, from_first_byte, None).await?;
        if let Some(tls) = later {
            connection.starttls(tls, &self.hello).await?;
        }
        if let Some((user, password)) = &self.server.login {
            let credentials = Credentials::new(user.clone(), password.clone());
            connection.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await?;
        }
        Ok(connection)
    }

    /// A connection that was kept and still stands.
    async fn kept_one(&self) -> Option<AsyncSmtpConnection> {
        loop {
            let (mut connection, since) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            let is_young = since.elapsed() < KEPT_FOR;
            if is_young && timeout(ASIDE_LIMIT, connection.test_connected()).await == Ok(true) {
                return Some(connection);
            }
        }
    }

    fn keep(&self, connection: AsyncSmtpConnection) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(_, since)| since.elapsed() < KEPT_FOR);
        if kept.len() < KEPT_MAX {
            kept.push((connection, Instant::now()));
        }
    }
}

async fn hand_over(connection: &mut AsyncSmtpConnection, mail: &Mail) -> Result<(), Undelivered> {
    let (envelope, text) = (mail.envelope(), mail.formatted());
    let parameters = parameters(connection, mail, &text)?;
    let from = MailFrom::new(envelope.from().cloned(), parameters);
    connection.command(from).await.map_err(|error| refuses_us(&error))?;
    for to in envelope.to() {
        connection.command(Rcpt::new(to.clone(), Vec::new())).await.map_err(|error| refuses_mail(&error))?;
    }
    connection.command(Data).await.map_err(|error| refuses_mail(&error))?;
    connection.message(&text).await.map_err(|error| refuses_mail(&error))?;
    Ok(())
}

/// What the server must know of a mail that is not all ASCII (RFC 6152, RFC 6531).
fn parameters(
    connection: &AsyncSmtpConnection,
    mail: &Mail,
    text: &[u8],
) -> Result<Vec<MailParameter>, Undelivered> {
    let supports = |extension| connection.server_info().supports_feature(extension);
    let mut parameters = Vec::new();
    let envelope = mail.envelope();
    if !envelope.to().iter().chain(envelope.from()).all(|address| address.to_string().is_ascii()) {
        if !supports(Extension::SmtpUtfEight) {
            let problem =
                "the order's address is not ASCII, and the mail server takes no such addresses (SMTPUTF8)";
            return Err(Undelivered::for_good(problem.into()));
        }
        parameters.push(MailParameter::SmtpUtfEight);
    }
    if !text.is_ascii() {
        if !supports(Extension::EightBitMime) {
            let problem = "the mail is not ASCII, and the mail server takes no such mails (8BITMIME)";
            return Err(Undelivered::for_good(problem.into()));
        }
        parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }
    Ok(parameters)
}

/// At the greeting, our name, our password or our own address: whatever the server says, no mail would fare better, and
/// none is to be given up for it.
fn refuses_us(error: &Error) -> Undelivered {
    Undelivered::by_receiver(without_addresses(&error.to_string()), None)
}

/// At the recipient or the mail: against this mail for good or for now, or after all against us.
fn refuses_mail(error: &Error) -> Undelivered {
    let problem = without_addresses(&error.to_string());
    match error.status().map(u16::from) {
        // The service is closing, or asks us who we are.
        None | Some(421 | 454 | 521 | 530 | 534 | 535 | 538) => Undelivered::by_receiver(problem, None),
        Some(400..500) => Undelivered::for_now(problem),
        Some(_) => Undelivered::for_good(problem),
    }
}

/// What a server says, without what it repeats of the address: it is kept and shown to operators.
pub(super) fn without_addresses(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let safe = words.map(|word| if word.contains('@') { "(address)" } else { word });
    let mut joined = safe.collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = joined.char_indices().nth(300) {
        joined.truncate(end);
    }
    joined
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
        net::TcpListener,
    };

    use super::*;

    /// A server that says these lines: the greeting, then one for each command; inside a mail it waits for its end.
    async fn server(replies: &'static [&'static str]) -> SmtpServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let (reader, mut writer) = stream.into_split();
            let mut lines = BufReader::new(reader).lines();
            for reply in replies {
                let _ = writer.write_all(format!("{reply}\r\n").as_bytes()).await;
                let mut next = lines.next_line().await;
                while reply.starts_with("354") && next.as_ref().is_ok_and(|line| line.as_deref() != Some("."))
                {
                    next = lines.next_line().await;
                }
            }
        });
        SmtpServer::parse(&format!("smtp://u:p@127.0.0.1:{port}")).unwrap()
    }

    async fn send(to: &str, replies: &'static [&'static str]) -> Result<(), Undelivered> {
        let relay = Relay::new(&server(replies).await, "shop.example").unwrap();
        let mail = Mail::builder().from("orders@shop.example".parse().unwrap()).to(to.parse().unwrap());
        relay.send(&mail.body("hello".to_owned()).unwrap()).await
    }

    const HELLO: &str = "250-post.example\r\n250 AUTH PLAIN";

    #[tokio::test]
    async fn m8_who_refuses_us_refuses_no_mail() {
        let cases: [&[&str]; 7] = [
            &["554 no service for you"],
            &["220 hi", "550 not with that name"],
            &["220 hi", HELLO, "535 who are you"],
            &["220 hi", HELLO, "550 nobody"],
            &["220 hi", HELLO, "235 ok", "550 5.7.1 <orders@shop.example> may not write here"],
            &["220 hi", HELLO, "235 ok", "452 no room"],
            &["220 hi", HELLO, "235 ok", "250 ok", "530 log in first"],
        ];
        for replies in cases {
            let told = send("buyer@example.org", replies).await.unwrap_err();
            assert!(told.is_by_receiver && !told.is_for_good, "{replies:?}: {told:?}");
            assert!(!told.problem.contains("orders@"), "{told:?}");
        }
        let cut = send("buyer@example.org", &["220 hi", HELLO]).await.unwrap_err();
        assert!(cut.is_by_receiver && !cut.is_for_good, "{cut:?}");
    }

    #[tokio::test]
    async fn m8_a_refused_recipient_or_mail_speaks_against_the_mail_alone() {
        let until = |last: &'static str| ["220 hi", HELLO, "235 ok", "250 ok", last];
        let at_recipient = |last| -> &'static [&'static str] { Box::leak(Box::new(until(last))) };
        let at_data = |last| -> &'static [&'static str] {
            Box::leak([&until("250 ok")[..], &["354 go on", last]].concat().into_boxed_slice())
        };
        for replies in [at_recipient("550 unknown"), at_data("554 spam")] {
            let told = send("buyer@example.org", replies).await.unwrap_err();
            assert!(told.is_for_good && !told.is_by_receiver, "{replies:?}: {told:?}");
        }
        for replies in [at_recipient("451 greylisted"), at_data("452 no room")] {
            let told = send("buyer@example.org", replies).await.unwrap_err();
            assert!(!told.is_for_good && !told.is_by_receiver, "{replies:?}: {told:?}");
        }
        let foreign = send("büyer@example.org", at_recipient("250 ok")).await.unwrap_err();
        assert!(foreign.is_for_good && foreign.problem.contains("SMTPUTF8"), "{foreign:?}");
        send("buyer@example.org", at_data("250 taken")).await.unwrap();
    }
}
