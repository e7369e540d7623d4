//! A shopper with a browser and without JavaScript buys a phone, in a real Chromium.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use common::{Folder, Lockgate, OPERATOR_KEY, client, eligibility, sale_file};
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use lockgate_shared::testing::{eventually, free_port};
use serde_json::json;
use tempfile::TempDir;

/// A Chromium of this test's own, with an empty profile.
struct Browser {
    driver: Child,
    client: Client,
    _profile: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    async fn start() -> Self {
        Self::start_with(false).await
    }

    async fn start_with(scripts: bool) -> Self {
        let port = free_port();
        let profile = tempfile::tempdir().unwrap();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver must be installed: run deploy/test");
        let options = json!({
            "args": [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
                "--disable-background-networking", "--disable-component-update", "--window-size=390,844",
                format!("--user-data-dir={}", profile.path().display()),
            ],
            "prefs": { "profile.managed_default_content_settings.javascript": if scripts { 1 } else { 2 } },
        });
        let capabilities: serde_json::Map<_, _> =
            [("goog:chromeOptions".to_owned(), options)].into_iter().collect();
        let url = format!("http://127.0.0.1:{port}");
        let mut client = None;
        eventually("chromedriver answers", 30, async || {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            client = builder.capabilities(capabilities.clone()).connect(&url).await.ok();
            client.is_some()
        })
        .await;
        Self { driver, client: client.unwrap(), _profile: profile }
    }

    /// Presses the button of the form that posts to an address with this ending; waits for it to appear, since
    /// pages without JavaScript refresh themselves.
    async fn press(&self, selector: &str) {
        let wait = self.client.wait().at_most(Duration::from_secs(30));
        wait.for_element(Locator::Css(selector)).await.unwrap_or_else(|error| panic!("{selector}: {error}"));
        // A refresh between finding and pressing makes the element stale; the next page has it again.
        eventually(&format!("{selector} can be pressed"), 15, async || {
            match self.client.find(Locator::Css(selector)).await {
                Ok(element) => element.click().await.is_ok(),
                Err(_) => false,
            }
        })
        .await;
    }

    /// Writes into a field.
    async fn fill(&self, selector: &str, text: &str) {
        self.client.find(Locator::Css(selector)).await.unwrap().send_keys(text).await.unwrap();
    }

    /// Keeps a picture of the page where `LOCKGATE_SCREENSHOTS` names a folder.
    async fn picture(&self, name: &str) {
        if let Some(folder) = std::env::var_os("LOCKGATE_SCREENSHOTS") {
            let png = self.client.screenshot().await.unwrap();
            std::fs::write(std::path::Path::new(&folder).join(format!("{name}.png")), png).unwrap();
        }
    }

