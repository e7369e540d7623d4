//! An SMTP server that speaks the protocol (RFC 5321) and misbehaves on demand, and a shop that takes webhooks.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Instant,
};

use axum::{Router, body::Bytes, extract::State, routing::post};
use http::{HeaderMap, StatusCode};
use lockgate_checkout::outbox::{MailSettings, SmtpServer, WebhookSecret, WebhookSettings};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf},
};

pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
pub const SECRET_NEXT: &str = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ=";

/// What the mail server does to the next mail.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Greets with this line.
    AtGreeting(&'static str),
    /// Answers this line to `MAIL FROM`.
    AtSender(&'static str),
    /// Answers this line to `RCPT TO`.
    AtRecipient(&'static str),
    /// Answers this line to the mail itself.
    AtData(&'static str),
    /// Takes the mail, and cuts the connection instead of answering.
    CutAfterData,
}

/// A mail that was taken.
#[derive(Clone, Debug)]
pub struct Taken {
    pub to: String,
    pub text: String,
}

impl Taken {
    pub fn header(&self, name: &str) -> String {
        let (head, _) = self.text.split_once("\r\n\r\n").unwrap();
        let found = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        found.unwrap_or_else(|| panic!("no {name}: {head}")).to_owned()
    }

    /// The mail's text with quoted-printable undone, as far as links and words need it.
    pub fn decoded(&self) -> String {
        let joined = self.text.replace("=\r\n", "");
        let mut bytes = Vec::new();
        let mut rest = joined.as_bytes();
        while let [first, tail @ ..] = rest {
            let code = tail.get(..2).and_then(|code| std::str::from_utf8(code).ok());
            match code.filter(|_| *first == b'=').and_then(|code| u8::from_str_radix(code, 16).ok()) {
                Some(byte) => {
                    bytes.push(byte);
                    rest = &tail[2..];
                }
                None => {
                    bytes.push(*first);
                    rest = tail;
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[derive(Default)]
struct PostState {
    faults: Mutex<VecDeque<Fault>>,
    taken: Mutex<Vec<Taken>>,
    /// Connections are accepted, and nothing is ever said.
    hangs: std::sync::atomic::AtomicBool,
}

impl PostState {
    /// The greeting that comes next, if it is no welcome.
    fn unfriendly_greeting(&self) -> Option<&'static str> {
        let mut faults = self.faults.lock().unwrap();
        let Some(&Fault::AtGreeting(reply)) = faults.front() else { return None };
        faults.pop_front();
        Some(reply)
    }
}

/// The mail server.
#[derive(Clone)]
pub struct PostOffice {
    state: Arc<PostState>,
    port: u16,
}

impl PostOffice {
    pub async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(PostState::default());
        let serving = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&serving);
                tokio::spawn(async move { converse(&state, stream).await });
            }
        });
        Self { state, port }
    }

    pub fn settings(&self) -> MailSettings {
        MailSettings {
            server: SmtpServer::parse(&format!("smtp://shop:pass%20word@127.0.0.1:{}", self.port)).unwrap(),
            from: "Shop <orders@shop.example>".into(),
            reply_to: None,
        }
    }

    pub fn faults(&self, faults: &[Fault]) {
        self.state.faults.lock().unwrap().extend(faults.iter().cloned());
    }

    pub fn hang(&self) {
        self.state.hangs.store(true, std::sync::atomic::Ordering::SeqCst);
    }

    pub fn taken(&self) -> Vec<Taken> {
        self.state.taken.lock().unwrap().clone()
    }
}

async fn line(reader: &mut BufReader<OwnedReadHalf>) -> Option<String> {
    let mut line = String::new();
    match reader.read_line(&mut line).await {
        Ok(n) if n > 0 => Some(line.trim_end_matches(['\r', '\n']).to_owned()),
        _ => None,
    }
}

/// One connection, until it ends.
async fn converse(state: &PostState, stream: TcpStream) -> Option<()> {
    if state.hangs.load(std::sync::atomic::Ordering::SeqCst) {
        tokio::time::sleep(std::time::Duration::from_secs(3_600)).await;
    }
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    if let Some(reply) = state.unfriendly_greeting() {
        writer.write_all(format!("{reply}\r\n").as_bytes()).await.ok()?;
        return None;
    }
    writer.write_all(b"220 post.example ESMTP\r\n").await.ok()?;
    let (mut is_known, mut to, mut fault) = (false, None, None);
    loop {
        let command = line(&mut reader).await?;
        let verb = command.to_ascii_uppercase();
        let reply = if verb.starts_with("EHLO") {
            "250-post.example\r\n250-8BITMIME\r\n250 AUTH PLAIN LOGIN".to_owned()
        } else if let Some(given) = command.strip_prefix("AUTH PLAIN ") {
            // "\0shop\0pass word" in base64.
            is_known = given == "AHNob3AAcGFzcyB3b3Jk";
            if is_known { "235 welcome".into() } else { "535 who are you".into() }
        } else if verb.starts_with("MAIL FROM:") {
            fault = state.faults.lock().unwrap().pop_front();
            match &fault {
                Some(Fault::AtSender(reply)) => (*reply).into(),
                _ if is_known => "250 go on".into(),
                _ => "530 first say who you are".into(),
            }
        } else if verb.starts_with("RCPT TO:") {
            to = Some(command[8..].trim_matches(['<', '>']).to_owned());
            match &fault {
                Some(Fault::AtRecipient(reply)) => (*reply).into(),
                _ => "250 go on".into(),
            }
        } else if verb == "DATA" {
            writer.write_all(b"354 end with a dot\r\n").await.ok()?;
            let mut text = String::new();
            loop {
                let line = line(&mut reader).await?;
                if line == "." {
                    break;
                }
                text.push_str(line.strip_prefix('.').unwrap_or(&line));
                text.push_str("\r\n");
            }
            if let Some(Fault::AtData(reply)) = &fault {
                (*reply).into()
            } else {
                state.taken.lock().unwrap().push(Taken { to: to.take()?, text });
                if matches!(fault, Some(Fault::CutAfterData)) {
                    return None;
                }
                "250 taken".into()
            }
        } else if verb == "QUIT" {
            writer.write_all(b"221 bye\r\n").await.ok()?;
            return None;
        } else if verb == "RSET" || verb == "NOOP" {
            "250 done".into()
        } else {
            "502 not here".into()
        };
        writer.write_all(format!("{reply}\r\n").as_bytes()).await.ok()?;
    }
}

/// A webhook that came, its signature proven.
#[derive(Clone, Debug)]
pub struct Came {
    pub id: String,
    pub at: Instant,
    pub body: Value,
}

impl Came {
    pub fn kind(&self) -> String {
        self.body["type"].as_str().unwrap().to_owned()
    }
}

#[derive(Default)]
struct ShopState {
    /// Answers to give, with `Retry-After`; 204 when there is none.
    answers: Mutex<VecDeque<(u16, Option<u32>)>>,
    came: Mutex<Vec<Came>>,
    hangs: std::sync::atomic::AtomicBool,
}

/// The shop's side of webhooks.
#[derive(Clone)]
pub struct Receiver {
    state: Arc<ShopState>,
    url: String,
}

impl Receiver {
    pub async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let state = Arc::new(ShopState::default());
        let router = Router::new().route("/hook", post(take)).with_state(Arc::clone(&state));
        tokio::spawn(async move {
            lockgate_shared::edge::serve::serve(listener, router, tokio::sync::watch::channel(false).1).await
        });
        Self { state, url }
    }

    pub fn settings(&self) -> WebhookSettings {
        let secrets = [SECRET, SECRET_NEXT].map(|text| WebhookSecret::parse(text).unwrap());
        WebhookSettings { url: self.url.clone(), secrets: secrets.to_vec() }
    }

    pub fn answer(&self, answers: &[(u16, Option<u32>)]) {
        self.state.answers.lock().unwrap().extend(answers);
    }

    /// Takes webhooks and never answers, until it is set back.
    pub fn hang(&self, hangs: bool) {
        self.state.hangs.store(hangs, std::sync::atomic::Ordering::SeqCst);
    }

    pub fn came(&self) -> Vec<Came> {
        self.state.came.lock().unwrap().clone()
    }

    pub fn kinds_of(&self, order: &str) -> Vec<String> {
        let own = self.came().into_iter().filter(|came| came.body["data"]["order_id"] == order);
        own.map(|came| came.kind()).collect()
    }
}

async fn take(
    State(state): State<Arc<ShopState>>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, HeaderMap, &'static str) {
    // Whoever still has the old secret, and whoever has the new one, can tell that it comes from us. The reference
    // library signs what came; the shop's clock is set by hand, so its time is not held against the machine's.
    let text = |name: &str| headers[name].to_str().unwrap().to_owned();
    let (given, at) = (text("webhook-signature"), text("webhook-timestamp").parse().unwrap());
    for (secret, given) in [SECRET, SECRET_NEXT].iter().zip(given.split(' ')) {
        let reference = standardwebhooks::Webhook::new(secret).unwrap();
        assert_eq!(reference.sign(&text("webhook-id"), at, &body).unwrap(), given);
    }
    let id = headers["webhook-id"].to_str().unwrap().to_owned();
    let body = serde_json::from_slice(&body).unwrap();
    state.came.lock().unwrap().push(Came { id, at: Instant::now(), body });
    if state.hangs.load(std::sync::atomic::Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
    let (status, after) = state.answers.lock().unwrap().pop_front().unwrap_or((204, None));
    let mut told = HeaderMap::new();
    if let Some(after) = after {
        told.insert("retry-after", after.into());
    }
    if status == 302 {
        told.insert("location", "/hook".parse().unwrap());
    }
    (StatusCode::from_u16(status).unwrap(), told, "")
}
