//! PURE. The one who watches the public status for all, and holds it against its own rules.

use crate::{
    answer::{Answer, Public, micros_of},
    board::Board,
    rules::{Rule, Verdict},
};

/// What the watcher remembers.
#[derive(Debug, Default)]
pub struct Watcher {
    copy: Option<Copy>,
    asked: u64,
    sent_tag: bool,
}

#[derive(Debug)]
struct Copy {
    etag: String,
    body: bytes::Bytes,
}

/// How often the public status is asked, in milliseconds: a shared cache's life.
pub const WATCH_MS: u64 = 1_000;

/// How to ask next.
pub struct Ask<'a> {
    /// The tag of the copy at hand.
    pub etag: Option<&'a str>,
    /// Whether to send a cookie.
    pub cookie: bool,
}

impl Watcher {
    /// In turn: plainly, with a cookie, with the tag of the copy.
    pub fn ask(&mut self) -> Ask<'_> {
        self.asked += 1;
        let with_tag = self.asked.is_multiple_of(3);
        self.sent_tag = with_tag && self.copy.is_some();
        let etag = self.copy.as_ref().filter(|_| with_tag).map(|copy| copy.etag.as_str());
        Ask { etag, cookie: self.asked % 3 == 2 }
    }

    /// Takes an answer.
    pub fn take(
        &mut self,
        answer: &Answer,
        sale: &str,
        now_ms: u64,
        board: &mut Board,
        verdict: &mut Verdict,
    ) {
        match answer.status {
            304 => {
                verdict.check(Rule::Public, self.sent_tag, || "304 to a request without a tag".into());
                return;
            }
            200 => {}
            429 | 503 => {
                verdict.check(Rule::RetryAfter, answer.retry_after_seconds.is_some(), || {
                    format!("public status: {} without Retry-After", answer.status)
                });
                return;
            }
            other => {
                verdict
                    .check(Rule::Contract, false, || format!("public status: {other} {}", answer.excerpt()));
                return;
            }
        }
        self.check_public(answer, verdict);
        match answer.json::<Public<'_>>() {
            Ok(public) => note(&public, sale, now_ms, board, verdict),
            Err(words) => {
                verdict.check(Rule::Shape, false, || format!("public status: {words}"));
            }
        }
    }

    fn check_public(&mut self, answer: &Answer, verdict: &mut Verdict) {
        let (cache, etag) = (answer.cache, answer.etag.clone());
        let is_shared = cache.public && !cache.private && !cache.no_store && answer.varies_by_authorization;
        verdict.check(Rule::Public, is_shared && etag.is_some() && !answer.sets_cookie, || {
            format!("public status: {cache:?}, ETag {etag:?}, cookie set: {}", answer.sets_cookie)
        });
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let personal =
            ["number", "people_ahead", "state", "ticket"].into_iter().find(|name| body.get(name).is_some());
        verdict.check(Rule::Public, personal.is_none(), || {
            format!("the public status has a personal member: {personal:?}")
        });
        let Some(etag) = etag else { return };
        if let Some(copy) = self.copy.as_ref().filter(|copy| copy.etag == etag) {
            verdict
                .check(Rule::Public, copy.body == answer.body, || format!("two bodies under the tag {etag}"));
        }
        self.copy = Some(Copy { etag, body: answer.body.clone() });
    }
}

fn note(public: &Public<'_>, sale: &str, now_ms: u64, board: &mut Board, verdict: &mut Verdict) {
    let at_micros = micros_of(&public.server_time);
    let fits = public.sale == sale && at_micros.is_some() && (1..=600_000).contains(&public.poll_after_ms);
    verdict.check(Rule::Shape, fits, || {
        format!(
            "public status: sale {}, poll_after_ms {}, server_time {}",
            public.sale, public.poll_after_ms, public.server_time
        )
    });
    board.see(public.snapshot, public.now_serving, now_ms, verdict);
    board.phase = Some(public.phase);
    board.is_lottery = public.queueing_method == "lottery";
    board.items = public.items.iter().map(|item| item.item.as_ref().to_owned()).collect();
    if let Some(at_micros) = at_micros {
        board.pace(at_micros, public.now_serving, public.admissions_per_minute, verdict);
    }
}
