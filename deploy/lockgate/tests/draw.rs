//! A draw of 10,000 through the real binary, verified by `lockgate draw verify` and by the script in `deploy/docs`,
//! which share no line of code.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::{path::Path, process::Command};

use common::{Folder, Lockgate, OPERATOR_KEY, Stores, client, command, now_seconds};
use lockgate_shared::testing::eventually;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

const TICKETS: usize = 10_000;
const AT_ONCE: usize = 16;

/// A lottery of uneven lanes that admits next to nobody, opening `seconds` from now.
fn lottery(seconds: i64) -> String {
    let at = |seconds: i64| jiff::Timestamp::from_second(now_seconds() + seconds).unwrap();
    format!(
        "id = \"lots\"\nname = \"Lots\"\ndoors_open_at = {}\nopens_at = {}\ncloses_at = {}\n\
         queueing_method = \"lottery\"\nlanes = 7\n[lottery]\nbeacon = \"operator\"\n[admission]\n\
         rate_per_minute = 60\nburst = 1\n[[items]]\nitem = \"phone\"\nname = \"Phone\"\nstock = 5\nprice = 49900\n\
         currency = \"EUR\"\n",
        at(-60),
        at(seconds),
        at(7_200),
    )
}

/// Does something for every one of `inputs`, many at once; what came of each, in their order.
async fn for_all<I, O, F>(inputs: Vec<I>, act: impl Fn(Client, I) -> F + Clone + Send + 'static) -> Vec<O>
where
    I: Clone + Send + Sync + 'static,
    O: Send + 'static,
    F: Future<Output = O> + Send,
{
    let client = client();
    let mut workers = Vec::new();
    for part in inputs.chunks(inputs.len().div_ceil(AT_ONCE)) {
        let (part, client, act) = (part.to_vec(), client.clone(), act.clone());
        workers.push(tokio::spawn(async move {
            let mut done = Vec::new();
            for input in part {
                done.push(act(client.clone(), input).await);
            }
            done
        }));
    }
    let mut all = Vec::new();
    for worker in workers {
        all.extend(worker.await.unwrap());
    }
    all
}

async fn enter(client: Client, base: String) -> String {
    let answer = client.post(format!("{base}/sale/lots/enter")).json(&json!({})).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED);
    answer.json::<Value>().await.unwrap()["ticket"].as_str().unwrap().to_owned()
}

/// The ticket's pool, entry and number, as its owner would write them down.
async fn shown(client: Client, (base, ticket): (String, String)) -> String {
    let answer = client.get(format!("{base}/sale/lots/status")).bearer_auth(ticket).send().await.unwrap();
    let status: Value = answer.json().await.unwrap();
    let draw = &status["draw"];
    json!({"pool": draw["pool"], "entry": draw["entry"], "number": status["number"]}).to_string()
}

async fn record(base: &str) -> Value {
    client().get(format!("{base}/sale/lots/draw")).send().await.unwrap().json().await.unwrap()
}

/// Makes a draw of 10,000: the record, the tickets, and what each was shown.
async fn drawn(lockgate: &Lockgate, folder: &Folder) -> (Value, Vec<String>, Vec<String>) {
    let base = lockgate.base.clone();
    let promised = record(&base).await;
    assert_eq!(promised["drawn"], false);
    let tickets = for_all(vec![base.clone(); TICKETS], enter).await;
    let file = folder.write("lots-now.toml", &lottery(-1));
    let arguments = ["sale", "apply", file.to_str().unwrap(), "--url", &base, "--key", OPERATOR_KEY];
    assert!(command(&arguments).output().unwrap().status.success());
    eventually("the pools freeze", 20, async || record(&base).await["pools"].is_array()).await;
    let draw = ["sale", "draw", "lots", "--beacon", "8ef1", "--url", &base, "--key", OPERATOR_KEY];
    let output = command(&draw).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually("the draw is made", 20, async || record(&base).await["drawn"] == true).await;
    let public = record(&base).await;
    assert_eq!((&public["commitment"], public["beacon"].as_str()), (&promised["commitment"], Some("8ef1")));
    let pairs = tickets.iter().map(|ticket| (base.clone(), ticket.clone())).collect();
    let shown = for_all(pairs, shown).await;
    (public, tickets, shown)
}

/// How both verifiers end, and what they say.
fn verify(record: &Path, tickets: Option<&Path>) -> [(bool, String); 2] {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/verify_draw.py");
    let mut ours = command(&["draw", "verify", "--record", record.to_str().unwrap()]);
    let mut python = Command::new("python3");
    python.arg(script).arg(record);
    if let Some(tickets) = tickets {
        ours.args(["--tickets", tickets.to_str().unwrap()]);
        python.arg(tickets);
    }
    [ours, python].map(|mut command| {
        let output = command.output().expect("python3 must be installed: run deploy/test");
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
        (output.status.success(), said)
    })
}

