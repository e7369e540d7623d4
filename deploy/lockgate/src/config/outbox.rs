//! The settings of mails to buyers (`mail.`) and of webhooks to the shop (`shop.`). Of each either none is written, or all
//! that have no default.

use lockgate_checkout::outbox::{
    MailSettings, OutboxSettings, SmtpServer, WebhookSecret, WebhookSettings, check_mailbox,
    check_webhook_url,
};

use super::{Config, ConfigProblem, Setting, put, secret, setting};

const SMTP_URL: &str = "give smtps://user:password@host:465, or smtp://user:password@host:587 for a server that offers STARTTLS; \
     best as LOCKGATE_MAIL__SMTP_URL";
const FROM: &str = "give an address such as \"Shop <orders@shop.example>\"";
const WEBHOOK_URL: &str = "give the shop's https address, such as https://shop.example/lockgate";
const WEBHOOK_SECRET: &str = "give whsec_ and the base64 of 24 to 64 random bytes (`echo whsec_$(openssl rand -base64 32)`), best as \
     LOCKGATE_SHOP__WEBHOOK_SECRET";

/// What was written so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    server: Option<SmtpServer>,
    from: Option<String>,
    reply_to: Option<String>,
    webhook_url: Option<String>,
    webhook_secret: Option<WebhookSecret>,
    webhook_secret_next: Option<WebhookSecret>,
}

/// Settings that begin with `mail.` and `shop.`.
pub(super) const SETTINGS: &[Setting] = &[
    secret("mail.smtp_url", SMTP_URL, |c, v| put(&mut c.outbox.server, SmtpServer::parse(v).map(Some))),
    setting("mail.from", FROM, |c, v| put(&mut c.outbox.from, check_mailbox(v).map(Some))),
    setting("mail.reply_to", FROM, |c, v| put(&mut c.outbox.reply_to, check_mailbox(v).map(Some))),
    setting("shop.webhook_url", WEBHOOK_URL, |c, v| {
        put(&mut c.outbox.webhook_url, check_webhook_url(v).map(Some))
    }),
    secret("shop.webhook_secret", WEBHOOK_SECRET, |c, v| {
        put(&mut c.outbox.webhook_secret, WebhookSecret::parse(v).map(Some))
    }),
    secret("shop.webhook_secret_next", WEBHOOK_SECRET, |c, v| {
        put(&mut c.outbox.webhook_secret_next, WebhookSecret::parse(v).map(Some))
    }),
];

impl Draft {
    /// What is missing although something was written.
    pub(super) fn problems(&self) -> Vec<ConfigProblem> {
        let Self { server, from, reply_to, webhook_url, webhook_secret, webhook_secret_next } = self;
        let mails = [("mail.smtp_url", SMTP_URL, server.is_some()), ("mail.from", FROM, from.is_some())];
        let hooks = [
            ("shop.webhook_url", WEBHOOK_URL, webhook_url.is_some()),
            ("shop.webhook_secret", WEBHOOK_SECRET, webhook_secret.is_some()),
        ];
        let groups = [(mails, reply_to.is_some()), (hooks, webhook_secret_next.is_some())];
        let begun = groups
            .into_iter()
            .filter(|(needed, others)| *others || needed.iter().any(|(.., is_there)| *is_there));
        begun
            .flat_map(|(needed, _)| needed)
            .filter(|(.., is_there)| !is_there)
            .map(|(key, remedy, _)| ConfigProblem {
                place: "configuration".into(),
                key: key.into(),
                problem: "is missing, and has no default".into(),
                remedy: remedy.into(),
            })
            .collect()
    }
}

impl Config {
    /// The outbox, as far as it is set up.
    pub fn outbox(&self) -> OutboxSettings {
        let draft = &self.outbox;
        let mail = draft.server.clone().zip(draft.from.clone()).map(|(server, from)| MailSettings {
            server,
            from,
            reply_to: draft.reply_to.clone(),
        });
        let webhook = draft.webhook_url.clone().zip(draft.webhook_secret.clone()).map(|(url, secret)| {
            let secrets = std::iter::once(secret).chain(draft.webhook_secret_next.clone()).collect();
            WebhookSettings { url, secrets }
        });
        OutboxSettings { mail, webhook, ..OutboxSettings::default() }
    }
}

/// An example of each setting here.
#[cfg(test)]
pub(super) const EXAMPLES: [(&str, &str); 6] = [
    ("mail.smtp_url", "smtps://user:password@mail.example:465"),
    ("mail.from", "Shop <orders@shop.example>"),
    ("mail.reply_to", "help@shop.example"),
    ("shop.webhook_url", "https://shop.example/lockgate"),
    ("shop.webhook_secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("shop.webhook_secret_next", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
];

#[cfg(test)]
mod tests {
    use super::super::load;
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn loaded(file: &str) -> Result<Config, String> {
        load(Some(("f.toml", file)), std::iter::empty(), &[])
            .map_err(|problems| problems.iter().map(|problem| format!("{problem}\n")).collect())
    }

    #[test]
    fn nothing_is_set_up_unless_written_and_no_secret_is_shown() {
        assert!(!loaded("").unwrap().outbox().wants().any());
        let config = loaded(&format!(
            "[mail]\nsmtp_url = \"smtps://shop:hunter%4022@mail.example\"\nfrom = \"Shop <a@shop.example>\"\n\
             [shop]\nwebhook_url = \"https://shop.example/hook?of=lockgate\"\nwebhook_secret = \"{SECRET}\"\n\
             webhook_secret_next = \"{SECRET}\"\n"
        ))
        .unwrap();
        let outbox = config.outbox();
        assert_eq!(outbox.webhook.as_ref().unwrap().secrets.len(), 2);
        assert_eq!(format!("{:?}", outbox.mail.as_ref().unwrap().server), "mail.example:465 (Tls)");
        let shown = format!("{config:?} {outbox:?}");
        assert!(!shown.contains("hunter") && !shown.contains("MfKQ"), "{shown}");
    }

    #[test]
    fn every_slip_and_every_gap_is_named_and_no_secret_shown() {
        let told =
            loaded("[mail]\nreply_to = \"a@shop.example\"\n[shop]\nwebhook_url = \"https://x.example\"\n");
        let told = told.unwrap_err();
        for word in ["mail.smtp_url: is missing", "mail.from: is missing", "shop.webhook_secret: is missing"]
        {
            assert!(told.contains(word), "{word}: {told}");
        }
        let told = loaded(
            "[mail]\nsmtp_url = \"imap://shop:hunter22@mail.example\"\nfrom = \"nobody\"\n\
             [shop]\nwebhook_url = \"http://shop.example\"\nwebhook_secret = \"whsec_c2hvcnQtc2VjcmV0\"\n\
             webhook_secrets = \"x\"\n",
        )
        .unwrap_err();
        for word in
            ["smtp://", "'nobody'", "unencrypted", "has 12 bytes", "did you mean 'shop.webhook_secret'"]
        {
            assert!(told.contains(word), "{word}: {told}");
        }
        assert!(!told.contains("hunter22") && !told.contains("c2hvcnQ"), "{told}");
        for bad in [
            "smtp://user@host",
            "smtp://",
            "smtps://a:b@",
            "smtp://a:%zz@host",
            "smtp://host/x",
            "smtp://host:0",
        ] {
            let told =
                loaded(&format!("[mail]\nsmtp_url = \"{bad}\"\nfrom = \"a@b.example\"\n")).unwrap_err();
            assert!(told.contains("mail.smtp_url") && (bad.len() < 8 || !told.contains(bad)), "{told}");
        }
    }
}
