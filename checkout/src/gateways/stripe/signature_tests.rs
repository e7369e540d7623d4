use proptest::prelude::*;

use super::*;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEXT: &str = "whsec_the_secret_that_comes_after_it_0123";
const BODY: &[u8] = br#"{"id":"evt_1","object":"event"}"#;
/// Each made without this code: `printf '<time>.<body>' | openssl dgst -sha256 -hmac <secret>`.
const VECTORS: [(&str, &str, &[u8], &str); 5] = [
    (SECRET, "1492774577", BODY, "eab0cf207f248c2fd76ca97d9a7f0e43e325141451e9577bbfde1634f05b59db"),
    (SECRET, "1492774577", b"", "31a4ab455e1d44ff1f46f4ee0b776e8feab5b345bf637769a1b2649f9d9a1ca1"),
    (NEXT, "1492774577", BODY, "ff81b95a4e4b85e209a4a5d0179cb5f714ae983ba036cc0880b6901257441708"),
    (
        SECRET,
        "1800000000",
        "{\n  \"name\": \"Grüße, 日本\"\n}".as_bytes(),
        "2923ad172c13adeb40498815b909b650208dfbe415871d6d557dc9253a326dca",
    ),
    (SECRET, "0", b"\x00\xff.\n", "944df1ddf194594fd41f2ce731db5571f0496b0438d51e29e2f028c2fbf7c170"),
];
const GOOD: &str = VECTORS[0].3;
const AT: i64 = 1_492_774_577;

fn check_with(secrets: &[&str], header: &[u8], body: &[u8], now: i64) -> Result<(), WebhookError> {
    let mut headers = HeaderMap::new();
    headers.insert(SIGNATURE, http::HeaderValue::from_bytes(header).unwrap());
    let secrets = secrets.iter().map(|secret| secret.as_bytes());
    verify(secrets, &headers, body, Timestamp::from_seconds(now))
}

fn check(header: &str, body: &[u8], now: i64) -> Result<(), WebhookError> {
    check_with(&[SECRET], header.as_bytes(), body, now)
}

#[test]
fn the_vectors_verify_and_nothing_else_does() {
    for (n, (secret, time, body, mac)) in VECTORS.iter().enumerate() {
        let header = format!("t={time},v1={mac}");
        let at = time.parse().unwrap();
        assert_eq!(check_with(&[secret], header.as_bytes(), body, at), Ok(()), "vector {n}");
        let other = if *secret == SECRET { NEXT } else { SECRET };
        let foreign = check_with(&[other], header.as_bytes(), body, at);
        assert_eq!(foreign, Err(WebhookError::Signature), "vector {n}");
        let longer = [body, &b" "[..]].concat();
        assert_eq!(check_with(&[secret], header.as_bytes(), &longer, at), Err(WebhookError::Signature));
    }
    let later = format!("t={},v1={GOOD}", AT + 1);
    assert_eq!(check(&later, BODY, AT), Err(WebhookError::Signature), "the time is signed, too");
}

#[test]
fn the_time_may_differ_by_five_minutes_either_way() {
    let header = format!("t={AT},v1={GOOD}");
    for (now, expected) in [
        (AT - 301, Err(WebhookError::Time)),
        (AT - 300, Ok(())),
        (AT, Ok(())),
        (AT + 300, Ok(())),
        (AT + 301, Err(WebhookError::Time)),
    ] {
        assert_eq!(check(&header, BODY, now), expected, "{}", now - AT);
    }
    let forged = format!("t={AT},v1={}", "0".repeat(64));
    assert_eq!(
        check(&forged, BODY, AT + 9_999),
        Err(WebhookError::Signature),
        "what is forged is told no more"
    );
}

#[test]
fn a_secret_may_be_rotated_on_either_side() {
    let new = VECTORS[2].3;
    let both = format!(
        "t={AT},v1={new},v1={GOOD},v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39"
    );
    assert_eq!(check(&both, BODY, AT), Ok(()));
    let only_new = format!("t={AT},v1={new}");
    assert_eq!(check(&only_new, BODY, AT), Err(WebhookError::Signature));
    assert_eq!(check_with(&[SECRET, NEXT], only_new.as_bytes(), BODY, AT), Ok(()));
    assert_eq!(check_with(&[], both.as_bytes(), BODY, AT), Err(WebhookError::Signature));
    let crowd = format!("t={AT}{},v1={GOOD}", format!(",v1={}", "0".repeat(64)).repeat(16));
    assert_eq!(check(&crowd, BODY, AT), Err(WebhookError::Signature), "the seventeenth is not looked at");
}