/// Every field of the record, changed so that nothing else is.
fn changed(record: &Value) -> Vec<(String, Value)> {
    let record = record.as_object().unwrap();
    let alter = |name: &str, value: &Value| match value {
        Value::Bool(value) => json!(!value),
        Value::Array(sizes) => {
            let mut sizes: Vec<u64> = sizes.iter().map(|size| size.as_u64().unwrap()).collect();
            (sizes[0], sizes[1]) = (sizes[0] + 1, sizes[1] - 1);
            json!(sizes)
        }
        Value::String(text) => {
            // The last digit; a time ends with its zone.
            let at = text.len() - if name.ends_with("_at") { 2 } else { 1 };
            let digit = if text[at..].starts_with('0') { "1" } else { "0" };
            json!(format!("{}{digit}{}", &text[..at], &text[at + 1..]))
        }
        other => panic!("{name}: {other}"),
    };
    record
        .iter()
        .map(|(name, value)| {
            let mut record = record.clone();
            record.insert(name.clone(), alter(name, value));
            (name.clone(), Value::Object(record))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draw_of_10_000_verifies_ticket_by_ticket_and_every_change_is_caught() {
    let folder = Folder::new();
    let (data, file) = (folder.data(), folder.write("lots.toml", &lottery(3_600)));
    let arguments = ["--data", data.to_str().unwrap(), "--sale", file.to_str().unwrap()];
    let lockgate = Lockgate::start(&arguments, &Stores::Sqlite.environment()).await;
    let (public, held, tickets) = drawn(&lockgate, &folder).await;
    let record = folder.write("record.json", &public.to_string());
    let all = folder.write("tickets.jsonl", &tickets.join("\n"));
    for (sound, said) in verify(&record, Some(&all)) {
        assert!(sound, "{said}");
        assert!(said.contains("10000 entries") && said.contains("10000 tickets"), "{said}");
    }
    let address = lockgate.url("/sale/lots/draw");
    let commitment = public["commitment"].as_str().unwrap();
    let online = ["draw", "verify", "--record", &address, "--commitment", commitment];
    assert!(command(&online).output().unwrap().status.success());
    let capitals = commitment.to_uppercase();
    let loud = ["draw", "verify", "--record", &address, "--commitment", &capitals];
    assert!(command(&loud).output().unwrap().status.success(), "hex digits have two cases");
    let other = command(&["draw", "verify", "--record", &address, "--commitment", "00"]).output().unwrap();
    assert_eq!(other.status.code(), Some(1));

    for (field, record) in changed(&public) {
        let path = folder.write("changed.json", &record.to_string());
        for (sound, said) in verify(&path, None) {
            assert!(!sound, "{field} was changed, and nobody noticed: {said}");
        }
    }
    let mut vast = public.clone();
    vast["pools"] = json!([4_294_967_295_u64]);
    let path = folder.write("vast.json", &vast.to_string());
    for (sound, said) in verify(&path, None) {
        assert!(!sound && said.contains("pools"), "{said}");
    }
    for missing in ["checksum", "frozen_at", "drawn_at", "seed"] {
        let mut record = public.clone();
        record.as_object_mut().unwrap().remove(missing);
        let path = folder.write("missing.json", &record.to_string());
        for (sound, said) in verify(&path, None) {
            assert!(!sound && said.contains(missing), "{missing} was removed: {said}");
        }
    }
    let mut numbers: Vec<Value> = tickets.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let moved = numbers[0]["number"].as_u64().unwrap() % 10_000 + 1;
    numbers[0]["number"] = moved.into();
    let lines: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    let wrong = folder.write("wrong.jsonl", &lines.join("\n"));
    for (sound, said) in verify(&record, Some(&wrong)) {
        assert!(!sound && said.contains("tickets, line 1: number"), "{said}");
    }

    // Nothing of it hangs on the process that made it.
    lockgate.kill();
    let after = Lockgate::start(&arguments[..2], &Stores::Sqlite.environment()).await;
    let base = after.base.clone();
    eventually("the draw is known again", 20, async || self::record(&base).await == public).await;
    let sample: Vec<usize> = (0..TICKETS).step_by(97).collect();
    let pairs = sample.iter().map(|n| (base.clone(), held[*n].clone())).collect();
    let again = for_all(pairs, shown).await;
    assert!(sample.iter().zip(&again).all(|(n, line)| tickets[*n] == *line), "numbers are final");
    assert!(after.terminate().await.success());
}
