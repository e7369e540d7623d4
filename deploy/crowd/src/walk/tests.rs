use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};

use super::*;

fn answer(status: u16, media_type: &'static str, body: &str) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    Answer::new(status, &headers, Bytes::copy_from_slice(body.as_bytes()))
}

fn refused(status: u16, code: &str) -> Answer {
    let body = format!(r#"{{"status":{status},"code":"{code}","detail":"Not so."}}"#);
    answer(status, "application/problem+json", &body)
}

/// Somebody who has left.
fn leaver(step: Step) -> Shopper {
    let mut shopper = Shopper::new(Habit::Leaver, 0, 7);
    (shopper.step, shopper.asked_leave, shopper.state) = (step, true, Some(State::Waiting));
    shopper
}

/// What the shopper makes of the answers, one after another; how long that took, and what was found.
fn walked(shopper: &mut Shopper, answers: &[&Answer]) -> (Next, u64, Verdict) {
    let manners = Manners {
        follows_public_status: false,
        buys: false,
        think_ms_max: 0,
        sale: "test".into(),
        authority: String::new(),
    };
    let (mut board, mut verdict) = (Board::new(None), Verdict::default());
    let (mut purchases, mut entered, mut admitted) = (HashMap::new(), 0, 0);
    let (mut now_ms, mut next) = (0, Next::Done(End::Gone));
    for answer in answers {
        let mut scene = Scene {
            who: 1,
            now_ms,
            board: &mut board,
            verdict: &mut verdict,
            manners: &manners,
            purchases: &mut purchases,
            entered: &mut entered,
            admitted: &mut admitted,
        };
        next = shopper.take(answer, &mut scene);
        if let Next::After(wait, step) = next {
            (now_ms, shopper.step) = (now_ms + wait, step);
        }
    }
    (next, now_ms, verdict)
}

#[test]
fn a_process_that_has_not_heard_of_the_leaving_is_asked_again_for_three_seconds() {
    let (waits, left) = (refused(409, "not_your_turn"), refused(410, "left"));
    let (next, _, verdict) = walked(&mut leaver(Step::AdmitAfterLeaving), &[&waits, &waits, &left]);
    assert_eq!((next, verdict.broken_total()), (Next::Done(End::Left), 0));
    let (next, ms, verdict) = walked(&mut leaver(Step::AdmitAfterLeaving), &[&waits; 7]);
    assert_eq!(next, Next::Done(End::Left));
    assert!((2_400..=3_600).contains(&ms), "{ms} ms");
    assert_eq!((verdict.broken(Rule::Contract), verdict.broken(Rule::Edges)), (1, 1));
    let token = answer(200, "application/json", "{}");
    let (_, _, verdict) = walked(&mut leaver(Step::AdmitAfterLeaving), &[&token]);
    assert_eq!(verdict.broken(Rule::Edges), 1, "a token is no lag");
}

#[test]
fn a_status_that_has_not_heard_of_the_leaving_is_asked_again_for_three_seconds() {
    let status = |state: &str| {
        let body = format!(
            r#"{{"sale":"test","phase":"open","state":"{state}","snapshot":1,"now_serving":0,"number":5,
                "people_ahead":4,"poll_after_ms":1000,"server_time":"2026-12-01T10:00:00.000Z"}}"#
        );
        answer(200, "application/json", &body)
    };
    let (waits, left) = (status("waiting"), status("left"));
    let (next, _, verdict) = walked(&mut leaver(Step::LastStatus), &[&waits, &left]);
    assert_eq!((next, verdict.broken_total()), (Next::After(0, Step::AdmitAfterLeaving), 0));
    let (_, ms, verdict) = walked(&mut leaver(Step::LastStatus), &[&waits; 7]);
    assert!((2_400..=3_600).contains(&ms), "{ms} ms");
    assert_eq!(verdict.broken(Rule::Edges), 1);
}