#[test]
fn s2_malformed_headers_are_refused() {
    let headers = [
        "".to_owned(),
        ",".to_owned(),
        "=".to_owned(),
        "t".to_owned(),
        "t=".to_owned(),
        format!("t={AT}"),
        format!("t={AT},"),
        format!("t={AT},v0={GOOD}"),
        format!("t={AT},V1={GOOD}"),
        format!("t={AT}, v1={GOOD}"),
        format!("t={AT};v1={GOOD}"),
        format!("t={AT} v1={GOOD}"),
        format!("t={AT},v1"),
        format!("t={AT},v1={GOOD},"),
        format!(",t={AT},v1={GOOD}"),
        format!("v1={GOOD}"),
        format!("t=,v1={GOOD}"),
        format!("t=+{AT},v1={GOOD}"),
        format!("t=-{AT},v1={GOOD}"),
        format!("t= {AT},v1={GOOD}"),
        format!("t={AT} ,v1={GOOD}"),
        format!("t={AT}.0,v1={GOOD}"),
        format!("t=0x58fa0f31,v1={GOOD}"),
        format!("t=1e9,v1={GOOD}"),
        format!("t=9999999999999,v1={GOOD}"),
        format!("t={AT},t={AT},v1={GOOD}"),
        format!("t={AT},t=1,v1={GOOD}"),
        format!("T={AT},v1={GOOD}"),
        format!("\"t={AT},v1={GOOD}\""),
        format!("t={AT},v1={GOOD},x={}", "x".repeat(2_048)),
    ];
    for header in &headers {
        assert_eq!(check(header, BODY, AT), Err(WebhookError::Headers), "{header}");
    }
    let not_text = [format!("t={AT},v1={GOOD},x=").as_bytes(), b"\xff"].concat();
    assert_eq!(check_with(&[SECRET], &not_text, BODY, AT), Err(WebhookError::Headers));
    let none = verify([SECRET.as_bytes()], &HeaderMap::new(), BODY, Timestamp::from_seconds(AT));
    assert_eq!(none, Err(WebhookError::Headers));
    let mut twice = HeaderMap::new();
    for _ in 0..2 {
        twice.append(SIGNATURE, format!("t={AT},v1={GOOD}").parse().unwrap());
    }
    let twice = verify([SECRET.as_bytes()], &twice, BODY, Timestamp::from_seconds(AT));
    assert_eq!(twice, Err(WebhookError::Headers));
}

#[test]
fn s2_signatures_of_another_form_are_no_signatures() {
    let upper = GOOD.to_ascii_uppercase();
    for value in
        ["", "0", "zz", &GOOD[1..], &upper, &format!("{GOOD}0"), &format!("{GOOD}="), &format!(" {GOOD}")]
    {
        let header = format!("t={AT},v1={value}");
        assert_eq!(check(&header, BODY, AT), Err(WebhookError::Signature), "{value}");
    }
}

proptest! {
    #[test]
    fn what_is_signed_verifies_and_one_changed_bit_does_not(
        body in proptest::collection::vec(any::<u8>(), 1..200), bit in any::<usize>(), at in 0_i64..99_999_999_999,
    ) {
        let header = format!("t={at},v1={}", mac(SECRET.as_bytes(), &at.to_string(), &body).unwrap());
        prop_assert_eq!(check(&header, &body, at), Ok(()));
        let mut other = body;
        let bit = bit % (other.len() * 8);
        other[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(check(&header, &other, at), Err(WebhookError::Signature));
    }

    #[test]
    fn no_header_makes_it_panic(header in "[ -~]{0,120}", tail in "(t=[0-9]{0,14}|,|=|v1=[0-9a-f]{0,70}){0,6}") {
        prop_assert!(check(&header, BODY, AT).is_err());
        prop_assert!(check(&tail, BODY, AT).is_err());
    }
}