    async fn text(&self) -> String {
        // While a page gives way to the next there is none, or one of the page before.
        let main = self.client.wait().for_element(Locator::Css("main")).await.unwrap();
        main.text().await.unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shopper_without_javascript_buys_a_phone() {
    let folder = Folder::new();
    let file = folder.write("sale.toml", &sale_file("drop", "open", 5, 1, 600));
    let data = folder.data();
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--sale", file.to_str().unwrap()];
    let lockgate = Lockgate::start(&arguments, &[]).await;
    let browser = Browser::start().await;

    browser.client.goto(&lockgate.url("/")).await.unwrap();
    browser.picture("1-sales").await;
    browser.press("a[href$='/sale/drop']").await;
    browser.picture("2-sale").await;
    assert!(browser.client.get_all_cookies().await.unwrap().is_empty(), "the sale page sets no cookie");
    browser.press("form[action$='/sale/drop/enter'] button").await;
    browser.picture("3-queue").await;
    browser.press("form[action$='/sale/drop/admit'] button").await;
    browser.picture("4-checkout").await;
    browser.press("form[action$='/sale/drop/checkout'] button").await;
    browser.picture("5-order").await;
    browser.press("form[action$='/pay'] button").await;
    browser.picture("6-gateway").await;
    browser.press("button[name='outcome'][value='paid']").await;
    eventually("the order page says paid", 20, async || {
        browser.client.refresh().await.is_ok() && browser.text().await.to_lowercase().contains("paid")
    })
    .await;
    browser.picture("7-paid").await;
    let books = lockgate.books("drop").await;
    assert_eq!(books["items"][0]["sold"], 1, "{books}");
    browser.client.clone().close().await.unwrap();
}

async fn opened(folder: &Folder, entry: &str) -> Lockgate {
    let file = folder.write("sale.toml", &sale_file("club", entry, 5, 1, 600));
    let data = folder.data();
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--sale", file.to_str().unwrap()];
    Lockgate::start(&arguments, &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shopper_without_javascript_enters_by_a_code() {
    let folder = Folder::new();
    let lockgate = opened(&folder, "allowlist").await;
    let list = client()
        .post(lockgate.url("/operator/v1/sales/club/allowlist"))
        .bearer_auth(OPERATOR_KEY)
        .header("content-type", "text/csv")
        .body("SPRING-2026,ann@example.org\n");
    assert_eq!(list.send().await.unwrap().status(), 200);
    let browser = Browser::start().await;
    browser.client.goto(&lockgate.url("/sale/club")).await.unwrap();
    browser.picture("8-code").await;
    browser.fill("input[name='code']", "SPRING-2062").await;
    browser.fill("input[name='email']", "ann@example.org").await;
    browser.press("form[action$='/sale/club/enter'] button").await;
    eventually("the page says what to check", 15, async || {
        browser.text().await.contains("We could not find this code together with this e-mail address.")
    })
    .await;
    browser.picture("9-code-refused").await;
    browser.fill("input[name='code']", "SPRING-2026").await;
    browser.fill("input[name='email']", " Ann@Example.org").await;
    browser.press("form[action$='/sale/club/enter'] button").await;
    eventually("the queue page", 15, async || {
        browser.client.current_url().await.is_ok_and(|url| url.path() == "/sale/club/queue")
    })
    .await;
    browser.client.clone().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s6_a_pass_in_the_shops_link_fills_the_form_and_leaves_the_address() {
    let folder = Folder::new();
    let lockgate = opened(&folder, "eligibility").await;
    let browser = Browser::start_with(true).await;
    let link = format!("{}#eligibility={}", lockgate.url("/sale/club"), eligibility("ann", "club"));
    browser.client.goto(&link).await.unwrap();
    eventually("the pass has left the address", 15, async || {
        browser.client.current_url().await.is_ok_and(|url| url.fragment().is_none())
    })
    .await;
    browser.picture("10-pass").await;
    browser.press("form[action$='/sale/club/enter'] button").await;
    eventually("the queue page", 15, async || {
        browser.client.current_url().await.is_ok_and(|url| url.path() == "/sale/club/queue")
    })
    .await;
    let log = lockgate.log.lock().unwrap().clone();
    assert!(!log.contains("eyJ"), "no token reaches the log: {log}");
    browser.client.clone().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_does_the_work_while_its_shopper_reads_and_one_without_scripts_is_told() {
    let folder = Folder::new();
    let asks =
        sale_file("club", "open", 5, 1, 600) + "\n[proof_of_work]\ndifficulty = 5000\nwhen = \"always\"\n";
    let file = folder.write("sale.toml", &asks);
    let data = folder.data();
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--sale", file.to_str().unwrap()];
    let lockgate = Lockgate::start(&arguments, &[]).await;
    let browser = Browser::start_with(true).await;
    browser.client.goto(&lockgate.url("/sale/club")).await.unwrap();
    eventually("the work is done", 30, async || browser.text().await.contains("Your browser is ready."))
        .await;
    browser.picture("13-proof").await;
    browser.press("form[action$='/sale/club/enter'] button").await;
    eventually("the queue page", 15, async || {
        browser.client.current_url().await.is_ok_and(|url| url.path() == "/sale/club/queue")
    })
    .await;
    browser.client.clone().close().await.unwrap();

    let browser = Browser::start().await;
    browser.client.goto(&lockgate.url("/sale/club")).await.unwrap();
    browser.picture("14-proof-without-scripts").await;
    assert!(browser.text().await.contains("JavaScript"), "{}", browser.text().await);
    browser.press("form[action$='/sale/club/enter'] button").await;
    eventually("it says what is missing", 15, async || {
        browser.picture("15-proof-refused").await;
        browser.text().await.contains("JavaScript")
            && browser.client.current_url().await.is_ok_and(|url| url.path() == "/sale/club/enter")
    })
    .await;
    browser.client.clone().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_with_a_captcha_says_what_it_needs_and_keeps_its_form_usable() {
    let folder = Folder::new();
    let file = folder.write("sale.toml", &sale_file("club", "open", 5, 1, 600));
    let data = folder.data();
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--sale", file.to_str().unwrap()];
    // The provider is a closed port: the page must do without its widget.
    let settings = [
        ("LOCKGATE_CAPTCHA__PROVIDER", "turnstile".to_owned()),
        ("LOCKGATE_CAPTCHA__SITE_KEY", "1x00000000000000000000AA".to_owned()),
        ("LOCKGATE_CAPTCHA__SECRET", "a-secret-of-this-test".to_owned()),
        ("LOCKGATE_CAPTCHA__VERIFY_URL", format!("http://127.0.0.1:{}/siteverify", free_port())),
        ("LOCKGATE_CAPTCHA__WHEN_UNREACHABLE", "refuse".to_owned()),
    ];
    let lockgate = Lockgate::start(&arguments, &settings).await;
    let browser = Browser::start().await;
    browser.client.goto(&lockgate.url("/sale/club")).await.unwrap();
    browser.picture("11-captcha").await;
    assert!(browser.text().await.contains("This check needs JavaScript."));
    browser.press("form[action$='/sale/club/enter'] button").await;
    eventually("the page says what to do", 15, async || {
        browser.text().await.contains("The check that you are a person is not done yet")
    })
    .await;
    browser.picture("12-captcha-refused").await;
    assert!(!lockgate.log.lock().unwrap().contains("a-secret-of-this-test"));
    browser.client.clone().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_is_read_from_a_file_and_printed() {
    let folder = Folder::new();
    let lockgate = opened(&folder, "open").await;
    let mut shopper = common::Shopper::enter(&lockgate.base, "club", json!({})).await;
    shopper.admit().await;
    let won = shopper.checkout("k", 1).await.unwrap().json().await.unwrap();
    let won = common::Won { answer: won };
    shopper.pay(&won).await;
    eventually("it is sold", 15, async || lockgate.books("club").await["items"][0]["sold"] == 1).await;
    let page = client().get(lockgate.url("/operator/v1/sales/club/settlement?format=html"));
    let page = page.bearer_auth(OPERATOR_KEY).send().await.unwrap().text().await.unwrap();
    let file = folder.write("settlement.html", &page);
    let browser = Browser::start().await;
    browser.client.goto(&format!("file://{}", file.display())).await.unwrap();
    let text = browser.text().await;
    for words in ["Preliminary.", "Differences: 0 between the sums", "499.00 EUR", "Total EUR", "Signature"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    browser.picture("16-settlement-narrow").await;
    browser.client.set_window_size(1_000, 2_200).await.unwrap();
    browser.picture("17-settlement").await;
    let pdf =
        browser.client.print(fantoccini::wd::PrintConfiguration::builder().build().unwrap()).await.unwrap();
    assert!(pdf.starts_with(b"%PDF"));
    if let Some(folder) = std::env::var_os("LOCKGATE_SCREENSHOTS") {
        std::fs::write(std::path::Path::new(&folder).join("settlement.pdf"), &pdf).unwrap();
    }
    browser.client.clone().close().await.unwrap();
}
