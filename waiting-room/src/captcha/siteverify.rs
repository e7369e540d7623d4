//! Whoever can tell whether a CAPTCHA was solved, and the call that both providers have for it: `siteverify`.

use std::net::IpAddr;

use async_trait::async_trait;
use serde::Serialize;

use super::{ANSWER_BYTES_MAX, Judgement, Settings, judge};

/// Verifies responses.
#[async_trait]
pub trait Captcha: Send + Sync {
    /// Whether this response of the widget is a solved one. `address` is the shopper's.
    async fn verify(&self, response: &str, address: Option<IpAddr>) -> Judgement;
}

/// Verifies over HTTP.
pub struct SiteVerify {
    client: reqwest::Client,
    url: String,
    secret: String,
}

/// What is sent, as both document it.
#[derive(Serialize)]
struct Form<'a> {
    secret: &'a str,
    response: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remoteip: Option<IpAddr>,
}

impl SiteVerify {
    /// The call as `settings` have it.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        // Not sent twice: the second time the provider would call the response used.
        let client = reqwest::Client::builder()
            .timeout(settings.timeout)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { client, url: settings.verify_url.clone(), secret: settings.secret.clone() })
    }

    async fn ask(&self, form: &Form<'_>) -> Result<Judgement, reqwest::Error> {
        let mut answer = self.client.post(&self.url).form(form).send().await?;
        let status = answer.status().as_u16();
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await? {
            if body.len() + part.len() > ANSWER_BYTES_MAX {
                return Ok(Judgement::Unusable(format!(
                    "its answer is larger than {ANSWER_BYTES_MAX} bytes"
                )));
            }
            body.extend_from_slice(&part);
        }
        Ok(judge(status, &body))
    }
}

#[async_trait]
impl Captcha for SiteVerify {
    async fn verify(&self, response: &str, address: Option<IpAddr>) -> Judgement {
        let form = Form { secret: &self.secret, response, remoteip: address };
        match self.ask(&form).await {
            Ok(judgement) => judgement,
            Err(error) if error.is_timeout() => Judgement::Unreachable("it does not answer in time".into()),
            Err(error) if error.is_connect() => {
                Judgement::Unreachable("no connection to it can be made".into())
            }
            Err(_) => Judgement::Unreachable("the connection to it broke".into()),
        }
    }
}
